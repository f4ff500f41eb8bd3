//! What can go wrong with an event: a closed set of kinds with stable names, each with its way out.

use sha2::{Digest as _, Sha256};

use crate::books::{Refusal, value_of};

/// Why an event was not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// What kind of trouble.
    pub kind: ErrorKind,
    /// For the operator.
    pub text: String,
}

/// The kinds of trouble. Their names stand in `webhook_inbox.error_kind`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[allow(missing_docs, reason = "the names say it, and the advice says what to do")]
pub enum ErrorKind {
    InvoiceNotFound,
    PaymentNotFound,
    ReceiptNotFound,
    SkuNotFound,
    StockAllocated,
    CurrencyDiffers,
    MoreRejectedThanReceived,
    OutOfRange,
    EffectMissing,
    EffectNotYet,
    EffectRefused,
    Unreadable,
    Database,
    DatabaseBusy,
    Conflict,
    Panic,
}

impl ErrorKind {
    /// All of them, with their names.
    pub const ALL: [(Self, &'static str); 16] = [
        (Self::InvoiceNotFound, "invoice_not_found"),
        (Self::PaymentNotFound, "payment_not_found"),
        (Self::ReceiptNotFound, "receipt_not_found"),
        (Self::SkuNotFound, "sku_not_found"),
        (Self::StockAllocated, "stock_allocated"),
        (Self::CurrencyDiffers, "currency_differs"),
        (Self::MoreRejectedThanReceived, "more_rejected_than_received"),
        (Self::OutOfRange, "out_of_range"),
        (Self::EffectMissing, "effect_missing"),
        (Self::EffectNotYet, "effect_not_yet"),
        (Self::EffectRefused, "effect_refused"),
        (Self::Unreadable, "unreadable"),
        (Self::Database, "database"),
        (Self::DatabaseBusy, "database_busy"),
        (Self::Conflict, "conflict"),
        (Self::Panic, "panic"),
    ];

    /// The stable name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(kind, _)| *kind == self).map_or("", |(_, name)| name)
    }

    /// The kind of a name; `None` for a name of another version.
    pub fn of_name(name: &str) -> Option<Self> {
        value_of(&Self::ALL, name)
    }

    /// What heals it, for people.
    pub fn way_out(self) -> &'static str {
        match self {
            Self::InvoiceNotFound => "write the invoice, or find out under which number the ERP has it",
            Self::PaymentNotFound => {
                "the payment's own event must come first; ask the provider to send it again"
            }
            Self::ReceiptNotFound => "write the receipt, or find out under which number the ERP has it",
            Self::SkuNotFound => "write the SKU into sku_position",
            Self::StockAllocated => "goods that are promised will not come; free the allocation in the ERP",
            Self::CurrencyDiffers => {
                "event and invoice are in different currencies; a person decides which is right"
            }
            Self::MoreRejectedThanReceived | Self::OutOfRange => {
                "the provider told what cannot be; ask it, then discard the event"
            }
            Self::EffectMissing => "bind the change to a function of yours with an [[effect]]",
            Self::EffectNotYet => {
                "your function says that something is not there yet (WH001); the text is its own"
            }
            Self::EffectRefused => "your function says that it cannot be (WH002); a person decides",
            Self::Unreadable => "the text names the field; correct the provider file, or ask the provider",
            Self::Database => {
                "a constraint or trigger of the tables refused it; its own words are in the text"
            }
            Self::DatabaseBusy | Self::Conflict => "nothing; it counts no attempt and is tried again",
            Self::Panic => "a fault in Wharf; please report it with the body",
        }
    }

    /// Whether all events of this kind say the same but for a number or a name.
    fn says_one_thing(self) -> bool {
        !matches!(
            self,
            Self::EffectNotYet
                | Self::EffectRefused
                | Self::Unreadable
                | Self::Database
                | Self::DatabaseBusy
                | Self::Conflict
        )
    }
}

impl From<&Refusal> for ErrorKind {
    fn from(refusal: &Refusal) -> Self {
        match refusal {
            Refusal::InvoiceNotFound(_) => Self::InvoiceNotFound,
            Refusal::PaymentNotFound(_) => Self::PaymentNotFound,
            Refusal::ReceiptNotFound(_) => Self::ReceiptNotFound,
            Refusal::SkuNotFound(_) => Self::SkuNotFound,
            Refusal::StockAllocated { .. } => Self::StockAllocated,
            Refusal::CurrencyDiffers { .. } => Self::CurrencyDiffers,
            Refusal::MoreRejectedThanReceived { .. } => Self::MoreRejectedThanReceived,
            Refusal::NotForTheBooks(_) => Self::EffectMissing,
            Refusal::OutOfRange(_) => Self::OutOfRange,
        }
    }
}

impl Trouble {
    /// The name of the group of events that went wrong in the same way: endpoint, type, kind, and the text
    /// without what differs from event to event. Ten hexadecimal digits.
    pub fn fingerprint(&self, endpoint: &str, event_type: &str) -> String {
        let text = if self.kind.says_one_thing() { String::new() } else { normalised(&self.text) };
        let mut digest = Sha256::new();
        for part in [endpoint, event_type, self.kind.name(), &text] {
            digest.update(part);
            digest.update([0]);
        }
        hex::encode(&digest.finalize()[..5])
    }
}

/// A text with every word that holds a digit or an `@` (an id, an amount, a time, an address) replaced.
fn normalised(text: &str) -> String {
    let is_own = |word: &str| word.contains(|c: char| c.is_ascii_digit() || c == '@');
    let words = text.split_whitespace().map(|word| if is_own(word) { "…" } else { word });
    words.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::ErrorKind::{Database, InvoiceNotFound, SkuNotFound};
    use super::*;

    #[test]
    fn what_differs_from_event_to_event_does_not_part_a_group() {
        let of = |kind, text: &str| Trouble { kind, text: text.to_owned() }.fingerprint("stripe", "paid");
        assert_eq!(
            of(InvoiceNotFound, "invoice A is not there"),
            of(InvoiceNotFound, "invoice B is not there")
        );
        assert_ne!(of(InvoiceNotFound, "A is not there"), of(SkuNotFound, "A is not there"));
        assert_eq!(of(Database, "value 17 out of range"), of(Database, "value  9 out of range"));
        assert_ne!(of(Database, "value 17 out of range"), of(Database, "division by zero"));
    }
}
