//! A secret as a key's bytes: as the scheme reads it, and as a sender may have read it instead.

use base64::Engine as _;
use base64::alphabet;
use base64::engine::{DecodePaddingMode, GeneralPurpose, GeneralPurposeConfig};
use secrecy::ExposeSecret as _;

use super::{Cause, NamedSecret};
use crate::provider::signature::{KeyDecoding, KeyRule, SignatureRule};

/// A secret read as a key.
pub(super) struct Reading<'a> {
    pub(super) secret: &'a NamedSecret<'a>,
    pub(super) endpoint: &'a str,
    pub(super) bytes: Vec<u8>,
    pub(super) causes: Vec<Cause>,
}

const URL_BASE64: GeneralPurpose = GeneralPurpose::new(
    &alphabet::URL_SAFE,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

const WAY_OUT: &str = "give the sender's code the secret as the provider's documentation says; if it is Wharf's scheme \
    that is wrong, correct `key` in the provider file";

const SET_IT: &str =
    "set the secret at the sender: what is signed with an empty key anyone could have signed";

impl<'a> Reading<'a> {
    /// As the scheme reads it; `None` where it cannot.
    pub(super) fn plain(
        rule: &SignatureRule,
        secret: &'a NamedSecret<'a>,
        endpoint: &'a str,
    ) -> Option<Self> {
        let bytes = rule.key.bytes(secret.text.expose_secret()).ok().filter(|bytes| !bytes.is_empty())?;
        Some(Self { secret, endpoint, bytes, causes: Vec::new() })
    }

    /// In all ways that the scheme does not read it, each key once.
    pub(super) fn others(rule: &SignatureRule, secret: &'a NamedSecret<'a>, endpoint: &'a str) -> Vec<Self> {
        let text = secret.text.expose_secret();
        let mut seen: Vec<Vec<u8>> = rule.key.bytes(text).ok().into_iter().collect();
        let mut readings = Vec::new();
        for (name, what, bytes) in tried(&rule.key, text) {
            if !seen.contains(&bytes) {
                seen.push(bytes.clone());
                let way_out = if bytes.is_empty() { SET_IT } else { WAY_OUT };
                let causes = vec![Cause::new(name, what, way_out)];
                readings.push(Self { secret, endpoint, bytes, causes });
            }
        }
        readings
    }
}

type Tried = (&'static str, String, Vec<u8>);

fn tried(rule: &KeyRule, text: &str) -> Vec<Tried> {
    let mut tried = Vec::new();
    let more = [
        ("secret-with-line-end", "with a line end (LF) after it", format!("{text}\n")),
        ("secret-with-line-end", "with a line end (CR LF) after it", format!("{text}\r\n")),
        ("secret-with-blanks", "with a blank after it", format!("{text} ")),
        ("secret-with-blanks", "with a blank before it", format!(" {text}")),
        ("secret-in-quotes", "with quotes around it", format!("\"{text}\"")),
        ("secret-in-quotes", "without the quotes around it", text.trim_matches(['"', '\'']).to_owned()),
    ];
    for (name, what, changed) in more {
        if changed == text {
            continue;
        }
        let as_configured = rule.bytes(&changed);
        let own = [as_configured.ok(), Some(changed.into_bytes())].into_iter().flatten();
        tried.extend(own.map(|bytes| (name, format!("the sender's key is the secret {what}"), bytes)));
    }
    let after_underscore = text.split_once('_').map(|(_, rest)| rest);
    let texts = [
        ("the whole secret", Some(text.to_owned())),
        ("the secret after the prefix", text.strip_prefix(&rule.strip_prefix).map(str::to_owned)),
        ("the secret after its first `_`", after_underscore.map(str::to_owned)),
        ("the secret with `whsec_` before it", Some(format!("whsec_{text}"))),
    ];
    for (which, text) in texts {
        let Some(text) = text else { continue };
        let decoded = [
            ("as plain text", Some(text.clone().into_bytes())),
            ("decoded from base64", decoded(KeyDecoding::Base64, &text)),
            ("decoded from the base64 of URLs", URL_BASE64.decode(&text).ok()),
            ("decoded from hexadecimal", decoded(KeyDecoding::Hex, &text)),
        ];
        tried.extend(decoded.into_iter().filter_map(|(how, bytes)| {
            let what = format!("the sender's key is {which}, {how}");
            bytes.filter(|bytes| !bytes.is_empty()).map(|bytes| ("secret-decoding", what, bytes))
        }));
    }
    tried.push((
        "secret-empty",
        "the sender signs with an empty key: its secret is not set".to_owned(),
        Vec::new(),
    ));
    tried
}

fn decoded(decode: KeyDecoding, text: &str) -> Option<Vec<u8>> {
    let rule =
        KeyRule { strip_prefix: String::new(), decode, normalize_nfkd: false, refuse_prefixes: Vec::new() };
    rule.bytes(text).ok()
}
