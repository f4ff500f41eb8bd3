//! An endpoint where everything fails alike: the ERP is behind, a table is missing, a provider changed its format.
//!
//! That is one cause, not hundreds of bad events, and draining them all into dead letters would only make the
//! repair longer. While nothing of the endpoint is applied and enough other events fail in the same way, an event
//! that is tried out stays `failed`, up to a limit: its provider and Wharf go on trying, and when the cause is gone
//! all of them heal by themselves.

use sqlx::PgConnection;
use sqlx::types::time::OffsetDateTime;

use super::ErrorKind;
use super::claim::Claimed;
use super::select::by_index_alone;

/// So many other events must fail in the same way.
const OTHERS_MIN: i64 = 10;
/// An event that is older is a dead letter even so: providers give up on an endpoint that never answers well.
const AGE_MAX_SECONDS: i64 = 24 * 3600;

/// Whether an event that is tried out is held back from its death, because its endpoint stalls. `others` of its batch
/// fail alike, and are not yet on record.
pub(super) async fn holds(
    connection: &mut PgConnection,
    claimed: &Claimed<'_>,
    kind: ErrorKind,
    others: i64,
    age_seconds: i64,
) -> Result<bool, sqlx::Error> {
    if age_seconds >= AGE_MAX_SECONDS {
        return Ok(false);
    }
    sqlx::query_scalar(
        "select not exists (select from endpoint_activity
                            where endpoint = $1 and last_applied_at >= $3)
            and (select count(*) from (
                   select from webhook_inbox
                   where endpoint = $1 and error_kind = $2 and status = 'failed' and id <> $4
                   limit $5) as others) + $6 >= $5",
    )
    .bind(&claimed.origin.endpoint)
    .bind(kind.name())
    .bind(OffsetDateTime::from(claimed.first_received_at))
    .bind(claimed.inbox_id)
    .bind(OTHERS_MIN)
    .bind(others)
    .fetch_one(connection)
    .await
}

/// An endpoint that stalls.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
pub struct Stall {
    /// The endpoint.
    pub endpoint: String,
    /// What all of them fail with.
    pub error_kind: String,
    /// How many.
    pub events: i64,
    /// When the first of them came in.
    pub since: OffsetDateTime,
}

/// The endpoints that stall now.
pub async fn list(connection: &mut PgConnection) -> Result<Vec<Stall>, sqlx::Error> {
    by_index_alone(connection).await?;
    sqlx::query_as(
        "select trouble.endpoint, trouble.error_kind, count(*) as events, min(trouble.received_at) as since
         from webhook_inbox trouble
         left join endpoint_activity activity on activity.endpoint = trouble.endpoint
         where trouble.status = 'failed'
           and (activity.last_applied_at is null or trouble.received_at > activity.last_applied_at)
         group by trouble.endpoint, trouble.error_kind
         having count(*) > $1
         order by trouble.endpoint, trouble.error_kind",
    )
    .bind(OTHERS_MIN)
    .fetch_all(connection)
    .await
}
