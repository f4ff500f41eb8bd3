//! `wharf inbox errors`.

use std::io::Write;

use clap::Args;
use serde_json::json;

use crate::cli::filter::FilterArgs;
use crate::cli::ops::{Ops, Output, plain, seconds};
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
        let mut out = std::io::stdout().lock();
        for group in &groups {
            match self.output.json {
                true => writeln!(out, "{}", group_json(group))?,
                false => write(&mut out, group)?,
            }
        }
        if groups.is_empty() && !self.output.json {
            writeln!(out, "nothing is failed or dead")?;
        }
        Ok(true)
    }
}

fn command(group: &Group) -> String {
    format!("wharf inbox reprocess --error {}", group.fingerprint)
}

fn write(out: &mut impl Write, group: &Group) -> std::io::Result<()> {
    let Group { fingerprint, endpoint, events, dead, error_kind, .. } = group;
    let (event_type, sample_error) = (plain(&group.event_type), plain(&group.sample_error));
    let (first, last) = (seconds(group.first_received_at), seconds(group.last_received_at));
    let counted = if *events == 1 { "1 event".to_owned() } else { format!("{events} events") };
    writeln!(out, "{fingerprint}  {counted} of {endpoint}, {event_type}; {dead} dead")?;
    writeln!(out, "            {error_kind}: {sample_error}")?;
    writeln!(out, "            received {first} to {last}, the newest is {}", group.sample_id)?;
    writeln!(out, "            {}\n", command(group))
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
