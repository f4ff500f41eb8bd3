//! Health: is the process alive, and may it get traffic?

use std::time::Duration;

use actix_web::{HttpResponse, web};
use serde_json::json;

use super::AdminState;
use crate::binding::check::check;
use crate::postgres::{SchemaState, schema_state};

/// A database that answers slower than this is not ready.
const ANSWER_MAX: Duration = Duration::from_secs(2);

/// The process lives.
pub async fn healthz() -> HttpResponse {
    HttpResponse::Ok().json(json!({ "status": "alive" }))
}

/// The database answers, its schema fits, the bound functions can be called, and we are not shutting down.
pub async fn readyz(state: web::Data<AdminState>) -> HttpResponse {
    let checked = async {
        let connection = &mut *state.pool.acquire().await?;
        let schema = schema_state(connection).await?;
        let effects = check(connection, &state.effects).await?;
        Ok::<_, sqlx::Error>((schema, effects))
    };
    let reason = if state.stopping.is_set() {
        "shutting down".to_owned()
    } else {
        match tokio::time::timeout(ANSWER_MAX, checked).await {
            Ok(Ok((SchemaState::Current, problems))) => match problems.first() {
                None => return HttpResponse::Ok().json(json!({ "status": "ready" })),
                Some(problem) => problem.to_string(),
            },
            Ok(Ok((SchemaState::Behind, _))) => "the schema is behind: run `wharf migrate`".to_owned(),
            Ok(Ok((SchemaState::Ahead, _))) => "the schema belongs to a newer Wharf".to_owned(),
            Ok(Err(_)) | Err(_) => "the database does not answer".to_owned(),
        }
    };
    HttpResponse::ServiceUnavailable().json(json!({ "status": "not ready", "reason": reason }))
}
