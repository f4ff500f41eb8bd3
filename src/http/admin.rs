//! Health: is the process alive, and may it get traffic?

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde_json::json;

use super::AdminState;
use crate::postgres::{SchemaState, schema_state};

/// A database that answers slower than this is not ready.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The process lives.
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "status": "alive" }))
}

/// The database answers, its schema fits, and we are not shutting down.
pub async fn readyz(state: web::Data<AdminState>) -> HttpResponse {
    let reason = if state.stopping.is_set() {
        "shutting down"
    } else {
        let checked = async { schema_state(&mut *state.pool.acquire().await?).await };
        match tokio::time::timeout(ANSWER_MAX, checked).await {
            Ok(Ok(SchemaState::Current)) => return HttpResponse::Ok().json(json!({ "status": "ready" })),
            Ok(Ok(SchemaState::Behind)) => "the schema is behind: run `wharf migrate`",
            Ok(Ok(SchemaState::Ahead)) => "the schema belongs to a newer Wharf",
            Ok(Err(_)) | Err(_) => "the database does not answer",
        }
    };
    HttpResponse::ServiceUnavailable().json(json!({ "status": "not ready", "reason": reason }))
}
