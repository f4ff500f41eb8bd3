//! `wharf migrate`.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context as _;
use clap::Args;

use super::ops::plain;
use super::runtime;
use super::serve::{PRIVATE_PLACE, database, names_database};
use crate::postgres::plan::Plan;
use crate::postgres::{SCHEMA, migrate};

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 the schema is up to date, 1 it could not be migrated, or with --plan: it is not up to date, 2 usage.")]
pub(super) struct Migrate {
    /// Change nothing; print which migrations would be applied, and how the schema stands.
    #[arg(long)]
    plan: bool,
    /// With --plan: print the text of these migrations, too.
    #[arg(long, requires = "plan")]
    sql: bool,
}

impl Migrate {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        if self.plan {
            let plan = plan()?;
            write_plan(&mut io::stdout().lock(), &plan, self.sql)?;
            return Ok(plan.is_up_to_date());
        }
        let (options, _private) = database(PRIVATE_PLACE)?;
        runtime()?.block_on(migrate(&options)).context("the schema was not migrated")?;
        writeln!(io::stdout(), "schema {SCHEMA} is up to date")?;
        Ok(true)
    }
}

fn plan() -> anyhow::Result<Plan> {
    // Starting the private server would make its database, and a plan changes nothing.
    if !names_database() && !Path::new(PRIVATE_PLACE).exists() {
        return Ok(Plan::of_nothing());
    }
    let (options, _private) = database(PRIVATE_PLACE)?;
    runtime()?
        .block_on(Plan::of(&options))
        .context("what was applied to the database cannot be read; check DATABASE_URL and the server")
}

fn write_plan(out: &mut impl Write, plan: &Plan, with_sql: bool) -> io::Result<()> {
    match plan.applied {
        _ if plan.is_up_to_date() => writeln!(out, "schema {SCHEMA} is up to date")?,
        None => writeln!(out, "schema {SCHEMA} has had no migration")?,
        Some(version) => writeln!(out, "schema {SCHEMA} has had migrations up to {version}")?,
    }
    for (version, description) in &plan.unknown {
        let description = plain(description);
        writeln!(
            out,
            "ahead        {version}  {description}: this build does not know it; run the Wharf that applied it"
        )?;
    }
    for step in &plan.changed {
        let (version, description) = (step.version, step.description);
        writeln!(out, "differs      {version}  {description}: its text is not the one that was applied")?;
    }
    let verdict = if plan.is_blocked() { "pending    " } else { "would apply" };
    for step in &plan.pending {
        writeln!(out, "{verdict}  {}  {}", step.version, step.description)?;
    }
    if plan.is_blocked() {
        writeln!(out, "`wharf migrate` would refuse, and change nothing")?;
    }
    if with_sql {
        for step in &plan.pending {
            write!(out, "\n-- Migration {}: {}\n\n{}", step.version, step.description, step.sql)?;
        }
    }
    Ok(())
}
