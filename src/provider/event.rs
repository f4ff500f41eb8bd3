//! READ: what does a verified delivery tell?

use std::borrow::Cow;
use std::fmt::Write as _;
use std::sync::Arc;

use sha2::{Digest as _, Sha256};

use super::definition::{Definition, EventRule, Mode};
use super::headers::Headers;
use super::mapping::{Mapped, Scope, Source};
use super::pointer::{Unreadable, object_text};
use super::signature::{Key, Rejection, Signed, verify};
use crate::books::Change;
use crate::timestamp::Timestamp;

/// A delivery whose signature was found good. Two things make one, and READ takes nothing else: the check itself, and
/// the inbox, which holds only what passed it.
#[derive(Debug)]
pub struct Verified<'a> {
    headers: &'a Headers<'a>,
    body: &'a [u8],
}

impl<'a> Verified<'a> {
    /// Verifies a delivery.
    pub fn check(
        definition: &Definition,
        keys: &[Key],
        headers: &'a Headers<'a>,
        body: &'a [u8],
        now: Timestamp,
    ) -> Result<(Self, Signed), Rejection> {
        let signed = verify(&definition.signature, keys, headers, body, now)?;
        Ok((Self { headers, body }, signed))
    }

    /// A delivery as the inbox keeps it: it was verified when it came in.
    pub fn from_inbox(headers: &'a Headers<'a>, body: &'a [u8]) -> Self {
        Self { headers, body }
    }
}

/// What a provider told, in our terms.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Event {
    /// The provider's id of the event, 1 to 255 characters, or `sha256:` and the digest of the body.
    pub id: String,
    /// The provider's word for what happened; empty where none could be read.
    pub kind: String,
    /// When it happened, by the provider's clock.
    pub occurred_at: Option<Timestamp>,
    /// What it means.
    pub content: Content,
}

/// What an event means.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// These facts, in order.
    Changes(Vec<Change>),
    /// Nothing, for this reason.
    Ignored(String),
    /// It cannot be read, for this reason: a dead letter.
    Unreadable(String),
}

/// What an endpoint accepts of a provider's events.
#[derive(Debug, Clone, Default)]
pub struct Accepts {
    /// `true`: live events; `false`: test events. The others are ignored.
    pub live: bool,
    /// Only this account's events, if named.
    pub account: Option<String>,
}

/// How the deliveries of an endpoint are read.
#[derive(Debug, Clone)]
pub struct Reader {
    /// The provider.
    pub definition: Arc<Definition>,
    /// What the endpoint takes of its events.
    pub accepts: Accepts,
}

impl Reader {
    /// Reads a verified delivery.
    pub fn read(&self, delivery: &Verified<'_>) -> Event {
        read(&self.definition, &self.accepts, delivery)
    }
}

const ID_LENGTH_MAX: usize = 255;

/// Reads a verified delivery. Never fails: what cannot be read is an event too, one that says so.
pub fn read(definition: &Definition, accepts: &Accepts, delivery: &Verified<'_>) -> Event {
    let Verified { headers, body } = delivery;
    envelope(definition, accepts, headers, body).unwrap_or_else(|Unreadable(reason)| Event {
        id: digest_id(body),
        kind: String::new(),
        occurred_at: None,
        content: Content::Unreadable(reason),
    })
}

/// The id of an event that has none of its own.
pub fn digest_id(body: &[u8]) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(body)))
}

fn envelope(
    definition: &Definition,
    accepts: &Accepts,
    headers: &Headers<'_>,
    body: &[u8],
) -> Result<Event, Unreadable> {
    let rule = &definition.event;
    let text = object_text(body)?;
    let found = rule.body.extract_text(text)?;
    let scope = Scope::of_envelope(&found, headers, &rule.body);
    let id = short_text(&scope, "event id", &rule.id)?.unwrap_or_else(|| digest_id(body));
    let kind = short_text(&scope, "event type", &rule.kind)?.unwrap_or_default();
    let mut event = Event { id, kind, occurred_at: None, content: Content::Changes(Vec::new()) };

    if let Some(reason) = not_accepted(rule, accepts, &scope) {
        event.content = Content::Ignored(reason);
        return Ok(event);
    }
    let mapped = definition.maps(&event.kind);
    match occurred_at(rule, &scope) {
        Ok(at) => event.occurred_at = at,
        // The time of an event that means nothing here does not matter (Stripe's v2 events write it otherwise).
        Err(_) if !mapped => {}
        Err(Unreadable(reason)) => {
            event.content = Content::Unreadable(reason);
            return Ok(event);
        }
    }
    event.content = if mapped {
        content(definition, &event.kind, headers, text).unwrap_or_else(|Unreadable(reason)| {
            let version = short_text(&scope, "version", &rule.version).ok().flatten();
            let version = version.map(|version| format!(" (version {version})")).unwrap_or_default();
            Content::Unreadable(format!("{}{version}: {reason}", event.kind))
        })
    } else {
        Content::Ignored("this event type is not mapped".to_owned())
    };
    Ok(event)
}

fn content(
    definition: &Definition,
    kind: &str,
    headers: &Headers<'_>,
    body: &str,
) -> Result<Content, Unreadable> {
    let mut changes = Vec::new();
    for on in definition.on.iter().filter(|on| on.types.iter().any(|known| known == kind)) {
        if let Mapped::Changes(more) = on.map(headers, body)? {
            changes.extend(more);
        }
    }
    Ok(match changes.is_empty() {
        true => {
            Content::Ignored("the definition's guards do not hold: it does not concern the books".to_owned())
        }
        false => Content::Changes(changes),
    })
}

fn not_accepted(rule: &EventRule, accepts: &Accepts, scope: &Scope<'_, '_>) -> Option<String> {
    if let Some(wanted) = &accepts.account {
        match scope.find_text(&rule.account) {
            Ok(Some(account)) if account == *wanted => {}
            Ok(Some(_)) => return Some("it is another account's event".to_owned()),
            Ok(None) | Err(_) => return Some("it names no account".to_owned()),
        }
    }
    let live = match &rule.mode {
        None => accepts.live,
        Some(Mode::LiveIf(condition)) => scope.holds(condition),
        Some(Mode::TestIf(conditions)) => !conditions.iter().any(|condition| scope.holds(condition)),
    };
    match (live, accepts.live) {
        (false, true) => Some("it is a test event, and the endpoint takes live events".to_owned()),
        (true, false) => Some("it is a live event, and the endpoint takes test events".to_owned()),
        _ => None,
    }
}

fn occurred_at(rule: &EventRule, scope: &Scope<'_, '_>) -> Result<Option<Timestamp>, Unreadable> {
    let Some(rule) = &rule.occurred_at else { return Ok(None) };
    let text = scope
        .find_text(&rule.source)
        .map_err(|shape| Unreadable(format!("the time at {} is {shape}", scope.describe(&rule.source))))?;
    let Some(text) = text else { return Ok(None) };
    let at = rule.format.parse(&text).ok_or_else(|| {
        let mut reason = String::from("the time at ");
        let _ = write!(reason, "{} is not {:?}", scope.describe(&rule.source), rule.format);
        Unreadable(reason)
    })?;
    Ok(Some(at))
}

/// A text of the envelope that the inbox keeps: bounded, and without the one character Postgres cannot store.
fn short_text(scope: &Scope<'_, '_>, name: &str, sources: &[Source]) -> Result<Option<String>, Unreadable> {
    let text = scope
        .find_text(sources)
        .map_err(|shape| Unreadable(format!("the {name} at {} is {shape}", scope.describe(sources))))?;
    let Some(text) = text else { return Ok(None) };
    if text.chars().count() > ID_LENGTH_MAX {
        return Err(Unreadable(format!("the {name} is longer than {ID_LENGTH_MAX} characters")));
    }
    if text.contains('\0') {
        return Err(Unreadable(format!("the {name} contains U+0000")));
    }
    Ok(Some(Cow::into_owned(text)))
}
