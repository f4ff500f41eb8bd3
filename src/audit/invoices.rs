//! Invoices against their entries.

use futures_util::TryStreamExt as _;
use sqlx::postgres::PgRow;
use sqlx::types::Uuid;
use sqlx::{PgConnection, Row as _};

use super::{Check, Finding, Report, Scope};
use crate::books::{Invoice, InvoiceRecord};
use crate::ledger::rows;
use crate::provider::currency::money;
use crate::timestamp::Timestamp;

/// Every invoice with its entries, an invoice without entries in one row.
const INVOICES: &str =
    "select invoice.*, entry.id as entry_id, entry.kind, entry.provider, entry.provider_ref, entry.payment_ref,
            entry.amount, entry.currency as entry_currency, entry.occurred_at
     from invoice left join invoice_entry entry on entry.invoice_id = invoice.id
     where $1::uuid is null or invoice.tenant_id = $1
     order by invoice.tenant_id, invoice.number, entry.id";

/// An invoice whose entries are coming in.
struct Open {
    what: String,
    invoice: Invoice,
    record: InvoiceRecord,
}

pub(super) async fn check(
    connection: &mut PgConnection,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), sqlx::Error> {
    let mut stream = sqlx::query(INVOICES).bind(scope.tenant).fetch(connection);
    let mut open: Option<Open> = None;
    while let Some(row) = stream.try_next().await? {
        let id: Uuid = row.try_get("id")?;
        let mut current = match open.take() {
            Some(current) if current.invoice.id == id => current,
            done => {
                if let Some(done) = &done {
                    compare(done, report);
                }
                begun(&row, scope)?
            }
        };
        if let Some(entry) = row.try_get("entry_id")? {
            take_entry(&mut current, entry, &row, report)?;
        }
        open = Some(current);
    }
    if let Some(done) = &open {
        compare(done, report);
    }
    Ok(())
}

fn begun(row: &PgRow, scope: &Scope) -> Result<Open, sqlx::Error> {
    let invoice = rows::invoice(row)?;
    let what = format!("invoice {} of {}", invoice.number, scope.name(row.try_get("tenant_id")?));
    Ok(Open { what, invoice, record: InvoiceRecord::default() })
}

fn take_entry(current: &mut Open, id: i64, row: &PgRow, report: &mut Report) -> Result<(), sqlx::Error> {
    let check = Check::InvoiceEntries;
    report.examined(check);
    let currency: String = row.try_get("entry_currency")?;
    if currency != current.invoice.currency {
        let what = format!("entry {id} of {}", current.what);
        let recomputed = current.invoice.currency.clone();
        report.found(Finding { check, what, field: "currency", stored: currency, recomputed });
    }
    current.record.remember(row.try_get("provider")?, rows::invoice_entry(row)?);
    Ok(())
}

fn compare(done: &Open, report: &mut Report) {
    let check = Check::Invoices;
    report.examined(check);
    match done.invoice.recomputed(&done.record) {
        Ok(recomputed) if recomputed == done.invoice => {}
        Ok(recomputed) => report.compare(check, &done.what, fields(&done.invoice), fields(&recomputed)),
        Err(refusal) => report.cannot_be_added(check, &done.what, &refusal),
    }
}

fn fields(invoice: &Invoice) -> [(&'static str, String); 8] {
    let money = |minor| money(minor, &invoice.currency);
    let time = |at: Option<Timestamp>| at.map_or_else(|| "none".to_owned(), |at| at.to_string());
    [
        ("amount_due", money(invoice.amount_due)),
        ("amount_paid", money(invoice.amount_paid)),
        ("amount_refunded", money(invoice.amount_refunded)),
        ("status", invoice.status.name().to_owned()),
        ("paid_at", time(invoice.paid_at)),
        ("last_payment_at", time(invoice.last_payment_at)),
        ("issued_at", time(invoice.issued_at)),
        ("voided_at", time(invoice.voided_at)),
    ]
}
