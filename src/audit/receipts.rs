//! Receipts and their lines against their entries.

use futures_util::TryStreamExt as _;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use sqlx::{PgConnection, Row as _};

use super::{Check, Report, Scope};
use crate::books::{Receipt, ReceiptEntry, ReceiptLine};
use crate::ledger::rows;

/// Every receipt with its lines and their entries; what has none of them in one row.
const RECEIPTS: &str =
    "select receipt.*, line.id as line_id, line.sku, line.quantity_expected, line.quantity_received,
            line.quantity_rejected, line.counted_received, line.counted_rejected, line.counted_at,
            entry.id as entry_id, entry.notice, entry.quantity_received_delta, entry.quantity_rejected_delta,
            entry.occurred_at
     from receipt
     left join receipt_line line on line.receipt_id = receipt.id
     left join receipt_entry entry on entry.receipt_line_id = line.id
     where $1::uuid is null or receipt.tenant_id = $1
     order by receipt.tenant_id, receipt.number, line.sku, entry.id";

/// A receipt whose lines and entries are coming in.
struct Open {
    what: String,
    receipt: Receipt,
    entries: Vec<ReceiptEntry>,
}

pub(super) async fn check(
    connection: &mut PgConnection,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), sqlx::Error> {
    let mut stream = sqlx::query(RECEIPTS).bind(scope.tenant).fetch(connection);
    let mut open: Option<Open> = None;
    while let Some(row) = stream.try_next().await? {
        let id: Uuid = row.try_get("id")?;
        let mut current = match open.take() {
            Some(current) if current.receipt.id == id => current,
            done => {
                if let Some(done) = &done {
                    compare(done, report);
                }
                begun(&row, scope)?
            }
        };
        take_line(&mut current, &row)?;
        open = Some(current);
    }
    if let Some(done) = &open {
        compare(done, report);
    }
    Ok(())
}

fn begun(row: &PgRow, scope: &Scope) -> Result<Open, sqlx::Error> {
    let receipt = rows::receipt(row)?;
    let what = format!("receipt {} of {}", receipt.number, scope.name(row.try_get("tenant_id")?));
    Ok(Open { what, receipt, entries: Vec::new() })
}

fn take_line(current: &mut Open, row: &PgRow) -> Result<(), sqlx::Error> {
    let Some(sku) = row.try_get::<Option<String>, _>("sku")? else { return Ok(()) };
    current.receipt.lines.insert(sku, rows::receipt_line(row)?);
    if row.try_get::<Option<i64>, _>("entry_id")?.is_some() {
        current.entries.push(rows::receipt_entry(row)?);
    }
    Ok(())
}

fn compare(done: &Open, report: &mut Report) {
    let Open { what, receipt, entries } = done;
    report.examined(Check::Receipts);
    let recomputed = match receipt.recomputed(entries) {
        Ok(recomputed) => recomputed,
        Err(refusal) => {
            return report.cannot_be_added(Check::Receipts, what, &refusal);
        }
    };
    let status = |receipt: &Receipt| [("status", receipt.status.name().to_owned())];
    report.compare(Check::Receipts, what, status(receipt), status(&recomputed));
    for (sku, line) in &receipt.lines {
        report.examined(Check::ReceiptLines);
        let line_recomputed = &recomputed.lines[sku];
        if line != line_recomputed {
            let what = format!("SKU {sku} on {what}");
            report.compare(Check::ReceiptLines, &what, quantities(line), quantities(line_recomputed));
        }
    }
}

fn quantities(line: &ReceiptLine) -> [(&'static str, String); 4] {
    [
        ("quantity_received", line.received.to_string()),
        ("quantity_rejected", line.rejected.to_string()),
        ("counted_received", line.counted_received.to_string()),
        ("counted_rejected", line.counted_rejected.to_string()),
    ]
}
