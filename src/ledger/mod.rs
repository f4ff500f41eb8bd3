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

use sqlx::PgConnection;

use crate::books::{BooksEvent, Difference, Effects, Needs, Refusal};

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

/// Applies events in the caller's transaction. One result per event, in order: what it changed, if that is to
/// be shown.
///
/// An error is a failed statement: the transaction, or the caller's savepoint, must be rolled back.
pub async fn apply(
    connection: &mut PgConnection,
    events: &[BooksEvent<'_>],
    show: Show,
) -> Result<Vec<Result<Vec<Difference>, NotApplied>>, sqlx::Error> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let loaded = load::load(connection, &Needs::of(events)).await?;
    let mut books = loaded.clone();
    let mut effects = Effects::default();
    let results = events
        .iter()
        .map(|event| {
            // A draft touches nothing: a panic leaves the books whole.
            let drafted = catch_unwind(AssertUnwindSafe(|| books.draft(event)))
                .map_err(|_panic| NotApplied::Panicked)?
                .map_err(NotApplied::Refused)?;
            let differences = match show {
                Show::Nothing => Vec::new(),
                Show::Differences => drafted.differences(&books),
            };
            books.take(drafted, &mut effects);
            Ok(differences)
        })
        .collect();
    store::store(connection, &loaded, &books, &effects).await?;
    Ok(results)
}
