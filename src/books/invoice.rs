//! Invoices: what is due, what was paid, what was given back.
//!
//! An invoice's amounts follow from a *set* of facts, so that neither order nor repetition matters:
//! - due: the latest `issued` by the provider's time (the larger amount if two are told at one instant);
//! - paid: per payment the largest amount told, added up;
//! - refunded: per payment the larger of the running total and of the single refunds; see [`Payment::refunded`]
//!   (a refund failed when the earliest of its tellers says it did).

use std::collections::BTreeMap;

use uuid::Uuid;

use super::change::{DisputeStage, InvoiceFact, Told};
use super::refusal::Refusal;
use crate::timestamp::Timestamp;

/// An invoice's row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Invoice {
    /// Its id here.
    pub id: Uuid,
    /// Its number in the ERP.
    pub number: String,
    /// ISO 4217.
    pub currency: String,
    /// Minor units.
    pub amount_due: i64,
    /// Minor units.
    pub amount_paid: i64,
    /// Minor units.
    pub amount_refunded: i64,
    /// Follows from the rest.
    pub status: InvoiceStatus,
    /// When it was paid, if it is.
    pub paid_at: Option<Timestamp>,
    /// When a payment was last told of.
    pub last_payment_at: Option<Timestamp>,
    /// The provider's time of `amount_due`; `None`: the ERP's own amount.
    pub issued_at: Option<Timestamp>,
    /// When it was first said to be void.
    pub voided_at: Option<Timestamp>,
    /// One more per message.
    pub version: i32,
}

/// Where an invoice stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the table's, and say it")]
pub enum InvoiceStatus {
    AwaitingPayment,
    PartiallyPaid,
    Paid,
    PartiallyRefunded,
    Refunded,
    Void,
}

impl InvoiceStatus {
    /// All of them, with their names in the table.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::AwaitingPayment, "awaiting_payment"),
        (Self::PartiallyPaid, "partially_paid"),
        (Self::Paid, "paid"),
        (Self::PartiallyRefunded, "partially_refunded"),
        (Self::Refunded, "refunded"),
        (Self::Void, "void"),
    ];

    /// The name in the table.
    pub fn name(self) -> &'static str {
        super::name_in(&Self::ALL, &self)
    }
}

/// What an entry of the ledger says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[allow(missing_docs, reason = "the names are the table's, and say it")]
pub enum InvoiceEntryKind {
    Issued,
    Payment,
    PaymentFailed,
    RefundTotal,
    Refund,
    RefundFailed,
    DisputeOpened,
    DisputeWon,
    DisputeLost,
    Voided,
}

impl InvoiceEntryKind {
    /// All of them, with their names in the table.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Issued, "issued"),
        (Self::Payment, "payment"),
        (Self::PaymentFailed, "payment_failed"),
        (Self::RefundTotal, "refund_total"),
        (Self::Refund, "refund"),
        (Self::RefundFailed, "refund_failed"),
        (Self::DisputeOpened, "dispute_opened"),
        (Self::DisputeWon, "dispute_won"),
        (Self::DisputeLost, "dispute_lost"),
        (Self::Voided, "voided"),
    ];

    /// The name in the table.
    pub fn name(self) -> &'static str {
        super::name_in(&Self::ALL, &self)
    }
}

/// One fact about an invoice, as it goes into the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceEntry {
    /// What it says.
    pub kind: InvoiceEntryKind,
    /// Makes the fact one of a kind at its provider.
    pub provider_ref: String,
    /// The payment it is about.
    pub payment_ref: Option<String>,
    /// Minor units, as told.
    pub amount: i64,
    /// The provider's time.
    pub occurred_at: Option<Timestamp>,
}

/// What is known of one payment of one invoice: the part of the ledger that a fact about it depends on.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Payment {
    entries: Vec<InvoiceEntry>,
}

impl Payment {
    /// Puts a known entry of this payment in.
    pub fn remember(&mut self, entry: InvoiceEntry) {
        self.entries.push(entry);
    }

    fn knows(&self, kind: InvoiceEntryKind, provider_ref: &str) -> bool {
        self.entries.iter().any(|entry| entry.kind == kind && entry.provider_ref == provider_ref)
    }

    fn of(&self, kind: InvoiceEntryKind) -> impl Iterator<Item = &InvoiceEntry> {
        self.entries.iter().filter(move |entry| entry.kind == kind)
    }

    /// The amount of this payment: the largest told. `None`: nobody told of it yet.
    pub fn paid(&self) -> Option<i64> {
        self.of(InvoiceEntryKind::Payment).map(|entry| entry.amount).max()
    }

    /// What was given back of this payment.
    ///
    /// Two tellers can tell of the same refunds: a running total (the latest counts, less what failed after
    /// it) and single refunds (those that did not fail). Each may be missing some; the larger has it all.
    pub fn refunded(&self) -> Result<i64, Refusal> {
        let failures = self.failures();
        let failed_after = |time: Option<Timestamp>| -> i128 {
            let failed = failures.values().filter(|entry| entry.occurred_at > time);
            failed.map(|entry| i128::from(entry.amount)).sum()
        };
        let total = self
            .of(InvoiceEntryKind::RefundTotal)
            .max_by_key(|entry| (entry.occurred_at, entry.amount))
            .map_or(0, |entry| i128::from(entry.amount) - failed_after(entry.occurred_at));
        let single: i128 = self
            .of(InvoiceEntryKind::Refund)
            .filter(|entry| !failures.contains_key(entry.provider_ref.as_str()))
            .map(|entry| i128::from(entry.amount))
            .sum();
        i64::try_from(total.max(single).max(0)).map_err(|_| Refusal::OutOfRange("amount"))
    }

    /// Per refund that failed, its earliest failure (by time, then by amount).
    ///
    /// Several events can tell of one failure at different times. Whichever comes first stands under the
    /// refund's own id; one that is earlier and comes later stands beside it, after an `@`.
    fn failures(&self) -> BTreeMap<&str, &InvoiceEntry> {
        let mut earliest = BTreeMap::<&str, &InvoiceEntry>::new();
        for entry in self.of(InvoiceEntryKind::RefundFailed) {
            let refund = match entry.provider_ref.rsplit_once('@') {
                Some((refund, _)) if self.knows(InvoiceEntryKind::RefundFailed, refund) => refund,
                _ => &entry.provider_ref,
            };
            let known = earliest.entry(refund).or_insert(entry);
            if (entry.occurred_at, entry.amount) < (known.occurred_at, known.amount) {
                *known = entry;
            }
        }
        earliest
    }
}

/// What a fact did to an invoice.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InvoiceOutcome {
    /// For the ledger.
    pub entry: Option<InvoiceEntry>,
    /// Whether others must hear of it. A message goes with a new version.
    pub tell: bool,
}

impl Invoice {
    /// Applies a fact. `payment` is what the ledger knows of the payment that the fact is about.
    pub fn apply(
        &mut self,
        fact: &InvoiceFact,
        payment: &mut Payment,
        told: &Told<'_>,
    ) -> Result<InvoiceOutcome, Refusal> {
        self.check_currency(fact)?;
        let outcome = match fact {
            InvoiceFact::Issued { amount } => self.issued(amount.minor, told),
            InvoiceFact::Paid { payment: id, amount } => self.paid(id, amount.minor, payment, told)?,
            InvoiceFact::Voided { .. } => self.voided(told),
            InvoiceFact::PaymentFailed { payment: id, .. } => {
                // Two events can tell of one failure, and a payment can fail several times: each event is a fact.
                let mut outcome =
                    record(InvoiceEntryKind::PaymentFailed, told.event_id, id, 0, payment, told);
                // A failure that is told after the same payment succeeded is history.
                outcome.tell &= payment.paid().is_none();
                outcome
            }
            InvoiceFact::RefundTotal { payment: id, total } => {
                let reference = format!("{id}@{}:{}", told.time().microseconds(), total.minor);
                self.refund(InvoiceEntryKind::RefundTotal, &reference, id, total.minor, payment, told)?
            }
            InvoiceFact::Refund { payment: id, refund, amount, failed: false } => {
                self.refund(InvoiceEntryKind::Refund, refund, id, amount.minor, payment, told)?
            }
            InvoiceFact::Refund { payment: id, refund, amount, failed: true } => {
                let told_at = (Some(told.time()), amount.minor);
                let known =
                    payment.failures().get(refund.as_str()).map(|entry| (entry.occurred_at, entry.amount));
                let reference = match known {
                    Some(known) if told_at < known => {
                        format!("{refund}@{}:{}", told.time().microseconds(), amount.minor)
                    }
                    _ => refund.clone(),
                };
                self.refund(InvoiceEntryKind::RefundFailed, &reference, id, amount.minor, payment, told)?
            }
            InvoiceFact::Disputed { payment: id, dispute, amount, stage } => {
                let kind = match stage {
                    DisputeStage::Opened => InvoiceEntryKind::DisputeOpened,
                    DisputeStage::Won => InvoiceEntryKind::DisputeWon,
                    DisputeStage::Lost => InvoiceEntryKind::DisputeLost,
                };
                record(kind, dispute, id, amount.minor, payment, told)
            }
        };
        self.settle_status();
        Ok(outcome)
    }

    fn check_currency(&self, fact: &InvoiceFact) -> Result<(), Refusal> {
        let money = match fact {
            InvoiceFact::Issued { amount }
            | InvoiceFact::Paid { amount, .. }
            | InvoiceFact::Refund { amount, .. }
            | InvoiceFact::Disputed { amount, .. } => amount,
            InvoiceFact::RefundTotal { total, .. } => total,
            InvoiceFact::PaymentFailed { .. } | InvoiceFact::Voided { .. } => return Ok(()),
        };
        if money.currency == self.currency {
            return Ok(());
        }
        Err(Refusal::CurrencyDiffers {
            invoice: self.number.clone(),
            invoice_currency: self.currency.clone(),
            told_currency: money.currency.clone(),
        })
    }

    fn issued(&mut self, amount: i64, told: &Told<'_>) -> InvoiceOutcome {
        let at = told.time();
        // `None` is smaller than any time: a provider's amount replaces the ERP's own.
        if (self.issued_at, self.amount_due) >= (Some(at), amount) {
            return InvoiceOutcome::default();
        }
        let changed = self.amount_due != amount || self.version == 0;
        self.issued_at = Some(at);
        self.amount_due = amount;
        let entry = InvoiceEntry {
            kind: InvoiceEntryKind::Issued,
            provider_ref: format!("{}:{amount}", at.microseconds()),
            payment_ref: None,
            amount,
            occurred_at: Some(at),
        };
        InvoiceOutcome { entry: Some(entry), tell: changed }
    }

    fn paid(
        &mut self,
        id: &str,
        amount: i64,
        payment: &mut Payment,
        told: &Told<'_>,
    ) -> Result<InvoiceOutcome, Refusal> {
        self.last_payment_at = self.last_payment_at.max(Some(told.time()));
        let known = payment.paid();
        if known.is_some_and(|known| known >= amount) {
            return Ok(InvoiceOutcome::default());
        }
        self.amount_paid = added(self.amount_paid, amount - known.unwrap_or(0))?;
        // The first amount stands under the payment's own id; a larger one told later beside it.
        let reference = known.map_or_else(|| id.to_owned(), |_| format!("{id}:{amount}"));
        Ok(record(InvoiceEntryKind::Payment, &reference, id, amount, payment, told))
    }

    fn refund(
        &mut self,
        kind: InvoiceEntryKind,
        reference: &str,
        id: &str,
        amount: i64,
        payment: &mut Payment,
        told: &Told<'_>,
    ) -> Result<InvoiceOutcome, Refusal> {
        let before = payment.refunded()?;
        let mut outcome = record(kind, reference, id, amount, payment, told);
        let after = payment.refunded()?;
        self.amount_refunded = added(self.amount_refunded, after - before)?;
        outcome.tell = after != before;
        Ok(outcome)
    }

    fn voided(&mut self, told: &Told<'_>) -> InvoiceOutcome {
        let at = told.time();
        let first = self.voided_at.is_none();
        self.voided_at = Some(self.voided_at.map_or(at, |known| known.min(at)));
        let entry = first.then(|| InvoiceEntry {
            kind: InvoiceEntryKind::Voided,
            provider_ref: "voided".to_owned(),
            payment_ref: None,
            amount: 0,
            occurred_at: Some(at),
        });
        InvoiceOutcome { entry, tell: first }
    }

    pub(super) fn settle_status(&mut self) {
        let (due, paid, refunded) = (self.amount_due, self.amount_paid, self.amount_refunded);
        self.status = if paid > 0 && refunded >= paid {
            InvoiceStatus::Refunded
        } else if paid > 0 && refunded > 0 {
            InvoiceStatus::PartiallyRefunded
        } else if paid == 0 && self.voided_at.is_some() {
            InvoiceStatus::Void
        } else if paid >= due {
            InvoiceStatus::Paid
        } else if paid > 0 {
            InvoiceStatus::PartiallyPaid
        } else {
            InvoiceStatus::AwaitingPayment
        };
        let is_paid = paid >= due && self.status != InvoiceStatus::Void;
        self.paid_at = if is_paid { self.last_payment_at } else { None };
    }
}

/// Records a fact about a payment, unless the ledger has it already.
fn record(
    kind: InvoiceEntryKind,
    reference: &str,
    payment_ref: &str,
    amount: i64,
    payment: &mut Payment,
    told: &Told<'_>,
) -> InvoiceOutcome {
    if payment.knows(kind, reference) {
        return InvoiceOutcome::default();
    }
    let entry = InvoiceEntry {
        kind,
        provider_ref: reference.to_owned(),
        payment_ref: Some(payment_ref.to_owned()),
        amount,
        occurred_at: Some(told.time()),
    };
    payment.remember(entry.clone());
    InvoiceOutcome { entry: Some(entry), tell: true }
}

pub(super) fn added(sum: i64, more: i64) -> Result<i64, Refusal> {
    sum.checked_add(more).ok_or(Refusal::OutOfRange("amount"))
}
