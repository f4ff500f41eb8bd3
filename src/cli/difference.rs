//! What an event changes, for people and for machines.

use serde_json::{Value, json};

use crate::books::{Difference, Figure};
use crate::provider::currency::money;

fn figure(figure: &Figure) -> String {
    match figure {
        Figure::Null => "-".to_owned(),
        Figure::Text(text) => text.clone(),
        Figure::Quantity(units) => units.to_string(),
        Figure::Amount(minor, currency) => money(*minor, currency),
    }
}

fn figure_json(figure: &Figure) -> Value {
    match figure {
        Figure::Null => Value::Null,
        Figure::Text(text) => json!(text),
        Figure::Quantity(units) => json!(units),
        Figure::Amount(minor, currency) => json!({ "minor": minor, "currency": currency }),
    }
}

/// `invoice INV-1 amount_paid 0.00 USD -> 100.00 USD`, `+ outbox invoice.paid version 1`.
pub(super) fn difference_line(difference: &Difference) -> String {
    match difference {
        Difference::Changed { row, column, old, new } => {
            format!("{row} {column} {} -> {}", figure(old), figure(new))
        }
        Difference::Added { table, row, amount: Figure::Null } => format!("+ {table}  {row}"),
        Difference::Added { table, row, amount } => format!("+ {table}  {row} {}", figure(amount)),
    }
}

pub(super) fn difference_json(difference: &Difference) -> Value {
    match difference {
        Difference::Changed { row, column, old, new } => {
            json!({ "row": row, "column": column, "old": figure_json(old), "new": figure_json(new) })
        }
        Difference::Added { table, row, amount } => {
            json!({ "added": table, "row": row, "amount": figure_json(amount) })
        }
    }
}
