//! CLAIM: who may go on with an event.
//!
//! One insert decides, for a whole batch of deliveries. A row that comes back is ours. No row: the event is
//! settled, a duplicate. Another gateway that holds the same event in an open transaction makes the insert wait:
//! nobody answers while it is undecided.

use sqlx::PgConnection;
use sqlx::types::time::OffsetDateTime;

use super::{Delivery, Origin};
use crate::provider::{Content, Event};
use crate::timestamp::Timestamp;

/// An event that is ours until the transaction ends.
#[derive(Debug, Clone, Copy)]
pub struct Claimed<'a> {
    /// The inbox row.
    pub inbox_id: i64,
    /// Which attempt this is.
    pub attempt: i32,
    /// When the event was first received.
    pub first_received_at: Timestamp,
    /// Where it came in.
    pub origin: &'a Origin,
    /// What it tells.
    pub event: &'a Event,
    /// It was settled without being applied, and is tried again because an operator wants it.
    pub revived: bool,
}

/// The status that an event has if all goes well. It is written with the claim, so that a batch without trouble
/// needs no second write.
pub(super) fn hoped_for(event: &Event) -> &'static str {
    match event.content {
        Content::Ignored(_) => "ignored",
        Content::Changes(_) | Content::Unreadable(_) => "processed",
    }
}

/// Why an event means nothing here.
pub(super) fn ignored_because(event: &Event) -> Option<&str> {
    match &event.content {
        Content::Ignored(reason) => Some(reason),
        Content::Changes(_) | Content::Unreadable(_) => None,
    }
}

/// Claims a batch. Keys in a batch are distinct. The result has one entry per delivery, in order; `None`: duplicate.
///
/// Rows are claimed in the order of their keys, so that two gateways cannot deadlock.
pub async fn claim<'a>(
    connection: &mut PgConnection,
    deliveries: &[&'a Delivery],
) -> Result<Vec<Option<Claimed<'a>>>, sqlx::Error> {
    let mut order: Vec<usize> = (0..deliveries.len()).collect();
    order.sort_unstable_by_key(|at| deliveries[*at].key());
    let sorted = || order.iter().map(|at| deliveries[*at]);

    let rows: Vec<(i64, String, String, i32, OffsetDateTime)> = sqlx::query_as(
        "insert into webhook_inbox as known
           (tenant_id, endpoint, provider, event_id, event_type, status, attempts, ignored_because,
            headers, body, occurred_at, received_at, settled_at)
         select told.tenant_id, told.endpoint, told.provider, told.event_id, told.event_type, told.status, 1,
                told.ignored_because, told.headers::jsonb, told.body, told.occurred_at, told.received_at, now()
         from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                     $8::text[], $9::bytea[], $10::timestamptz[], $11::timestamptz[])
           as told (tenant_id, endpoint, provider, event_id, event_type, status,
                    ignored_because, headers, body, occurred_at, received_at)
         -- A settled event is found here without a lock and without using up an id.
         -- (A scalar subquery, so that it is one index lookup per event whatever the planner believes.)
         where (select settled.id from webhook_inbox settled
                where settled.endpoint = told.endpoint and settled.event_id = told.event_id
                  and settled.status <> 'failed') is null
         order by told.endpoint, told.event_id
         on conflict (endpoint, event_id) do update
           set attempts = known.attempts + 1, event_type = excluded.event_type, status = excluded.status,
               last_error = null, error_kind = null, fingerprint = null, about = null,
               ignored_because = excluded.ignored_because, headers = excluded.headers, body = excluded.body,
               occurred_at = excluded.occurred_at, settled_at = excluded.settled_at, next_attempt_at = null
           where known.status = 'failed'
         returning id, endpoint, event_id, attempts, received_at",
    )
    .bind(sorted().map(|delivery| delivery.origin.tenant).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.origin.endpoint.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.origin.provider.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.event.id.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.event.kind.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| hoped_for(&delivery.event)).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| ignored_because(&delivery.event)).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.headers.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.body.as_ref()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.event.occurred_at.map(OffsetDateTime::from)).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| OffsetDateTime::from(delivery.received_at)).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;

    let mut claims = vec![None; deliveries.len()];
    for (inbox_id, endpoint, event_id, attempt, first_received_at) in rows {
        let at = order
            .binary_search_by_key(&(endpoint.as_str(), event_id.as_str()), |at| deliveries[*at].key())
            .expect("a claimed row is one of those that were told");
        let delivery = deliveries[order[at]];
        claims[order[at]] = Some(Claimed {
            inbox_id,
            attempt,
            first_received_at: first_received_at.into(),
            origin: &delivery.origin,
            event: &delivery.event,
            revived: false,
        });
    }
    Ok(claims)
}
