//! `wharf inbox errors`.

use clap::Args;
use comfy_table::Cell;
use serde_json::json;

use crate::cli::filter::FilterArgs;
use crate::cli::ops::{Ops, Output, seconds};
use crate::cli::runtime;
use crate::inbox::select::{Group, groups};

#[derive(Debug, Args)]
#[command(after_help = "\
Events belong to one group if endpoint, type, kind of error and the error's text are the same, but for ids, numbers
and times in it. A group is worked off with
  wharf inbox show SAMPLE                        understand it by its newest event
  wharf inbox reprocess --error GROUP --dry-run  after the cause is fixed: what would happen
  wharf inbox reprocess --error GROUP            run them again

Exit codes: 0 done (also if nothing fits), 2 the command line is wrong.")]
pub(in crate::cli) struct Errors {
    #[command(flatten)]
    filter: FilterArgs,
    #[command(flatten)]
    output: Output,
}

impl Errors {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let filter = self.filter.trouble()?;
        let groups = runtime()?.block_on(async {
            let mut ops = Ops::connect().await?;
            anyhow::Ok(groups(&mut ops.connection, &filter).await?)
        })?;
        let header = [
            "group",
            "events",
            "dead",
            "endpoint",
            "type",
            "first",
            "last",
            "sample",
            "error",
            "reprocess with",
        ];
        self.output.rows(&header, groups.iter().map(|group| (cells(group), group_json(group))))?;
        Ok(true)
    }
}

fn command(group: &Group) -> String {
    format!("wharf inbox reprocess --error {}", group.fingerprint)
}

fn cells(group: &Group) -> Vec<Cell> {
    vec![
        Cell::new(&group.fingerprint),
        Cell::new(group.events),
        Cell::new(group.dead),
        Cell::new(&group.endpoint),
        Cell::new(&group.event_type),
        Cell::new(seconds(group.first_received_at)),
        Cell::new(seconds(group.last_received_at)),
        Cell::new(group.sample_id),
        Cell::new(format!("{}: {}", group.error_kind, group.sample_error)),
        Cell::new(command(group)),
    ]
}

fn group_json(group: &Group) -> serde_json::Value {
    json!({
        "group": group.fingerprint,
        "endpoint": group.endpoint,
        "event_type": group.event_type,
        "error_kind": group.error_kind,
        "events": group.events,
        "dead": group.dead,
        "first_received_at": group.first_received_at.to_string(),
        "last_received_at": group.last_received_at.to_string(),
        "sample_id": group.sample_id,
        "sample_error": group.sample_error,
        "reprocess": command(group),
    })
}
