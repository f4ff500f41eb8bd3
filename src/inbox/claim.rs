//! CLAIM: who may go on with an event.
//!
//! One insert decides, for a whole batch. A row that comes back is ours. No row: the event is settled, a
//! duplicate. Another gateway that holds the same event in an open transaction makes the insert wait: nobody
//! answers while it is undecided.

use sqlx::PgConnection;
use sqlx::types::time::OffsetDateTime;

use super::Delivery;
use crate::provider::Content;
use crate::timestamp::Timestamp;

/// An event that is ours until the transaction ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim {
    /// The inbox row.
    pub inbox_id: i64,
    /// Which attempt this is.
    pub attempt: i32,
    /// When the event was first received.
    pub first_received_at: Timestamp,
}

/// The kind of error that an unreadable delivery is recorded with.
pub(super) const UNREADABLE: &str = "unreadable";

/// Claims a batch. Keys in a batch are distinct. The result has one entry per delivery, in order; `None`: duplicate.
///
/// The row is written with the status that it will have if all goes well, so that a batch without trouble
/// needs no second write. Rows are claimed in the order of their keys, so that two gateways cannot deadlock.
pub async fn claim(
    connection: &mut PgConnection,
    deliveries: &[&Delivery],
) -> Result<Vec<Option<Claim>>, sqlx::Error> {
    let mut order: Vec<usize> = (0..deliveries.len()).collect();
    order.sort_unstable_by_key(|at| deliveries[*at].key());
    let sorted = || order.iter().map(|at| deliveries[*at]);

    let status = |delivery: &Delivery| match &delivery.event.content {
        Content::Changes(_) => "processed",
        Content::Ignored(_) => "ignored",
        Content::Unreadable(_) => "dead",
    };
    let error = |delivery: &'_ Delivery| match &delivery.event.content {
        Content::Unreadable(reason) => Some(reason.clone()),
        Content::Changes(_) | Content::Ignored(_) => None,
    };
    let ignored = |delivery: &'_ Delivery| match &delivery.event.content {
        Content::Ignored(reason) => Some(reason.clone()),
        Content::Changes(_) | Content::Unreadable(_) => None,
    };
    let rows: Vec<(i64, String, String, i32, OffsetDateTime)> = sqlx::query_as(
        "insert into webhook_inbox as known
           (tenant_id, endpoint, provider, event_id, event_type, status, attempts, last_error, error_kind,
            ignored_because, headers, body, occurred_at, received_at, settled_at, dead_lettered_at)
         select told.tenant_id, told.endpoint, told.provider, told.event_id, told.event_type, told.status, 1,
                told.error, case when told.error is not null then $13 end, told.ignored_because,
                told.headers::jsonb, told.body, told.occurred_at, told.received_at, now(),
                case when told.status = 'dead' then now() end
         from unnest($1::uuid[], $2::text[], $3::text[], $4::text[], $5::text[], $6::text[], $7::text[],
                     $8::text[], $9::text[], $10::bytea[], $11::timestamptz[], $12::timestamptz[])
           as told (tenant_id, endpoint, provider, event_id, event_type, status, error,
                    ignored_because, headers, body, occurred_at, received_at)
         -- A settled event is found here without a lock and without using up an id.
         -- (A scalar subquery, so that it is one index lookup per event whatever the planner believes.)
         where (select settled.id from webhook_inbox settled
                where settled.endpoint = told.endpoint and settled.event_id = told.event_id
                  and settled.status <> 'failed') is null
         order by told.endpoint, told.event_id
         on conflict (endpoint, event_id) do update
           set attempts = known.attempts + 1, event_type = excluded.event_type, status = excluded.status,
               last_error = excluded.last_error, error_kind = excluded.error_kind,
               ignored_because = excluded.ignored_because, headers = excluded.headers, body = excluded.body,
               occurred_at = excluded.occurred_at, settled_at = excluded.settled_at,
               dead_lettered_at = excluded.dead_lettered_at, next_attempt_at = null
           where known.status = 'failed'
         returning id, endpoint, event_id, attempts, received_at",
    )
    .bind(sorted().map(|delivery| delivery.origin.tenant).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.origin.endpoint.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.origin.provider.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.event.id.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.event.kind.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(status).collect::<Vec<_>>())
    .bind(sorted().map(error).collect::<Vec<_>>())
    .bind(sorted().map(ignored).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.headers.as_str()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.body.as_ref()).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| delivery.event.occurred_at.map(OffsetDateTime::from)).collect::<Vec<_>>())
    .bind(sorted().map(|delivery| OffsetDateTime::from(delivery.received_at)).collect::<Vec<_>>())
    .bind(UNREADABLE)
    .fetch_all(connection)
    .await?;

    let mut claims = vec![None; deliveries.len()];
    for (inbox_id, endpoint, event_id, attempt, first_received_at) in rows {
        let at = order
            .binary_search_by_key(&(endpoint.as_str(), event_id.as_str()), |at| deliveries[*at].key())
            .expect("a claimed row is one of those that were told");
        let first_received_at = first_received_at.into();
        claims[order[at]] = Some(Claim { inbox_id, attempt, first_received_at });
    }
    Ok(claims)
}
