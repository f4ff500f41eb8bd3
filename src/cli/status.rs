//! `wharf status`.

use std::io::{self, Write};

use clap::Args;
use comfy_table::{Cell, Color};
use serde_json::{Value, json};
use sqlx::types::time::OffsetDateTime;

use super::ops::{Ops, Output, plain, seconds, write_table};
use super::runtime;
use crate::inbox::overview::{EndpointOverview, MatchedSecret, Refusals, endpoints, refusals, secrets};
use crate::inbox::select::by_index_alone;
use crate::inbox::stall::{self, Stall};
use crate::timestamp::Timestamp;

#[derive(Debug, Args)]
#[command(after_help = "\
Answers are counted by the gateways and written down every two seconds; what failed and what is dead is counted now.

Exit codes: 0 nothing waits for a person, 1 there are dead letters or endpoints that stall, 2 usage.")]
pub(super) struct Status {
    #[command(flatten)]
    output: Output,
}

/// How it stands.
struct Overview {
    endpoints: Vec<EndpointOverview>,
    stalls: Vec<Stall>,
    refusals: Vec<Refusals>,
    secrets: Vec<MatchedSecret>,
}

impl Status {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let overview = runtime()?.block_on(async {
            let mut ops = Ops::connect().await?;
            let connection = &mut ops.connection;
            by_index_alone(connection).await?;
            anyhow::Ok(Overview {
                endpoints: endpoints(connection).await?,
                stalls: stall::list(connection).await?,
                refusals: refusals(connection).await?,
                secrets: secrets(connection).await?,
            })
        })?;
        let mut out = io::stdout().lock();
        if self.output.json {
            overview.objects().iter().try_for_each(|object| writeln!(out, "{object}"))?;
        } else {
            overview.write(&mut out)?;
        }
        let waits = overview.endpoints.iter().any(|endpoint| endpoint.dead_now > 0);
        Ok(!waits && overview.stalls.is_empty())
    }
}

fn time(at: OffsetDateTime) -> String {
    seconds(at.into())
}

impl Overview {
    fn write(&self, out: &mut impl Write) -> io::Result<()> {
        if self.endpoints.is_empty() {
            return writeln!(out, "nothing has come in yet");
        }
        let header = [
            "endpoint",
            "provider",
            "last verified",
            "processed",
            "ignored",
            "duplicate",
            "failed",
            "dead",
            "discarded",
            "quarantined",
        ];
        write_table(out, &header, self.endpoints.iter().map(cells))?;
        for endpoint in &self.endpoints {
            if let Some(oldest) = endpoint.oldest_failed_at {
                let (name, failed) = (&endpoint.endpoint, endpoint.failed_now);
                writeln!(
                    out,
                    "\nfailed     {name}: {failed}, the oldest of {}; they are tried again",
                    time(oldest)
                )?;
            }
            if endpoint.dead_now > 0 {
                let name = &endpoint.endpoint;
                writeln!(
                    out,
                    "\ndead       {name}: {}; see: wharf inbox errors --endpoint {name}",
                    endpoint.dead_now
                )?;
            }
        }
        for Stall { endpoint, error_kind, events, since } in &self.stalls {
            writeln!(
                out,
                "\nstalls     {endpoint}: nothing is applied, and {events} events fail with {error_kind} since {}; \
                 they are held back from becoming dead letters",
                time(*since)
            )?;
        }
        for Refusals { endpoint, reason, refused, last_at, detail, .. } in &self.refusals {
            writeln!(
                out,
                "\nrefused    {endpoint}: {refused} signature {reason}, the last {}: {detail}",
                time(*last_at)
            )?;
        }
        for MatchedSecret { endpoint, secret, matched, last_matched_at } in &self.secrets {
            writeln!(
                out,
                "\nsecret     {endpoint}: {secret} fitted {matched} time{}, the last {}",
                if *matched == 1 { "" } else { "s" },
                time(*last_matched_at)
            )?;
        }
        Ok(())
    }

    fn objects(&self) -> Vec<Value> {
        let at = |at: OffsetDateTime| Timestamp::from(at).to_string();
        let endpoints = self.endpoints.iter().map(|endpoint| {
            json!({ "endpoint": {
                "name": endpoint.endpoint, "provider": endpoint.provider,
                "last_verified_at": endpoint.last_verified_at.map(at), "last_event_id": endpoint.last_event_id,
                "last_event_type": endpoint.last_event_type, "processed": endpoint.processed,
                "ignored": endpoint.ignored, "duplicate": endpoint.duplicate, "failed_now": endpoint.failed_now,
                "dead_now": endpoint.dead_now, "discarded_now": endpoint.discarded_now,
                "oldest_failed_at": endpoint.oldest_failed_at.map(at), "quarantined": endpoint.quarantined,
            } })
        });
        let stalls = self.stalls.iter().map(|stall| {
            json!({ "stall": {
                "endpoint": stall.endpoint, "error_kind": stall.error_kind, "events": stall.events,
                "since": at(stall.since),
            } })
        });
        let refusals = self.refusals.iter().map(|refusals| {
            json!({ "refusals": {
                "endpoint": refusals.endpoint, "reason": refusals.reason, "refused": refusals.refused,
                "first_at": at(refusals.first_at), "last_at": at(refusals.last_at), "detail": refusals.detail,
            } })
        });
        let secrets = self.secrets.iter().map(|secret| {
            json!({ "secret": {
                "endpoint": secret.endpoint, "secret": secret.secret, "matched": secret.matched,
                "last_matched_at": at(secret.last_matched_at),
            } })
        });
        endpoints.chain(stalls).chain(refusals).chain(secrets).collect()
    }
}

fn cells(endpoint: &EndpointOverview) -> Vec<Cell> {
    let last = match (endpoint.last_verified_at, &endpoint.last_event_type) {
        (Some(at), Some(kind)) => format!("{} {}", time(at), plain(kind)),
        _ => "-".to_owned(),
    };
    let alarming =
        |count: i64, colour| if count > 0 { Cell::new(count).fg(colour) } else { Cell::new(count) };
    vec![
        Cell::new(&endpoint.endpoint),
        Cell::new(&endpoint.provider),
        Cell::new(last),
        Cell::new(endpoint.processed),
        Cell::new(endpoint.ignored),
        Cell::new(endpoint.duplicate),
        alarming(endpoint.failed_now, Color::Yellow),
        alarming(endpoint.dead_now, Color::Red),
        Cell::new(endpoint.discarded_now),
        Cell::new(endpoint.quarantined),
    ]
}
