//! Applying events to loaded books, in memory.
//!
//! An event is all or nothing: its changes are worked out on copies of what they touch, and the copies replace
//! the originals only when all of them succeeded, and somebody takes them in. A refusal, or a panic, leaves the books as they were.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use serde_json::{Value, json};
use uuid::Uuid;

use super::change::{Change, Counting, InvoiceChange, InvoiceFact, ReceiptChange, ReceiptFact, Told};
use super::difference::Difference;
use super::invoice::{Invoice, InvoiceEntry, Payment};
use super::receipt::{Receipt, ReceiptEntry};
use super::refusal::Refusal;
use super::stock::{Movement, Position};

/// A tenant's number or SKU.
pub type Key = (Uuid, String);

/// A payment of a tenant at a provider.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PaymentKey {
    /// Whose it is.
    pub tenant: Uuid,
    /// The provider that gave the id.
    pub provider: String,
    /// The provider's id.
    pub payment: String,
}

/// An event as the books see it.
#[derive(Debug, Clone, Copy)]
pub struct BooksEvent<'a> {
    /// Whose books.
    pub tenant: Uuid,
    /// The inbox row that the entries refer to.
    pub inbox_id: i64,
    /// Its place in time and origin.
    pub told: Told<'a>,
    /// Its facts, in order.
    pub changes: &'a [Change],
}

/// What must be loaded and locked before events can be applied.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Needs {
    /// Invoices by number.
    pub invoices: BTreeSet<Key>,
    /// Of those, the ones to create if they are not there, with their currency.
    pub new_invoices: BTreeMap<Key, String>,
    /// Payments, whose known entries are loaded.
    pub payments: BTreeSet<PaymentKey>,
    /// Of those, the ones told without an invoice's number: their invoices are found through them.
    pub unnumbered: BTreeSet<PaymentKey>,
    /// Receipts by number.
    pub receipts: BTreeSet<Key>,
    /// Of those, the ones to create if they are not there.
    pub new_receipts: BTreeSet<Key>,
    /// Ids of notices that tell a difference.
    pub notices: BTreeSet<String>,
    /// SKUs that the events name. Those of the loaded receipts' lines come on top.
    pub skus: BTreeSet<Key>,
}

impl Needs {
    /// What a batch of events needs.
    pub fn of<'a>(events: impl IntoIterator<Item = &'a BooksEvent<'a>>) -> Self {
        let mut needs = Self::default();
        for event in events {
            for change in event.changes {
                match change {
                    Change::Invoice(change) => needs.add_invoice(event, change),
                    Change::Receipt(change) => needs.add_receipt(event, change),
                    Change::Own(_) => {}
                }
            }
        }
        needs
    }

    fn add_invoice(&mut self, event: &BooksEvent<'_>, change: &InvoiceChange) {
        if let Some(payment) = change.fact.payment() {
            let key = payment_key(event, payment);
            if change.number.is_none() {
                self.unnumbered.insert(key.clone());
            }
            self.payments.insert(key);
        }
        let Some(number) = &change.number else { return };
        let key = (event.tenant, number.clone());
        if let InvoiceFact::Issued { amount } = &change.fact {
            self.new_invoices.entry(key.clone()).or_insert_with(|| amount.currency.clone());
        }
        self.invoices.insert(key);
    }

    fn add_receipt(&mut self, event: &BooksEvent<'_>, change: &ReceiptChange) {
        let key = (event.tenant, change.number.clone());
        match &change.fact {
            ReceiptFact::Announced { lines } => {
                self.new_receipts.insert(key.clone());
                self.skus.extend(lines.iter().map(|line| (event.tenant, line.sku.clone())));
            }
            ReceiptFact::Received { counting, lines } => {
                if let Counting::Deltas { notice } = counting {
                    self.notices.insert(notice.clone());
                }
                self.skus.extend(lines.iter().map(|line| (event.tenant, line.sku.clone())));
            }
            ReceiptFact::InTransit | ReceiptFact::Arrived | ReceiptFact::Closed | ReceiptFact::Cancelled => {}
        }
        self.receipts.insert(key);
    }
}

fn payment_key(event: &BooksEvent<'_>, payment: &str) -> PaymentKey {
    PaymentKey { tenant: event.tenant, provider: event.told.provider.to_owned(), payment: payment.to_owned() }
}

/// The books as far as they are loaded.
#[derive(Debug, Clone, Default)]
pub struct Books {
    /// Invoices by number.
    pub invoices: HashMap<Key, Invoice>,
    /// What is known of payments, per invoice.
    pub payments: HashMap<(Uuid, PaymentKey), Payment>,
    /// The invoice that a payment paid.
    pub paid_by: HashMap<PaymentKey, Key>,
    /// Receipts by number.
    pub receipts: HashMap<Key, Receipt>,
    /// Positions by SKU.
    pub positions: HashMap<Key, Position>,
    /// Invoices and receipts that were written so that two who create the same one meet on its row, and that no event
    /// has created yet: for all others they are not there. Otherwise it would depend on the batch whether a payment
    /// finds an invoice whose own event is refused.
    pub blank: HashSet<Uuid>,
}

/// What events did: rows to write.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Effects {
    /// For `invoice_entry`.
    pub invoice_entries: Vec<LedgerRow<InvoiceEntry>>,
    /// For `receipt_entry`.
    pub receipt_entries: Vec<LedgerRow<ReceiptEntry>>,
    /// For `stock_entry`.
    pub stock_entries: Vec<StockRow>,
    /// For `outbox`.
    pub messages: Vec<Message>,
}

/// An entry of an aggregate's ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LedgerRow<T> {
    /// The invoice or receipt.
    pub aggregate: Uuid,
    /// The inbox row that told it.
    pub inbox_id: i64,
    /// The provider that told it.
    pub provider: String,
    /// The invoice's currency; empty for a receipt.
    pub currency: String,
    /// What it says.
    pub entry: T,
}

/// A row of `stock_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StockRow {
    /// Whose stock.
    pub tenant: Uuid,
    /// The inbox row that told it.
    pub inbox_id: i64,
    /// What moved.
    pub movement: Movement,
    /// The change and the receipt.
    pub reason: String,
}

/// A row of `outbox`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Message {
    /// Whose it is.
    pub tenant: Uuid,
    /// `invoice` or `receipt`.
    pub aggregate_type: &'static str,
    /// Its id.
    pub aggregate: Uuid,
    /// Its version after this change.
    pub version: i32,
    /// The change's name.
    pub event_type: &'static str,
    /// The inbox row that told it.
    pub inbox_id: i64,
    /// The aggregate after the change, as JSON.
    pub payload: String,
}

impl Effects {
    fn append(&mut self, mut more: Self) {
        self.invoice_entries.append(&mut more.invoice_entries);
        self.receipt_entries.append(&mut more.receipt_entries);
        self.stock_entries.append(&mut more.stock_entries);
        self.messages.append(&mut more.messages);
    }
}

impl Books {
    /// Works out what an event does, all of it or nothing. The books stay as they are until it is taken in.
    pub fn draft(&self, event: &BooksEvent<'_>) -> Result<Drafted, Refusal> {
        let mut draft = Draft { books: self, touched: Self::default(), effects: Effects::default() };
        let mut told_by = Vec::with_capacity(event.changes.len());
        for change in event.changes {
            let before = draft.effects.messages.len();
            match change {
                Change::Invoice(told) => draft.invoice(event, told, told.fact.change_name())?,
                Change::Receipt(told) => draft.receipt(event, told, told.fact.change_name())?,
                Change::Own(own) => return Err(Refusal::NotForTheBooks(own.name.clone())),
            }
            told_by.push((draft.effects.messages.len() > before).then_some(before));
        }
        Ok(Drafted { touched: draft.touched, effects: draft.effects, told_by })
    }

    /// Takes in what an event does, and adds it to `effects`.
    pub fn take(&mut self, drafted: Drafted, effects: &mut Effects) {
        let Drafted { touched, effects: done, .. } = drafted;
        for id in touched.invoices.values().map(|invoice| invoice.id) {
            self.blank.remove(&id);
        }
        for id in touched.receipts.values().map(|receipt| receipt.id) {
            self.blank.remove(&id);
        }
        self.invoices.extend(touched.invoices);
        self.payments.extend(touched.payments);
        self.paid_by.extend(touched.paid_by);
        self.receipts.extend(touched.receipts);
        self.positions.extend(touched.positions);
        effects.append(done);
    }
}

/// What an event does: copies of the rows that it touches, as they are after it, and rows to write.
#[derive(Debug, Clone, Default)]
pub struct Drafted {
    touched: Books,
    effects: Effects,
    /// Which message each of the event's changes led to.
    told_by: Vec<Option<usize>>,
}

impl Drafted {
    /// The message of each of the event's changes; `None`: it changed nothing.
    pub fn messages(&self) -> impl Iterator<Item = Option<&Message>> {
        self.told_by.iter().map(|told| told.map(|at| &self.effects.messages[at]))
    }

    /// The same, row by row, against the books that it was drafted on.
    pub fn differences(&self, books: &Books) -> Vec<Difference> {
        Difference::all(books, &self.touched, &self.effects)
    }
}

/// An event in the making: copies of what it touches, over the books as they are.
struct Draft<'b> {
    books: &'b Books,
    touched: Books,
    effects: Effects,
}

impl Draft<'_> {
    fn invoice(
        &mut self,
        event: &BooksEvent<'_>,
        change: &InvoiceChange,
        name: &'static str,
    ) -> Result<(), Refusal> {
        let payment = change.fact.payment().map(|payment| payment_key(event, payment));
        let key = self.invoice_key(event, change, payment.as_ref())?;
        let mut invoice =
            self.known_invoice(&key, change).ok_or_else(|| Refusal::InvoiceNotFound(key.1.clone()))?;
        let payment = payment.map(|payment| (invoice.id, payment));
        let mut known_payment = payment
            .as_ref()
            .and_then(|key| self.touched.payments.get(key).or_else(|| self.books.payments.get(key)))
            .cloned()
            .unwrap_or_default();

        let status_before = invoice.status;
        let outcome = invoice.apply(&change.fact, &mut known_payment, &event.told)?;
        if outcome.tell {
            invoice.version += 1;
            let payload = invoice_payload(&invoice, status_before.name(), &change.fact, &event.told);
            self.tell(event, "invoice", invoice.id, invoice.version, name, &payload);
        }
        if let Some(entry) = outcome.entry {
            self.effects.invoice_entries.push(LedgerRow {
                aggregate: invoice.id,
                inbox_id: event.inbox_id,
                provider: event.told.provider.to_owned(),
                currency: invoice.currency.clone(),
                entry,
            });
        }
        if let Some(payment) = payment {
            // The first invoice that the ledger knows it for, as after a reload.
            if matches!(change.fact, InvoiceFact::Paid { .. }) && !self.books.paid_by.contains_key(&payment.1)
            {
                self.touched.paid_by.entry(payment.1.clone()).or_insert_with(|| key.clone());
            }
            self.touched.payments.insert(payment, known_payment);
        }
        self.touched.invoices.insert(key, invoice);
        Ok(())
    }

    /// The invoice as it is so far. One that is blank is there only for the fact that creates it, in its currency.
    fn known_invoice(&self, key: &Key, change: &InvoiceChange) -> Option<Invoice> {
        if let Some(touched) = self.touched.invoices.get(key) {
            return Some(touched.clone());
        }
        let mut invoice = self.books.invoices.get(key)?.clone();
        if self.is_blank(invoice.id) {
            let InvoiceFact::Issued { amount } = &change.fact else { return None };
            invoice.currency.clone_from(&amount.currency);
        }
        Some(invoice)
    }

    fn invoice_key(
        &self,
        event: &BooksEvent<'_>,
        change: &InvoiceChange,
        payment: Option<&PaymentKey>,
    ) -> Result<Key, Refusal> {
        if let Some(number) = &change.number {
            return Ok((event.tenant, number.clone()));
        }
        let found = payment.and_then(|payment| {
            self.touched.paid_by.get(payment).or_else(|| self.books.paid_by.get(payment))
        });
        found.cloned().ok_or_else(|| {
            Refusal::PaymentNotFound(payment.map(|payment| payment.payment.clone()).unwrap_or_default())
        })
    }

    fn receipt(
        &mut self,
        event: &BooksEvent<'_>,
        change: &ReceiptChange,
        name: &'static str,
    ) -> Result<(), Refusal> {
        let key = (event.tenant, change.number.clone());
        let creates = matches!(change.fact, ReceiptFact::Announced { .. });
        let there = self.books.receipts.get(&key).filter(|receipt| creates || !self.is_blank(receipt.id));
        let known = self.touched.receipts.get(&key).or(there);
        let mut receipt = known.cloned().ok_or_else(|| Refusal::ReceiptNotFound(key.1.clone()))?;
        for sku in skus_of(&change.fact) {
            self.position(&(event.tenant, sku.to_owned()))?;
        }
        let status_before = receipt.status;
        let outcome = receipt.apply(&change.fact, &event.told)?;
        for movement in outcome.movements {
            let sku = (event.tenant, movement.sku.clone());
            let mut position = self.position(&sku)?;
            position.apply(&movement)?;
            self.touched.positions.insert(sku, position);
            self.effects.stock_entries.push(StockRow {
                tenant: event.tenant,
                inbox_id: event.inbox_id,
                movement,
                reason: format!("{name} {}", receipt.number),
            });
        }
        if outcome.tell {
            receipt.version += 1;
            let payload = receipt_payload(&receipt, status_before.name(), &event.told);
            self.tell(event, "receipt", receipt.id, receipt.version, name, &payload);
        }
        self.effects.receipt_entries.extend(outcome.entries.into_iter().map(|entry| LedgerRow {
            aggregate: receipt.id,
            inbox_id: event.inbox_id,
            provider: event.told.provider.to_owned(),
            currency: String::new(),
            entry,
        }));
        self.touched.receipts.insert(key, receipt);
        Ok(())
    }

    fn is_blank(&self, id: Uuid) -> bool {
        self.books.blank.contains(&id)
    }

    fn position(&self, sku: &Key) -> Result<Position, Refusal> {
        let known = self.touched.positions.get(sku).or_else(|| self.books.positions.get(sku));
        known.copied().ok_or_else(|| Refusal::SkuNotFound(sku.1.clone()))
    }

    fn tell(
        &mut self,
        event: &BooksEvent<'_>,
        aggregate_type: &'static str,
        aggregate: Uuid,
        version: i32,
        event_type: &'static str,
        payload: &Value,
    ) {
        self.effects.messages.push(Message {
            tenant: event.tenant,
            aggregate_type,
            aggregate,
            version,
            event_type,
            inbox_id: event.inbox_id,
            payload: payload.to_string(),
        });
    }
}

fn skus_of(fact: &ReceiptFact) -> Vec<&str> {
    match fact {
        ReceiptFact::Announced { lines } => lines.iter().map(|line| line.sku.as_str()).collect(),
        ReceiptFact::Received { lines, .. } => lines.iter().map(|line| line.sku.as_str()).collect(),
        ReceiptFact::InTransit | ReceiptFact::Arrived | ReceiptFact::Closed | ReceiptFact::Cancelled => {
            Vec::new()
        }
    }
}

fn cause(told: &Told<'_>) -> Value {
    json!({
        "provider": told.provider,
        "endpoint": told.endpoint,
        "event_id": told.event_id,
        "occurred_at": told.at.map(|at| at.to_string()),
    })
}

/// An invoice's outbox message: where it stands now, and the fact that brought it there.
fn invoice_payload(invoice: &Invoice, status_before: &str, fact: &InvoiceFact, told: &Told<'_>) -> Value {
    let (amount, reason) = match fact {
        InvoiceFact::Issued { amount }
        | InvoiceFact::Paid { amount, .. }
        | InvoiceFact::Refund { amount, .. }
        | InvoiceFact::Disputed { amount, .. }
        | InvoiceFact::RefundTotal { total: amount, .. } => (Some(amount.minor), None),
        InvoiceFact::PaymentFailed { reason, .. } | InvoiceFact::Voided { reason } => {
            (None, reason.as_deref())
        }
    };
    json!({
        "invoice": invoice.number,
        "status": invoice.status.name(),
        "previous_status": status_before,
        "currency": invoice.currency,
        "amount_due": invoice.amount_due,
        "amount_paid": invoice.amount_paid,
        "amount_refunded": invoice.amount_refunded,
        "told": { "amount": amount, "payment": fact.payment(), "reason": reason },
        "cause": cause(told),
    })
}

/// A receipt's outbox message: where it stands now, line by line, also where more came than was expected.
fn receipt_payload(receipt: &Receipt, status_before: &str, told: &Told<'_>) -> Value {
    let lines: Vec<Value> = receipt
        .lines
        .iter()
        .map(|(sku, line)| {
            json!({
                "sku": sku,
                "expected": line.expected,
                "received": line.received,
                "rejected": line.rejected,
                "over": (line.received - line.expected).max(0),
            })
        })
        .collect();
    json!({
        "receipt": receipt.number,
        "status": receipt.status.name(),
        "previous_status": status_before,
        "lines": lines,
        "cause": cause(told),
    })
}
