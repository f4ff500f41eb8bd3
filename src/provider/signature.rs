//! VERIFY: is this delivery from who it says it is from?
//!
//! A [`SignatureRule`] says where the signature stands, what was signed and with which key. [`verify`]
//! rebuilds the signed bytes from the request as it came in and compares digests in constant time. Nothing
//! here parses the body, knows a clock or allocates in proportion to the body.

use std::fmt;

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use hmac::{Hmac, KeyInit as _};
use secrecy::{ExposeSecret as _, SecretString};
use sha1::Sha1;
use sha2::{Sha256, Sha512};
use subtle::ConstantTimeEq as _;
use unicode_normalization::UnicodeNormalization as _;

use super::headers::Headers;
use super::pointer::{Pointers, Slot, read_text};
use crate::timestamp::Timestamp;

/// How a provider signs.
#[derive(Debug, Clone)]
pub struct SignatureRule {
    /// Headers that may carry the signature, lower-case; the first that is there counts.
    pub headers: Vec<String>,
    /// How the header's value holds one or several signatures.
    pub format: Format,
    /// Where the time of signing stands; `None` where a provider signs none.
    pub timestamp: Option<TimestampRule>,
    /// How the secret that the operator pastes becomes the key's bytes.
    pub key: KeyRule,
    /// What is signed, in order.
    pub signed: Vec<Part>,
    /// The keyed hash.
    pub algorithm: Algorithm,
    /// How the digest is written in the header.
    pub encoding: Encoding,
    /// Refuse an empty body before anything else (Shopify's libraries do).
    pub require_body: bool,
}

/// How a signature header is laid out. Whatever the layout, all signatures found are tried.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Format {
    /// The whole value is one signature, after a prefix that must be there (`sha256=`).
    Plain {
        /// The required prefix, empty for none.
        prefix: String,
    },
    /// `t=1492774577,v1=5257…`: named fields, of which one name carries signatures.
    Pairs {
        /// Between the fields.
        separator: char,
        /// The name of the fields that are signatures.
        signature: String,
        /// The name of the field that is the time of signing.
        timestamp: Option<String>,
    },
    /// `v1,Zm9v v1,YmFy`: tagged signatures, of which one tag is ours.
    Tagged {
        /// Between the signatures.
        separator: char,
        /// Between tag and signature.
        tag_separator: char,
        /// The tag that marks our scheme.
        tag: String,
    },
}

/// Where the time of signing stands, how it is written, and how far it may be off.
#[derive(Debug, Clone)]
pub struct TimestampRule {
    /// Where it stands.
    pub source: TimestampSource,
    /// How it is written.
    pub format: TimeFormat,
    /// How many seconds old a signature may be; `None` for any age.
    pub past_seconds: Option<i64>,
    /// How many seconds ahead of our clock it may be; `None` for any.
    pub future_seconds: Option<i64>,
}

/// Where a time of signing stands.
#[derive(Debug, Clone)]
pub enum TimestampSource {
    /// In the signature header's own fields.
    SignatureField,
    /// In a header of its own, lower-case.
    Header(String),
    /// In the signed body, at a JSON pointer. It is read only after the signature was found good.
    Body(Pointers, Slot),
}

/// How a time is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TimeFormat {
    /// Whole seconds since 1970.
    UnixSeconds,
    /// Milliseconds since 1970.
    UnixMilliseconds,
    /// `2026-03-01T03:30:00Z`, with any offset.
    Rfc3339,
}

impl TimeFormat {
    /// Reads a time; `None` when the text is not of this format.
    pub fn parse(self, text: &str) -> Option<Timestamp> {
        let number = || {
            let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
            digits.then(|| text.parse::<i64>().ok()).flatten()
        };
        match self {
            Self::UnixSeconds => Timestamp::from_seconds(number()?),
            Self::UnixMilliseconds => Timestamp::from_milliseconds(number()?),
            Self::Rfc3339 => Timestamp::from_rfc3339(text),
        }
    }

    /// Writes a time.
    pub fn write(self, time: Timestamp) -> String {
        match self {
            Self::UnixSeconds => time.seconds().to_string(),
            Self::UnixMilliseconds => (time.microseconds() / 1000).to_string(),
            Self::Rfc3339 => time.to_string(),
        }
    }
}

/// How a pasted secret becomes a key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyRule {
    /// Removed from the front if it is there.
    pub strip_prefix: String,
    /// How the rest is read.
    pub decode: KeyDecoding,
    /// Normalise the text to NFKD first (EasyPost).
    pub normalize_nfkd: bool,
    /// Prefixes that mark another kind of secret, such as an API key pasted by mistake.
    pub refuse_prefixes: Vec<String>,
}

impl KeyRule {
    /// The key's bytes, of a secret that is pasted without blanks around it.
    pub(super) fn bytes(&self, text: &str) -> Result<Vec<u8>, KeyProblem> {
        let text = text.strip_prefix(&self.strip_prefix).unwrap_or(text);
        match self.decode {
            KeyDecoding::Utf8 if self.normalize_nfkd => Ok(text.nfkd().collect::<String>().into_bytes()),
            KeyDecoding::Utf8 => Ok(text.as_bytes().to_vec()),
            KeyDecoding::Base64 => LENIENT_BASE64.decode(text).map_err(|_| KeyProblem::Undecodable("base64")),
            KeyDecoding::Hex => hex::decode(text).map_err(|_| KeyProblem::Undecodable("hexadecimal")),
        }
    }
}

/// How the text of a secret is turned into bytes. There is no default: the same `whsec_` prefix means
/// "the text itself" for Stripe and "base64 after the prefix" for Standard Webhooks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KeyDecoding {
    /// The text's own bytes.
    Utf8,
    /// Base64, padding optional.
    Base64,
    /// Hexadecimal, either case.
    Hex,
}

/// One part of the signed bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Fixed text.
    Literal(String),
    /// The time of signing, as it was received.
    Timestamp,
    /// The raw body.
    Body,
    /// The value of a header, lower-case name. It must be there and not empty.
    Header(String),
}

/// The keyed hashes in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Algorithm {
    /// HMAC with SHA-256.
    HmacSha256,
    /// HMAC with SHA-1, still sound as a MAC, used by older schemes.
    HmacSha1,
    /// HMAC with SHA-512.
    HmacSha512,
}

/// How a digest is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// Hexadecimal; upper and lower case are the same digest.
    Hex,
    /// Base64, padding optional.
    Base64,
}

/// Base64 with or without its padding, and with whatever the last character holds too much: as the providers' own
/// libraries accept it.
const LENIENT_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Why a delivery was refused. The public answer tells only [`Rejection::class`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Rejection {
    /// No signature header.
    #[error("no {0} header: the request is not signed")]
    SignatureMissing(String),
    /// A header that decides stood there twice.
    #[error("the header {0} stands in the request more than once")]
    HeaderRepeated(String),
    /// The signature header does not have the layout of this provider.
    #[error("the signature header is malformed: {0}")]
    SignatureMalformed(&'static str),
    /// A header that is part of the signed content is missing or empty.
    #[error("the header {0} is part of what is signed, and is missing or empty")]
    SignedHeaderMissing(String),
    /// A header that is part of the signed content could be cut in two ways.
    #[error("the header {0} contains the separator of the signed content")]
    SignedHeaderAmbiguous(String),
    /// The time of signing is missing.
    #[error("the time of signing is missing")]
    TimestampMissing,
    /// The time of signing cannot be read.
    #[error("the time of signing is malformed")]
    TimestampMalformed,
    /// The body is empty where it must not be.
    #[error("the body is empty")]
    BodyEmpty,
    /// No signature fits any secret.
    #[error("no signature fits any of the endpoint's secrets")]
    SignatureWrong,
    /// The signature is good but old.
    #[error("signed {age_seconds} s ago, more than the {past_seconds} s allowed")]
    Stale {
        /// Its age.
        age_seconds: i64,
        /// The tolerance.
        past_seconds: i64,
    },
    /// The signature is good but dated ahead of our clock.
    #[error("signed {ahead_seconds} s ahead of this clock, more than the {future_seconds} s allowed")]
    FromTheFuture {
        /// How far ahead.
        ahead_seconds: i64,
        /// The tolerance.
        future_seconds: i64,
    },
}

impl Rejection {
    /// The class that the sender is told, one word.
    pub fn class(&self) -> &'static str {
        match self {
            Self::SignatureMissing(_) | Self::SignedHeaderMissing(_) | Self::TimestampMissing => "missing",
            Self::HeaderRepeated(_)
            | Self::SignatureMalformed(_)
            | Self::SignedHeaderAmbiguous(_)
            | Self::TimestampMalformed
            | Self::BodyEmpty => "malformed",
            Self::SignatureWrong => "wrong",
            Self::Stale { .. } => "stale",
            Self::FromTheFuture { .. } => "from the future",
        }
    }
}

/// A secret made ready: the keyed hash with the key already absorbed.
#[derive(Clone)]
pub struct Key(Keyed);

#[derive(Clone)]
enum Keyed {
    Sha256(Hmac<Sha256>),
    Sha1(Hmac<Sha1>),
    Sha512(Hmac<Sha512>),
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(left out)")
    }
}

/// Why a secret cannot be used. Never holds the secret.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum KeyProblem {
    /// Nothing but blanks, or nothing left after the prefix.
    #[error("is empty; an empty key would let anyone sign")]
    Empty,
    /// Blanks or a line end around it: pasted with more than the secret.
    #[error("starts or ends with white space; paste the secret alone")]
    Blanks,
    /// It is another kind of secret.
    #[error("starts with `{0}`, which marks an API key; use the endpoint's signing secret")]
    WrongKind(String),
    /// It cannot be decoded as the definition says.
    #[error("is not {0}, as this provider's signing secrets are")]
    Undecodable(&'static str),
}

impl Key {
    /// Makes a secret ready for a rule.
    pub fn prepare(rule: &SignatureRule, secret: &SecretString) -> Result<Self, KeyProblem> {
        let text = secret.expose_secret();
        if text.trim().is_empty() {
            return Err(KeyProblem::Empty);
        }
        if text.trim() != text {
            return Err(KeyProblem::Blanks);
        }
        if let Some(prefix) = rule.key.refuse_prefixes.iter().find(|prefix| text.starts_with(*prefix)) {
            return Err(KeyProblem::WrongKind(prefix.clone()));
        }
        let bytes = rule.key.bytes(text)?;
        if bytes.is_empty() {
            return Err(KeyProblem::Empty);
        }
        Ok(Self::of_bytes(rule.algorithm, &bytes))
    }

    /// A key of bytes that are taken as they are: for [`Key::prepare`], and for hypotheses about a sender's key.
    pub(super) fn of_bytes(algorithm: Algorithm, bytes: &[u8]) -> Self {
        let any_length = "HMAC takes a key of any length";
        Self(match algorithm {
            Algorithm::HmacSha256 => Keyed::Sha256(Hmac::new_from_slice(bytes).expect(any_length)),
            Algorithm::HmacSha1 => Keyed::Sha1(Hmac::new_from_slice(bytes).expect(any_length)),
            Algorithm::HmacSha512 => Keyed::Sha512(Hmac::new_from_slice(bytes).expect(any_length)),
        })
    }

    fn digest<'a>(&self, parts: impl Iterator<Item = &'a [u8]>) -> Digest {
        fn run<'a, M: hmac::Mac + Clone>(mac: &M, parts: impl Iterator<Item = &'a [u8]>) -> Digest {
            let mut mac = mac.clone();
            parts.for_each(|part| mac.update(part));
            let output = mac.finalize().into_bytes();
            let mut digest = Digest { bytes: [0; 64], length: output.len() };
            digest.bytes[..output.len()].copy_from_slice(&output);
            digest
        }
        match &self.0 {
            Keyed::Sha256(mac) => run(mac, parts),
            Keyed::Sha1(mac) => run(mac, parts),
            Keyed::Sha512(mac) => run(mac, parts),
        }
    }
}

struct Digest {
    bytes: [u8; 64],
    length: usize,
}

impl Digest {
    fn as_slice(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

impl Encoding {
    /// Decodes a candidate from a header; `None` when it cannot be a digest of any kind.
    fn decode(self, text: &[u8]) -> Option<Vec<u8>> {
        // Longer than SHA-512 in hexadecimal: not a digest, and not worth decoding.
        if text.len() > 128 {
            return None;
        }
        match self {
            Self::Hex => hex::decode(text).ok(),
            Self::Base64 => LENIENT_BASE64.decode(text).ok(),
        }
    }

    fn encode(self, digest: &[u8]) -> String {
        match self {
            Self::Hex => hex::encode(digest),
            Self::Base64 => LENIENT_BASE64.encode(digest),
        }
    }
}

/// What a good signature tells besides being good.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Signed {
    /// Which of the endpoint's secrets fitted, counted from 0 as configured.
    pub secret: usize,
    /// When the provider signed.
    pub at: Option<Timestamp>,
}

/// Checks a delivery's signature over the bytes as they came in.
///
/// Every signature in the header is tried against every key, so a secret can be rolled at either side. The
/// age is looked at last: a stale delivery with a wrong signature is wrong, not stale.
pub fn verify(
    rule: &SignatureRule,
    keys: &[Key],
    headers: &Headers<'_>,
    body: &[u8],
    now: Timestamp,
) -> Result<Signed, Rejection> {
    if rule.require_body && body.is_empty() {
        return Err(Rejection::BodyEmpty);
    }
    let claim = Claim::of(rule, headers, body)?;
    let secret = keys.iter().position(|key| claim.is_signed_with(key)).ok_or(Rejection::SignatureWrong)?;
    let at = match &rule.timestamp {
        Some(timestamp) => Some(timestamp.check(claim.written_at, body, now)?),
        None => None,
    };
    Ok(Signed { secret, at })
}

/// What a request claims by its signature, cut out of it and not yet checked.
pub(super) struct Claim<'a> {
    /// What is signed, in order.
    pub(super) parts: Vec<&'a [u8]>,
    /// The signatures as they are written.
    pub(super) signatures: Vec<&'a [u8]>,
    /// Those of them that could be decoded.
    pub(super) digests: Vec<Vec<u8>>,
    /// The time of signing as it is written, where it stands outside the body.
    pub(super) written_at: Option<&'a [u8]>,
}

impl<'a> Claim<'a> {
    pub(super) fn of(
        rule: &'a SignatureRule,
        headers: &Headers<'a>,
        body: &'a [u8],
    ) -> Result<Self, Rejection> {
        let value = headers
            .first_of(&rule.headers)
            .map_err(|_| Rejection::HeaderRepeated(rule.headers.join(" or ")))?
            .ok_or_else(|| Rejection::SignatureMissing(rule.headers[0].clone()))?;
        let found = rule.format.split(value)?;
        let written_at = written_timestamp(rule, headers, found.timestamp)?;
        let parts = signed_parts(&rule.signed, headers, body, written_at.unwrap_or_default())?;
        let digests = found.signatures.iter().filter_map(|text| rule.encoding.decode(text)).collect();
        Ok(Self { parts, signatures: found.signatures, digests, written_at })
    }

    /// Whether one of the signatures is this key's.
    pub(super) fn is_signed_with(&self, key: &Key) -> bool {
        let digest = key.digest(self.parts.iter().copied());
        self.digests.iter().any(|claimed| claimed.as_slice().ct_eq(digest.as_slice()).into())
    }

    /// The signature that this key would have made.
    pub(super) fn signature_of(&self, key: &Key, encoding: Encoding) -> String {
        encoding.encode(key.digest(self.parts.iter().copied()).as_slice())
    }
}

/// The time of signing as it stands in the request, where it stands outside the body.
fn written_timestamp<'a>(
    rule: &SignatureRule,
    headers: &Headers<'a>,
    in_signature: Option<&'a [u8]>,
) -> Result<Option<&'a [u8]>, Rejection> {
    let written = match rule.timestamp.as_ref().map(|timestamp| &timestamp.source) {
        None | Some(TimestampSource::Body(..)) => return Ok(None),
        Some(TimestampSource::SignatureField) => in_signature,
        Some(TimestampSource::Header(name)) => {
            headers.single(name).map_err(|_| Rejection::HeaderRepeated(name.clone()))?
        }
    };
    match written {
        None | Some(b"") => Err(Rejection::TimestampMissing),
        written => Ok(written),
    }
}

fn signed_parts<'a>(
    parts: &'a [Part],
    headers: &Headers<'a>,
    body: &'a [u8],
    timestamp: &'a [u8],
) -> Result<Vec<&'a [u8]>, Rejection> {
    let mut bytes = Vec::with_capacity(parts.len());
    for (index, part) in parts.iter().enumerate() {
        bytes.push(match part {
            Part::Literal(text) => text.as_bytes(),
            Part::Timestamp => timestamp,
            Part::Body => body,
            Part::Header(name) => {
                let value = headers.single(name).map_err(|_| Rejection::HeaderRepeated(name.clone()))?;
                let value = value
                    .filter(|value| !value.is_empty())
                    .ok_or_else(|| Rejection::SignedHeaderMissing(name.clone()))?;
                // `a.b` + `.` + `c` and `a` + `.` + `b.c` sign the same bytes: such a value proves nothing.
                if let Some(Part::Literal(next)) = parts.get(index + 1)
                    && contains(value, next.as_bytes())
                {
                    return Err(Rejection::SignedHeaderAmbiguous(name.clone()));
                }
                value
            }
        });
    }
    Ok(bytes)
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    !needle.is_empty() && haystack.windows(needle.len()).any(|window| window == needle)
}

impl TimestampRule {
    /// Reads the time of signing and judges its age.
    pub(super) fn check(
        &self,
        written: Option<&[u8]>,
        body: &[u8],
        now: Timestamp,
    ) -> Result<Timestamp, Rejection> {
        let text = match (&self.source, written) {
            (TimestampSource::Body(pointers, slot), _) => {
                let found = pointers.extract(body).map_err(|_| Rejection::TimestampMalformed)?;
                let raw = found[*slot].ok_or(Rejection::TimestampMissing)?;
                read_text(raw).map_err(|_| Rejection::TimestampMalformed)?
            }
            (_, Some(written)) => str::from_utf8(written).map_err(|_| Rejection::TimestampMalformed)?.into(),
            (_, None) => return Err(Rejection::TimestampMissing),
        };
        let at = self.format.parse(&text).ok_or(Rejection::TimestampMalformed)?;
        let age_seconds = now.seconds() - at.seconds();
        match (self.past_seconds, self.future_seconds) {
            (Some(past_seconds), _) if age_seconds > past_seconds => {
                Err(Rejection::Stale { age_seconds, past_seconds })
            }
            (_, Some(future_seconds)) if -age_seconds > future_seconds => {
                Err(Rejection::FromTheFuture { ahead_seconds: -age_seconds, future_seconds })
            }
            _ => Ok(at),
        }
    }
}

/// What a signature header holds.
struct Found<'a> {
    signatures: Vec<&'a [u8]>,
    timestamp: Option<&'a [u8]>,
}

impl Format {
    fn split<'a>(&self, value: &'a [u8]) -> Result<Found<'a>, Rejection> {
        let mut found = Found { signatures: Vec::new(), timestamp: None };
        match self {
            Self::Plain { prefix } => {
                let signature = value
                    .trim_ascii()
                    .strip_prefix(prefix.as_bytes())
                    .ok_or(Rejection::SignatureMalformed("its prefix is missing"))?;
                found.signatures.push(signature.trim_ascii());
            }
            Self::Pairs { separator, signature, timestamp } => {
                for item in items(value, *separator) {
                    let (name, value) = split_once(item, b'=')
                        .filter(|(_, value)| !value.contains(&b'=') || name_allows_padding(value))
                        .ok_or(Rejection::SignatureMalformed("a field is not name=value"))?;
                    if name == signature.as_bytes() {
                        found.signatures.push(value);
                    } else if timestamp.as_ref().is_some_and(|timestamp| name == timestamp.as_bytes())
                        && found.timestamp.replace(value).is_some()
                    {
                        return Err(Rejection::SignatureMalformed("the timestamp stands there twice"));
                    }
                }
            }
            Self::Tagged { separator, tag_separator, tag } => {
                for item in items(value, *separator) {
                    // A tag that is not ours is another scheme, which senders may add at any time.
                    if let Some((found_tag, signature)) = split_once(item, *tag_separator as u8)
                        && found_tag == tag.as_bytes()
                    {
                        found.signatures.push(signature);
                    }
                }
            }
        }
        if found.signatures.iter().all(|signature| signature.is_empty()) {
            return Err(Rejection::SignatureMalformed("it holds no signature of this scheme"));
        }
        Ok(found)
    }
}

/// Base64 may end in `=`; any other `=` inside a value means that the header is not what it seems.
fn name_allows_padding(value: &[u8]) -> bool {
    let unpadded = value.trim_ascii_end();
    let end = unpadded.iter().rposition(|byte| *byte != b'=').map_or(0, |last| last + 1);
    !unpadded[..end].contains(&b'=') && unpadded.len() - end <= 2 && end > 0
}

/// The items of a list, blanks around them removed, empty ones (a trailing comma) skipped.
fn items(value: &[u8], separator: char) -> impl Iterator<Item = &[u8]> {
    value.split(move |byte| *byte == separator as u8).map(<[u8]>::trim_ascii).filter(|item| !item.is_empty())
}

fn split_once(item: &[u8], separator: u8) -> Option<(&[u8], &[u8])> {
    let at = item.iter().position(|byte| *byte == separator)?;
    Some((&item[..at], &item[at + 1..]))
}

/// Why a request cannot be signed by us.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CannotSign {
    /// A header is part of the signed content and was not given.
    #[error("the header {0} is part of what is signed: give it a value")]
    HeaderMissing(String),
}

/// Signs a request as the provider would.
///
/// `headers` are those that the request will carry besides; the result is what must be added to them: the
/// signature and, where the scheme has one in a header, the time of signing.
pub fn sign(
    rule: &SignatureRule,
    key: &Key,
    headers: &Headers<'_>,
    body: &[u8],
    now: Timestamp,
) -> Result<Vec<(String, String)>, CannotSign> {
    let mut added = Vec::new();
    let written_at = rule.timestamp.as_ref().map(|timestamp| timestamp.format.write(now)).unwrap_or_default();
    if let Some(TimestampRule { source: TimestampSource::Header(name), .. }) = &rule.timestamp {
        added.push((name.clone(), written_at.clone()));
    }
    let parts =
        signed_parts(&rule.signed, headers, body, written_at.as_bytes()).map_err(
            |rejection| match rejection {
                Rejection::SignedHeaderMissing(name)
                | Rejection::SignedHeaderAmbiguous(name)
                | Rejection::HeaderRepeated(name) => CannotSign::HeaderMissing(name),
                other => unreachable!("signed_parts does not refuse for {other}"),
            },
        )?;
    let signature = rule.encoding.encode(key.digest(parts.into_iter()).as_slice());
    let value = match &rule.format {
        Format::Plain { prefix } => format!("{prefix}{signature}"),
        Format::Pairs { separator, signature: name, timestamp: Some(time) } => {
            format!("{time}={written_at}{separator}{name}={signature}")
        }
        Format::Pairs { signature: name, timestamp: None, .. } => format!("{name}={signature}"),
        Format::Tagged { tag_separator, tag, .. } => format!("{tag}{tag_separator}{signature}"),
    };
    added.push((rule.headers[0].clone(), value));
    Ok(added)
}
