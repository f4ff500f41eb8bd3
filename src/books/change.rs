//! The closed list of business facts that a delivery can tell.

use std::collections::BTreeMap;

use crate::timestamp::Timestamp;

/// A business fact, read from a verified event. What a provider calls it no longer matters here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Something about an invoice.
    Invoice(InvoiceChange),
    /// Something about a receipt: goods that come in.
    Receipt(ReceiptChange),
    /// Something that only the company's own function knows: the books take no part in it.
    Own(OwnChange),
}

/// A fact of the company's own.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OwnChange {
    /// Its name: `x.` and a word.
    pub name: String,
    /// What the provider file maps, by its names, as texts; `None`: it is not in the event.
    pub fields: BTreeMap<String, Option<String>>,
}

impl Change {
    /// The names of all changes that the books know.
    pub const NAMES: [&str; 12] = [
        "invoice.issued",
        "invoice.paid",
        "invoice.payment_failed",
        "invoice.refunded",
        "invoice.disputed",
        "invoice.voided",
        "receipt.announced",
        "receipt.in_transit",
        "receipt.arrived",
        "receipt.received",
        "receipt.closed",
        "receipt.cancelled",
    ];

    /// The number of the invoice or receipt that it names; `None` where only a payment is named.
    pub fn number(&self) -> Option<&str> {
        match self {
            Self::Invoice(change) => change.number.as_deref(),
            Self::Receipt(change) => Some(&change.number),
            Self::Own(_) => None,
        }
    }

    /// The name of the change, as provider files and outbox messages write it.
    pub fn name(&self) -> &str {
        match self {
            Self::Invoice(change) => change.fact.change_name(),
            Self::Receipt(change) => change.fact.change_name(),
            Self::Own(change) => &change.name,
        }
    }
}

/// An amount in the currency's minor unit (cents, yen, fils).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Money {
    /// Minor units; never negative in a change.
    pub minor: i64,
    /// ISO 4217, upper-case.
    pub currency: String,
}

/// A fact about an invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InvoiceChange {
    /// The invoice's number in the ERP. `None`: the invoice is the one that `payment` paid.
    pub number: Option<String>,
    /// What is told of it.
    pub fact: InvoiceFact,
}

/// What can be told of an invoice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum InvoiceFact {
    /// It is due with this amount. The latest by the provider's time counts. Creates the invoice if need be.
    Issued {
        /// The whole amount due.
        amount: Money,
    },
    /// A payment was made. Several events may tell of one payment; the largest amount told counts, once.
    Paid {
        /// The provider's id of the payment: the business key.
        payment: String,
        /// The amount of this payment.
        amount: Money,
    },
    /// A payment was tried and failed. Changes no balance.
    PaymentFailed {
        /// The provider's id of the payment.
        payment: String,
        /// The provider's word for why.
        reason: Option<String>,
    },
    /// So much of a payment was given back by now. The latest by the provider's time counts.
    RefundTotal {
        /// The payment it is taken from.
        payment: String,
        /// The running total.
        total: Money,
    },
    /// A single refund.
    Refund {
        /// The payment it is taken from.
        payment: String,
        /// The provider's id of the refund.
        refund: String,
        /// The amount of this refund.
        amount: Money,
        /// Whether it failed after all.
        failed: bool,
    },
    /// The payer's bank contests a payment. Changes no balance: what follows is the ERP's decision.
    Disputed {
        /// The contested payment.
        payment: String,
        /// The provider's id of the dispute.
        dispute: String,
        /// The contested amount.
        amount: Money,
        /// How far it is.
        stage: DisputeStage,
    },
    /// The invoice is no longer wanted.
    Voided {
        /// The provider's word for why.
        reason: Option<String>,
    },
}

impl InvoiceFact {
    /// The name of its change.
    pub fn change_name(&self) -> &'static str {
        match self {
            Self::Issued { .. } => "invoice.issued",
            Self::Paid { .. } => "invoice.paid",
            Self::PaymentFailed { .. } => "invoice.payment_failed",
            Self::RefundTotal { .. } | Self::Refund { .. } => "invoice.refunded",
            Self::Disputed { .. } => "invoice.disputed",
            Self::Voided { .. } => "invoice.voided",
        }
    }

    /// The provider's id of the payment that it is about.
    pub fn payment(&self) -> Option<&str> {
        match self {
            Self::Paid { payment, .. }
            | Self::PaymentFailed { payment, .. }
            | Self::RefundTotal { payment, .. }
            | Self::Refund { payment, .. }
            | Self::Disputed { payment, .. } => Some(payment),
            Self::Issued { .. } | Self::Voided { .. } => None,
        }
    }
}

/// How far a dispute is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DisputeStage {
    /// It was opened.
    Opened,
    /// It was closed, and the money stays.
    Won,
    /// It was closed, and the money is gone.
    Lost,
}

/// A fact about a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReceiptChange {
    /// The receipt's number in the ERP (a purchase order, an ASN).
    pub number: String,
    /// What is told of it.
    pub fact: ReceiptFact,
}

/// What can be told of a receipt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReceiptFact {
    /// Goods are coming (an ASN). The latest announcement counts, whole. Creates the receipt if need be.
    Announced {
        /// What is expected, one line per SKU.
        lines: Vec<ExpectedLine>,
    },
    /// They are on the way.
    InTransit,
    /// They are at the warehouse, not counted yet.
    Arrived,
    /// They were counted.
    Received {
        /// What the quantities mean.
        counting: Counting,
        /// What was counted, one line per SKU.
        lines: Vec<CountedLine>,
    },
    /// The warehouse is done with it; what did not come will not come.
    Closed,
    /// It will not come.
    Cancelled,
}

impl ReceiptFact {
    /// The name of its change.
    pub fn change_name(&self) -> &'static str {
        match self {
            Self::Announced { .. } => "receipt.announced",
            Self::InTransit => "receipt.in_transit",
            Self::Arrived => "receipt.arrived",
            Self::Received { .. } => "receipt.received",
            Self::Closed => "receipt.closed",
            Self::Cancelled => "receipt.cancelled",
        }
    }
}

/// What the quantities of a count mean.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Counting {
    /// So much so far. The latest by the provider's time counts; without a time, the largest.
    Totals,
    /// So much more. Each notice counts once, whatever event tells of it.
    Deltas {
        /// The provider's id of the notice.
        notice: String,
    },
}

/// An expected quantity of a SKU.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ExpectedLine {
    /// The SKU.
    pub sku: String,
    /// Single units.
    pub expected: i64,
}

/// A counted quantity of a SKU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CountedLine {
    /// The SKU.
    pub sku: String,
    /// Single units counted in, the rejected ones included.
    pub received: i64,
    /// Of those, the units that were not accepted.
    pub rejected: i64,
}

/// What a change is told with: the event's place in time and where it came from.
#[derive(Debug, Clone, Copy)]
pub struct Told<'a> {
    /// When it happened, by the provider's clock; `None` where the provider says no time.
    pub at: Option<Timestamp>,
    /// When the delivery came in, by ours.
    pub received_at: Timestamp,
    /// The provider's name: payment ids are unique per provider.
    pub provider: &'a str,
    /// The endpoint it came to.
    pub endpoint: &'a str,
    /// The event's id there.
    pub event_id: &'a str,
}

impl Told<'_> {
    /// The best time there is.
    pub fn time(&self) -> Timestamp {
        self.at.unwrap_or(self.received_at)
    }
}
