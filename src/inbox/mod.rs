//! The inbox: every event that a provider told of, once, with what became of it.
//!
//! Reading order: [`settle`] (the transaction: the only begin and commit of deliveries), [`claim`] (who may go
//! on), [`queue`] (how deliveries become batches).

pub mod claim;
pub mod queue;
pub mod settle;

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::provider::Event;
use crate::timestamp::Timestamp;

/// One registration at one provider for one tenant, as far as settling needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The endpoint's name; with the event id it is the idempotency key.
    pub endpoint: String,
    /// The provider's name.
    pub provider: String,
    /// Whose books.
    pub tenant: Uuid,
    /// After so many failed deliveries of an event the provider gives up.
    pub gives_up_after: Option<i32>,
}

/// A verified and read delivery on its way into the database.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// Where it came in.
    pub origin: Arc<Origin>,
    /// What it tells.
    pub event: Event,
    /// The request's headers as a JSON object, without signature and authorization values.
    pub headers: String,
    /// The exact bytes that were signed.
    pub body: Bytes,
    /// When it came in.
    pub received_at: Timestamp,
}

impl Delivery {
    /// The idempotency key.
    pub fn key(&self) -> (&str, &str) {
        (&self.origin.endpoint, &self.event.id)
    }
}

/// What became of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Applied and committed.
    Processed,
    /// It means nothing here; that is committed.
    Ignored,
    /// The event was settled before.
    Duplicate,
    /// A dead letter: committed, and waiting for an operator.
    Dead(Trouble),
    /// Not applied; the failure is committed. The provider must send again.
    Failed(Trouble),
    /// Nothing is known to be committed. The provider must send again.
    Undecided(String),
}

/// Why an event was not applied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Trouble {
    /// A stable name, as in `webhook_inbox.error_kind`.
    pub kind: &'static str,
    /// For the operator.
    pub text: String,
}

impl Verdict {
    /// One word, for logs and answers.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Ignored => "ignored",
            Self::Duplicate => "duplicate",
            Self::Dead(_) => "dead",
            Self::Failed(_) => "failed",
            Self::Undecided(_) => "undecided",
        }
    }
}

/// A delivery's end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settled {
    /// What became of it.
    pub verdict: Verdict,
    /// Which attempt at the event this was; 0 where none was counted.
    pub attempt: i32,
    /// How many deliveries were settled in the same transaction.
    pub batch: usize,
}
