//! The inbox: every event that a provider told of, once, with what became of it.
//!
//! Reading order:
//! - settling: [`settle`] (the transaction: the only begin and commit of deliveries), [`claim`] (who may go on), `fate`
//!   (what becomes of each event), `failure` (what a failed statement says), [`queue`] (how deliveries become
//!   batches), [`session`] (the connection);
//! - failing: [`trouble`] (what can go wrong), [`recorded`] (events tried again from their stored bytes), [`retry`]
//!   (Wharf's own retries), [`stall`] (an endpoint where all fails alike);
//! - looking: [`select`] and `ways` (finding events), [`history`] (all that is known of one), [`activity`] and
//!   [`overview`] (what gateways see of their endpoints), [`quarantine`] (refused deliveries that were kept).

pub mod activity;
pub mod claim;
mod failure;
mod fate;
pub mod history;
pub mod overview;
pub mod quarantine;
pub mod queue;
pub mod recorded;
pub mod retry;
pub mod select;
pub mod session;
pub mod settle;
pub mod stall;
pub mod trouble;
mod ways;

use std::sync::Arc;

use bytes::Bytes;
use uuid::Uuid;

use crate::books::Difference;
use crate::effect::Effects;
use crate::provider::Event;
use crate::timestamp::Timestamp;

pub use trouble::{ErrorKind, Trouble};

/// One registration at one provider for one tenant, as far as settling needs to know it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Origin {
    /// The endpoint's name; with the event id it is the idempotency key.
    pub endpoint: String,
    /// The provider's name.
    pub provider: String,
    /// Whose books.
    pub tenant: Uuid,
    /// The tenant's name.
    pub tenant_name: String,
    /// The changes that go to functions of the company's own.
    pub effects: Arc<Effects>,
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

impl Verdict {
    /// What went wrong, if the event is dead or failed.
    pub fn trouble(&self) -> Option<&Trouble> {
        match self {
            Self::Dead(trouble) | Self::Failed(trouble) => Some(trouble),
            Self::Processed | Self::Ignored | Self::Duplicate | Self::Undecided(_) => None,
        }
    }

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
    /// What changes, row by row, if that was asked for.
    pub differences: Vec<Difference>,
}
