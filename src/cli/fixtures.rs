//! `wharf fixtures replay`: captured requests, freshly signed, sent to a running gateway.

use std::fs::File;
use std::io::{IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use anyhow::Context as _;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use quick_junit::{NonSuccessKind, Report, TestCase, TestCaseStatus, TestSuite};
use serde_json::json;

use super::Usage;
use super::send::{Reply, agent, send};
use crate::config::{Config, EndpointConfig, Secrets};
use crate::fixture::{Fixture, find};

#[derive(Debug, Subcommand)]
pub(super) enum Fixtures {
    /// Send fixtures to a running gateway, and compare status and outcome with what they expect.
    Replay(Replay),
}

impl Fixtures {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let Self::Replay(command) = self;
        command.run()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Every fixture goes to the endpoint of its provider in the configuration, signed with that endpoint's newest
secret, to URL/webhooks/ENDPOINT. Exit codes: 0 all as expected, 1 a difference, 2 the command line is wrong.

  wharf fixtures replay fixtures --config fixtures/wharf.toml --url http://127.0.0.1:8080 --junit out.xml")]
pub(super) struct Replay {
    /// Fixtures (NAME.toml) or folders of them.
    #[arg(default_value = "fixtures")]
    paths: Vec<PathBuf>,
    /// The gateway.
    #[arg(long, value_name = "URL")]
    url: String,
    /// The configuration that names endpoints and secrets, the same as the gateway's.
    #[arg(long, default_value = "wharf.toml", value_name = "FILE")]
    config: PathBuf,
    /// The fixtures were replayed into this database before: expect `duplicate`.
    #[arg(long)]
    again: bool,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
    /// Write a JUnit report.
    #[arg(long, value_name = "FILE")]
    junit: Option<PathBuf>,
}

/// A fixture that was sent.
struct Sent {
    name: String,
    endpoint: String,
    expected: Reply,
    /// What came back, or why nothing did.
    got: Result<Reply, String>,
    took: Duration,
}

impl Sent {
    fn as_expected(&self) -> bool {
        self.got.as_ref().is_ok_and(|got| *got == self.expected)
    }

    fn difference(&self) -> String {
        let Reply { status, outcome } = &self.expected;
        match &self.got {
            Ok(got) => format!("expected {status} {outcome}, got {} {}", got.status, got.outcome),
            Err(reason) => format!("expected {status} {outcome}, got no answer: {reason}"),
        }
    }
}

impl Replay {
    fn run(self) -> anyhow::Result<bool> {
        let config = Config::read(&self.config, Secrets::Needed).map_err(|problems| Usage::of(&problems))?;
        let fixtures = find(&self.paths).map_err(|problems| Usage::of(&problems))?;
        let agent = agent();
        let progress = ProgressBar::new(fixtures.len() as u64)
            .with_style(ProgressStyle::with_template("{bar:30} {pos}/{len} {msg}")?);
        if self.json || !std::io::stderr().is_terminal() {
            progress.set_draw_target(indicatif::ProgressDrawTarget::hidden());
        }
        let mut all = Vec::new();
        for fixture in &fixtures {
            progress.set_message(fixture.name.clone());
            let endpoint = endpoint_of(&config, fixture)?;
            let sent = self.send(&agent, fixture, endpoint)?;
            progress.suspend(|| self.print(&sent))?;
            progress.inc(1);
            all.push(sent);
        }
        progress.finish_and_clear();
        if let Some(path) = &self.junit {
            let file = File::create(path)
                .map_err(|error| Usage(format!("{} cannot be written ({error})", path.display())))?;
            junit(&all).serialize(file).context("the JUnit report was not written")?;
        }
        let differences = all.iter().filter(|sent| !sent.as_expected()).count();
        if !self.json {
            writeln!(std::io::stdout(), "{} fixtures, {differences} differences", all.len())?;
        }
        Ok(differences == 0)
    }

    fn send(
        &self,
        agent: &ureq::Agent,
        fixture: &Fixture,
        endpoint: &EndpointConfig,
    ) -> anyhow::Result<Sent> {
        let key = &endpoint.secrets.first().context("an endpoint has a secret")?.key;
        let headers = fixture
            .signed(&endpoint.definition, key, SystemTime::now().into())
            .map_err(|reason| Usage(format!("{}: {reason}", fixture.name)))?;
        let url = format!("{}/webhooks/{}", self.url.trim_end_matches('/'), endpoint.name);
        let started = Instant::now();
        let got = send(agent, &url, &headers, &fixture.body).map_err(|error| format!("{error:#}"));
        let outcome = if self.again { "duplicate".to_owned() } else { fixture.expect.outcome.clone() };
        Ok(Sent {
            name: fixture.name.clone(),
            endpoint: endpoint.name.clone(),
            expected: Reply { status: fixture.expect.status, outcome },
            got,
            took: started.elapsed(),
        })
    }

    fn print(&self, sent: &Sent) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        if self.json {
            let (status, outcome) =
                sent.got.as_ref().map_or((None, None), |got| (Some(got.status), Some(got.outcome.as_str())));
            let line = json!({
                "fixture": sent.name,
                "endpoint": sent.endpoint,
                "as_expected": sent.as_expected(),
                "expected": { "status": sent.expected.status, "outcome": sent.expected.outcome },
                "got": { "status": status, "outcome": outcome, "error": sent.got.as_ref().err() },
                "milliseconds": sent.took.as_secs_f64() * 1000.0,
            });
            return writeln!(out, "{line}");
        }
        match &sent.got {
            Ok(got) if sent.as_expected() => {
                writeln!(out, "ok    {} {} {}", sent.name, got.status, got.outcome)
            }
            _ => writeln!(out, "DIFF  {}: {}", sent.name, sent.difference()),
        }
    }
}

/// The endpoint that a fixture goes to: the one of its provider.
pub(super) fn endpoint_of<'c>(config: &'c Config, fixture: &Fixture) -> Result<&'c EndpointConfig, Usage> {
    config.endpoints.iter().find(|endpoint| endpoint.definition.name == fixture.provider).ok_or_else(|| {
        Usage(format!("{}: the configuration has no endpoint of provider {}", fixture.name, fixture.provider))
    })
}

fn junit(all: &[Sent]) -> Report {
    let mut suite = TestSuite::new("wharf fixtures");
    for sent in all {
        let status = if sent.as_expected() {
            TestCaseStatus::success()
        } else {
            let mut status = TestCaseStatus::non_success(NonSuccessKind::Failure);
            status.set_message(sent.difference());
            status
        };
        let mut case = TestCase::new(sent.name.clone(), status);
        case.set_classname(sent.endpoint.clone()).set_time(sent.took);
        suite.add_test_case(case);
    }
    let mut report = Report::new("wharf fixtures replay");
    report.add_test_suite(suite);
    report
}
