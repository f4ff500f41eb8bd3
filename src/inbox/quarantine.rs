//! Refused deliveries that were kept for diagnosis: nobody's events until their signature is found good.

use sqlx::PgConnection;
use sqlx::types::time::OffsetDateTime;

use crate::captured::Captured;

/// A refused delivery, without its body.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
#[allow(missing_docs, reason = "the columns of quarantine")]
pub struct Refused {
    pub id: i64,
    pub endpoint: String,
    pub provider: String,
    pub reason: String,
    pub detail: String,
    pub received_at: OffsetDateTime,
    pub bytes: i32,
}

/// Kept deliveries, oldest first: of one endpoint, or of all.
pub async fn list(
    connection: &mut PgConnection,
    endpoint: Option<&str>,
) -> Result<Vec<Refused>, sqlx::Error> {
    sqlx::query_as(
        "select id, endpoint, provider, reason, detail, received_at, octet_length(body) as bytes
         from quarantine where $1::text is null or endpoint = $1 order by id",
    )
    .bind(endpoint)
    .fetch_all(connection)
    .await
}

/// One of them; `None`: it is not there.
pub async fn find(connection: &mut PgConnection, id: i64) -> Result<Option<Refused>, sqlx::Error> {
    sqlx::query_as(
        "select id, endpoint, provider, reason, detail, received_at, octet_length(body) as bytes
         from quarantine where id = $1",
    )
    .bind(id)
    .fetch_optional(connection)
    .await
}

/// A kept delivery as it came, but for credentials; `None`: it is not there.
pub async fn request(connection: &mut PgConnection, id: i64) -> Result<Option<Captured>, sqlx::Error> {
    let row: Option<(Vec<u8>, Vec<u8>)> = sqlx::query_as("select head, body from quarantine where id = $1")
        .bind(id)
        .fetch_optional(connection)
        .await?;
    let Some((head, body)) = row else { return Ok(None) };
    let captured = Captured::parse(&[head, body].concat());
    captured.map(Some).map_err(|reason| sqlx::Error::Decode(reason.into()))
}

/// Removes kept deliveries.
pub async fn remove(connection: &mut PgConnection, ids: &[i64]) -> Result<u64, sqlx::Error> {
    let removed =
        sqlx::query("delete from quarantine where id = any($1)").bind(ids).execute(connection).await?;
    Ok(removed.rows_affected())
}
