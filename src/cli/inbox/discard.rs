//! `wharf inbox discard` and `undiscard`.

use std::io::Write as _;

use clap::Args;

use super::find;
use crate::cli::ops::{Operator, Ops};
use crate::cli::runtime;
use crate::inbox::history::{discard, undiscard};

#[derive(Debug, Args)]
#[command(after_help = "\
A discarded event keeps its bytes and its history, answers \"duplicate\", and is never tried again. `undiscard` makes
it a dead letter again.

  wharf inbox discard 4711 --reason 'test order of the agency'

Exit codes: 0 all discarded, 1 some were neither failed nor dead, 2 usage, 3 no such event.")]
pub(in crate::cli) struct Discard {
    /// Inbox ids or event ids.
    #[arg(required = true, value_name = "ID")]
    targets: Vec<String>,
    /// Why, for those who come after.
    #[arg(long)]
    reason: String,
    #[command(flatten)]
    operator: Operator,
}

#[derive(Debug, Args)]
#[command(
    after_help = "Exit codes: 0 all are dead letters again, 1 some were not discarded, 2 usage, 3 no such event."
)]
pub(in crate::cli) struct Undiscard {
    /// Inbox ids or event ids.
    #[arg(required = true, value_name = "ID")]
    targets: Vec<String>,
    /// Why, for those who come after.
    #[arg(long)]
    reason: Option<String>,
    #[command(flatten)]
    operator: Operator,
}

impl Discard {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        runtime()?.block_on(async {
            let mut ops = Ops::connect().await?;
            let ids = found(&mut ops, &self.targets).await?;
            let done = discard(&mut ops.connection, &ids, &self.operator.operator, &self.reason).await?;
            tell(&ids, &done, "discarded", "is neither failed nor dead")
        })
    }
}

impl Undiscard {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        runtime()?.block_on(async {
            let mut ops = Ops::connect().await?;
            let ids = found(&mut ops, &self.targets).await?;
            let reason = self.reason.as_deref();
            let done = undiscard(&mut ops.connection, &ids, &self.operator.operator, reason).await?;
            tell(&ids, &done, "a dead letter again", "is not discarded")
        })
    }
}

async fn found(ops: &mut Ops, targets: &[String]) -> anyhow::Result<Vec<i64>> {
    let mut ids = Vec::new();
    for target in targets {
        ids.push(find(&mut ops.connection, target).await?.id);
    }
    Ok(ids)
}

fn tell(ids: &[i64], done: &[i64], what: &str, why_not: &str) -> anyhow::Result<bool> {
    let mut out = std::io::stdout().lock();
    for id in ids {
        match done.contains(id) {
            true => writeln!(out, "{id}: {what}")?,
            false => writeln!(out, "{id}: left as it is: it {why_not}")?,
        }
    }
    Ok(ids.iter().all(|id| done.contains(id)))
}
