//! The options by which commands choose events.

use std::time::SystemTime;

use clap::{Args, ValueEnum};

use super::Usage;
use crate::inbox::ErrorKind;
use crate::inbox::select::{Filter, Status};
use crate::timestamp::Timestamp;

/// Which events. Options given several times mean any of the values; different options must all hold.
#[derive(Debug, Clone, Default, Args)]
pub(super) struct FilterArgs {
    /// What became of them.
    #[arg(long, value_enum, value_name = "STATUS")]
    status: Vec<Status>,
    /// The endpoint.
    #[arg(long, value_name = "NAME")]
    endpoint: Vec<String>,
    /// The provider.
    #[arg(long, value_name = "NAME")]
    provider: Vec<String>,
    /// The provider's event type.
    #[arg(long = "type", value_name = "TYPE")]
    event_type: Vec<String>,
    /// The kind of error.
    #[arg(long, value_name = "KIND", value_parser = error_kinds())]
    error_kind: Vec<String>,
    /// A group of `wharf inbox errors`.
    #[arg(long, value_name = "GROUP")]
    error: Option<String>,
    /// The provider's event id.
    #[arg(long, value_name = "ID")]
    event_id: Option<String>,
    /// The number of an invoice or a receipt.
    #[arg(long, value_name = "NUMBER")]
    number: Option<String>,
    /// Received since: an age (90s, 15m, 2h, 3days) or a time (2026-03-01T08:00:00Z).
    #[arg(long, value_name = "WHEN", value_parser = when)]
    since: Option<Timestamp>,
    /// Received until: an age or a time.
    #[arg(long, value_name = "WHEN", value_parser = when)]
    until: Option<Timestamp>,
}

impl ValueEnum for Status {
    fn value_variants<'a>() -> &'a [Self] {
        &[Self::Processed, Self::Ignored, Self::Failed, Self::Dead, Self::Discarded]
    }

    fn to_possible_value(&self) -> Option<clap::builder::PossibleValue> {
        Some(clap::builder::PossibleValue::new(self.name()))
    }
}

fn error_kinds() -> clap::builder::PossibleValuesParser {
    ErrorKind::ALL.map(|(_, name)| name).into()
}

/// Reads an age or a time.
pub(super) fn when(text: &str) -> Result<Timestamp, String> {
    if let Ok(age) = humantime::parse_duration(text) {
        let now = Timestamp::from(SystemTime::now());
        let seconds = i64::try_from(age.as_secs()).unwrap_or(i64::MAX).min(now.seconds());
        return Ok(now.plus_seconds(-seconds));
    }
    humantime::parse_rfc3339_weak(text)
        .map(Timestamp::from)
        .map_err(|_| "write an age such as 2h, or a time such as 2026-03-01T08:00:00Z".to_owned())
}

impl FilterArgs {
    pub(super) fn is_empty(&self) -> bool {
        self.filter() == Filter::default()
    }

    pub(super) fn filter(&self) -> Filter {
        Filter {
            ids: Vec::new(),
            statuses: self.status.clone(),
            endpoints: self.endpoint.clone(),
            providers: self.provider.clone(),
            types: self.event_type.clone(),
            error_kinds: self.error_kind.clone(),
            fingerprint: self.error.clone(),
            event_id: self.event_id.clone(),
            number: self.number.clone(),
            since: self.since,
            until: self.until,
        }
    }

    /// For commands that are about failed and dead events.
    pub(super) fn trouble(&self) -> Result<Filter, Usage> {
        self.limited_to(&[Status::Failed, Status::Dead])
    }

    /// The filter with statuses that a command can work on; those of failed and dead events if none is given.
    pub(super) fn limited_to(&self, allowed: &[Status]) -> Result<Filter, Usage> {
        if let Some(other) = self.status.iter().find(|status| !allowed.contains(status)) {
            let names: Vec<&str> = allowed.iter().map(|status| status.name()).collect();
            return Err(Usage(format!(
                "--status {} is not for this command; it works on {}",
                other.name(),
                names.join(", ")
            )));
        }
        let mut filter = self.filter();
        if filter.statuses.is_empty() {
            filter.statuses = vec![Status::Failed, Status::Dead];
        }
        Ok(filter)
    }
}
