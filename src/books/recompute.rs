//! The books from their entries alone: what an invoice or a receipt must be if the record is right.
//!
//! The rules are those of the live path, taken from the other end. What an entry cannot say is kept as it stands:
//! the ERP's own amount due and lines, and the state of a row that no fact has touched yet.

use std::collections::BTreeMap;

use super::invoice::{Invoice, InvoiceEntry, InvoiceEntryKind, Payment, added};
use super::receipt::{Receipt, ReceiptEntry, ReceiptLine};
use super::refusal::Refusal;
use crate::timestamp::Timestamp;

/// The entries of one invoice, as far as its state follows from them. Put in one by one, in any order.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InvoiceRecord {
    entries: usize,
    issued: Option<(Option<Timestamp>, i64)>,
    voided: Option<InvoiceEntry>,
    last_payment_at: Option<Timestamp>,
    /// By provider and the provider's id.
    payments: BTreeMap<(String, String), Payment>,
}

impl InvoiceRecord {
    /// Puts an entry in.
    pub fn remember(&mut self, provider: &str, entry: InvoiceEntry) {
        self.entries += 1;
        match entry.kind {
            InvoiceEntryKind::Issued => {
                self.issued = self.issued.max(Some((entry.occurred_at, entry.amount)));
            }
            InvoiceEntryKind::Voided => self.voided = Some(entry.clone()),
            InvoiceEntryKind::Payment => self.last_payment_at = self.last_payment_at.max(entry.occurred_at),
            _ => {}
        }
        if let Some(payment) = &entry.payment_ref {
            self.payments.entry((provider.to_owned(), payment.clone())).or_default().remember(entry);
        }
    }

    fn paid(&self) -> Result<i64, Refusal> {
        self.payments.values().filter_map(Payment::paid).try_fold(0, added)
    }

    fn refunded(&self) -> Result<i64, Refusal> {
        self.payments.values().try_fold(0, |sum, payment| added(sum, payment.refunded()?))
    }

    fn has_payment(&self) -> bool {
        self.payments.values().any(|payment| payment.paid().is_some())
    }
}

impl Invoice {
    /// This invoice as its entries have it.
    ///
    /// A payment or a voiding that is told again writes no entry, and may still move its time: a payment's to a
    /// later one, a voiding's to an earlier. Such a time is kept.
    pub fn recomputed(&self, record: &InvoiceRecord) -> Result<Self, Refusal> {
        let mut invoice = self.clone();
        invoice.amount_paid = record.paid()?;
        invoice.amount_refunded = record.refunded()?;
        invoice.issued_at = record.issued.and_then(|(at, _)| at);
        invoice.amount_due = record.issued.map_or(self.amount_due, |(_, amount)| amount);
        invoice.voided_at =
            record.voided.as_ref().and_then(|entry| match (self.voided_at, entry.occurred_at) {
                (Some(known), Some(at)) => Some(known.min(at)),
                (known, at) => known.or(at),
            });
        invoice.last_payment_at =
            if record.has_payment() { self.last_payment_at.max(record.last_payment_at) } else { None };
        if record.entries > 0 || self.version > 0 {
            invoice.settle_status();
        }
        Ok(invoice)
    }
}

impl Receipt {
    /// This receipt as its entries have it: each line's quantities are sums, and the status follows from them and
    /// from the times told.
    pub fn recomputed(&self, entries: &[ReceiptEntry]) -> Result<Self, Refusal> {
        let mut receipt = self.clone();
        for line in receipt.lines.values_mut() {
            (line.received, line.rejected, line.counted_received, line.counted_rejected) = (0, 0, 0, 0);
        }
        for entry in entries {
            receipt.lines.entry(entry.sku.clone()).or_default().add(entry)?;
        }
        if self.version > 0 || !entries.is_empty() {
            receipt.status = receipt.current_status();
        }
        Ok(receipt)
    }
}

impl ReceiptLine {
    fn add(&mut self, entry: &ReceiptEntry) -> Result<(), Refusal> {
        let (received, rejected) = (entry.received_delta, entry.rejected_delta);
        let sum = |sum: i64, more: i64| sum.checked_add(more).ok_or(Refusal::OutOfRange("quantity"));
        self.received = sum(self.received, received)?;
        self.rejected = sum(self.rejected, rejected)?;
        if entry.notice.is_none() {
            self.counted_received = sum(self.counted_received, received)?;
            self.counted_rejected = sum(self.counted_rejected, rejected)?;
        }
        Ok(())
    }
}
