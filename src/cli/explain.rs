//! `wharf explain`: why was a delivery refused? It reads, tries, and tells; it lets nothing in.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use clap::{ArgGroup, Args};
use serde_json::{Value, json};

use super::ops::{ConfigFile, Ops, Output};
use super::{NotFound, Usage, runtime};
use crate::captured::Captured;
use crate::config::{Config, EndpointConfig, Secrets};
use crate::fixture::Fixture;
use crate::inbox::quarantine::{find, request};
use crate::provider::Rejection;
use crate::provider::diagnosis::{Candidate, Certainty, Diagnosis, Finding, NamedSecret, Suspect, diagnose};
use crate::timestamp::Timestamp;

#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("what").required(true),
    after_help = "\
What may have happened to the request is tried: another secret, a body that was changed on the
way, a header that was renamed, a clock that is off, another scheme. What makes the signature fit
is the cause. A secret is never printed.

Exit codes: 0 a cause was found, or it would be accepted; 1 no known cause; 2 the command line or
a file is wrong; 3 nothing is kept under this id.

A request as it was captured (headers, an empty line, the exact body), at the time it came:
  wharf explain --request refused.http --endpoint stripe --at 2026-03-01T10:00:00Z

A request that was refused and kept, with its own time:
  wharf explain --quarantine 17

  refused: no signature fits any of the endpoint's secrets
  cause: body-line-end-added: the body was signed without the line end that it came with
  fits: the secret of env:STRIPE_WEBHOOK_SECRET (endpoint stripe)
  way out: find what between the sender and Wharf reads and rewrites bodies (…)"
)]
pub(super) struct Explain {
    /// A file with a request: a request line if you like, headers, an empty line, the exact body.
    #[arg(long, value_name = "FILE", group = "what")]
    request: Option<PathBuf>,
    /// A fixture (NAME.toml, with its body in NAME.json) with the signature among its headers.
    #[arg(long, value_name = "FILE", group = "what")]
    fixture: Option<PathBuf>,
    /// A request that was refused and kept in the database, by its id.
    #[arg(long, value_name = "ID", group = "what")]
    quarantine: Option<i64>,
    /// The endpoint, where neither the request line nor the quarantine names the right one.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
    /// When it came: seconds since 1970 or 2026-03-01T10:00:00Z. Otherwise the quarantine's time, or now.
    #[arg(long, value_name = "TIME", value_parser = read_time)]
    at: Option<Timestamp>,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    output: Output,
}

fn read_time(text: &str) -> Result<Timestamp, String> {
    let time = text.parse().map_or_else(|_| Timestamp::from_rfc3339(text), Timestamp::from_seconds);
    time.ok_or_else(|| "write seconds since 1970, or for example 2026-03-01T10:00:00Z".to_owned())
}

/// A request, where it came to, and when.
struct Request {
    captured: Captured,
    /// The endpoint's name, or why none is known.
    endpoint: Result<String, String>,
    at: Timestamp,
    clock: &'static str,
}

impl Explain {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let config = self.config.read(Secrets::Needed)?;
        let mut request = self.read(&config)?;
        if let Some(name) = &self.endpoint {
            request.endpoint = Ok(name.clone());
        }
        if let Some(at) = self.at {
            (request.at, request.clock) = (at, "the time given with --at");
        }
        let own = endpoint(&config, &request.endpoint)?;
        let others: Vec<Candidate<'_>> =
            config.endpoints.iter().filter(|other| other.name != own.name).map(candidate).collect();
        let headers = request.captured.headers();
        let suspect = Suspect { headers: &headers, body: &request.captured.body, at: request.at };
        let diagnosis = diagnose(&candidate(own), &others, &config.catalogue, &suspect);
        let report = Report { own, request: &request, diagnosis: &diagnosis };
        let lines = if self.output.json { report.objects() } else { report.lines() };
        let mut out = std::io::stdout().lock();
        for line in lines {
            writeln!(out, "{line}")?;
        }
        Ok(!matches!(diagnosis, Diagnosis::NoKnownCause { .. }))
    }

    fn read(&self, config: &Config) -> anyhow::Result<Request> {
        match (&self.request, &self.fixture, self.quarantine) {
            (Some(file), _, _) => read_file(file),
            (_, Some(file), _) => read_fixture(file, config),
            (_, _, Some(id)) => runtime()?.block_on(read_quarantine(id)),
            (None, None, None) => Err(Usage("name a --request, --fixture or --quarantine".to_owned()).into()),
        }
    }
}

fn now() -> (Timestamp, &'static str) {
    (SystemTime::now().into(), "now; name the time it came with --at")
}

fn read_file(file: &Path) -> anyhow::Result<Request> {
    let shown = file.display();
    let bytes = std::fs::read(file).map_err(|error| {
        Usage(format!("the request {shown} cannot be read ({error}); name a file with --request"))
    })?;
    let captured = Captured::parse(&bytes).map_err(|reason| Usage(format!("{shown}: {reason}")))?;
    let named = captured.path.as_deref().and_then(|path| path.strip_prefix("/webhooks/"));
    let endpoint = named.map(|name| name.trim_end_matches('/').to_owned()).ok_or_else(|| {
        format!(
            "{shown} does not say which endpoint it came to (a line such as `POST /webhooks/stripe HTTP/1.1`)"
        )
    });
    let (at, clock) = now();
    Ok(Request { captured, endpoint, at, clock })
}

fn read_fixture(file: &Path, config: &Config) -> anyhow::Result<Request> {
    let fixture = Fixture::read(file).map_err(|problems| Usage::of(&problems))?;
    let mut of_provider = config.endpoints.iter().filter(|other| other.definition.name == fixture.provider);
    let endpoint = match (of_provider.next(), of_provider.next()) {
        (Some(only), None) => Ok(only.name.clone()),
        (None, _) => Err(format!("no endpoint has the fixture's provider `{}`", fixture.provider)),
        (Some(_), Some(_)) => {
            Err(format!("several endpoints have the fixture's provider `{}`", fixture.provider))
        }
    };
    let headers = fixture.headers.into_iter().map(|(name, value)| (name, value.into_bytes())).collect();
    let captured = Captured { path: None, headers, body: fixture.body };
    let (at, clock) = now();
    Ok(Request { captured, endpoint, at, clock })
}

async fn read_quarantine(id: i64) -> anyhow::Result<Request> {
    let connection = &mut Ops::connect().await?.connection;
    let missing = || {
        let newest = "only the newest of an endpoint are kept";
        NotFound(format!("nothing is kept under the id {id}; {newest}, see `wharf quarantine list`"))
    };
    let kept = find(connection, id).await?.ok_or_else(missing)?;
    let captured = request(connection, id).await?.ok_or_else(missing)?;
    Ok(Request {
        captured,
        endpoint: Ok(kept.endpoint),
        at: kept.received_at.into(),
        clock: "the time it was received",
    })
}

fn endpoint<'a>(config: &'a Config, name: &Result<String, String>) -> anyhow::Result<&'a EndpointConfig> {
    let names = || config.endpoints.iter().map(|other| other.name.as_str()).collect::<Vec<_>>().join(", ");
    let name = name
        .as_ref()
        .map_err(|reason| Usage(format!("{reason}; name it with --endpoint: one of {}", names())))?;
    let found = config.endpoints.iter().find(|other| other.name == *name);
    Ok(found.ok_or_else(|| {
        let name = name.escape_debug();
        Usage(format!("the endpoint `{name}` is not known; name with --endpoint one of: {}", names()))
    })?)
}

fn candidate(endpoint: &EndpointConfig) -> Candidate<'_> {
    let secrets = endpoint.secrets.iter();
    Candidate {
        endpoint: &endpoint.name,
        definition: &endpoint.definition,
        secrets: secrets
            .map(|secret| NamedSecret { reference: &secret.reference, text: &secret.text })
            .collect(),
    }
}

/// A diagnosis as it is told.
struct Report<'a> {
    own: &'a EndpointConfig,
    request: &'a Request,
    diagnosis: &'a Diagnosis,
}

impl Report<'_> {
    fn lines(&self) -> Vec<String> {
        let (own, Request { at, clock, .. }) = (self.own, self.request);
        let mut lines = vec![
            format!("endpoint: {} (provider {})", own.name, own.definition.name),
            format!("as of: {at} ({clock})"),
        ];
        match self.diagnosis {
            Diagnosis::Accepted { secret, signed_at } => {
                let age = signed_at.map_or(String::new(), |signed| format!(" {}", age(*at, signed)));
                lines.push(format!("accepted: it is signed with the secret of {secret}{age}"));
            }
            Diagnosis::Explained { rejection, findings } => {
                lines.push(refused(rejection));
                for finding in findings {
                    add_finding(&mut lines, finding);
                }
            }
            Diagnosis::NoKnownCause { rejection, all_tried } => {
                lines.push(refused(rejection));
                lines.push("no known cause".to_owned());
                if !all_tried {
                    lines.push("(the body is large: not all was tried)".to_owned());
                }
                let way_out = "compare the secret at the provider with yours, letter by letter; if it is right, \
                    somebody else sent this";
                lines.push(format!("way out: {way_out}"));
            }
        }
        lines
    }

    /// One object for each finding, or one alone.
    fn objects(&self) -> Vec<String> {
        let object = |verdict: &str, more: Value| {
            let mut object = json!({
                "endpoint": self.own.name,
                "provider": self.own.definition.name,
                "at": self.request.at.to_string(),
                "clock": self.request.clock,
                "verdict": verdict,
            });
            if let (Some(object), Value::Object(more)) = (object.as_object_mut(), more) {
                object.extend(more);
            }
            object.to_string()
        };
        match self.diagnosis {
            Diagnosis::Accepted { secret, signed_at } => {
                let signed_at = signed_at.map(|at| at.to_string());
                vec![object("accepted", json!({"secret": secret, "signed_at": signed_at}))]
            }
            Diagnosis::Explained { rejection, findings } => findings
                .iter()
                .map(|finding| object("explained", finding_object(rejection, finding)))
                .collect(),
            Diagnosis::NoKnownCause { rejection, all_tried } => {
                let more = json!({"refused": rejection.to_string(), "all_tried": all_tried});
                vec![object("no known cause", more)]
            }
        }
    }
}

fn refused(rejection: &Rejection) -> String {
    format!("refused: {rejection}")
}

fn age(at: Timestamp, signed: Timestamp) -> String {
    match at.seconds() - signed.seconds() {
        seconds @ 0.. => format!("{seconds} s before that time"),
        seconds => format!("{} s after that time", -seconds),
    }
}

fn add_finding(lines: &mut Vec<String>, finding: &Finding) {
    let mark = match finding.certainty {
        Certainty::Proof => "cause",
        Certainty::Hint => "hint",
    };
    lines.extend(finding.causes.iter().map(|cause| format!("{mark}: {}: {}", cause.name, cause.what)));
    if let Some(fit) = &finding.fit {
        lines.push(format!("fits: the secret of {} (endpoint {})", fit.secret, fit.endpoint));
    }
    let mut ways_out: Vec<&str> = finding.causes.iter().map(|cause| cause.way_out.as_str()).collect();
    ways_out.dedup();
    lines.extend(ways_out.into_iter().map(|way_out| format!("way out: {way_out}")));
}

fn finding_object(rejection: &Rejection, finding: &Finding) -> Value {
    let causes = finding.causes.iter();
    let causes: Vec<Value> = causes
        .map(|cause| json!({"name": cause.name, "what": cause.what, "way_out": cause.way_out}))
        .collect();
    json!({
        "refused": rejection.to_string(),
        "certainty": match finding.certainty {
            Certainty::Proof => "proof",
            Certainty::Hint => "hint",
        },
        "causes": causes,
        "secret": finding.fit.as_ref().map(|fit| &fit.secret),
        "secret_of": finding.fit.as_ref().map(|fit| &fit.endpoint),
    })
}
