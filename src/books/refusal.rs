//! Why a change cannot be applied, and whether time may heal it.

/// A change that the books refuse. The text is for the operator.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[allow(missing_docs, reason = "each variant's text says what its fields are")]
pub enum Refusal {
    #[error("invoice {0} is not there")]
    InvoiceNotFound(String),
    #[error("no invoice is known that payment {0} paid")]
    PaymentNotFound(String),
    #[error("receipt {0} is not there")]
    ReceiptNotFound(String),
    #[error("SKU {0} is not there")]
    SkuNotFound(String),
    #[error("{allocated} of SKU {sku} are allocated, and only {available} would be on hand or on order")]
    StockAllocated { sku: String, allocated: i64, available: i64 },
    #[error("invoice {invoice} is in {invoice_currency}, the event is in {told_currency}")]
    CurrencyDiffers { invoice: String, invoice_currency: String, told_currency: String },
    #[error("receipt {receipt}: {rejected} of SKU {sku} were rejected, but only {received} received")]
    MoreRejectedThanReceived { receipt: String, sku: String, received: i64, rejected: i64 },
    #[error("no function is bound to {0}, and the books do not know it; write an [[effect]]")]
    NotForTheBooks(String),
    #[error("an {0} is out of range")]
    OutOfRange(&'static str),
}

/// Whether time may heal a refusal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Heals {
    /// The ERP may be a moment behind: ask for redelivery.
    WithTime,
    /// A contradiction: only a person can say what is right.
    Never,
}

impl Refusal {
    /// Whether time may heal it.
    pub fn heals(&self) -> Heals {
        match self {
            Self::InvoiceNotFound(_)
            | Self::PaymentNotFound(_)
            | Self::ReceiptNotFound(_)
            | Self::SkuNotFound(_)
            | Self::NotForTheBooks(_)
            | Self::StockAllocated { .. } => Heals::WithTime,
            Self::CurrencyDiffers { .. } | Self::MoreRejectedThanReceived { .. } | Self::OutOfRange(_) => {
                Heals::Never
            }
        }
    }
}
