//! What can be said of a request when no hypothesis makes its signature fit.

use super::secret::Reading;
use super::{Candidate, Cause, Certainty, Finding, Fit, Suspect};
use crate::provider::signature::{Claim, Encoding, Key, Rejection};

/// Fewer characters of a signature that is cut off could fit by chance.
const CUT_OFF_MIN: usize = 16;

const SIGNATURE_WAY_OUT: &str = "find what shortens or rewrites header values: a column, a log or a proxy";
const UNSIGNED_WAY_OUT: &str = "if the provider sends it, let the proxy pass it on; if it does not, set the signing \
    secret at the provider; if somebody else sent this, nothing is wrong";
const BODY_WAY_OUT: &str = "pass the body on before a framework reads it, or read it from the raw request";

/// All hints.
pub(super) fn hints(own: &Candidate<'_>, suspect: &Suspect<'_>, rejection: &Rejection) -> Vec<Finding> {
    let of_signature = signature_damaged(own, suspect);
    if !of_signature.is_empty() {
        return of_signature;
    }
    let causes = [header_missing(rejection), body_missing_or_cut(suspect), characters_lost(suspect)];
    causes
        .into_iter()
        .flatten()
        .map(|cause| Finding { causes: vec![cause], fit: None, certainty: Certainty::Hint })
        .collect()
}

/// The signature would fit, were it whole and in its own case.
fn signature_damaged(own: &Candidate<'_>, suspect: &Suspect<'_>) -> Vec<Finding> {
    let rule = &own.definition.signature;
    let Ok(claim) = Claim::of(rule, suspect.headers, suspect.body) else { return Vec::new() };
    let readings = own.secrets.iter().filter_map(|secret| Reading::plain(rule, secret, own.endpoint));
    let found = readings.filter_map(|reading| {
        let whole = claim.signature_of(&Key::of_bytes(rule.algorithm, &reading.bytes), rule.encoding);
        let cause = claim.signatures.iter().find_map(|written| damage(&whole, written, rule.encoding))?;
        let fit = Fit { secret: reading.secret.reference.to_owned(), endpoint: own.endpoint.to_owned() };
        Some(Finding { causes: vec![cause], fit: Some(fit), certainty: Certainty::Hint })
    });
    found.collect()
}

fn damage(whole: &str, written: &[u8], encoding: Encoding) -> Option<Cause> {
    let start = whole.as_bytes().get(..written.len())?;
    let same = match encoding {
        Encoding::Hex => start.eq_ignore_ascii_case(written),
        Encoding::Base64 => start == written,
    };
    if same && (CUT_OFF_MIN..whole.len()).contains(&written.len()) {
        let what = format!(
            "the first {} of the signature's {} characters fit: it is cut off",
            written.len(),
            whole.len()
        );
        return Some(Cause::new("signature-cut-off", what, SIGNATURE_WAY_OUT));
    }
    let other_case = start.len() == whole.len() && start.eq_ignore_ascii_case(written);
    other_case.then(|| {
        let what = "the signature fits but for upper and lower case, which its encoding tells apart";
        Cause::new("signature-case-changed", what, SIGNATURE_WAY_OUT)
    })
}

fn header_missing(rejection: &Rejection) -> Option<Cause> {
    let what = match rejection {
        Rejection::SignatureMissing(name) => {
            format!("no header `{name}` came, and none that holds a signature")
        }
        Rejection::SignedHeaderMissing(name) => {
            format!("the header `{name}` did not come, and no other holds what was signed")
        }
        Rejection::TimestampMissing => "the time of signing did not come".to_owned(),
        _ => return None,
    };
    Some(Cause::new("header-missing", what, UNSIGNED_WAY_OUT))
}

fn body_missing_or_cut(suspect: &Suspect<'_>) -> Option<Cause> {
    let length = suspect.body.len();
    let said = suspect.headers.single("content-length").ok().flatten();
    let said: Option<usize> = said.and_then(|text| str::from_utf8(text).ok()?.parse().ok());
    match said {
        Some(said) if said != length => {
            let what = format!("the header content-length says {said} bytes, and the body has {length}");
            Some(Cause::new("body-length-differs", what, BODY_WAY_OUT))
        }
        _ if length == 0 => {
            let what = "the body is empty: something before Wharf has read it";
            Some(Cause::new("body-empty", what, BODY_WAY_OUT))
        }
        _ => None,
    }
}

/// U+FFFD is what is written where bytes were no text.
fn characters_lost(suspect: &Suspect<'_>) -> Option<Cause> {
    str::from_utf8(suspect.body).ok().filter(|body| body.contains('\u{fffd}')).map(|_| {
        let what = "the body contains U+FFFD, which stands for bytes that something could not read as text";
        Cause::new("body-characters-lost", what, BODY_WAY_OUT)
    })
}
