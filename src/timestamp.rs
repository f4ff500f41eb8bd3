//! A point in time as the database keeps it: whole microseconds since 1970, UTC.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::OffsetDateTime;
use time::format_description::well_known::Rfc3339;

/// Microseconds since 1970-01-01T00:00:00Z.
///
/// Providers give seconds, milliseconds or nanoseconds; Postgres keeps microseconds. Comparing at the
/// database's precision from the first moment keeps an event's place in time the same before and after it
/// was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

/// 9999-12-31T23:59:59Z, the last second that RFC 3339 can write.
const LAST_SECOND: i64 = 253_402_300_799;

impl Timestamp {
    /// From whole seconds since 1970; `None` outside the years 1970 to 9999.
    pub fn from_seconds(seconds: i64) -> Option<Self> {
        (0..=LAST_SECOND).contains(&seconds).then(|| Self(seconds * 1_000_000))
    }

    /// From milliseconds since 1970; `None` outside the years 1970 to 9999.
    pub fn from_milliseconds(milliseconds: i64) -> Option<Self> {
        Self::from_seconds(milliseconds.div_euclid(1000))
            .map(|whole| Self(whole.0 + milliseconds.rem_euclid(1000) * 1000))
    }

    /// From RFC 3339 text with any offset; what is finer than a microsecond is cut off.
    pub fn from_rfc3339(text: &str) -> Option<Self> {
        let parsed = OffsetDateTime::parse(text, &Rfc3339).ok()?;
        let second = Self::from_seconds(parsed.unix_timestamp())?;
        Some(Self(second.0 + i64::from(parsed.microsecond())))
    }

    /// Whole seconds since 1970, rounded down.
    pub fn seconds(self) -> i64 {
        self.0.div_euclid(1_000_000)
    }

    /// Microseconds since 1970.
    pub fn microseconds(self) -> i64 {
        self.0
    }

    /// This moment moved by whole seconds.
    #[must_use]
    pub fn plus_seconds(self, seconds: i64) -> Self {
        Self(self.0 + seconds * 1_000_000)
    }
}

impl From<SystemTime> for Timestamp {
    fn from(time: SystemTime) -> Self {
        let since = time.duration_since(UNIX_EPOCH).unwrap_or(Duration::ZERO);
        Self(i64::try_from(since.as_micros()).unwrap_or(i64::MAX))
    }
}

impl From<Timestamp> for OffsetDateTime {
    fn from(timestamp: Timestamp) -> Self {
        Self::from_unix_timestamp_nanos(i128::from(timestamp.0) * 1000).unwrap_or(Self::UNIX_EPOCH)
    }
}

impl From<OffsetDateTime> for Timestamp {
    fn from(time: OffsetDateTime) -> Self {
        Self(i64::try_from(time.unix_timestamp_nanos().div_euclid(1000)).unwrap_or(i64::MAX))
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match OffsetDateTime::from(*self).format(&Rfc3339) {
            Ok(text) => f.write_str(&text),
            Err(_) => write!(f, "{} microseconds since 1970", self.0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_offsets_are_compared_as_instants() {
        let earlier = Timestamp::from_rfc3339("2026-03-01T10:00:00+08:00").unwrap();
        let later = Timestamp::from_rfc3339("2026-03-01T03:30:00Z").unwrap();
        assert!(earlier < later, "02:00Z comes before 03:30Z though its text is larger");
        let seconds = Timestamp::from_seconds(1_772_335_800).unwrap();
        let milliseconds = Timestamp::from_milliseconds(1_772_335_800_000).unwrap();
        assert_eq!((seconds, milliseconds), (later, later));
    }

    #[test]
    fn what_is_finer_than_a_microsecond_is_cut_off() {
        let fine = Timestamp::from_rfc3339("2026-03-01T03:30:00.123456789Z").unwrap();
        assert_eq!(fine, OffsetDateTime::from(fine).into());
        assert_eq!(fine.microseconds() % 1_000_000, 123_456);
    }

    #[test]
    fn years_that_cannot_be_written_are_refused() {
        assert_eq!(Timestamp::from_seconds(LAST_SECOND + 1), None);
        assert_eq!(Timestamp::from_seconds(-1), None);
        assert_eq!(Timestamp::from_milliseconds(i64::MAX), None);
    }
}
