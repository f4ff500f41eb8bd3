//! Events that are in the inbox already, tried again from their stored bytes: by Wharf itself, because time may
//! have healed them, or by an operator, after the cause was fixed.
//!
//! The rows are locked and claimed in the settling transaction. A row that another gateway, another command or a
//! redelivery has in hands is passed over: whoever holds it settles it.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use serde_json::Value;
use sqlx::types::time::OffsetDateTime;
use sqlx::{PgConnection, Row as _};

use super::Origin;
use super::claim::{Claimed, hoped_for, ignored_because};
use super::queue::BATCH_BYTES_MAX;
use super::select::by_index_alone;
use crate::effect::Effects;
use crate::provider::{Content, Event, Headers, Reader, Verified};
use crate::timestamp::Timestamp;

/// What is to be done with an endpoint's events.
#[derive(Debug, Clone)]
pub struct Handling {
    /// How they are read.
    pub reader: Reader,
    /// Which of their changes go to functions of the company's own.
    pub effects: Arc<Effects>,
}

/// What is to be done with the events of each endpoint, by its name.
pub type Readers = HashMap<String, Handling>;

/// Who tries again, and why.
#[derive(Debug, Clone, Copy)]
pub enum Again<'a> {
    /// Wharf itself: failed events that are due.
    Retry,
    /// An operator: failed, dead and ignored events.
    Reprocess {
        /// Who.
        operator: &'a str,
        /// Why, for those who come after.
        reason: Option<&'a str>,
    },
}

impl Again<'_> {
    /// The origin that the attempt is recorded with.
    pub(super) fn origin(&self) -> &'static str {
        match self {
            Self::Retry => "retry",
            Self::Reprocess { .. } => "reprocess",
        }
    }

    fn statuses(&self) -> &'static [&'static str] {
        match self {
            Self::Retry => &["failed"],
            Self::Reprocess { .. } => &["failed", "dead", "ignored"],
        }
    }
}

/// A row of the inbox, locked and read.
#[derive(Debug)]
pub(super) struct Stored {
    inbox_id: i64,
    attempts: i32,
    first_received_at: Timestamp,
    was_settled: bool,
    origin: Origin,
    event: Event,
}

/// Locks rows and reads their events. Rows that are in other hands, settled meanwhile, or of an endpoint that has
/// no reader, are left out.
pub(super) async fn lock(
    connection: &mut PgConnection,
    ids: &[i64],
    again: Again<'_>,
    readers: &Readers,
) -> Result<Vec<Stored>, sqlx::Error> {
    let rows = sqlx::query(
        "select id, tenant_id, endpoint, provider, event_id, status, attempts, received_at,
                headers::text as headers, body,
                coalesce((select name from tenant where tenant.id = tenant_id), '') as tenant_name
         from webhook_inbox
         where id = any($1::bigint[]) and status = any($2::text[]) and endpoint = any($3::text[])
           and (not $4 or next_attempt_at <= now())
         order by id for no key update skip locked",
    )
    .bind(ids)
    .bind(again.statuses())
    .bind(readers.keys().map(String::as_str).collect::<Vec<_>>())
    .bind(matches!(again, Again::Retry))
    .fetch_all(connection)
    .await?;
    rows.iter().map(|row| stored(row, readers)).collect()
}

fn stored(row: &sqlx::postgres::PgRow, readers: &Readers) -> Result<Stored, sqlx::Error> {
    let endpoint: String = row.try_get("endpoint")?;
    let headers: &str = row.try_get("headers")?;
    let body: &[u8] = row.try_get("body")?;
    let handling = readers.get(&endpoint).expect("only rows of known endpoints are asked for");
    let event = catch_unwind(AssertUnwindSafe(|| read_again(&handling.reader, headers, body)));
    // One that cannot even be read must not hold up all others.
    let mut event = event.unwrap_or_else(|_panic| Event {
        id: String::new(),
        kind: String::new(),
        occurred_at: None,
        content: Content::Unreadable("reading this event panicked; please report it".to_owned()),
    });
    // The key stays what it was: it is what redeliveries are compared with.
    event.id = row.try_get("event_id")?;
    Ok(Stored {
        inbox_id: row.try_get("id")?,
        attempts: row.try_get("attempts")?,
        first_received_at: row.try_get::<OffsetDateTime, _>("received_at")?.into(),
        was_settled: row.try_get::<&str, _>("status")? != "failed",
        origin: Origin {
            endpoint,
            provider: row.try_get("provider")?,
            tenant: row.try_get("tenant_id")?,
            tenant_name: row.try_get("tenant_name")?,
            effects: Arc::clone(&handling.effects),
            gives_up_after: None,
        },
        event,
    })
}

/// Reads a delivery as the inbox keeps it.
pub fn read_again(reader: &Reader, headers: &str, body: &[u8]) -> Event {
    let lines = header_lines(headers);
    let headers: Headers<'_> = lines.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    reader.read(&Verified::from_inbox(&headers, body))
}

/// The header lines of an inbox row: a JSON object of names, each with its value or its values.
pub fn header_lines(headers: &str) -> Vec<(String, String)> {
    let Ok(Value::Object(headers)) = serde_json::from_str(headers) else { return Vec::new() };
    let mut lines = Vec::new();
    for (name, value) in headers {
        match value {
            Value::String(value) => lines.push((name, value)),
            Value::Array(values) => {
                let values = values.into_iter().filter_map(|value| value.as_str().map(str::to_owned));
                lines.extend(values.map(|value| (name.clone(), value)));
            }
            _ => {}
        }
    }
    lines
}

/// Claims locked rows. One entry per id, in order; `None`: the row is in other hands or settled.
pub(super) async fn claim<'a>(
    connection: &mut PgConnection,
    ids: &[i64],
    stored: &'a [Stored],
) -> Result<Vec<Option<Claimed<'a>>>, sqlx::Error> {
    let events = || stored.iter().map(|stored| &stored.event);
    if !stored.is_empty() {
        sqlx::query(
            "update webhook_inbox inbox
             set attempts = inbox.attempts + 1, event_type = told.event_type, status = told.status,
                 last_error = null, error_kind = null, fingerprint = null, about = null,
                 ignored_because = told.ignored_because, occurred_at = told.occurred_at, settled_at = now(),
                 dead_lettered_at = null, next_attempt_at = null
             from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::timestamptz[])
               as told (id, event_type, status, ignored_because, occurred_at)
             where inbox.id = told.id",
        )
        .bind(stored.iter().map(|stored| stored.inbox_id).collect::<Vec<_>>())
        .bind(events().map(|event| event.kind.as_str()).collect::<Vec<_>>())
        .bind(events().map(hoped_for).collect::<Vec<_>>())
        .bind(events().map(ignored_because).collect::<Vec<_>>())
        .bind(events().map(|event| event.occurred_at.map(OffsetDateTime::from)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    }
    let by_id: HashMap<i64, &Stored> = stored.iter().map(|stored| (stored.inbox_id, stored)).collect();
    let claimed = ids.iter().map(|id| {
        by_id.get(id).map(|stored| Claimed {
            inbox_id: stored.inbox_id,
            attempt: stored.attempts + 1,
            first_received_at: stored.first_received_at,
            origin: &stored.origin,
            event: &stored.event,
            revived: stored.was_settled,
        })
    });
    Ok(claimed.collect())
}

/// A row that may be tried again.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Candidate {
    /// The inbox row.
    pub id: i64,
    /// The endpoint.
    pub endpoint: String,
    /// The size of its body.
    pub bytes: i32,
}

/// As many as fit into a batch by their bodies' sizes, at least one.
pub fn fitting(candidates: &[Candidate]) -> Vec<i64> {
    let mut bytes = 0;
    let fits = |candidate: &&Candidate| {
        let first = bytes == 0;
        bytes += usize::try_from(candidate.bytes).unwrap_or(0).max(1);
        first || bytes <= BATCH_BYTES_MAX
    };
    candidates.iter().take_while(fits).map(|candidate| candidate.id).collect()
}

/// Failed events of these endpoints that are due, the longest due first.
pub async fn due(
    connection: &mut PgConnection,
    endpoints: &[String],
    at_most: usize,
) -> Result<Vec<Candidate>, sqlx::Error> {
    by_index_alone(connection).await?;
    sqlx::query_as(
        "select id, endpoint, octet_length(body) as bytes from webhook_inbox
         where status = 'failed' and next_attempt_at <= now() and endpoint = any($1)
         order by next_attempt_at limit $2",
    )
    .bind(endpoints)
    .bind(i64::try_from(at_most).unwrap_or(i64::MAX))
    .fetch_all(connection)
    .await
}
