//! Receipts: goods that are expected, come in, and are counted.
//!
//! Like an invoice's, a receipt's state follows from a set of facts:
//! - expected: the latest announcement, whole (by time, then by content);
//! - received, as running totals: per line the latest count (by time, then by quantity);
//! - received, as differences: the sum over distinct notices;
//! - status: from the times told and the quantities, by a fixed order of precedence.

use std::collections::{BTreeMap, BTreeSet};

use uuid::Uuid;

use super::change::{CountedLine, Counting, ExpectedLine, ReceiptFact, Told};
use super::refusal::Refusal;
use super::stock::Movement;
use crate::timestamp::Timestamp;

/// A receipt with its lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// Its id here.
    pub id: Uuid,
    /// Its number in the ERP.
    pub number: String,
    /// Follows from the rest.
    pub status: ReceiptStatus,
    /// The provider's time of what is expected; `None`: the ERP's own lines.
    pub announced_at: Option<Timestamp>,
    /// When it was first said to be on the way.
    pub in_transit_at: Option<Timestamp>,
    /// When it was first said to be there.
    pub arrived_at: Option<Timestamp>,
    /// When it was first said to be done.
    pub closed_at: Option<Timestamp>,
    /// When it was first said to be cancelled.
    pub cancelled_at: Option<Timestamp>,
    /// One more per message.
    pub version: i32,
    /// By SKU.
    pub lines: BTreeMap<String, ReceiptLine>,
}

/// A line of a receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiptLine {
    /// Its id here; `None`: it is new.
    pub id: Option<i64>,
    /// Single units that are to come.
    pub expected: i64,
    /// Single units that came, rejected ones included.
    pub received: i64,
    /// Of those, the units that were not accepted.
    pub rejected: i64,
    /// The part of `received` that was told as a running total.
    pub counted_received: i64,
    /// The part of `rejected` that was told as a running total.
    pub counted_rejected: i64,
    /// The provider's time of that total.
    pub counted_at: Option<Timestamp>,
    /// Notices of differences that are known, as far as they were loaded.
    pub notices: BTreeSet<String>,
}

impl ReceiptLine {
    fn accepted(&self) -> i64 {
        self.received - self.rejected
    }

    fn sets_aside(&self) -> (i64, i64, i64) {
        (self.expected, self.received, self.rejected)
    }
}

/// Where a receipt stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the table's, and say it")]
pub enum ReceiptStatus {
    Expected,
    InTransit,
    Arrived,
    Receiving,
    Received,
    Closed,
    Cancelled,
}

impl ReceiptStatus {
    /// All of them, with their names in the table.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::Expected, "expected"),
        (Self::InTransit, "in_transit"),
        (Self::Arrived, "arrived"),
        (Self::Receiving, "receiving"),
        (Self::Received, "received"),
        (Self::Closed, "closed"),
        (Self::Cancelled, "cancelled"),
    ];

    /// The name in the table.
    pub fn name(self) -> &'static str {
        super::name_in(&Self::ALL, &self)
    }
}

/// A counted difference of a line, as it goes into the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptEntry {
    /// The line's SKU.
    pub sku: String,
    /// The notice that told the difference, if it was told as one.
    pub notice: Option<String>,
    /// Units more (or, after a recount, fewer) received.
    pub received_delta: i64,
    /// Units more or fewer rejected.
    pub rejected_delta: i64,
    /// The provider's time.
    pub occurred_at: Option<Timestamp>,
}

/// What a fact did to a receipt.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReceiptOutcome {
    /// For the ledger.
    pub entries: Vec<ReceiptEntry>,
    /// What it means for the stock.
    pub movements: Vec<Movement>,
    /// Whether others must hear of it. A message goes with a new version.
    pub tell: bool,
}

impl Receipt {
    /// Applies a fact.
    pub fn apply(&mut self, fact: &ReceiptFact, told: &Told<'_>) -> Result<ReceiptOutcome, Refusal> {
        let before = self.clone();
        let mut entries = Vec::new();
        match fact {
            ReceiptFact::Announced { lines } => self.announced(lines, told),
            ReceiptFact::InTransit => first_told(&mut self.in_transit_at, told),
            ReceiptFact::Arrived => first_told(&mut self.arrived_at, told),
            ReceiptFact::Closed => first_told(&mut self.closed_at, told),
            ReceiptFact::Cancelled => first_told(&mut self.cancelled_at, told),
            ReceiptFact::Received { counting, lines } => {
                for line in lines {
                    entries.extend(self.counted(counting, line, told)?);
                }
            }
        }
        self.status = self.current_status();
        let movements = self.movements_since(&before);
        let tell = !entries.is_empty()
            || self.status != before.status
            || self
                .lines
                .values()
                .map(ReceiptLine::sets_aside)
                .ne(before.lines.values().map(ReceiptLine::sets_aside))
            || self.version == 0;
        Ok(ReceiptOutcome { entries, movements, tell })
    }

    fn announced(&mut self, lines: &[ExpectedLine], told: &Told<'_>) {
        let at = told.time();
        let current: Vec<ExpectedLine> = self
            .lines
            .iter()
            .filter(|(_, line)| line.expected > 0)
            .map(|(sku, line)| ExpectedLine { sku: sku.clone(), expected: line.expected })
            .collect();
        let mut announced: Vec<ExpectedLine> =
            lines.iter().filter(|line| line.expected > 0).cloned().collect();
        announced.sort_unstable();
        // Every SKU that was ever told of has a line, also when this announcement is an old one.
        for line in lines {
            self.lines.entry(line.sku.clone()).or_default();
        }
        if (self.announced_at, &current) >= (Some(at), &announced) {
            return;
        }
        self.announced_at = Some(at);
        for line in self.lines.values_mut() {
            line.expected = 0;
        }
        for line in lines {
            if let Some(known) = self.lines.get_mut(&line.sku) {
                known.expected = line.expected;
            }
        }
    }

    fn counted(
        &mut self,
        counting: &Counting,
        told_line: &CountedLine,
        told: &Told<'_>,
    ) -> Result<Option<ReceiptEntry>, Refusal> {
        let CountedLine { sku, received, rejected } = told_line;
        if rejected > received {
            return Err(Refusal::MoreRejectedThanReceived {
                receipt: self.number.clone(),
                sku: sku.clone(),
                received: *received,
                rejected: *rejected,
            });
        }
        let line = self.lines.entry(sku.clone()).or_default();
        let (received_delta, rejected_delta, notice) = match counting {
            Counting::Deltas { notice } => {
                if !line.notices.insert(notice.clone()) {
                    return Ok(None);
                }
                (*received, *rejected, Some(notice.clone()))
            }
            Counting::Totals => {
                let level = (*received, *rejected);
                let known = (line.counted_received, line.counted_rejected);
                // Without a time, running totals can only grow: the largest count is the latest.
                if (line.counted_at, known) >= (told.at, level) {
                    return Ok(None);
                }
                line.counted_at = told.at;
                (line.counted_received, line.counted_rejected) = level;
                (level.0 - known.0, level.1 - known.1, None)
            }
        };
        line.received = line.received.checked_add(received_delta).ok_or(Refusal::OutOfRange("quantity"))?;
        line.rejected += rejected_delta;
        // The same count at a later time moves nothing: there is no entry to write.
        let moved = received_delta != 0 || rejected_delta != 0;
        Ok(moved.then(|| ReceiptEntry {
            sku: sku.clone(),
            notice,
            received_delta,
            rejected_delta,
            occurred_at: told.at,
        }))
    }

    pub(super) fn current_status(&self) -> ReceiptStatus {
        let came = self.lines.values().any(|line| line.received > 0);
        let expects = self.lines.values().any(|line| line.expected > 0);
        let complete = expects && self.lines.values().all(|line| line.received >= line.expected);
        if self.cancelled_at.is_some() {
            ReceiptStatus::Cancelled
        } else if self.closed_at.is_some() {
            ReceiptStatus::Closed
        } else if came && complete {
            ReceiptStatus::Received
        } else if came {
            ReceiptStatus::Receiving
        } else if self.arrived_at.is_some() {
            ReceiptStatus::Arrived
        } else if self.in_transit_at.is_some() {
            ReceiptStatus::InTransit
        } else {
            ReceiptStatus::Expected
        }
    }

    /// What a line contributes to the stock: accepted units are on hand; what is expected and did not come is on
    /// order, as long as it may still come.
    fn contribution(&self, sku: &str) -> (i64, i64) {
        let Some(line) = self.lines.get(sku) else { return (0, 0) };
        let open = self.closed_at.is_none() && self.cancelled_at.is_none();
        let outstanding = if open { (line.expected - line.accepted()).max(0) } else { 0 };
        (line.accepted(), outstanding)
    }

    fn movements_since(&self, before: &Self) -> Vec<Movement> {
        let moves = self.lines.keys().map(|sku| {
            let (was, is) = (before.contribution(sku), self.contribution(sku));
            Movement { sku: sku.clone(), on_hand: is.0 - was.0, on_order: is.1 - was.1 }
        });
        moves.filter(|movement| movement.on_hand != 0 || movement.on_order != 0).collect()
    }
}

fn first_told(at: &mut Option<Timestamp>, told: &Told<'_>) {
    let time = told.time();
    *at = Some(at.map_or(time, |known| known.min(time)));
}
