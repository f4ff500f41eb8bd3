//! Why was a delivery refused? Hypotheses, each checked by verifying the request anew as if it were true.
//!
//! A finding is a proof: under its causes, the signature is that of a known secret. It lets nothing in; people read it
//! and mend what is wrong. What cannot be proven is marked as a hint.
//!
//! Reading order: this file (what is asked and answered), `search` (the levels), and the hypotheses as data:
//! `setting` (headers and scheme), `secret`, `body`, `clock`; `hint` is what is left when nothing fits.

mod body;
mod clock;
mod hint;
mod search;
mod secret;
mod setting;

use secrecy::SecretString;

use super::headers::Headers;
use super::signature::{Key, Rejection, verify};
use super::{Catalogue, Definition};
use crate::timestamp::Timestamp;

/// A request that was refused, or may be.
#[derive(Debug, Clone, Copy)]
pub struct Suspect<'a> {
    /// Its headers.
    pub headers: &'a Headers<'a>,
    /// Its body, as it came.
    pub body: &'a [u8],
    /// When it was received.
    pub at: Timestamp,
}

/// A secret, and where it comes from: the name by which people are told of it.
#[derive(Debug, Clone, Copy)]
pub struct NamedSecret<'a> {
    /// `env:NAME` or `file:PATH`.
    pub reference: &'a str,
    /// The secret itself, as it is pasted.
    pub text: &'a SecretString,
}

/// An endpoint whose scheme and secrets may fit.
#[derive(Debug, Clone)]
pub struct Candidate<'a> {
    /// Its name.
    pub endpoint: &'a str,
    /// Its provider.
    pub definition: &'a Definition,
    /// Its secrets, newest first.
    pub secrets: Vec<NamedSecret<'a>>,
}

/// What became of the question.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Diagnosis {
    /// The request is good as it is.
    Accepted {
        /// The secret that fits.
        secret: String,
        /// When the provider signed.
        signed_at: Option<Timestamp>,
    },
    /// It is refused, and this is why.
    Explained {
        /// What the check says.
        rejection: Rejection,
        /// What fits, each on its own.
        findings: Vec<Finding>,
    },
    /// It is refused, and nothing that was tried fits.
    NoKnownCause {
        /// What the check says.
        rejection: Rejection,
        /// Whether all was tried: a large body ends the search early.
        all_tried: bool,
    },
}

/// An explanation that fits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// What is wrong; several where only all together explain it.
    pub causes: Vec<Cause>,
    /// The secret that fits; `None` for hints that rest on no secret.
    pub fit: Option<Fit>,
    /// Whether it is proven.
    pub certainty: Certainty,
}

/// What makes a signature fit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fit {
    /// The secret's reference.
    pub secret: String,
    /// The endpoint that has it.
    pub endpoint: String,
}

/// How sure a finding is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// The signature fits under the causes.
    Proof,
    /// The request looks like it.
    Hint,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    /// A word for machines; it does not change.
    pub name: &'static str,
    /// What is wrong, in one sentence.
    pub what: String,
    /// What mends it.
    pub way_out: String,
}

impl Cause {
    fn new(name: &'static str, what: impl Into<String>, way_out: impl Into<String>) -> Self {
        Self { name, what: what.into(), way_out: way_out.into() }
    }
}

/// Asks why `own` refuses a request. `others` are the other endpoints of the configuration, and `catalogue` holds the
/// providers that are known.
pub fn diagnose(
    own: &Candidate<'_>,
    others: &[Candidate<'_>],
    catalogue: &Catalogue,
    suspect: &Suspect<'_>,
) -> Diagnosis {
    let rule = &own.definition.signature;
    let usable =
        own.secrets.iter().filter_map(|secret| Some((secret, Key::prepare(rule, secret.text).ok()?)));
    let (secrets, keys): (Vec<&NamedSecret<'_>>, Vec<Key>) = usable.unzip();
    let rejection = match verify(rule, &keys, suspect.headers, suspect.body, suspect.at) {
        Ok(signed) => {
            let secret = secrets[signed.secret].reference.to_owned();
            return Diagnosis::Accepted { secret, signed_at: signed.at };
        }
        Err(rejection) => rejection,
    };
    let (mut findings, all_tried) = search::search(own, others, catalogue, suspect);
    if findings.is_empty() {
        findings = hint::hints(own, suspect, &rejection);
    }
    match findings.is_empty() {
        true => Diagnosis::NoKnownCause { rejection, all_tried },
        false => Diagnosis::Explained { rejection, findings },
    }
}

/// A part of the request as it can be shown on a terminal: a sender chose it.
fn shown(text: &[u8]) -> String {
    text.escape_ascii().to_string()
}
