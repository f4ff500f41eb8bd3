//! What an event changes, row by row: for people who want to see it before it happens.

use std::collections::BTreeMap;

use super::apply::{Books, Effects};
use super::invoice::Invoice;
use super::receipt::Receipt;
use super::stock::Position;

/// A row that an event changes or adds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Difference {
    /// A column of a row gets another value.
    Changed {
        /// The row, as people name it: `invoice INV-1`.
        row: String,
        /// The column.
        column: &'static str,
        /// What it held.
        old: Figure,
        /// What it holds then.
        new: Figure,
    },
    /// A row is written.
    Added {
        /// Its table.
        table: &'static str,
        /// What it says.
        row: String,
        /// Its amount, if it has one.
        amount: Figure,
    },
}

/// A value of a column.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Figure {
    /// Nothing.
    Null,
    /// A word or a time.
    Text(String),
    /// Units.
    Quantity(i64),
    /// Minor units of a currency.
    Amount(i64, String),
}

impl Difference {
    /// What an event changes: `touched` are the rows after it, of which `before` holds what they were.
    pub(super) fn all(before: &Books, touched: &Books, effects: &Effects) -> Vec<Self> {
        let mut all = Vec::new();
        for (key, invoice) in in_order(&touched.invoices) {
            let old = before.invoices.get(key).map(invoice_columns).unwrap_or_default();
            changed(&mut all, &format!("invoice {}", key.1), &old, invoice_columns(invoice));
        }
        for (key, receipt) in in_order(&touched.receipts) {
            let old = before.receipts.get(key);
            let columns =
                |receipt: &Receipt| vec![("status", Figure::Text(receipt.status.name().to_owned()))];
            changed(
                &mut all,
                &format!("receipt {}", key.1),
                &old.map(columns).unwrap_or_default(),
                columns(receipt),
            );
            for sku in receipt.lines.keys() {
                let row = format!("receipt {} line {sku}", key.1);
                let old = old.map(|old| line_columns(old, sku)).unwrap_or_default();
                changed(&mut all, &row, &old, line_columns(receipt, sku));
            }
        }
        for (key, position) in in_order(&touched.positions) {
            let old = before.positions.get(key).map(position_columns).unwrap_or_default();
            changed(&mut all, &format!("sku {}", key.1), &old, position_columns(position));
        }
        added(&mut all, effects);
        all
    }
}

fn in_order<K: Ord, V>(rows: &std::collections::HashMap<K, V>) -> BTreeMap<&K, &V> {
    rows.iter().collect()
}

type Columns = Vec<(&'static str, Figure)>;

fn changed(all: &mut Vec<Difference>, row: &str, old: &Columns, new: Columns) {
    for (column, new) in new {
        let old = old.iter().find(|(name, _)| *name == column).map_or(Figure::Null, |(_, old)| old.clone());
        if old != new {
            all.push(Difference::Changed { row: row.to_owned(), column, old, new });
        }
    }
}

fn invoice_columns(invoice: &Invoice) -> Columns {
    let amount = |minor| Figure::Amount(minor, invoice.currency.clone());
    vec![
        ("status", Figure::Text(invoice.status.name().to_owned())),
        ("amount_due", amount(invoice.amount_due)),
        ("amount_paid", amount(invoice.amount_paid)),
        ("amount_refunded", amount(invoice.amount_refunded)),
        ("paid_at", invoice.paid_at.map_or(Figure::Null, |at| Figure::Text(at.to_string()))),
    ]
}

fn line_columns(receipt: &Receipt, sku: &str) -> Columns {
    let Some(line) = receipt.lines.get(sku) else { return Vec::new() };
    vec![
        ("quantity_expected", Figure::Quantity(line.expected)),
        ("quantity_received", Figure::Quantity(line.received)),
        ("quantity_rejected", Figure::Quantity(line.rejected)),
    ]
}

fn position_columns(position: &Position) -> Columns {
    vec![("on_hand", Figure::Quantity(position.on_hand)), ("on_order", Figure::Quantity(position.on_order))]
}

fn added(all: &mut Vec<Difference>, effects: &Effects) {
    let mut add = |table, row, amount| all.push(Difference::Added { table, row, amount });
    for row in &effects.invoice_entries {
        let amount = Figure::Amount(row.entry.amount, row.currency.clone());
        add("invoice_entry", format!("{} {}", row.entry.kind.name(), row.entry.provider_ref), amount);
    }
    for entry in effects.receipt_entries.iter().map(|row| &row.entry) {
        let (received, rejected) = (entry.received_delta, entry.rejected_delta);
        let row = format!("{} received {received:+} rejected {rejected:+}", entry.sku);
        add("receipt_entry", row, Figure::Null);
    }
    for row in &effects.stock_entries {
        let (on_hand, on_order) = (row.movement.on_hand, row.movement.on_order);
        let row = format!("{} on_hand {on_hand:+} on_order {on_order:+}", row.movement.sku);
        add("stock_entry", row, Figure::Null);
    }
    for message in &effects.messages {
        add("outbox", format!("{} version {}", message.event_type, message.version), Figure::Null);
    }
}
