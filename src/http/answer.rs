//! From what became of a delivery to an HTTP answer, in one place.
//!
//! A status is chosen by what the reader will do: a provider sends again after 5xx, stops after 2xx, and alerts
//! its user after 4xx.

use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::http::header::{ALLOW, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};

use crate::inbox::Verdict;
use crate::provider::Rejection;
use crate::provider::definition::AnswerRule;

/// What a request comes to.
#[derive(Debug)]
pub enum Answer<'a> {
    /// It was settled, or at least tried.
    Settled(&'a Verdict, &'a AnswerRule),
    /// The verdict did not come in time; the settlement goes on.
    StillSettling,
    /// No room, or no time left.
    Overloaded,
    /// Its signature was refused.
    Refused(&'a Rejection, &'a AnswerRule),
    /// There is no such endpoint.
    NotFound,
    /// Not a POST.
    MethodNotAllowed,
    /// The body is over the limit.
    TooLarge,
    /// The body is compressed.
    Compressed,
    /// The body did not come in time, or not whole.
    BodyBroken,
    /// We broke.
    Panicked,
}

impl Answer<'_> {
    /// The answer on the wire.
    pub fn response(&self) -> HttpResponse {
        let (status, said) = match self {
            Self::Settled(verdict, rule) => return settled(verdict, rule),
            Self::StillSettling => (StatusCode::INTERNAL_SERVER_ERROR, r#"{"status":"undecided"}"#),
            Self::Overloaded => (StatusCode::SERVICE_UNAVAILABLE, r#"{"status":"overloaded"}"#),
            Self::Refused(rejection, rule) => {
                let status = StatusCode::from_u16(rule.refused_status).unwrap_or(StatusCode::UNAUTHORIZED);
                let class = rejection.class();
                return json(status, format!(r#"{{"status":"refused","reason":"signature {class}"}}"#));
            }
            Self::NotFound => (StatusCode::NOT_FOUND, r#"{"status":"refused","reason":"no such endpoint"}"#),
            Self::MethodNotAllowed => {
                (StatusCode::METHOD_NOT_ALLOWED, r#"{"status":"refused","reason":"deliveries are POSTed"}"#)
            }
            Self::TooLarge => {
                (StatusCode::PAYLOAD_TOO_LARGE, r#"{"status":"refused","reason":"body too large"}"#)
            }
            Self::Compressed => (
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                r#"{"status":"refused","reason":"send the body without Content-Encoding"}"#,
            ),
            Self::BodyBroken => {
                (StatusCode::REQUEST_TIMEOUT, r#"{"status":"refused","reason":"body incomplete"}"#)
            }
            Self::Panicked => (StatusCode::INTERNAL_SERVER_ERROR, r#"{"status":"failed"}"#),
        };
        let mut response = json(status, said.to_owned());
        let headers = response.headers_mut();
        match self {
            Self::Overloaded => {
                headers.insert(RETRY_AFTER, HeaderValue::from_static("5"));
            }
            Self::MethodNotAllowed => {
                headers.insert(ALLOW, HeaderValue::from_static("POST"));
            }
            // What is left of such a request must not be taken for the next one.
            Self::TooLarge | Self::BodyBroken => {
                response.head_mut().set_connection_type(actix_web::http::ConnectionType::Close);
            }
            _ => {}
        }
        response
    }
}

fn settled(verdict: &Verdict, rule: &AnswerRule) -> HttpResponse {
    let mut response = match verdict {
        Verdict::Processed | Verdict::Ignored | Verdict::Duplicate | Verdict::Dead(_) => {
            let status = StatusCode::from_u16(rule.success_status).unwrap_or(StatusCode::OK);
            let ours = || format!(r#"{{"status":"{}"}}"#, verdict.name());
            json(status, rule.success_body.clone().unwrap_or_else(ours))
        }
        Verdict::Failed(_) | Verdict::Undecided(_) => {
            json(StatusCode::INTERNAL_SERVER_ERROR, format!(r#"{{"status":"{}"}}"#, verdict.name()))
        }
    };
    // A provider may demand a body of its own; the outcome is told beside it.
    let outcome = HeaderValue::from_static(verdict.name());
    response.headers_mut().insert(HeaderName::from_static("wharf-outcome"), outcome);
    response
}

fn json(status: StatusCode, body: String) -> HttpResponse {
    HttpResponse::build(status).insert_header((CONTENT_TYPE, "application/json")).body(body)
}
