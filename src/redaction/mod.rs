//! Taking the persons out of a delivery, and leaving all else as it was to the byte. Pure.
//!
//! Two things say what is personal: the `[export]` table of the provider file, and a general look at key names and at
//! the shapes of values. What events are read from is never replaced, so that the copy means what the original
//! meant. Reading order: this file (who decides), `tokens.rs` (where the values stand), `detect.rs` (what looks
//! personal), `stand_in.rs` (what takes its place).

mod detect;
mod stand_in;
mod tokens;

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

use self::detect::{is_identifier, is_name_of_person, is_of_people, kind_of_key, shapes};
pub use self::stand_in::StandIns;
use self::stand_in::Telling;
use self::tokens::{Step, Token, decode, pointer, walk};
use serde::de::IgnoredAny;

use crate::provider::Definition;
use crate::provider::export::{ExportRule, Pattern, Reads};
use crate::provider::signature::TimestampSource;

/// What a personal value is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "each name says it")]
pub enum Kind {
    Email,
    Phone,
    Person,
    Company,
    Street,
    City,
    Region,
    PostalCode,
    Coordinate,
    Ip,
    Card,
    CardEnd,
    Account,
    Token,
    Url,
    Date,
    Text,
}

impl Kind {
    /// The name that people are shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Email => "e-mail address",
            Self::Phone => "phone number",
            Self::Person => "person",
            Self::Company => "company",
            Self::Street => "street",
            Self::City => "city",
            Self::Region => "region",
            Self::PostalCode => "postal code",
            Self::Coordinate => "coordinate",
            Self::Ip => "IP address",
            Self::Card => "card number",
            Self::CardEnd => "end of a card number",
            Self::Account => "account number",
            Self::Token => "secret or token",
            Self::Url => "address of a page",
            Self::Date => "date",
            Self::Text => "text",
        }
    }

    /// Whether numbers are taken for it because of their key.
    fn is_of_numbers(self) -> bool {
        matches!(self, Self::Phone | Self::PostalCode | Self::Card | Self::Account | Self::Coordinate)
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

static NO_RULES: ExportRule = ExportRule { personal: Vec::new(), keep: Vec::new() };

/// What of an event is personal, and what must stay.
#[derive(Debug)]
pub struct Policy<'d> {
    export: &'d ExportRule,
    reads: Reads,
    /// Made anew whenever a fixture is sent.
    made_anew: Vec<&'d str>,
}

impl<'d> Policy<'d> {
    /// For the events of a type.
    pub fn of(definition: &'d Definition, kind: &str) -> Self {
        let time = definition.signature.timestamp.as_ref().and_then(|rule| match &rule.source {
            TimestampSource::Header(name) => Some(name),
            TimestampSource::SignatureField | TimestampSource::Body(..) => None,
        });
        let made_anew = definition.signature.headers.iter().chain(time).map(String::as_str).collect();
        Self { export: &definition.export, reads: definition.reads(kind), made_anew }
    }
}

/// A value that was replaced. The old value is in none of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    /// Its JSON pointer, `header NAME`, or `byte N` of a body that is not JSON.
    pub place: String,
    /// What it was.
    pub kind: Kind,
    /// What stands there now: the whole value, or the part of it that is new.
    pub stand_in: String,
}

/// A value that looks personal, and was left because events are read from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Left {
    /// Its JSON pointer.
    pub place: String,
    /// What it seems to be.
    pub kind: Kind,
    /// Whether the provider file names it as personal: then the file contradicts itself.
    pub is_named: bool,
}

#[derive(Debug, Clone)]
struct Edit {
    range: Range<usize>,
    new: String,
    replaced: Vec<Replaced>,
}

/// A body and what was found in it.
#[derive(Debug, Clone)]
pub struct Redacted<'b> {
    original: &'b [u8],
    edits: Vec<Edit>,
    /// Personal, and left.
    pub left: Vec<Left>,
    /// Whether the body is JSON; of another one, only shapes are known.
    pub is_json: bool,
}

impl Redacted<'_> {
    /// The body with all replacements.
    pub fn body(&self) -> Vec<u8> {
        self.with(&self.edits)
    }

    /// What was replaced, in the order of the body.
    pub fn replaced(&self) -> impl Iterator<Item = &Replaced> {
        self.edits.iter().flat_map(|edit| &edit.replaced)
    }

    /// The place whose replacement alone makes a body that is not accepted.
    pub fn fault(&self, accepts: impl Fn(&[u8]) -> bool) -> Option<&str> {
        let edit = self.edits.iter().find(|edit| !accepts(&self.with(std::slice::from_ref(edit))))?;
        edit.replaced.first().map(|replaced| replaced.place.as_str())
    }

    fn with(&self, edits: &[Edit]) -> Vec<u8> {
        let mut body = Vec::with_capacity(self.original.len());
        let mut from = 0;
        for edit in edits {
            body.extend_from_slice(&self.original[from..edit.range.start]);
            body.extend_from_slice(edit.new.as_bytes());
            from = edit.range.end;
        }
        body.extend_from_slice(&self.original[from..]);
        body
    }
}

impl StandIns {
    /// Learns what is personal in a body, so that it is replaced also in texts that come before it, or in another body.
    pub fn learn(&mut self, policy: &Policy<'_>, body: &[u8]) {
        self.find(policy, body);
    }

    /// Replaces what is personal in a body.
    pub fn redact<'b>(&mut self, policy: &Policy<'_>, body: &'b [u8]) -> Redacted<'b> {
        self.learn(policy, body);
        self.find(policy, body)
    }

    fn find<'b>(&mut self, policy: &Policy<'_>, body: &'b [u8]) -> Redacted<'b> {
        let text = str::from_utf8(body).ok();
        let is_json = text.is_some_and(|text| serde_json::from_str::<IgnoredAny>(text).is_ok());
        let mut finder = Finder { policy, stand_ins: self, edits: Vec::new(), left: Vec::new() };
        let begins =
            |text: &&str| text.trim_start_matches('\u{feff}').trim_start().starts_with(['{', '[', '"']);
        // What only begins like JSON still tells most keys from values.
        if let Some(text) = text.filter(begins) {
            walk(text, |path, token, range| finder.token(text, path, token, range));
        }
        if !is_json {
            finder.between(body);
        }
        let Finder { mut edits, left, .. } = finder;
        edits.sort_by_key(|edit| edit.range.start);
        Redacted { original: body, edits, left, is_json }
    }

    /// The headers that a fixture keeps, with what is personal replaced, and what was replaced.
    ///
    /// What proxies and connections add is dropped, and what is made anew at sending. Of a header that stood there more
    /// than once, the values are joined, as HTTP allows.
    pub fn headers(
        &mut self,
        policy: &Policy<'_>,
        headers: &BTreeMap<String, Vec<String>>,
    ) -> (BTreeMap<String, String>, Vec<Replaced>) {
        let mut kept = BTreeMap::new();
        let mut replaced = Vec::new();
        for (name, values) in headers {
            let value = values.join(", ");
            if policy.reads.headers.contains(name) {
                kept.insert(name.clone(), value);
                continue;
            }
            if policy.made_anew.contains(&name.as_str()) || is_of_the_connection(name) {
                continue;
            }
            let new = match kind_of_key(name, false) {
                // What a browser or a library calls itself is no person.
                Some(kind) if kind != Kind::Text => self.whole(kind, &value),
                _ => self.parts(&value, is_identifier(name)),
            };
            let value = new.map_or(value, |new| {
                let (new, mut what) = new.at(&format!("header {name}"));
                replaced.append(&mut what);
                new
            });
            kept.insert(name.clone(), value);
        }
        (kept, replaced)
    }

    /// Replaces a text as a whole.
    fn whole(&mut self, kind: Kind, value: &str) -> Option<New> {
        if value.trim().is_empty() {
            return None;
        }
        let text = self.text(kind, value);
        (text != value).then(|| New { what: vec![(kind, text.clone())], text })
    }

    fn in_number(&mut self, kind: Kind, written: &str) -> Option<New> {
        let text = self.number(kind, written);
        (text != written).then(|| New { what: vec![(kind, text.clone())], text })
    }

    /// Replaces what is personal in a text that is JSON itself. No pointer reaches into it.
    fn inside(&mut self, value: &str) -> Option<New> {
        let begins = value.trim_start().starts_with(['{', '[']);
        if !begins || serde_json::from_str::<IgnoredAny>(value).is_err() {
            return None;
        }
        let nothing_known = Policy { export: &NO_RULES, reads: Reads::default(), made_anew: Vec::new() };
        let redacted = self.find(&nothing_known, value.as_bytes());
        let what = redacted.replaced().map(|replaced| (replaced.kind, replaced.stand_in.clone())).collect();
        let new = New { text: String::from_utf8(redacted.body()).ok()?, what };
        (!new.what.is_empty()).then_some(new)
    }

    /// Replaces the parts of a text that look personal.
    fn parts(&mut self, value: &str, is_identifier: bool) -> Option<New> {
        let mut new = New { text: String::new(), what: Vec::new() };
        let mut from = 0;
        for (range, kind) in shapes(value, is_identifier, &self.telling) {
            let stand_in = self.text(kind, &value[range.clone()]);
            new.text.push_str(&value[from..range.start]);
            new.text.push_str(&stand_in);
            new.what.push((kind, stand_in));
            from = range.end;
        }
        new.text.push_str(&value[from..]);
        (!new.what.is_empty()).then_some(new)
    }

    /// The pointer of a path, in which personal names are replaced as they are in the body.
    fn place(&mut self, path: &[Step]) -> String {
        let names = path.iter().map(|step| {
            let new = step.is_member().then(|| self.parts(&step.name, true)).flatten();
            new.map_or_else(|| step.name.clone(), |new| new.text)
        });
        pointer(names)
    }
}

/// What a value becomes, and the parts of it that are new.
struct New {
    text: String,
    what: Vec<(Kind, String)>,
}

impl New {
    fn at(self, place: &str) -> (String, Vec<Replaced>) {
        let what = self.what.into_iter();
        let what = what.map(|(kind, stand_in)| Replaced { place: place.to_owned(), kind, stand_in });
        (self.text, what.collect())
    }
}

/// Headers of the way to us, which say nothing of what the provider sent.
fn is_of_the_connection(name: &str) -> bool {
    const NAMES: [&str; 27] = [
        "accept",
        "accept-charset",
        "accept-encoding",
        "accept-language",
        "cache-control",
        "cdn-loop",
        "connection",
        "content-length",
        "expect",
        "forwarded",
        "host",
        "keep-alive",
        "pragma",
        "proxy-connection",
        "te",
        "traceparent",
        "tracestate",
        "trailer",
        "transfer-encoding",
        "true-client-ip",
        "upgrade",
        "via",
        "x-client-ip",
        "x-cloud-trace-context",
        "x-original-forwarded-for",
        "x-real-ip",
        "x-request-start",
    ];
    const BEGINNINGS: [&str; 7] =
        ["cf-", "x-forwarded-", "x-amzn-", "x-envoy-", "x-b3-", "fly-", "x-vercel-"];
    NAMES.contains(&name) || BEGINNINGS.iter().any(|beginning| name.starts_with(beginning))
}

/// What is found in one body.
struct Finder<'f, 'd> {
    policy: &'f Policy<'d>,
    stand_ins: &'f mut StandIns,
    edits: Vec<Edit>,
    left: Vec<Left>,
}

impl Finder<'_, '_> {
    fn token(&mut self, json: &str, path: &[Step], token: Token, range: Range<usize>) {
        let covered = |patterns: &[Pattern]| patterns.iter().any(|pattern| pattern.covers(path.iter()));
        if covered(&self.policy.export.keep) {
            return;
        }
        let is_read = self.policy.reads.body.iter().any(|pattern| match token {
            // Under another name, what is below could not be found.
            Token::Name => pattern.passes(path.iter()),
            Token::Text | Token::Number => pattern.is(path.iter()),
        });
        // What stays is looked at too, but nothing is learned from it: it would be replaced in other places.
        let mut nobody = StandIns::default();
        let stand_ins = if is_read { &mut nobody } else { &mut *self.stand_ins };
        let written = &json[range.clone()];
        let is_named = token != Token::Name && covered(&self.policy.export.personal);
        let key = path.iter().rev().find(|step| step.is_member()).map_or("", AsRef::as_ref);
        let new = match token {
            Token::Number => {
                kind_of_number(key, path, is_named).and_then(|kind| stand_ins.in_number(kind, written))
            }
            Token::Name => stand_ins.parts(&decode(written), true),
            Token::Text => {
                let value = decode(written);
                match kind_of_text(&value, key, path, is_named) {
                    Some(kind) => stand_ins.whole(kind, &value),
                    None => stand_ins.inside(&value).or_else(|| stand_ins.parts(&value, is_identifier(key))),
                }
            }
        };
        let Some(new) = new else { return };
        let place = self.stand_ins.place(path);
        if is_read {
            let kind = new.what.first().map_or(Kind::Text, |(kind, _)| *kind);
            self.left.push(Left { place, kind, is_named });
            return;
        }
        let (new, replaced) = new.at(&place);
        let new = match token {
            Token::Number => new,
            Token::Name | Token::Text => {
                let mut new = quoted(&new);
                // A text that breaks off stays broken: what is wrong with a body is what it is kept for.
                if range.end == json.len() && serde_json::from_str::<IgnoredAny>(written).is_err() {
                    new.pop();
                }
                new
            }
        };
        self.edits.push(Edit { range, new, replaced });
    }

    /// Looks at the text between what was found: a body that is not JSON may hold anything anywhere.
    fn between(&mut self, body: &[u8]) {
        self.edits.sort_by_key(|edit| edit.range.start);
        let mut gaps = Vec::new();
        let mut from = 0;
        for edit in &self.edits {
            gaps.push(from..edit.range.start);
            from = edit.range.end;
        }
        gaps.push(from..body.len());
        for gap in gaps {
            let mut start = gap.start;
            for chunk in body[gap].utf8_chunks() {
                self.plain(chunk.valid(), start);
                start += chunk.valid().len() + chunk.invalid().len();
            }
        }
    }

    fn plain(&mut self, text: &str, start: usize) {
        for (range, kind) in shapes(text, false, &self.stand_ins.telling) {
            let range_in_body = start + range.start..start + range.end;
            let part = &text[range];
            let new = self.stand_ins.text(kind, part);
            let place = format!("byte {}", range_in_body.start);
            let replaced = vec![Replaced { place, kind, stand_in: new.clone() }];
            self.edits.push(Edit { range: range_in_body, new, replaced });
        }
    }
}

/// What a text is as a whole; `None`: at most parts of it are personal.
fn kind_of_text(value: &str, key: &str, path: &[Step], is_named: bool) -> Option<Kind> {
    let by_key = kind_of_key(key, is_named || belongs_to_people(path));
    // An address may be a page's.
    let by_key = by_key.filter(|kind| *kind != Kind::Street || !value.contains("://"));
    let by_key = by_key.or_else(|| is_name_of_person(key, value).then_some(Kind::Person));
    if !is_named {
        return by_key;
    }
    let by_shape = || match shapes(value, false, &Telling::default()).as_slice() {
        [(range, kind)] if *range == (0..value.len()) => Some(*kind),
        _ if value.starts_with("https://") || value.starts_with("http://") => Some(Kind::Url),
        _ => None,
    };
    by_key.or_else(by_shape).or(Some(Kind::Text))
}

/// What a number is: of those that nobody names, only a few keys tell.
fn kind_of_number(key: &str, path: &[Step], is_named: bool) -> Option<Kind> {
    let by_key = kind_of_key(key, is_named || belongs_to_people(path));
    match is_named {
        true => by_key.or(Some(Kind::Text)),
        false => by_key.filter(|kind| kind.is_of_numbers()),
    }
}

/// Whether one of the two members around a value is a person or an address.
fn belongs_to_people(path: &[Step]) -> bool {
    let around = path.iter().rev().filter(|step| step.is_member()).skip(1).take(2);
    around.map(AsRef::as_ref).any(is_of_people)
}

fn quoted(text: &str) -> String {
    serde_json::Value::from(text).to_string()
}
