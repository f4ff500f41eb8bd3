//! The audit: every balance is worked out again from the append-only entries, and compared.
//!
//! All checks read one snapshot, so that deliveries may go on meanwhile. Rows are streamed in the order of what they
//! belong to, and one invoice or receipt at a time is held in memory. The rules are those of [`crate::books`]; where a
//! rule is a plain sum over a whole table, the database adds up.

mod inbox;
mod invoices;
mod outbox;
mod receipts;
mod stock;

use std::collections::HashMap;

use sqlx::types::Uuid;
use sqlx::{Executor as _, PgConnection};

use crate::books::Refusal;

/// Reads what was committed at one moment, and can write nothing. It works on a standby, too.
const SNAPSHOT: &str = "begin isolation level repeatable read, read only";

/// What is compared with what.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Check {
    /// An invoice with what its entries give.
    Invoices,
    /// An invoice entry's currency with its invoice's.
    InvoiceEntries,
    /// A receipt's status with what its entries and times give.
    Receipts,
    /// A receipt line's quantities with the sums of its entries.
    ReceiptLines,
    /// A SKU's quantities with the sums of its entries.
    Positions,
    /// Per SKU, the units that deliveries moved on hand with the units that they counted and accepted.
    GoodsIn,
    /// The versions that were told of an invoice or a receipt with its own.
    Outbox,
    /// Entries with the inbox rows that they came from.
    Inbox,
    /// Failed events with the time of their next attempt.
    Retries,
}

impl Check {
    /// All of them, in the order in which they are made.
    pub const ALL: [Self; 9] = [
        Self::Invoices,
        Self::InvoiceEntries,
        Self::Receipts,
        Self::ReceiptLines,
        Self::Positions,
        Self::GoodsIn,
        Self::Outbox,
        Self::Inbox,
        Self::Retries,
    ];

    /// Its stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Invoices => "invoices",
            Self::InvoiceEntries => "invoice_entries",
            Self::Receipts => "receipts",
            Self::ReceiptLines => "receipt_lines",
            Self::Positions => "positions",
            Self::GoodsIn => "goods_in",
            Self::Outbox => "outbox",
            Self::Inbox => "inbox",
            Self::Retries => "retries",
        }
    }

    /// Whether what it finds is a warning: the books are right, and something still wants attention.
    pub fn only_warns(self) -> bool {
        self == Self::Retries
    }

    /// What to do about what it finds.
    pub fn way_out(self) -> &'static str {
        match self {
            Self::Invoices => {
                "Something outside Wharf wrote the invoice or its entries. If the entries are right, set the column \
                 to what they give; if one is missing, insert it into invoice_entry."
            }
            Self::InvoiceEntries => {
                "Amounts of two currencies were added up. A person decides which one is right."
            }
            Self::Receipts => {
                "Something outside Wharf wrote the receipt, its lines or its times. Set the status to what they \
                 give; the receipt's next event does so, too."
            }
            Self::ReceiptLines => {
                "Something outside Wharf wrote the line or its entries. If the entries are right, set the column to \
                 what they give; if one is missing, insert it into receipt_entry."
            }
            Self::Positions => {
                "Stock that was written without an entry needs one: insert the difference into stock_entry, with \
                 the reason 'opening' if it was there before Wharf."
            }
            Self::GoodsIn => {
                "An entry that a delivery wrote into receipt_entry or stock_entry was changed or is gone. Insert \
                 what is missing, with the inbox_id of its event."
            }
            Self::Outbox => {
                "A message was deleted or a version was changed, and consumers may have missed it. Have them read \
                 the row itself; only the oldest messages may be deleted."
            }
            Self::Inbox => {
                "The event was applied, but its inbox row says otherwise. Correct the inbox row; do not run the \
                 event again."
            }
            Self::Retries => {
                "Nobody has tried this event again for more than a day. Is a gateway running that has its endpoint, and \
                 retries? `wharf inbox reprocess` runs it at once."
            }
        }
    }
}

/// A difference.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The check that found it.
    pub check: Check,
    /// What it is about: `invoice INV-1 of acme`.
    pub what: String,
    /// What of it differs: a column, or what comes nearest.
    pub field: &'static str,
    /// What is stored there.
    pub stored: String,
    /// What should be, by the record.
    pub recomputed: String,
}

/// How a check went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Tally {
    /// The check.
    pub check: Check,
    /// How many it looked at.
    pub examined: u64,
    /// How many differences it found.
    pub found: u64,
}

/// What the audit found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// One per check, in the order of [`Check::ALL`].
    pub tallies: Vec<Tally>,
    /// The first differences.
    pub findings: Vec<Finding>,
    limit: usize,
}

impl Report {
    fn new(limit: usize) -> Self {
        let tallies = Check::ALL.map(|check| Tally { check, examined: 0, found: 0 });
        Self { tallies: tallies.to_vec(), findings: Vec::new(), limit }
    }

    /// How many breaks there are, shown or not.
    pub fn breaks(&self) -> u64 {
        self.tallies.iter().filter(|tally| !tally.check.only_warns()).map(|tally| tally.found).sum()
    }

    /// How many warnings there are, shown or not.
    pub fn warnings(&self) -> u64 {
        self.tallies.iter().filter(|tally| tally.check.only_warns()).map(|tally| tally.found).sum()
    }

    fn tally(&mut self, check: Check) -> &mut Tally {
        &mut self.tallies[check as usize]
    }

    fn examined(&mut self, check: Check) {
        self.tally(check).examined += 1;
    }

    fn found(&mut self, finding: Finding) {
        self.tally(finding.check).found += 1;
        if self.findings.len() < self.limit {
            self.findings.push(finding);
        }
    }

    /// Reports entries whose sum no balance can hold.
    fn cannot_be_added(&mut self, check: Check, what: &str, refusal: &Refusal) {
        let (stored, recomputed) = ("entries that cannot be added up".to_owned(), refusal.to_string());
        self.found(Finding { check, what: what.to_owned(), field: "sum", stored, recomputed });
    }

    /// Compares two lists of the same fields.
    fn compare<const N: usize>(
        &mut self,
        check: Check,
        what: &str,
        stored: [(&'static str, String); N],
        recomputed: [(&'static str, String); N],
    ) {
        for ((field, stored), (_, recomputed)) in stored.into_iter().zip(recomputed) {
            if stored != recomputed {
                self.found(Finding { check, what: what.to_owned(), field, stored, recomputed });
            }
        }
    }
}

/// Whose books are audited.
struct Scope {
    /// `None`: everybody's.
    tenant: Option<Uuid>,
    names: HashMap<Uuid, String>,
}

impl Scope {
    fn name(&self, tenant: Uuid) -> String {
        self.names.get(&tenant).cloned().unwrap_or_else(|| format!("unknown tenant {tenant}"))
    }
}

/// Makes all checks on one snapshot, of one tenant or of all. `limit` bounds the differences that are kept.
pub async fn audit(
    connection: &mut PgConnection,
    tenant: Option<Uuid>,
    limit: usize,
) -> Result<Report, sqlx::Error> {
    connection.execute(SNAPSHOT).await?;
    let report = make_checks(connection, tenant, limit).await;
    connection.execute("rollback").await?;
    report
}

async fn make_checks(
    connection: &mut PgConnection,
    tenant: Option<Uuid>,
    limit: usize,
) -> Result<Report, sqlx::Error> {
    let tenants: Vec<(Uuid, String)> =
        sqlx::query_as("select id, name from tenant").fetch_all(&mut *connection).await?;
    let scope = Scope { tenant, names: tenants.into_iter().collect() };
    let mut report = Report::new(limit);
    invoices::check(connection, &scope, &mut report).await?;
    receipts::check(connection, &scope, &mut report).await?;
    stock::check_positions(connection, &scope, &mut report).await?;
    stock::check_goods_in(connection, &scope, &mut report).await?;
    outbox::check(connection, &scope, &mut report).await?;
    inbox::check_entries(connection, &scope, &mut report).await?;
    inbox::check_retries(connection, &scope, &mut report).await?;
    Ok(report)
}
