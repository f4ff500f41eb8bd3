//! Sending a request to a gateway, as a provider would.

use std::time::Duration;

use ureq::Agent;

/// What came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Reply {
    pub(super) status: u16,
    /// The gateway's own word for what became of it.
    pub(super) outcome: String,
}

pub(super) fn agent() -> Agent {
    Agent::config_builder()
        .http_status_as_error(false)
        .max_redirects(0)
        .timeout_global(Some(Duration::from_secs(30)))
        .user_agent("wharf-fixtures")
        .build()
        .new_agent()
}

pub(super) fn send(
    agent: &Agent,
    url: &str,
    headers: &[(String, String)],
    body: &[u8],
) -> anyhow::Result<Reply> {
    let mut request = agent.post(url);
    for (name, value) in headers {
        request = request.header(name, value);
    }
    let mut response = request.send(body)?;
    let outcome = response.headers().get("wharf-outcome").and_then(|value| value.to_str().ok());
    let outcome = outcome.unwrap_or_default().to_owned();
    let _ = response.body_mut().read_to_vec();
    Ok(Reply { status: response.status().as_u16(), outcome })
}
