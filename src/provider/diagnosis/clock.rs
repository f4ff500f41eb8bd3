//! What is wrong with the time of a request whose signature fits.

use super::Cause;
use crate::provider::signature::{Rejection, TimeFormat, TimestampRule};
use crate::timestamp::Timestamp;

/// Ten years: nobody's clock is off by so much; the number is of another unit.
const NO_CLOCK_IS_OFF_BY_SECONDS: i64 = 315_576_000;

const UNIT_WAY_OUT: &str = "let the sender write the time as the provider's scheme says, or correct the \
    timestamp's `as` in the provider file";
const STALE_WAY_OUT: &str = "a request that is checked later: name the time it came with --at. A replay, or a proxy \
    that holds requests back: ask the provider to send it anew. A clock: compare both with the true time (NTP)";
const FUTURE_WAY_OUT: &str = "compare this machine's clock, and the sender's, with the true time (NTP)";

/// What is wrong with the time, if anything is.
pub(super) fn causes(
    rule: Option<&TimestampRule>,
    written: Option<&[u8]>,
    body: &[u8],
    at: Timestamp,
) -> Vec<Cause> {
    let Some(rule) = rule else { return Vec::new() };
    let Err(rejection) = rule.check(written, body, at) else { return Vec::new() };
    if is_plausible(&rejection) {
        return vec![cause(rule, written, body, at, &rejection)];
    }
    for (format, name) in [
        (TimeFormat::UnixSeconds, "in seconds"),
        (TimeFormat::UnixMilliseconds, "in milliseconds"),
        (TimeFormat::Rfc3339, "as a date"),
    ] {
        let other = TimestampRule { format, ..rule.clone() };
        let unit = Cause::new("time-unit", format!("the time of signing is written {name}"), UNIT_WAY_OUT);
        match other.check(written, body, at) {
            Ok(_) => return vec![unit],
            Err(rejection) if is_plausible(&rejection) => {
                return vec![unit, cause(&other, written, body, at, &rejection)];
            }
            Err(_) => {}
        }
    }
    vec![cause(rule, written, body, at, &rejection)]
}

/// Whether the time is one that a clock could have shown.
fn is_plausible(rejection: &Rejection) -> bool {
    match rejection {
        Rejection::Stale { age_seconds: off, .. } | Rejection::FromTheFuture { ahead_seconds: off, .. } => {
            *off < NO_CLOCK_IS_OFF_BY_SECONDS
        }
        _ => false,
    }
}

fn cause(
    rule: &TimestampRule,
    written: Option<&[u8]>,
    body: &[u8],
    at: Timestamp,
    rejection: &Rejection,
) -> Cause {
    let any_age = TimestampRule { past_seconds: None, future_seconds: None, ..rule.clone() };
    let signed = any_age.check(written, body, at);
    let signed = signed.map(|at| at.to_string()).unwrap_or_default();
    match rejection {
        Rejection::Stale { age_seconds, past_seconds } => {
            let what = format!(
                "it was signed at {signed}, {age_seconds} s before it came, and {past_seconds} s are allowed: a \
                 replay of something old, or a clock that is off by about {age_seconds} s"
            );
            Cause::new("clock-stale", what, STALE_WAY_OUT)
        }
        Rejection::FromTheFuture { ahead_seconds, future_seconds } => {
            let what = format!(
                "it was signed at {signed}, {ahead_seconds} s after it came, and {future_seconds} s are allowed: a \
                 clock that is off by about {ahead_seconds} s"
            );
            Cause::new("clock-ahead", what, FUTURE_WAY_OUT)
        }
        other => Cause::new("time-unreadable", other.to_string(), UNIT_WAY_OUT),
    }
}
