//! `wharf inbox show`.

use std::io::{self, Write};
use std::sync::Arc;

use clap::Args;
use serde_json::Value;
use sqlx::PgConnection;

use super::{entry_json, find, reader_of};
use crate::cli::difference::{difference_json, difference_line};
use crate::cli::ops::{ConfigFile, Ops, Output, plain, seconds};
use crate::cli::runtime;
use crate::config::Secrets;
use crate::gateway::readers;
use crate::inbox::history::{Attempt, Effect, Request, attempts, effects, request};
use crate::inbox::recorded::{Again, Handling, Readers, header_lines, read_again};
use crate::inbox::select::Entry;
use crate::inbox::settle::{Batch, Rehearsal};
use crate::inbox::{ErrorKind, Settled};
use crate::provider::currency::money;
use crate::provider::{Content, Event, json};
use crate::timestamp::Timestamp;

#[derive(Debug, Args)]
#[command(after_help = "\
  wharf inbox show 4711
  wharf inbox show evt_1NG8Du2eZvKYlo2C --json
  wharf inbox show 4711 --raw > body.json       the exact bytes that were signed

What would change now is found out by settling the event in a transaction that is rolled back.
Exit codes: 0 shown, 2 usage, 3 no such event.")]
pub(in crate::cli) struct Show {
    /// An inbox id, or a provider's event id.
    #[arg(value_name = "ID")]
    target: String,
    /// Print the exact bytes of the body, and nothing else.
    #[arg(long, conflicts_with = "json")]
    raw: bool,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    output: Output,
}

/// All that is shown of an event.
struct Shown {
    entry: Entry,
    request: Request,
    event: Event,
    attempts: Vec<Attempt>,
    effects: Vec<Effect>,
    /// What would become of it now; `None` for what is settled for good.
    rehearsed: Option<Settled>,
}

impl Show {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let shown = runtime()?.block_on(self.collect())?;
        let mut out = io::stdout().lock();
        if self.raw {
            out.write_all(&shown.request.body)?;
            // What follows the last line end is still in the buffer.
            out.flush()?;
        } else if self.output.json {
            writeln!(out, "{}", shown.json())?;
        } else {
            shown.write(&mut out)?;
        }
        Ok(true)
    }

    async fn collect(&self) -> anyhow::Result<Shown> {
        let mut ops = Ops::connect().await?;
        let connection = &mut ops.connection;
        let entry = find(connection, &self.target).await?;
        let request = request(connection, entry.id).await?;
        let config = self.config.read(Secrets::NotNeeded).ok();
        let reader = reader_of(config.as_ref(), &entry, &request);
        let event = match &reader {
            Some(reader) => read_again(reader, &request.headers, &request.body),
            None => Event {
                id: entry.event_id.clone(),
                kind: entry.event_type.clone(),
                occurred_at: entry.occurred_at,
                content: Content::Unreadable(format!("provider {} is not known here", entry.provider)),
            },
        };
        let changes = match &event.content {
            Content::Changes(changes) => changes.as_slice(),
            Content::Ignored(_) | Content::Unreadable(_) => &[],
        };
        let attempts = attempts(connection, entry.id).await?;
        let effects = effects(connection, entry.id, request.tenant_id, changes).await?;
        let rehearsed = match reader {
            Some(reader) if ["failed", "dead", "ignored"].contains(&entry.status.as_str()) => {
                let configured = config.as_ref().map(readers).unwrap_or_default();
                let effects = configured.get(&entry.endpoint).map(|own| Arc::clone(&own.effects));
                let handling = Handling { reader, effects: effects.unwrap_or_default() };
                rehearse(connection, &entry, handling).await?
            }
            _ => None,
        };
        Ok(Shown { entry, request, event, attempts, effects, rehearsed })
    }
}

async fn rehearse(
    connection: &mut PgConnection,
    entry: &Entry,
    handling: Handling,
) -> anyhow::Result<Option<Settled>> {
    let readers = Readers::from([(entry.endpoint.clone(), handling)]);
    let again = Again::Reprocess { operator: "rehearsal", reason: None };
    let mut rehearsal = Rehearsal::begin(connection).await?;
    let batch = Batch::Recorded { ids: &[entry.id], again, readers: &readers };
    let settled = rehearsal.settle(batch, std::time::SystemTime::now().into()).await?.pop();
    rehearsal.end().await?;
    Ok(settled)
}

/// What would become of an event, in words.
pub(super) fn outlook(settled: &Settled) -> String {
    match (&settled.verdict, settled.verdict.trouble()) {
        (verdict, Some(trouble)) => {
            let then = if verdict.name() == "dead" { "be a dead letter" } else { "fail" };
            format!("would {then}: {}: {}", trouble.kind.name(), trouble.text)
        }
        (crate::inbox::Verdict::Duplicate, None) => "is settled meanwhile, or in other hands".to_owned(),
        (crate::inbox::Verdict::Undecided(reason), None) => format!("cannot be said: {reason}"),
        (verdict, None) => format!("would be {}", verdict.name()),
    }
}

impl Shown {
    fn write(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let Entry { id, endpoint, provider, status, attempts, .. } = &self.entry;
        let (event_id, event_type) = (plain(&self.entry.event_id), plain(&self.entry.event_type));
        writeln!(out, "event      {event_id}, inbox id {id}")?;
        writeln!(out, "endpoint   {endpoint} (provider {provider})")?;
        writeln!(out, "type       {event_type}")?;
        writeln!(out, "status     {status}, {attempts} attempt{}", if *attempts == 1 { "" } else { "s" })?;
        self.write_why(out)?;
        writeln!(out, "\ntimeline")?;
        for (at, line) in self.timeline() {
            writeln!(out, "  {}  {}", seconds(at), plain(&line))?;
        }
        writeln!(out, "\nheaders")?;
        for (name, value) in header_lines(&self.request.headers) {
            writeln!(out, "  {name}: {}", plain(&value))?;
        }
        writeln!(out, "\nbody ({} bytes)", self.request.body.len())?;
        for line in pretty(&self.request.body).lines() {
            writeln!(out, "  {}", plain(line))?;
        }
        self.write_effects(out)?;
        Ok(())
    }

    fn write_why(&self, out: &mut impl Write) -> io::Result<()> {
        let entry = &self.entry;
        if let Some(reason) = &entry.ignored_because {
            writeln!(out, "because    {}", plain(reason))?;
        }
        if let (Some(kind), Some(error)) = (&entry.error_kind, &entry.last_error) {
            writeln!(out, "error      {kind}: {}", plain(error))?;
            if let Some(kind) = ErrorKind::of_name(kind) {
                writeln!(out, "way out    {}", kind.way_out())?;
            }
        }
        if let (Some(group), "failed" | "dead") = (&entry.fingerprint, entry.status.as_str()) {
            writeln!(out, "group      {group}: wharf inbox reprocess --error {group}")?;
        }
        Ok(())
    }

    fn write_effects(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "\nwhat it changed")?;
        if self.effects.is_empty() {
            writeln!(out, "  nothing")?;
        }
        for Effect { table, text, row } in &self.effects {
            let amount = match (row.0["amount"].as_i64(), row.0["currency"].as_str()) {
                (Some(minor), Some(currency)) => format!(" {}", money(minor, currency)),
                _ => String::new(),
            };
            writeln!(out, "  + {table}  {}{amount}", plain(text))?;
        }
        let Some(rehearsed) = &self.rehearsed else { return Ok(()) };
        writeln!(out, "\nwhat it would change now\n  {}", plain(&outlook(rehearsed)))?;
        for difference in &rehearsed.differences {
            writeln!(out, "  {}", plain(&difference_line(difference)))?;
        }
        Ok(())
    }

    fn timeline(&self) -> Vec<(Timestamp, String)> {
        let entry = &self.entry;
        let mut timeline = vec![(entry.received_at, "received".to_owned())];
        if let Some(at) = entry.occurred_at {
            timeline.push((at, "happened, by the provider's clock".to_owned()));
        }
        for attempt in &self.attempts {
            let by = attempt.operator.as_ref().map(|operator| format!(" by {operator}")).unwrap_or_default();
            let reason = attempt.reason.as_ref().map(|reason| format!(" ({reason})")).unwrap_or_default();
            let error = match (&attempt.error_kind, &attempt.error) {
                (Some(kind), Some(error)) => format!(": {kind}: {error}"),
                (None, Some(error)) => format!(": {error}"),
                _ => String::new(),
            };
            let line = format!("{}{by}{reason} -> {}{error}", attempt.origin, attempt.outcome);
            timeline.push((attempt.at.into(), line));
        }
        let recorded = self.attempts.iter().any(|attempt| attempt.outcome == entry.status);
        if let (Some(at), false) = (entry.settled_at, recorded) {
            timeline.push((at, format!("delivery -> {}", entry.status)));
        }
        if let Some(at) = entry.next_attempt_at {
            timeline.push((at, "next try of Wharf's own".to_owned()));
        }
        timeline.sort_by_key(|(at, _)| *at);
        timeline
    }

    fn json(&self) -> Value {
        let attempts: Vec<Value> = self
            .attempts
            .iter()
            .map(|attempt| {
                serde_json::json!({
                    "at": Timestamp::from(attempt.at).to_string(),
                    "origin": attempt.origin,
                    "operator": attempt.operator,
                    "reason": attempt.reason,
                    "outcome": attempt.outcome,
                    "error_kind": attempt.error_kind,
                    "error": attempt.error,
                })
            })
            .collect();
        let rows: Vec<Value> = self
            .effects
            .iter()
            .map(|effect| serde_json::json!({ "table": effect.table, "row": effect.row.0 }))
            .collect();
        let would = self.rehearsed.as_ref().map(|settled| {
            serde_json::json!({
                "outcome": settled.verdict.name(),
                "error_kind": settled.verdict.trouble().map(|trouble| trouble.kind.name()),
                "error": settled.verdict.trouble().map(|trouble| &trouble.text),
                "differences": settled.differences.iter().map(difference_json).collect::<Vec<_>>(),
            })
        });
        let told = match &self.event.content {
            Content::Changes(all) => all.iter().map(|change| change.name()).collect(),
            Content::Ignored(_) | Content::Unreadable(_) => Vec::new(),
        };
        let headers: Value = serde_json::from_str(&self.request.headers).unwrap_or(Value::Null);
        serde_json::json!({
            "event": entry_json(&self.entry),
            "changes": told,
            "attempts": attempts,
            "headers": headers,
            "body": String::from_utf8_lossy(&self.request.body),
            "changed": rows,
            "would_change": would,
        })
    }
}

/// A JSON body laid out for people; anything else as text.
fn pretty(body: &[u8]) -> String {
    json::pretty(body).unwrap_or_else(|| String::from_utf8_lossy(body).into_owned())
}
