//! A provider file as types, and how it is read: `[signature]`, `[event]`, `[answer]`, `[redelivery]`, `[export]`,
//! `[[on]]`.

use super::export::{ExportRule, read_export};
use super::mapping::{ChangeRule, Condition, On, Source, Test};
use super::mapping_file;
use super::pointer::Pointers;
use super::signature::{
    Algorithm, Encoding, Format, KeyDecoding, KeyRule, Part, SignatureRule, TimeFormat, TimestampRule,
    TimestampSource,
};
use crate::section::{Problem, Problems, Section};

/// A provider, described whole.
#[derive(Debug, Clone)]
pub struct Definition {
    /// The name that `wharf.toml` and the database use; the file's name without `.toml`.
    pub name: String,
    /// The name that people use.
    pub title: String,
    /// Pages of the provider that state the facts used here.
    pub documentation: Vec<String>,
    /// How it signs.
    pub signature: SignatureRule,
    /// Where an event's envelope stands.
    pub event: EventRule,
    /// What it wants as an answer.
    pub answer: AnswerRule,
    /// After so many failed deliveries of one event the provider gives up on the event or on us.
    pub gives_up_after: Option<i32>,
    /// What of its bodies is personal.
    pub export: ExportRule,
    /// What its events mean.
    pub on: Vec<On>,
}

/// Where an event's envelope stands.
#[derive(Debug, Clone)]
pub struct EventRule {
    /// The event's id. Nothing found: the digest of the body is the id.
    pub id: Vec<Source>,
    /// The event's type.
    pub kind: Vec<Source>,
    /// When it happened.
    pub occurred_at: Option<OccurredAt>,
    /// How a live event is told from a test event; `None`: all are live.
    pub mode: Option<Mode>,
    /// Whose event it is, at providers that send several accounts' events to one address.
    pub account: Vec<Source>,
    /// The version of the provider's interface, named in errors.
    pub version: Vec<Source>,
    pub(super) body: Pointers,
}

/// When an event happened.
#[derive(Debug, Clone)]
pub struct OccurredAt {
    /// Where the time stands.
    pub source: Vec<Source>,
    /// How it is written.
    pub format: TimeFormat,
}

/// How a live event is told from a test event.
#[derive(Debug, Clone)]
pub enum Mode {
    /// Live if the condition holds, test otherwise.
    LiveIf(Condition),
    /// Test if any of the conditions holds, live otherwise.
    TestIf(Vec<Condition>),
}

impl Mode {
    /// What is looked at.
    pub fn conditions(&self) -> &[Condition] {
        match self {
            Self::LiveIf(condition) => std::slice::from_ref(condition),
            Self::TestIf(conditions) => conditions,
        }
    }
}

/// What the provider wants as an answer.
#[derive(Debug, Clone)]
pub struct AnswerRule {
    /// The status for an event that is settled.
    pub success_status: u16,
    /// The body for an event that is settled; `None`: ours.
    pub success_body: Option<String>,
    /// The status for a delivery whose signature is refused.
    pub refused_status: u16,
}

impl Definition {
    /// Reads a provider file. `file` is its name as the user knows it; the provider's name is its stem.
    pub fn parse(file: &str, text: &str) -> Result<Self, Vec<Problem>> {
        let problems = Problems::of(file);
        let stem = file.rsplit('/').next().unwrap_or(file).trim_end_matches(".toml").to_owned();
        let definition =
            problems.parse(text).and_then(|table| Self::read(stem, Section::root(table, &problems)));
        match definition {
            Some(definition) if problems.count() == 0 => Ok(definition),
            _ => Err(problems.into_inner()),
        }
    }

    fn read(name: String, mut file: Section<'_>) -> Option<Self> {
        if !is_name(&name) {
            file.problem_here(format!(
                "`{name}` cannot be a provider's name; name the file with a-z, 0-9, `-` and `_`, such as `acme.toml`"
            ));
        }
        let title = file.required_text("title", "\"Acme Logistics\"");
        let documentation = file.texts("documentation").unwrap_or_default();
        let signature =
            file.require("signature", "a table; see docs/PROVIDERS.md").then(|| file.section("signature"));
        let signature = signature.flatten().and_then(read_signature);
        let event = file.require("event", "a table; see docs/PROVIDERS.md").then(|| file.section("event"));
        let event = event.flatten().and_then(read_event);
        let answer = read_answer(file.section("answer"));
        let gives_up_after = file.section("redelivery").and_then(|mut section| {
            let limit = section.integer("gives_up_after", 2..=1000);
            section.finish();
            limit
        });
        let export = read_export(file.section("export"));
        let signs =
            signature.as_ref().zip(event.as_ref()).map(|(signature, event)| Signs { signature, event });
        if let Some(name) = signs.as_ref().and_then(Signs::unsigned_time) {
            let text = format!(
                "reads the header `{name}`, which is not signed, and the latest time decides which fact counts; \
                 name a place in the body, or leave it out"
            );
            file.problem("event.occurred_at", text);
        }
        let on: Vec<On> = file
            .sections("on")
            .into_iter()
            .filter_map(|section| mapping_file::read_on(section, signs.as_ref()))
            .collect();
        file.finish();
        Some(Self {
            name,
            title: title?,
            documentation,
            signature: signature?,
            event: event?,
            answer,
            gives_up_after: gives_up_after.and_then(|limit| i32::try_from(limit).ok()),
            export,
            on,
        })
    }

    /// The names of the changes that only a function of the company's own knows.
    pub fn own_changes(&self) -> impl Iterator<Item = &str> {
        self.on.iter().filter_map(|on| match &on.change {
            ChangeRule::Own { name, .. } => Some(name.as_str()),
            ChangeRule::Invoice { .. } | ChangeRule::Receipt { .. } => None,
        })
    }

    /// Whether an event type means anything here.
    pub fn maps(&self, kind: &str) -> bool {
        self.on.iter().any(|on| on.types.iter().any(|known| known == kind))
    }
}

/// A provider's or an endpoint's name: it stands in paths, so it is plain.
pub fn is_name(name: &str) -> bool {
    (1..=64).contains(&name.len())
        && name.bytes().all(|byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_'))
}

/// What of a delivery the signature covers.
pub(super) struct Signs<'a> {
    signature: &'a SignatureRule,
    event: &'a EventRule,
}

impl Signs<'_> {
    /// Whether a header is part of what is signed.
    pub(super) fn covers(&self, header: &str) -> bool {
        self.signature.signed.iter().any(|part| matches!(part, Part::Header(name) if name == header))
    }

    /// The header outside the signature that the event's time is read from, if it is.
    fn unsigned_time(&self) -> Option<&str> {
        self.event.occurred_at.as_ref()?.source.iter().find_map(|source| match source {
            Source::Header(name) if !self.covers(name) => Some(name.as_str()),
            _ => None,
        })
    }

    /// Whether the event's type is read from something that is not signed.
    pub(super) fn leaves_out_the_type(&self) -> bool {
        self.event.kind.iter().any(|source| match source {
            Source::Header(name) => !self.covers(name),
            Source::Body(_) | Source::Item(_) | Source::Constant(_) => false,
        })
    }
}

fn read_signature(mut section: Section<'_>) -> Option<SignatureRule> {
    let headers = section
        .require("header", "\"x-acme-signature\"")
        .then(|| section.texts("header"))
        .flatten()
        .filter(|headers| !headers.is_empty())
        .map(|headers| headers.iter().map(|name| name.to_ascii_lowercase()).collect::<Vec<_>>());
    let format = section
        .require("format", "{ prefix = \"sha256=\" }, or { pairs = \",\", signature = \"v1\" }")
        .then(|| section.section("format"))
        .flatten()
        .and_then(read_format);
    let key = section
        .require("key", "{ decode = \"utf8\" }")
        .then(|| section.section("key"))
        .flatten()
        .and_then(read_key);
    let signed = section
        .required_text("signed", "\"{timestamp}.{body}\"")
        .and_then(|template| read_template(&section, &template));
    let algorithm = one_of(
        &mut section,
        "algorithm",
        &[
            ("hmac-sha256", Algorithm::HmacSha256),
            ("hmac-sha1", Algorithm::HmacSha1),
            ("hmac-sha512", Algorithm::HmacSha512),
        ],
    );
    let encoding = one_of(&mut section, "encoding", &[("hex", Encoding::Hex), ("base64", Encoding::Base64)]);
    let require_body = section.boolean("require_body").unwrap_or(false);
    let timestamp = read_timestamp(&mut section, format.as_ref());
    if let Some(signed) = &signed {
        check_template(&section, signed, timestamp.as_ref(), format.is_some());
    }
    section.finish();
    Some(SignatureRule {
        headers: headers?,
        format: format?,
        timestamp,
        key: key?,
        signed: signed?,
        algorithm: algorithm?,
        encoding: encoding?,
        require_body,
    })
}

fn read_format(mut section: Section<'_>) -> Option<Format> {
    let format = if section.has("pairs") {
        let separator = separator(&mut section, "pairs");
        let signature = section.required_text("signature", "\"v1\"");
        let timestamp = section.text("timestamp");
        Some(Format::Pairs { separator: separator?, signature: signature?, timestamp })
    } else if section.has("tagged") {
        let separator_of_items = separator(&mut section, "tagged");
        let tag_separator =
            section.require("separator", "\",\"").then(|| separator(&mut section, "separator")).flatten();
        let tag = section.required_text("tag", "\"v1\"");
        Some(Format::Tagged { separator: separator_of_items?, tag_separator: tag_separator?, tag: tag? })
    } else {
        section.take("pairs");
        section.take("tagged");
        // Written out also where there is none: a prefix that is forgotten lets every delivery fail.
        section.require("prefix", "\"\"");
        let prefix = match section.take("prefix") {
            None => None,
            Some(toml::Value::String(prefix)) => Some(prefix),
            Some(other) => {
                section.wrong_type("prefix", &other, "a text in quotes");
                None
            }
        };
        prefix.map(|prefix| Format::Plain { prefix })
    };
    section.finish();
    format
}

fn separator(section: &mut Section<'_>, key: &'static str) -> Option<char> {
    let text = section.text(key)?;
    let mut characters = text.chars();
    match (characters.next(), characters.next()) {
        (Some(character), None) if character.is_ascii() => Some(character),
        _ => {
            section.problem(key, "is not a separator; write one ASCII character, such as \",\"");
            None
        }
    }
}

fn read_key(mut section: Section<'_>) -> Option<KeyRule> {
    let decode = one_of(
        &mut section,
        "decode",
        &[("utf8", KeyDecoding::Utf8), ("base64", KeyDecoding::Base64), ("hex", KeyDecoding::Hex)],
    );
    let normalize_nfkd =
        section.has("normalize") && one_of(&mut section, "normalize", &[("nfkd", ())]).is_some();
    let rule = KeyRule {
        strip_prefix: section.text("strip_prefix").unwrap_or_default(),
        decode: decode.unwrap_or(KeyDecoding::Utf8),
        normalize_nfkd,
        refuse_prefixes: section.texts("refuse_prefixes").unwrap_or_default(),
    };
    if normalize_nfkd && decode.is_some_and(|decode| decode != KeyDecoding::Utf8) {
        section.problem("normalize", "only makes sense for decode = \"utf8\"; remove it");
    }
    section.finish();
    decode.map(|_| rule)
}

fn read_timestamp(section: &mut Section<'_>, format: Option<&Format>) -> Option<TimestampRule> {
    let in_signature = matches!(format, Some(Format::Pairs { timestamp: Some(_), .. }));
    let own = section.section("timestamp");
    let tolerance = section.section("tolerance_seconds");
    if own.is_none() && !in_signature {
        // A format that cannot be read may name one.
        if let Some(tolerance) = tolerance.filter(|_| format.is_some()) {
            tolerance.problem_here(
                "is there, but no timestamp is; name one in `format` or `timestamp`, or remove it",
            );
        }
        return None;
    }
    let mut source = in_signature.then_some(TimestampSource::SignatureField);
    let mut time_format = TimeFormat::UnixSeconds;
    if let Some(mut own) = own {
        if let Some(header) = own.text("header") {
            source = Some(TimestampSource::Header(header.to_ascii_lowercase()));
        }
        if let Some(pointer) = own.text("at") {
            let mut pointers = Pointers::default();
            match pointers.add(&pointer) {
                Ok(slot) => source = Some(TimestampSource::Body(pointers, slot)),
                Err(reason) => own.problem("at", format!("{reason}: write for example \"/timestamp\"")),
            }
        }
        if own.has("as") {
            time_format = read_time_format(&mut own).unwrap_or(time_format);
        }
        if source.is_none() {
            own.problem_here("names no place; write `header = \"…\"` or `at = \"/…\"`");
        }
        own.finish();
    }
    let Some(mut tolerance) = tolerance else {
        let text = "is missing; write { past = 300, future = 300 }, or { } to accept any age";
        section.problem("tolerance_seconds", text);
        // The timestamp is named all the same: what is signed is judged by that.
        return Some(TimestampRule {
            source: source?,
            format: time_format,
            past_seconds: None,
            future_seconds: None,
        });
    };
    let rule = TimestampRule {
        source: source?,
        format: time_format,
        past_seconds: tolerance.integer("past", 1..=86_400),
        future_seconds: tolerance.integer("future", 1..=86_400),
    };
    tolerance.finish();
    Some(rule)
}

pub(super) fn read_time_format(section: &mut Section<'_>) -> Option<TimeFormat> {
    one_of(
        section,
        "as",
        &[
            ("unix_seconds", TimeFormat::UnixSeconds),
            ("unix_milliseconds", TimeFormat::UnixMilliseconds),
            ("rfc3339", TimeFormat::Rfc3339),
        ],
    )
}

/// Takes one of a fixed set of words.
pub(super) fn one_of<T: Copy>(
    section: &mut Section<'_>,
    key: &'static str,
    words: &[(&'static str, T)],
) -> Option<T> {
    let list = words.iter().map(|(word, _)| format!("\"{word}\"")).collect::<Vec<_>>();
    if !section.require(key, &list[0]) {
        return None;
    }
    let text = section.text(key)?;
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    if found.is_none() {
        section.problem(key, format!("is `{text}`; write one of: {}", list.join(", ")));
    }
    found
}

fn read_template(section: &Section<'_>, template: &str) -> Option<Vec<Part>> {
    let mut parts = Vec::new();
    let mut rest = template;
    while let Some(open) = rest.find('{') {
        if open > 0 {
            parts.push(Part::Literal(rest[..open].to_owned()));
        }
        let Some(close) = rest[open..].find('}') else {
            section.problem("signed", "has a `{` without its `}`");
            return None;
        };
        let name = &rest[open + 1..open + close];
        parts.push(match name {
            "body" => Part::Body,
            "timestamp" => Part::Timestamp,
            _ => match name.strip_prefix("header:") {
                Some(header) if !header.is_empty() => Part::Header(header.to_ascii_lowercase()),
                _ => {
                    let text = format!(
                        "has `{{{name}}}`; the parts are {{body}}, {{timestamp}} and {{header:NAME}}"
                    );
                    section.problem("signed", text);
                    return None;
                }
            },
        });
        rest = &rest[open + close + 1..];
    }
    if !rest.is_empty() {
        parts.push(Part::Literal(rest.to_owned()));
    }
    if parts.iter().any(|part| matches!(part, Part::Literal(text) if text.contains('}'))) {
        section.problem("signed", "has a `}` without its `{`");
        return None;
    }
    Some(parts)
}

fn check_template(
    section: &Section<'_>,
    signed: &[Part],
    timestamp: Option<&TimestampRule>,
    format_is_known: bool,
) {
    if !signed.contains(&Part::Body) {
        section.problem(
            "signed",
            "does not contain {body}; a signature that leaves the body out proves nothing",
        );
    }
    let outside_body =
        timestamp.is_some_and(|timestamp| !matches!(timestamp.source, TimestampSource::Body(..)));
    match (outside_body, signed.contains(&Part::Timestamp)) {
        (true, false) => section.problem(
            "signed",
            "does not contain {timestamp}, so that anyone could change the time; add it, or remove the timestamp",
        ),
        (false, true) if format_is_known => section.problem(
            "signed",
            "contains {timestamp}, but no timestamp is named; add `timestamp` to `format`, or a `timestamp` table",
        ),
        _ => {}
    }
}

fn read_event(mut section: Section<'_>) -> Option<EventRule> {
    let mut body = Pointers::default();
    let mut sources = |section: &mut Section<'_>, key| mapping_file::read_sources(section, key, &mut body);
    let id = section.require("id", "\"/id\"").then(|| sources(&mut section, "id")).flatten();
    let kind = section.require("type", "\"/type\"").then(|| sources(&mut section, "type")).flatten();
    let account = section.has("account").then(|| sources(&mut section, "account")).flatten();
    let version = section.has("version").then(|| sources(&mut section, "version")).flatten();
    let occurred_at = section.section("occurred_at").and_then(|mut section| {
        let source = mapping_file::read_place(&mut section, &mut body, None);
        let format = read_time_format(&mut section);
        section.finish();
        Some(OccurredAt { source: source?, format: format? })
    });
    let live = mapping_file::read_conditions(&mut section, "live", &mut body, None);
    let test = mapping_file::read_conditions(&mut section, "test", &mut body, None);
    let mode = match (live.len(), test.is_empty()) {
        (0, true) => None,
        (0, false) => Some(Mode::TestIf(test)),
        (1, true) => live.into_iter().next().map(Mode::LiveIf),
        _ => {
            section
                .problem("live", "cannot be combined; write one condition in `live`, or several in `test`");
            None
        }
    };
    section.finish();
    Some(EventRule {
        id: id?,
        kind: kind?,
        occurred_at,
        mode,
        account: account.unwrap_or_default(),
        version: version.unwrap_or_default(),
        body,
    })
}

fn read_answer(section: Option<Section<'_>>) -> AnswerRule {
    let mut answer = AnswerRule { success_status: 200, success_body: None, refused_status: 401 };
    let Some(mut section) = section else { return answer };
    let status = |section: &mut Section<'_>, key, bounds| {
        section.integer(key, bounds).and_then(|status| u16::try_from(status).ok())
    };
    answer.success_status = status(&mut section, "success_status", 200..=299).unwrap_or(200);
    answer.refused_status = status(&mut section, "refused_status", 400..=499).unwrap_or(401);
    answer.success_body = section.text("success_body");
    section.finish();
    answer
}

/// Whether a condition looks at the signed body and demands something of it.
pub(super) fn confirms(condition: &Condition) -> bool {
    condition.source.iter().all(|source| matches!(source, Source::Body(_) | Source::Item(_)))
        && condition.test != Test::Present(false)
}
