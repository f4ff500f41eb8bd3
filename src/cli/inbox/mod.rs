//! `wharf inbox`: finding, understanding and working off what was not applied.

mod discard;
mod errors;
mod export;
mod list;
mod reprocess;
mod show;

use std::sync::Arc;

use clap::Subcommand;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{NotFound, Usage};
use crate::config::Config;
use crate::inbox::history::Request;
use crate::inbox::recorded::read_again;
use crate::inbox::select::{Entry, Filter, page};
use crate::provider::{Accepts, Catalogue, Content, Reader};

#[derive(Debug, Subcommand)]
pub(super) enum Inbox {
    /// List events, newest first.
    List(list::List),
    /// Show all that is known of one event: its timeline, its request, what it changed or would change now.
    Show(show::Show),
    /// Group failed and dead events by what went wrong, with the command that reprocesses each group.
    Errors(errors::Errors),
    /// Run failed and dead events again, by the same code that serves deliveries.
    Reprocess(reprocess::Reprocess),
    /// Write events as fixtures, with personal details replaced.
    Export(export::Export),
    /// Set failed or dead events aside for good.
    Discard(discard::Discard),
    /// Take discarding back: the events are dead letters again.
    Undiscard(discard::Undiscard),
}

impl Inbox {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        match self {
            Self::List(command) => command.run(),
            Self::Show(command) => command.run(),
            Self::Errors(command) => command.run(),
            Self::Reprocess(command) => command.run(),
            Self::Export(command) => command.run(),
            Self::Discard(command) => command.run(),
            Self::Undiscard(command) => command.run(),
        }
    }
}

/// The one event that a person means by an inbox id or a provider's event id.
pub(super) async fn find(connection: &mut PgConnection, target: &str) -> anyhow::Result<Entry> {
    if let Ok(id) = target.parse::<i64>() {
        let by_id = Filter { ids: vec![id], ..Filter::default() };
        if let Some(entry) = page(connection, &by_id, None, 1).await?.pop() {
            return Ok(entry);
        }
    }
    let by_event = Filter { event_id: Some(target.to_owned()), ..Filter::default() };
    let mut found = page(connection, &by_event, None, 20).await?;
    match found.len() {
        0 => Err(NotFound(format!("no event has the id {target}; see `wharf inbox list`")).into()),
        1 => Ok(found.remove(0)),
        _ => {
            let ids: Vec<String> =
                found.iter().map(|entry| format!("{} ({})", entry.id, entry.endpoint)).collect();
            let ids = ids.join(", ");
            Err(Usage(format!("{target} came in at several endpoints; name one by its inbox id: {ids}"))
                .into())
        }
    }
}

/// How an event is read: as its endpoint is configured, or, where there is no such endpoint any more, by its provider,
/// whichever of live and test it is.
pub(super) fn reader_of(config: Option<&Config>, entry: &Entry, request: &Request) -> Option<Reader> {
    let configured = config.and_then(|config| {
        let mut endpoints = config.endpoints.iter();
        endpoints.find(|own| own.name == entry.endpoint && own.definition.name == entry.provider)
    });
    if let Some(endpoint) = configured {
        return Some(endpoint.reader());
    }
    let known = config.and_then(|config| config.catalogue.get(&entry.provider).cloned());
    let definition = known.or_else(|| Catalogue::built_in().get(&entry.provider).cloned())?;
    let reader =
        |live| Reader { definition: Arc::clone(&definition), accepts: Accepts { live, account: None } };
    let as_live = read_again(&reader(true), &request.headers, &request.body);
    Some(reader(!matches!(as_live.content, Content::Ignored(_))))
}

/// An event as machines read it.
pub(super) fn entry_json(entry: &Entry) -> Value {
    let time = |at: Option<crate::timestamp::Timestamp>| at.map(|at| at.to_string());
    json!({
        "id": entry.id,
        "endpoint": entry.endpoint,
        "provider": entry.provider,
        "event_id": entry.event_id,
        "event_type": entry.event_type,
        "status": entry.status,
        "attempts": entry.attempts,
        "error_kind": entry.error_kind,
        "error": entry.last_error,
        "ignored_because": entry.ignored_because,
        "group": entry.fingerprint,
        "occurred_at": time(entry.occurred_at),
        "received_at": entry.received_at.to_string(),
        "settled_at": time(entry.settled_at),
        "next_attempt_at": time(entry.next_attempt_at),
    })
}
