//! `wharf inbox list`.

use std::io::Write as _;

use clap::Args;
use comfy_table::Cell;

use super::entry_json;
use crate::cli::filter::FilterArgs;
use crate::cli::ops::{Ops, Output, plain, seconds, status_cell};
use crate::cli::runtime;
use crate::inbox::select::{Entry, page};

#[derive(Debug, Args)]
#[command(after_help = "\
  wharf inbox list --status dead                    dead letters
  wharf inbox list --status failed --since 2h       what failed in the last two hours
  wharf inbox list --number INV-1042                what changed this invoice, or wanted to
  wharf inbox list --endpoint stripe --json | jq    for machines

Exit codes: 0 done (also if nothing fits), 2 the command line is wrong.")]
pub(in crate::cli) struct List {
    #[command(flatten)]
    filter: FilterArgs,
    /// So many at most.
    #[arg(long, default_value_t = 50, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    limit: u32,
    /// Only those with smaller ids: the next page.
    #[arg(long, value_name = "ID")]
    before: Option<i64>,
    #[command(flatten)]
    output: Output,
}

impl List {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let filter = self.filter.filter();
        let entries = runtime()?.block_on(async {
            let mut ops = Ops::connect().await?;
            anyhow::Ok(page(&mut ops.connection, &filter, self.before, self.limit).await?)
        })?;
        let header = ["id", "received", "endpoint", "type", "event id", "status", "attempts", "why"];
        self.output.rows(&header, entries.iter().map(|entry| (cells(entry), entry_json(entry))))?;
        if !self.output.json && entries.len() == self.limit as usize {
            let oldest = entries.last().map_or(0, |entry| entry.id);
            writeln!(std::io::stderr(), "there may be more: --before {oldest}")?;
        }
        Ok(true)
    }
}

fn cells(entry: &Entry) -> Vec<Cell> {
    let why = match (&entry.error_kind, &entry.last_error, &entry.ignored_because) {
        _ if entry.status == "processed" => String::new(),
        (Some(kind), Some(error), _) => format!("{kind}: {error}"),
        (_, _, Some(reason)) => reason.clone(),
        _ => String::new(),
    };
    vec![
        Cell::new(entry.id),
        Cell::new(seconds(entry.received_at)),
        Cell::new(&entry.endpoint),
        Cell::new(plain(&entry.event_type)),
        Cell::new(plain(&entry.event_id)),
        status_cell(&entry.status),
        Cell::new(entry.attempts),
        Cell::new(plain(&why)),
    ]
}
