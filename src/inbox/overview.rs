//! How it stands, endpoint by endpoint.

use sqlx::PgConnection;
use sqlx::types::time::OffsetDateTime;

/// An endpoint that was seen.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
#[allow(missing_docs, reason = "the columns of endpoint_activity, and counts of the inbox")]
pub struct EndpointOverview {
    pub endpoint: String,
    pub provider: String,
    pub last_verified_at: Option<OffsetDateTime>,
    pub last_event_id: Option<String>,
    pub last_event_type: Option<String>,
    /// Answers given, as far as the gateways wrote them down.
    pub processed: i64,
    pub ignored: i64,
    pub duplicate: i64,
    /// Events that are failed, dead and discarded now.
    pub failed_now: i64,
    pub dead_now: i64,
    pub discarded_now: i64,
    pub oldest_failed_at: Option<OffsetDateTime>,
    /// Refused deliveries that are kept.
    pub quarantined: i64,
}

/// All endpoints that were seen or have events that were not applied.
pub async fn endpoints(connection: &mut PgConnection) -> Result<Vec<EndpointOverview>, sqlx::Error> {
    sqlx::query_as(
        "with trouble as (
           select endpoint, count(*) filter (where status = 'failed') as failed,
                  count(*) filter (where status = 'dead') as dead,
                  min(id) filter (where status = 'failed') as oldest_failed
           from webhook_inbox where status in ('failed', 'dead') group by endpoint),
         discarded as (
           select endpoint, count(*) as discarded from webhook_inbox
           where status = 'discarded' and status <> 'processed' group by endpoint),
         kept as (select endpoint, count(*) as kept from quarantine group by endpoint),
         known as (
           select endpoint from endpoint_activity union select endpoint from trouble
           union select endpoint from discarded union select endpoint from kept
           union select endpoint from endpoint_refusal)
         select known.endpoint,
                coalesce(activity.provider,
                         (select provider from webhook_inbox inbox where inbox.endpoint = known.endpoint limit 1),
                         '') as provider,
                activity.last_verified_at, activity.last_event_id, activity.last_event_type,
                coalesce(activity.processed, 0) as processed, coalesce(activity.ignored, 0) as ignored,
                coalesce(activity.duplicate, 0) as duplicate,
                coalesce(trouble.failed, 0) as failed_now, coalesce(trouble.dead, 0) as dead_now,
                coalesce(discarded.discarded, 0) as discarded_now,
                (select received_at from webhook_inbox where id = trouble.oldest_failed) as oldest_failed_at,
                coalesce(kept.kept, 0) as quarantined
         from known
         left join endpoint_activity activity using (endpoint)
         left join trouble using (endpoint)
         left join discarded using (endpoint)
         left join kept using (endpoint)
         order by known.endpoint",
    )
    .fetch_all(connection)
    .await
}

/// Deliveries of an endpoint that were refused for one reason.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
#[allow(missing_docs, reason = "the columns of endpoint_refusal")]
pub struct Refusals {
    pub endpoint: String,
    pub reason: String,
    pub refused: i64,
    pub first_at: OffsetDateTime,
    pub last_at: OffsetDateTime,
    pub detail: String,
}

/// What was refused, by endpoint and reason.
pub async fn refusals(connection: &mut PgConnection) -> Result<Vec<Refusals>, sqlx::Error> {
    sqlx::query_as(
        "select endpoint, reason, refused, first_at, last_at, detail from endpoint_refusal order by endpoint, reason",
    )
    .fetch_all(connection)
    .await
}

/// A secret that fitted.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
#[allow(missing_docs, reason = "the columns of endpoint_secret")]
pub struct MatchedSecret {
    pub endpoint: String,
    pub secret: String,
    pub matched: i64,
    pub last_matched_at: OffsetDateTime,
}

/// Which secrets fitted when, by their names.
pub async fn secrets(connection: &mut PgConnection) -> Result<Vec<MatchedSecret>, sqlx::Error> {
    sqlx::query_as(
        "select endpoint, secret, matched, last_matched_at from endpoint_secret order by endpoint, last_matched_at desc",
    )
    .fetch_all(connection)
    .await
}
