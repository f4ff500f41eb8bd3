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

use crate::books::{BooksEvent, Effects, Needs, Refusal};

/// Why an event was not applied. The books are as if it had not been there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotApplied {
    /// The books refused it.
    Refused(Refusal),
    /// Applying it panicked.
    Panicked,
}

/// Applies events in the caller's transaction. One result per event, in order.
///
/// An error is a failed statement: the transaction, or the caller's savepoint, must be rolled back.
pub async fn apply(
    connection: &mut PgConnection,
    events: &[BooksEvent<'_>],
) -> Result<Vec<Result<(), NotApplied>>, sqlx::Error> {
    if events.is_empty() {
        return Ok(Vec::new());
    }
    let loaded = load::load(connection, &Needs::of(events)).await?;
    let mut books = loaded.books.clone();
    let mut effects = Effects::default();
    let results = events
        .iter()
        .map(|event| {
            // The books replace what an event touched only at its end: a panic leaves them whole.
            catch_unwind(AssertUnwindSafe(|| books.apply(event, &mut effects)))
                .map_or(Err(NotApplied::Panicked), |result| result.map_err(NotApplied::Refused))
        })
        .collect();
    store::store(connection, &loaded, &books, &effects).await?;
    Ok(results)
}
