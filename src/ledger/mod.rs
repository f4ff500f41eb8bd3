//! The built-in books in the database: the binding that SETTLE hands changes to.
//!
//! A batch is applied in three steps: `load` locks and reads every row that the batch names, in one fixed
//! order (invoices, receipts, SKUs, each by key), so that two gateways cannot deadlock; the pure
//! [`crate::books`] fold the events over them in memory; `store` writes what changed, one statement per
//! table.

mod load;
pub(crate) mod rows;
mod store;

use std::panic::{AssertUnwindSafe, catch_unwind};

use serde_json::Value;
use sqlx::PgConnection;

use crate::books::{BooksEvent, Difference, Effects, Message, Needs, Refusal};

/// Why an event was not applied. The books are as if it had not been there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotApplied {
    /// The books refused it.
    Refused(Refusal),
    /// Applying it panicked.
    Panicked,
}

/// Whether somebody wants to see what changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Show {
    /// Nobody.
    Nothing,
    /// Row by row.
    Differences,
}

/// What an event did to the books.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Applied {
    /// Row by row, if that is to be shown.
    pub differences: Vec<Difference>,
    /// The message of each of its changes, with its version; `None`: it changed nothing.
    pub results: Vec<Option<Value>>,
}

/// An event for the books.
#[derive(Debug, Clone, Copy)]
pub struct ForTheBooks<'a> {
    /// The event.
    pub event: BooksEvent<'a>,
    /// Whether somebody wants the results of its changes.
    pub wants_results: bool,
}

/// Applies events in the caller's transaction. One result per event, in order.
///
/// An error is a failed statement: the transaction, or the caller's savepoint, must be rolled back.
pub async fn apply(
    connection: &mut PgConnection,
    events: &[ForTheBooks<'_>],
    show: Show,
) -> Result<Vec<Result<Applied, NotApplied>>, sqlx::Error> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let loaded = load::load(connection, &Needs::of(events.iter().map(|wanted| &wanted.event))).await?;
    let mut books = loaded.clone();
    let mut effects = Effects::default();
    let results = events
        .iter()
        .map(|ForTheBooks { event, wants_results }| {
            // A draft touches nothing: a panic leaves the books whole.
            let drafted = catch_unwind(AssertUnwindSafe(|| books.draft(event)))
                .map_err(|_panic| NotApplied::Panicked)?
                .map_err(NotApplied::Refused)?;
            let mut applied = Applied::default();
            if show == Show::Differences {
                applied.differences = drafted.differences(&books);
            }
            if *wants_results {
                applied.results = drafted.messages().map(|message| message.map(result)).collect();
            }
            books.take(drafted, &mut effects);
            Ok(applied)
        })
        .collect();
    store::store(connection, &loaded, &books, &effects).await?;
    Ok(results)
}

/// A message as a function is given it.
fn result(message: &Message) -> Value {
    let mut result: Value = serde_json::from_str(&message.payload).unwrap_or_default();
    result["version"] = message.version.into();
    result
}
