//! `wharf audit`.

use std::io;

use clap::Args;
use serde_json::{Value, json};
use sqlx::PgConnection;
use sqlx::types::Uuid;

use super::ops::{Ops, Output, plain};
use super::{Usage, runtime};
use crate::audit::{Finding, Report, Tally, audit};

#[derive(Debug, Args)]
#[command(after_help = "\
All checks read one snapshot and write nothing: deliveries may go on meanwhile, and a standby will do.

  invoices         amounts, status and times are what invoice_entry gives
  invoice_entries  entries are in their invoice's currency
  receipts         the status is what the lines and the times give
  receipt_lines    quantities are the sums of receipt_entry
  positions        on hand and on order are the sums of stock_entry
  goods_in         what deliveries moved on hand is what they counted and accepted
  outbox           no version is missing between the oldest message and the row's own version
  inbox            every entry came from an event that is processed
  retries          warns of failed events that nobody tried again for a day

Exit codes: 0 no breaks (there may be warnings), 1 breaks, 2 the command line is wrong.
docs/OPERATIONS.md, \"Auditing the books\", says what to do about a break.")]
pub(super) struct Audit {
    /// Only this tenant's books.
    #[arg(long, value_name = "NAME")]
    tenant: Option<String>,
    /// Print no more breaks and warnings than this; all are counted.
    #[arg(long, default_value_t = 100, value_name = "N")]
    limit: usize,
    #[command(flatten)]
    output: Output,
}

impl Audit {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let report = runtime()?.block_on(async {
            let mut ops = Ops::connect().await?;
            let tenant = match &self.tenant {
                Some(name) => Some(tenant(&mut ops.connection, name).await?),
                None => None,
            };
            anyhow::Ok(audit(&mut ops.connection, tenant, self.limit).await?)
        })?;
        let mut out = io::stdout().lock();
        if self.output.json {
            print_json(&mut out, &report)?;
        } else {
            print_text(&mut out, &report)?;
        }
        Ok(report.breaks() == 0)
    }
}

async fn tenant(connection: &mut PgConnection, name: &str) -> anyhow::Result<Uuid> {
    let tenants: Vec<(Uuid, String)> =
        sqlx::query_as("select id, name from tenant order by name").fetch_all(connection).await?;
    match tenants.iter().find(|(_, known)| known == name) {
        Some((id, _)) => Ok(*id),
        None => {
            let known = tenants.into_iter().map(|(_, known)| known).collect::<Vec<_>>().join(", ");
            Err(Usage(format!("tenant `{name}` is not there; the tenants are: {known}")).into())
        }
    }
}

fn print_text(out: &mut impl io::Write, report: &Report) -> io::Result<()> {
    for Tally { check, examined, found } in &report.tallies {
        let word = if check.only_warns() { "warning" } else { "break" };
        let verdict = if *found == 0 { "clean".to_owned() } else { counted(*found, word) };
        writeln!(out, "{:<15}  {examined:>9} examined, {verdict}", check.name())?;
    }
    for Finding { check, what, field, stored, recomputed } in &report.findings {
        let word = if check.only_warns() { "warning" } else { "break" };
        writeln!(
            out,
            "\n{word} in {}: {}\n  {field} is        {stored}\n  {:width$} should be {recomputed}\n  {}",
            check.name(),
            plain(what),
            "",
            check.way_out(),
            width = field.len(),
        )?;
    }
    let (breaks, warnings) = (report.breaks(), report.warnings());
    let hidden = breaks + warnings - report.findings.len() as u64;
    let closing = format!("{}, {}", counted(breaks, "break"), counted(warnings, "warning"));
    let more = if hidden > 0 { format!("; {hidden} more are not shown, see --limit") } else { String::new() };
    writeln!(out, "\n{closing}{more}")
}

/// `no breaks`, `1 break`, `2 breaks`.
fn counted(count: u64, word: &str) -> String {
    match count {
        0 => format!("no {word}s"),
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    }
}

fn print_json(out: &mut impl io::Write, report: &Report) -> io::Result<()> {
    for finding in &report.findings {
        writeln!(out, "{}", object(finding))?;
    }
    let checks: Vec<Value> = report
        .tallies
        .iter()
        .map(|tally| json!({"check": tally.check.name(), "examined": tally.examined, "found": tally.found}))
        .collect();
    let summary = json!({
        "breaks": report.breaks(),
        "warnings": report.warnings(),
        "shown": report.findings.len(),
        "checks": checks,
    });
    writeln!(out, "{}", json!({ "summary": summary }))
}

fn object(finding: &Finding) -> Value {
    json!({
        "finding": if finding.check.only_warns() { "warning" } else { "break" },
        "check": finding.check.name(),
        "what": finding.what,
        "field": finding.field,
        "stored": finding.stored,
        "recomputed": finding.recomputed,
        "way_out": finding.check.way_out(),
    })
}
