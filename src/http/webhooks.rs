//! The public listener: one delivery from bytes to answer.

use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use actix_web::http::Method;
use actix_web::http::header::{CONTENT_ENCODING, HeaderMap};
use actix_web::{HttpRequest, HttpResponse, web};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt as _;
use tokio::time::{timeout, timeout_at};

use super::answer::Answer;
use crate::endpoint::Endpoint;
use crate::inbox::activity::Activities;
use crate::inbox::queue::Queue;
use crate::inbox::{Settled, Verdict};
use crate::provider::Headers;
use crate::timestamp::Timestamp;

/// A body that is refused is read on for this many bytes, so that the client reads our answer and not a reset.
const DRAIN_BYTES_MAX: usize = 64 << 20;

/// What the public listener works with.
#[derive(Debug)]
pub struct Gateway {
    /// By name.
    pub endpoints: HashMap<String, Endpoint>,
    /// Where verified deliveries go.
    pub queue: Arc<Queue>,
    /// What is seen of the endpoints.
    pub activities: Arc<Activities>,
    /// A verdict that takes longer is not waited for.
    pub answer_within: Duration,
    /// Larger bodies are refused.
    pub body_limit_bytes: usize,
    /// A body must be there within this time.
    pub body_timeout: Duration,
}

/// Anything that is not a delivery.
pub async fn refuse(
    request: HttpRequest,
    payload: web::Payload,
    gateway: web::Data<Gateway>,
) -> HttpResponse {
    let path = request.path().trim_end_matches('/');
    let known = path.strip_prefix("/webhooks/").is_some_and(|name| gateway.endpoints.contains_key(name));
    drain(payload, gateway.body_timeout).await;
    let answer =
        if known && request.method() != Method::POST { Answer::MethodNotAllowed } else { Answer::NotFound };
    answer.response()
}

/// A delivery.
pub async fn receive(
    request: HttpRequest,
    payload: web::Payload,
    gateway: web::Data<Gateway>,
    name: web::Path<String>,
) -> HttpResponse {
    let started = Instant::now();
    let Some(endpoint) = gateway.endpoints.get(name.as_str()) else {
        drain(payload, gateway.body_timeout).await;
        return Answer::NotFound.response();
    };
    if is_compressed(request.headers()) {
        drain(payload, gateway.body_timeout).await;
        return Answer::Compressed.response();
    }
    let body = match read_body(payload, gateway.body_limit_bytes, gateway.body_timeout).await {
        Ok(body) => body,
        Err(answer) => {
            tracing::warn!(endpoint = name.as_str(), ?answer, "a delivery's body was refused");
            return answer.response();
        }
    };
    let now = Timestamp::from(SystemTime::now());
    let rule = &endpoint.reader.definition.answer;
    // The pure core does not panic on any input that we know of. If it does: an answer, not a dead socket.
    let headers: Headers<'_> =
        request.headers().iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let accepted = catch_unwind(AssertUnwindSafe(|| endpoint.accept(&headers, &body, now)));
    let (delivery, secret) = match accepted {
        Ok(Ok(accepted)) => accepted,
        Ok(Err(rejection)) => {
            tracing::warn!(
                endpoint = name.as_str(),
                provider = endpoint.origin.provider,
                reason = %rejection,
                "a delivery was refused"
            );
            gateway.activities.refused(&name, &rejection, &headers, &body, now);
            return Answer::Refused(&rejection, rule).response();
        }
        Err(_panic) => {
            tracing::error!(endpoint = name.as_str(), "reading a delivery panicked; please report it");
            return Answer::Panicked.response();
        }
    };
    let event = &delivery.event;
    let line = Line { endpoint, started, id: event.id.clone(), kind: event.kind.clone() };
    let Ok(verdict) = gateway.queue.put(delivery) else {
        line.write_unsettled("the queue is full or closed");
        return Answer::Overloaded.response();
    };
    match timeout(gateway.answer_within, verdict).await {
        Ok(Ok(settled)) => {
            line.write(&settled, secret);
            let event = (line.id, line.kind);
            gateway.activities.answered(&name, secret, event, &settled.verdict, now);
            Answer::Settled(&settled.verdict, rule).response()
        }
        Ok(Err(_)) | Err(_) => {
            line.write_unsettled("the verdict did not come in time");
            Answer::StillSettling.response()
        }
    }
}

/// The one log line of a delivery. Never a body, never a secret.
struct Line<'a> {
    endpoint: &'a Endpoint,
    started: Instant,
    id: String,
    kind: String,
}

impl Line<'_> {
    fn write(&self, settled: &Settled, secret: usize) {
        let milliseconds = self.started.elapsed().as_secs_f64() * 1000.0;
        let trouble = match &settled.verdict {
            Verdict::Dead(trouble) | Verdict::Failed(trouble) => {
                Some((trouble.kind.name(), trouble.text.as_str()))
            }
            Verdict::Undecided(reason) => Some(("undecided", reason.as_str())),
            Verdict::Processed | Verdict::Ignored | Verdict::Duplicate => None,
        };
        macro_rules! line {
            ($level:ident, $($more:tt)*) => {
                tracing::$level!(
                    endpoint = self.endpoint.origin.endpoint,
                    provider = self.endpoint.origin.provider,
                    event_id = self.id,
                    event_type = self.kind,
                    outcome = settled.verdict.name(),
                    attempt = settled.attempt,
                    batch = settled.batch,
                    secret,
                    milliseconds,
                    $($more)*
                )
            };
        }
        match trouble {
            None => line!(info, "delivery settled"),
            Some((kind, error)) => line!(warn, error_kind = kind, error, "delivery not applied"),
        }
    }

    fn write_unsettled(&self, reason: &str) {
        tracing::warn!(
            endpoint = self.endpoint.origin.endpoint,
            provider = self.endpoint.origin.provider,
            event_id = self.id,
            event_type = self.kind,
            milliseconds = self.started.elapsed().as_secs_f64() * 1000.0,
            reason,
            "delivery not settled"
        );
    }
}

fn is_compressed(headers: &HeaderMap) -> bool {
    headers.get_all(CONTENT_ENCODING).any(|value| !value.as_bytes().eq_ignore_ascii_case(b"identity"))
}

async fn read_body(
    mut payload: web::Payload,
    limit: usize,
    within: Duration,
) -> Result<Bytes, Answer<'static>> {
    let deadline = tokio::time::Instant::now() + within;
    let mut first = Bytes::new();
    let mut whole = BytesMut::new();
    loop {
        let chunk = match timeout_at(deadline, payload.next()).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(None) => break,
            Ok(Some(Err(_))) | Err(_) => return Err(Answer::BodyBroken),
        };
        if first.len().max(whole.len()) + chunk.len() > limit {
            drain(payload, within).await;
            return Err(Answer::TooLarge);
        }
        // Most bodies come in one piece, which is not copied.
        if first.is_empty() {
            first = chunk;
            continue;
        }
        if whole.is_empty() {
            whole.extend_from_slice(&first);
        }
        whole.extend_from_slice(&chunk);
    }
    Ok(if whole.is_empty() { first } else { whole.freeze() })
}

/// Reads what is left of a body and drops it.
async fn drain(mut payload: web::Payload, within: Duration) {
    let deadline = tokio::time::Instant::now() + within;
    let mut drained = 0;
    while let Ok(Some(Ok(chunk))) = timeout_at(deadline, payload.next()).await {
        drained += chunk.len();
        if drained > DRAIN_BYTES_MAX {
            return;
        }
    }
}
