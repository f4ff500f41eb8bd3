//! A request's headers together with the rule by which they are read, and the ways in which either can differ from
//! what the signer had: each twist makes settings that are one step away.

use std::collections::HashSet;

use super::body::percent_decoded;
use super::{Cause, shown};
use crate::provider::headers::Headers;
use crate::provider::signature::{
    Algorithm, Claim, Encoding, Format, Part, SignatureRule, TimestampRule, TimestampSource,
};

/// Headers and a rule under which the signature may fit.
#[derive(Debug, Clone)]
pub(super) struct Setting {
    pub(super) rule: SignatureRule,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// What was changed to get here.
    pub(super) causes: Vec<Cause>,
}

/// Makes all settings that differ from the given one in one way.
type Twist = fn(&Setting) -> Vec<Setting>;

/// The twists, the likeliest first.
const TWISTS: &[Twist] = &[
    renamed,
    one_of_repeated,
    other_encoding,
    other_labels,
    other_prefix,
    one_of_joined,
    rewritten_signature,
    other_algorithm,
    other_signed_content,
    other_signed_header,
    other_place_of_the_time,
    signature_elsewhere,
];

/// Headers that are tried in place of another, and the pieces of one that are tried: a request has a few.
const TRIED_MAX: usize = 32;

impl Setting {
    pub(super) fn of(rule: &SignatureRule, headers: &Headers<'_>) -> Self {
        let headers =
            headers.iter().map(|(name, value)| (name.to_ascii_lowercase(), value.to_vec())).collect();
        Self { rule: rule.clone(), headers, causes: Vec::new() }
    }

    pub(super) fn lines(&self) -> Headers<'_> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
    }

    /// All settings one step away.
    pub(super) fn twisted(&self) -> Vec<Self> {
        TWISTS.iter().flat_map(|twist| twist(self)).collect()
    }

    fn with(&self, cause: Cause, change: impl FnOnce(&mut Self)) -> Self {
        let mut changed = self.clone();
        change(&mut changed);
        changed.causes.push(cause);
        changed
    }

    /// The headers that the rule reads besides the signature's.
    fn other_names(&self) -> Vec<String> {
        let time = match &self.rule.timestamp {
            Some(TimestampRule { source: TimestampSource::Header(name), .. }) => Some(name.clone()),
            _ => None,
        };
        let signed = self.rule.signed.iter().filter_map(|part| match part {
            Part::Header(name) => Some(name.clone()),
            _ => None,
        });
        signed.chain(time).collect()
    }

    fn names(&self) -> Vec<String> {
        self.rule.headers.iter().cloned().chain(self.other_names()).collect()
    }

    fn has(&self, name: &str) -> bool {
        self.headers.iter().any(|(found, _)| found == name)
    }

    /// Where the signature header stands.
    fn signature(&self) -> Option<usize> {
        self.headers.iter().position(|(name, _)| self.rule.headers.contains(name))
    }

    fn signature_value(&self) -> Option<&[u8]> {
        self.signature().map(|line| self.headers[line].1.as_slice())
    }

    /// The lines that the rule does not read for its signature, their values short enough for one.
    fn other_lines(&self) -> impl Iterator<Item = &(String, Vec<u8>)> {
        self.headers
            .iter()
            .filter(|(name, value)| !self.rule.headers.contains(name) && value.len() <= 1024)
            .take(TRIED_MAX)
    }

    /// What decides whether a key's signature fits, the body left open; `None` where no key's can.
    fn fingerprint(&self) -> Option<Vec<u8>> {
        const BODY: &[u8] = b"\0body\0";
        let lines = self.lines();
        let claim = Claim::of(&self.rule, &lines, BODY).ok()?;
        let length = match self.rule.algorithm {
            Algorithm::HmacSha1 => 20,
            Algorithm::HmacSha256 => 32,
            Algorithm::HmacSha512 => 64,
        };
        let digests = claim.digests.iter().filter(|digest| digest.len() == length).collect::<Vec<_>>();
        (!digests.is_empty()).then(|| format!("{length}{digests:?}{:?}", claim.parts).into_bytes())
    }
}

/// Of many settings those under which some key's signature can fit, each once, and none that is as `setting`.
pub(super) fn worth_trying<'a>(setting: &Setting, settings: &'a [Setting]) -> Vec<&'a Setting> {
    let mut seen: HashSet<Vec<u8>> = setting.fingerprint().into_iter().collect();
    settings
        .iter()
        .filter(|setting| setting.fingerprint().is_some_and(|fingerprint| seen.insert(fingerprint)))
        .collect()
}

const HEADERS_WAY_OUT: &str = "let the proxy or framework before Wharf pass the headers on as they came";
const SENDER_WAY_OUT: &str = "let the sender sign as the provider's scheme says, or describe its own scheme in a \
    provider file (docs/PROVIDERS.md) and name that as the endpoint's provider";

/// A header's name without what gateway interfaces and proxies make of it: `HTTP_X_SIGN` is `sign`.
fn plain(name: &str) -> String {
    let mut name = name.to_ascii_lowercase().replace('_', "-");
    while let Some(rest) =
        ["http-", "x-", "original-", "forwarded-"].iter().find_map(|prefix| name.strip_prefix(prefix))
    {
        name = rest.to_owned();
    }
    name
}

/// The two sets of names that senders of Standard Webhooks use.
fn other_family(name: &str) -> Option<String> {
    let swap = |from, to: &str| name.strip_prefix(from).map(|rest| format!("{to}{rest}"));
    swap("webhook-", "svix-").or_else(|| swap("svix-", "webhook-"))
}

/// All headers that stand there under another name get their own.
fn renamed(setting: &Setting) -> Vec<Setting> {
    let in_this_way = |same: &dyn Fn(&str, &str) -> bool| {
        let mut headers = setting.headers.clone();
        let mut told = Vec::new();
        for wanted in setting.names() {
            if setting.has(&wanted) {
                continue;
            }
            for (name, _) in headers.iter_mut().filter(|(name, _)| same(name, &wanted)) {
                told.push(format!("`{wanted}` came as `{}`", shown(name.as_bytes())));
                name.clone_from(&wanted);
            }
        }
        let cause =
            || Cause::new("header-renamed", format!("the header {}", told.join(", ")), HEADERS_WAY_OUT);
        (!told.is_empty()).then(|| setting.with(cause(), |changed| changed.headers = headers))
    };
    let decorated = in_this_way(&|name, wanted| plain(name) == plain(wanted));
    let of_other_family = in_this_way(&|name, wanted| other_family(name).as_deref() == Some(wanted));
    decorated.into_iter().chain(of_other_family).collect()
}

/// Of every header that stands there more than once, one line stays: the first, or the last.
fn one_of_repeated(setting: &Setting) -> Vec<Setting> {
    let names = setting.names();
    let count = |name: &String| setting.headers.iter().filter(|(found, _)| found == name).count();
    let repeated: Vec<&String> = names.iter().filter(|name| count(name) > 1).collect();
    if repeated.is_empty() {
        return Vec::new();
    }
    let list = repeated.iter().map(|name| format!("`{name}`")).collect::<Vec<_>>().join(", ");
    let keeping = |which: &str, keeps: &dyn Fn(usize, &String) -> bool| {
        let what = format!("the header {list} stands in the request more than once; the {which} one fits");
        setting.with(Cause::new("header-repeated", what, HEADERS_WAY_OUT), |changed| {
            let lines = setting.headers.iter().enumerate();
            let kept = lines.filter(|(index, (name, _))| !repeated.contains(&name) || keeps(*index, name));
            changed.headers = kept.map(|(_, line)| line.clone()).collect();
        })
    };
    let is_name = |index: usize, name: &String| setting.headers[index].0 == *name;
    let lines = setting.headers.len();
    vec![
        keeping("first", &|index, name| !(0..index).any(|other| is_name(other, name))),
        keeping("last", &|index, name| !(index + 1..lines).any(|other| is_name(other, name))),
    ]
}

/// `A, A` is one `A` for all headers; what stands before or after any one comma is tried for the signature.
fn one_of_joined(setting: &Setting) -> Vec<Setting> {
    let names = setting.names();
    let cause = || {
        let what = "a header that stood there more than once was joined into one line by commas";
        Cause::new("header-joined", what, HEADERS_WAY_OUT)
    };
    let halved = setting.headers.iter().map(|(name, value)| {
        let half = half(value).filter(|_| names.contains(name)).unwrap_or(value);
        (name.clone(), half.to_vec())
    });
    let mut found = vec![setting.with(cause(), |changed| changed.headers = halved.collect())];
    let Some(line) = setting.signature() else { return found };
    let value = &setting.headers[line].1;
    let commas = value.iter().enumerate().filter(|(_, byte)| **byte == b',').map(|(index, _)| index);
    for comma in commas.take(TRIED_MAX / 2) {
        for piece in [&value[..comma], &value[comma + 1..]] {
            let piece = piece.trim_ascii().to_vec();
            found.push(setting.with(cause(), |changed| changed.headers[line].1 = piece));
        }
    }
    found
}

/// `A` of `A,A` and of `A, A`.
fn half(value: &[u8]) -> Option<&[u8]> {
    let middle = value.len() / 2;
    [middle.checked_sub(1)?, middle].into_iter().find_map(|comma| {
        let (first, second) = (value.get(..comma)?, value.get(comma + 1..)?);
        (value[comma] == b',' && first.trim_ascii() == second.trim_ascii()).then(|| first.trim_ascii())
    })
}

/// The signature is written with something around it or instead of some of its characters.
fn rewritten_signature(setting: &Setting) -> Vec<Setting> {
    let Some(line) = setting.signature() else { return Vec::new() };
    let value = &setting.headers[line].1;
    let without = |unwanted: &[u8]| value.iter().copied().filter(|byte| !unwanted.contains(byte)).collect();
    let mapped = |from: [u8; 2], to: [u8; 2]| -> Vec<u8> {
        let of = |byte: &u8| from.iter().position(|other| other == byte).map_or(*byte, |index| to[index]);
        value.iter().map(of).collect()
    };
    let tried: [(&str, &str, Vec<u8>); 5] = [
        ("signature-in-quotes", "the signature came in quotes", without(b"\"'")),
        ("signature-url-encoded", "the signature came URL-encoded (`%3D` for `=`)", percent_decoded(value)),
        ("signature-plus-lost", "the signature came with blanks for `+`", mapped([b' ', b' '], [b'+', b'+'])),
        ("signature-folded", "the signature came with blanks inside", without(b" \t")),
        (
            "signature-base64url",
            "the signature is written in the base64 of URLs (`-` and `_` for `+` and `/`)",
            mapped([b'-', b'_'], [b'+', b'/']),
        ),
    ];
    let changed = tried.into_iter().filter(|(_, _, new)| new != value);
    changed
        .map(|(name, what, new)| {
            let is_base64url = name == "signature-base64url";
            let way_out = if is_base64url { SENDER_WAY_OUT } else { HEADERS_WAY_OUT };
            setting.with(Cause::new(name, what, way_out), |changed| {
                changed.headers[line].1 = new;
                if is_base64url {
                    changed.rule.encoding = Encoding::Base64;
                }
            })
        })
        .collect()
}

fn other_encoding(setting: &Setting) -> Vec<Setting> {
    let (other, what) = match setting.rule.encoding {
        Encoding::Hex => (Encoding::Base64, "the signature is written in base64, not in hexadecimal"),
        Encoding::Base64 => (Encoding::Hex, "the signature is written in hexadecimal, not in base64"),
    };
    let cause = Cause::new("signature-encoding", what, SENDER_WAY_OUT);
    vec![setting.with(cause, |changed| changed.rule.encoding = other)]
}

/// The prefix of the signature is missing, or there is one that the scheme does not have.
fn other_prefix(setting: &Setting) -> Vec<Setting> {
    let Some(value) = setting.signature_value() else { return Vec::new() };
    let mut found = Vec::new();
    let mut try_prefix = |prefix: &[u8], what: String| {
        let Ok(prefix) = String::from_utf8(prefix.to_vec()) else { return };
        let format = Format::Plain { prefix };
        if format != setting.rule.format {
            let cause = Cause::new("signature-prefix", what, SENDER_WAY_OUT);
            found.push(setting.with(cause, |changed| changed.rule.format = format));
        }
    };
    let missing = match &setting.rule.format {
        Format::Plain { prefix } => format!("the signature came without the prefix `{prefix}`"),
        Format::Pairs { .. } | Format::Tagged { .. } => {
            "the signature came alone, without the names and fields of the scheme".to_owned()
        }
    };
    try_prefix(b"", missing);
    let is_label = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_');
    if let Some(end) = value.iter().take(16).position(|byte| !is_label(*byte)) {
        let prefix = &value[..=end];
        try_prefix(
            prefix,
            format!("the signature came behind `{}`, which the scheme has not", shown(prefix)),
        );
    }
    found
}

/// The fields of the header have other names, or other marks between them.
fn other_labels(setting: &Setting) -> Vec<Setting> {
    let Some(value) = setting.signature_value() else { return Vec::new() };
    let text = String::from_utf8_lossy(value);
    let try_format = |what: String, format: Format| {
        let cause = Cause::new("signature-label", what, SENDER_WAY_OUT);
        setting.with(cause, |changed| changed.rule.format = format)
    };
    let labels = |separator: char, end: char| -> Vec<String> {
        let items = text.split(separator).filter_map(move |item| item.trim().split_once(end));
        items.map(|(label, _)| label.to_owned()).take(TRIED_MAX).collect()
    };
    match &setting.rule.format {
        Format::Plain { .. } => Vec::new(),
        Format::Tagged { separator, tag_separator, tag } => labels(*separator, *tag_separator)
            .into_iter()
            .filter(|label| label != tag)
            .map(|label| {
                let what = format!("the signature is tagged `{}`, not `{tag}`", shown(label.as_bytes()));
                try_format(
                    what,
                    Format::Tagged { separator: *separator, tag_separator: *tag_separator, tag: label },
                )
            })
            .collect(),
        Format::Pairs { separator, signature, timestamp } => {
            let format =
                |(separator, signature, timestamp)| Format::Pairs { separator, signature, timestamp };
            let labels = labels(*separator, '=');
            let named = labels.iter().filter(|label| *label != signature).map(|label| {
                let what = format!("the signature is named `{}`, not `{signature}`", shown(label.as_bytes()));
                try_format(what, format((*separator, label.clone(), timestamp.clone())))
            });
            let time = timestamp.iter().flat_map(|time| {
                labels.iter().filter(move |label| *label != time).map(move |label| {
                    let what = format!("the time is named `{}`, not `{time}`", shown(label.as_bytes()));
                    try_format(what, format((*separator, signature.clone(), Some(label.clone()))))
                })
            });
            let marks = [',', ';', '&', ' ', '|'].into_iter().filter(|mark| mark != separator).map(|mark| {
                let what =
                    format!("the fields of the signature are parted by `{mark}`, not by `{separator}`");
                try_format(what, format((mark, signature.clone(), timestamp.clone())))
            });
            named.chain(time).chain(marks).collect()
        }
    }
}

fn other_algorithm(setting: &Setting) -> Vec<Setting> {
    let name = |algorithm| match algorithm {
        Algorithm::HmacSha256 => "SHA-256",
        Algorithm::HmacSha1 => "SHA-1",
        Algorithm::HmacSha512 => "SHA-512",
    };
    let ours = setting.rule.algorithm;
    [Algorithm::HmacSha256, Algorithm::HmacSha1, Algorithm::HmacSha512]
        .into_iter()
        .filter(|other| *other != ours)
        .map(|other| {
            let what = format!("the signature is made with {}, not with {}", name(other), name(ours));
            let cause = Cause::new("signature-algorithm", what, SENDER_WAY_OUT);
            setting.with(cause, |changed| changed.rule.algorithm = other)
        })
        .collect()
}

/// The body alone is signed, or the parts are put together otherwise.
fn other_signed_content(setting: &Setting) -> Vec<Setting> {
    let ours = &setting.rule.signed;
    let literal = |text: &str| Part::Literal(text.to_owned());
    let mut tried = vec![(
        "the body alone is signed, without what the scheme signs beside it".to_owned(),
        vec![Part::Body],
    )];
    for separator in ["", ".", ":", "\n", "|", "-", " "] {
        let with = |parts: &[Part]| -> Vec<Part> {
            let replaced = |part: &Part| {
                if matches!(part, Part::Literal(_)) { literal(separator) } else { part.clone() }
            };
            parts.iter().map(replaced).collect()
        };
        let named = format!("`{}`", separator.escape_default());
        tried.push((format!("the signed parts are parted by {named}"), with(ours)));
        if ours.contains(&Part::Timestamp) {
            let time_first = [Part::Timestamp, literal(separator), Part::Body];
            tried.push((
                format!("the time and the body are signed alone, parted by {named}"),
                time_first.to_vec(),
            ));
            let body_first = [Part::Body, literal(separator), Part::Timestamp];
            tried.push((
                format!("the body is signed before the time, parted by {named}"),
                body_first.to_vec(),
            ));
        }
    }
    tried
        .into_iter()
        .filter(|(_, parts)| parts != ours)
        .map(|(what, parts)| {
            let cause = Cause::new("signed-content", what, SENDER_WAY_OUT);
            setting.with(cause, |changed| changed.rule.signed = parts)
        })
        .collect()
}

/// A header that is signed had another value at the signer: empty, or what another header holds now.
fn other_signed_header(setting: &Setting) -> Vec<Setting> {
    let mut found = Vec::new();
    for (index, part) in setting.rule.signed.iter().enumerate() {
        let Part::Header(name) = part else { continue };
        let mut try_value = |cause: &'static str, what: String, value: &[u8]| {
            let Ok(value) = String::from_utf8(value.to_vec()) else { return };
            let cause = Cause::new(cause, what, HEADERS_WAY_OUT);
            found.push(setting.with(cause, |changed| changed.rule.signed[index] = Part::Literal(value)));
        };
        let empty = format!("the header `{name}` was empty where the request was signed");
        try_value("signed-header-changed", empty, b"");
        for (other, value) in setting.other_lines() {
            if other == name {
                let what = format!("the header `{name}` contains the mark that parts the signed content");
                try_value("signed-header-ambiguous", what, value);
            } else {
                let what =
                    format!("what was signed as the header `{name}` came as `{}`", shown(other.as_bytes()));
                try_value("signed-header-changed", what, value);
            }
        }
    }
    found
}

fn other_place_of_the_time(setting: &Setting) -> Vec<Setting> {
    let Some(TimestampRule { source: TimestampSource::Header(ours), .. }) = &setting.rule.timestamp else {
        return Vec::new();
    };
    setting
        .other_lines()
        .filter(|(name, _)| name != ours)
        .map(|(name, _)| {
            let what =
                format!("the time that was signed stands in `{}`, not in `{ours}`", shown(name.as_bytes()));
            setting.with(Cause::new("header-renamed", what, HEADERS_WAY_OUT), |changed| {
                if let Some(timestamp) = &mut changed.rule.timestamp {
                    timestamp.source = TimestampSource::Header(name.clone());
                }
            })
        })
        .collect()
}

fn signature_elsewhere(setting: &Setting) -> Vec<Setting> {
    let ours = &setting.rule.headers[0];
    setting
        .other_lines()
        .map(|(name, _)| {
            let what = format!("the signature stands in `{}`, not in `{ours}`", shown(name.as_bytes()));
            let cause = Cause::new("header-renamed", what, HEADERS_WAY_OUT);
            setting.with(cause, |changed| changed.rule.headers = vec![name.clone()])
        })
        .collect()
}
