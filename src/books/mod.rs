//! The books: invoices, receipts and stock, and what a change does to them. Pure: no database, no clock.
//!
//! Whatever the order, the repetition or the batching, the same set of events ends in the same books: each
//! state is a function of a *set* of facts. [`invoice`] and [`receipt`] say which function. (Versions and
//! outbox messages are no part of that: they tell what happened here, in the order in which it did.)
//!
//! Reading order: [`change`] (the facts), [`invoice`], [`receipt`], [`stock`], [`apply`] (events over loaded
//! books), [`refusal`] (what cannot be applied, and whether time may heal it), [`difference`] (what an event
//! changes, for people), [`recompute`] (the books from their entries alone).

pub mod apply;
pub mod change;
pub mod difference;
pub mod invoice;
pub mod receipt;
pub mod recompute;
pub mod refusal;
pub mod stock;

pub use apply::{Books, BooksEvent, Drafted, Effects, Message, Needs, PaymentKey};
pub use change::{
    Change, CountedLine, Counting, DisputeStage, ExpectedLine, InvoiceChange, InvoiceFact, Money, OwnChange,
    ReceiptChange, ReceiptFact, Told,
};
pub use difference::{Difference, Figure};
pub use invoice::{Invoice, InvoiceEntry, InvoiceEntryKind, InvoiceStatus, Payment};
pub use receipt::{Receipt, ReceiptEntry, ReceiptLine, ReceiptStatus};
pub use recompute::InvoiceRecord;
pub use refusal::{Heals, Refusal};
pub use stock::{Movement, Position};

/// The name of a value in a table of names.
fn name_in<T: PartialEq>(table: &[(T, &'static str)], value: &T) -> &'static str {
    table.iter().find(|(known, _)| known == value).map_or("", |(_, name)| name)
}

/// The value of a name in a table of names.
pub fn value_of<T: Copy>(table: &[(T, &'static str)], name: &str) -> Option<T> {
    table.iter().find(|(_, known)| *known == name).map(|(value, _)| *value)
}
