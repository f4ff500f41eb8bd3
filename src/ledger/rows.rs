//! Rows of the books' tables as the books know them. Columns go by the names of their tables.

use std::collections::{BTreeMap, BTreeSet};

use sqlx::Row as _;
use sqlx::postgres::PgRow;
use sqlx::types::time::OffsetDateTime;

use crate::books::{
    Invoice, InvoiceEntry, InvoiceEntryKind, InvoiceStatus, Receipt, ReceiptEntry, ReceiptLine,
    ReceiptStatus, value_of,
};
use crate::timestamp::Timestamp;

/// A row of `invoice`.
pub(crate) fn invoice(row: &PgRow) -> Result<Invoice, sqlx::Error> {
    let status: &str = row.try_get("status")?;
    Ok(Invoice {
        id: row.try_get("id")?,
        number: row.try_get("number")?,
        currency: row.try_get("currency")?,
        amount_due: row.try_get("amount_due")?,
        amount_paid: row.try_get("amount_paid")?,
        amount_refunded: row.try_get("amount_refunded")?,
        status: value_of(&InvoiceStatus::ALL, status).ok_or_else(|| unknown("invoice.status", status))?,
        paid_at: moment(row, "paid_at")?,
        last_payment_at: moment(row, "last_payment_at")?,
        issued_at: moment(row, "issued_at")?,
        voided_at: moment(row, "voided_at")?,
        version: row.try_get("version")?,
    })
}

/// A row of `invoice_entry`.
pub(crate) fn invoice_entry(row: &PgRow) -> Result<InvoiceEntry, sqlx::Error> {
    let kind: &str = row.try_get("kind")?;
    Ok(InvoiceEntry {
        kind: value_of(&InvoiceEntryKind::ALL, kind).ok_or_else(|| unknown("invoice_entry.kind", kind))?,
        provider_ref: row.try_get("provider_ref")?,
        payment_ref: row.try_get("payment_ref")?,
        amount: row.try_get("amount")?,
        occurred_at: moment(row, "occurred_at")?,
    })
}

/// A row of `receipt`, without its lines.
pub(crate) fn receipt(row: &PgRow) -> Result<Receipt, sqlx::Error> {
    let status: &str = row.try_get("status")?;
    Ok(Receipt {
        id: row.try_get("id")?,
        number: row.try_get("number")?,
        status: value_of(&ReceiptStatus::ALL, status).ok_or_else(|| unknown("receipt.status", status))?,
        announced_at: moment(row, "announced_at")?,
        in_transit_at: moment(row, "in_transit_at")?,
        arrived_at: moment(row, "arrived_at")?,
        closed_at: moment(row, "closed_at")?,
        cancelled_at: moment(row, "cancelled_at")?,
        version: row.try_get("version")?,
        lines: BTreeMap::new(),
    })
}

/// A row of `receipt_line`, its id as `line_id`, without its notices.
pub(crate) fn receipt_line(row: &PgRow) -> Result<ReceiptLine, sqlx::Error> {
    Ok(ReceiptLine {
        id: Some(row.try_get("line_id")?),
        expected: row.try_get("quantity_expected")?,
        received: row.try_get("quantity_received")?,
        rejected: row.try_get("quantity_rejected")?,
        counted_received: row.try_get("counted_received")?,
        counted_rejected: row.try_get("counted_rejected")?,
        counted_at: moment(row, "counted_at")?,
        notices: BTreeSet::new(),
    })
}

/// A row of `receipt_entry` with its line's SKU.
pub(crate) fn receipt_entry(row: &PgRow) -> Result<ReceiptEntry, sqlx::Error> {
    Ok(ReceiptEntry {
        sku: row.try_get("sku")?,
        notice: row.try_get("notice")?,
        received_delta: row.try_get("quantity_received_delta")?,
        rejected_delta: row.try_get("quantity_rejected_delta")?,
        occurred_at: moment(row, "occurred_at")?,
    })
}

fn moment(row: &PgRow, column: &str) -> Result<Option<Timestamp>, sqlx::Error> {
    Ok(row.try_get::<Option<OffsetDateTime>, _>(column)?.map(Timestamp::from))
}

fn unknown(column: &str, value: &str) -> sqlx::Error {
    sqlx::Error::Decode(format!("{column} holds `{value}`, which this Wharf does not know").into())
}
