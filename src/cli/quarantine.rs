//! `wharf quarantine`.

use std::collections::HashMap;
use std::io::{self, Write as _};
use std::time::SystemTime;

use bytes::Bytes;
use clap::{Args, Subcommand};
use comfy_table::Cell;
use serde_json::json;

use super::ops::{ConfigFile, Ops, Output, or_unread, plain, seconds};
use super::{NotFound, runtime};
use crate::config::Secrets;
use crate::endpoint::Endpoint;
use crate::gateway::endpoints;
use crate::inbox::Verdict;
use crate::inbox::quarantine::{Refused, list, remove, request};
use crate::inbox::settle::{Batch, settle};
use crate::timestamp::Timestamp;

#[derive(Debug, Subcommand)]
#[command(after_help = "\
Refused deliveries are only counted, unless wharf.toml asks for the last few to be kept:
  [quarantine]
  keep = 20

  wharf quarantine list --endpoint stripe     what was refused, and why
  wharf explain --quarantine 17               what may have happened to it
  wharf quarantine reverify                   after a secret was corrected: let the good ones in")]
pub(super) enum Quarantine {
    /// List what was kept, oldest first.
    List(List),
    /// Check what was kept anew, at the time it came, and let in what is good now.
    Reverify(Reverify),
    /// Remove what was kept.
    Clear(Clear),
}

impl Quarantine {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        runtime()?.block_on(async {
            match self {
                Self::List(command) => command.run().await,
                Self::Reverify(command) => command.run().await,
                Self::Clear(command) => command.run().await,
            }
        })
    }
}

/// Which of the kept deliveries.
#[derive(Debug, Args)]
struct Chosen {
    /// Only these.
    #[arg(value_name = "ID")]
    ids: Vec<i64>,
    /// Only this endpoint's.
    #[arg(long, value_name = "NAME")]
    endpoint: Option<String>,
}

impl Chosen {
    async fn find(&self, ops: &mut Ops) -> anyhow::Result<Vec<Refused>> {
        let mut found = list(&mut ops.connection, self.endpoint.as_deref()).await?;
        if let Some(missing) = self.ids.iter().find(|id| !found.iter().any(|kept| kept.id == **id)) {
            let text = format!("nothing is kept under the id {missing}; see `wharf quarantine list`");
            return Err(NotFound(text).into());
        }
        if !self.ids.is_empty() {
            found.retain(|kept| self.ids.contains(&kept.id));
        }
        Ok(found)
    }
}

#[derive(Debug, Args)]
pub(super) struct List {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    output: Output,
}

impl List {
    async fn run(self) -> anyhow::Result<bool> {
        let found = self.chosen.find(&mut Ops::connect().await?).await?;
        let rows = found.iter().map(|kept| {
            let at = Timestamp::from(kept.received_at);
            let cells = vec![
                Cell::new(kept.id),
                Cell::new(seconds(at)),
                Cell::new(&kept.endpoint),
                Cell::new(kept.bytes),
                Cell::new(format!("{}: {}", kept.reason, kept.detail)),
            ];
            let object = json!({
                "id": kept.id, "endpoint": kept.endpoint, "provider": kept.provider, "reason": kept.reason,
                "detail": kept.detail, "received_at": at.to_string(), "bytes": kept.bytes,
            });
            (cells, object)
        });
        self.output.rows(&["id", "received", "endpoint", "bytes", "refused because"], rows)?;
        Ok(true)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
A delivery whose signature is good now, at the time it came, is settled like any other: an event that the provider has
sent again meanwhile is a duplicate, and nothing is applied twice. What is let in leaves the quarantine.

Exit codes: 0 all were let in, 1 some were not, 2 usage, 3 nothing is kept.")]
pub(super) struct Reverify {
    #[command(flatten)]
    chosen: Chosen,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    output: Output,
}

impl Reverify {
    async fn run(self) -> anyhow::Result<bool> {
        let config = self.config.read(Secrets::Needed)?;
        let mut ops = Ops::connect().await?;
        let found = self.chosen.find(&mut ops).await?;
        if found.is_empty() {
            return Err(NotFound("nothing is kept".to_owned()).into());
        }
        let endpoints = endpoints(&config, &mut ops.connection).await?;
        let mut let_in = 0;
        for kept in &found {
            let outcome = reverify(&mut ops, &endpoints, kept).await?;
            let good = outcome.is_ok();
            let_in += usize::from(good);
            let word = outcome.unwrap_or_else(|reason| reason);
            if self.output.json {
                let line =
                    json!({ "id": kept.id, "endpoint": kept.endpoint, "let_in": good, "outcome": word });
                or_unread(writeln!(io::stdout(), "{line}"))?;
            } else {
                let (verdict, word) = (if good { "let in" } else { "still refused" }, plain(&word));
                or_unread(writeln!(io::stdout(), "{}  {}  {verdict}: {word}", kept.id, kept.endpoint))?;
            }
        }
        if !self.output.json {
            or_unread(writeln!(io::stdout(), "{let_in} of {} let in", found.len()))?;
        }
        Ok(let_in == found.len())
    }
}

/// Checks a kept delivery anew: what became of it, or why it stays.
async fn reverify(
    ops: &mut Ops,
    endpoints: &HashMap<String, Endpoint>,
    kept: &Refused,
) -> anyhow::Result<Result<String, String>> {
    let Some(endpoint) = endpoints.get(&kept.endpoint) else {
        return Ok(Err(format!("endpoint {} is not in the configuration", kept.endpoint)));
    };
    let Some(captured) = request(&mut ops.connection, kept.id).await? else {
        return Ok(Err("it is gone".to_owned()));
    };
    let body = Bytes::from(captured.body.clone());
    let delivery = match endpoint.accept(&captured.headers(), &body, kept.received_at.into()) {
        Ok((delivery, _)) => delivery,
        Err(rejection) => return Ok(Err(rejection.to_string())),
    };
    let now = SystemTime::now().into();
    let settled = settle(&mut ops.connection, Batch::Delivered(&[&delivery]), now).await?;
    match &settled[0].verdict {
        // It is not in the inbox, so it stays here.
        Verdict::Undecided(reason) => Ok(Err(format!("its signature is good, but {reason}"))),
        verdict => {
            remove(&mut ops.connection, &[kept.id]).await?;
            let trouble = verdict.trouble().map(|trouble| format!(": {}", trouble.text)).unwrap_or_default();
            Ok(Ok(format!("{} {}{trouble}", delivery.event.id, verdict.name())))
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct Clear {
    #[command(flatten)]
    chosen: Chosen,
}

impl Clear {
    async fn run(self) -> anyhow::Result<bool> {
        let mut ops = Ops::connect().await?;
        let ids: Vec<i64> = self.chosen.find(&mut ops).await?.iter().map(|kept| kept.id).collect();
        let removed = remove(&mut ops.connection, &ids).await?;
        writeln!(io::stdout(), "{removed} removed")?;
        Ok(true)
    }
}
