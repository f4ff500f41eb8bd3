//! Wharf: webhook ingestion for an ERP in Postgres. Verify, settle in one transaction, answer.
//!
//! One delivery, followed end to end, in reading order:
//!
//! 1. [`http::webhooks`]: the request comes in, is bounded, and is given to the [`endpoint`] of its path.
//! 2. [`provider`]: VERIFY rebuilds the signed bytes and compares; READ takes out what the provider's file names.
//!    Pure. Out comes an [`provider::Event`]: an id, and business facts ([`books::Change`]).
//! 3. [`inbox::queue`]: the event waits with others while the last commit is in flight.
//! 4. [`inbox::settle`]: the only begin and commit of deliveries. It claims the ids ([`inbox::claim`]), hands the facts to the
//!    [`binding`]: the [`ledger`], which loads the [`books`], folds the events over them in memory and stores the difference, records
//!    what was refused, and commits.
//! 5. [`http::answer`]: from what became of it to a status.
//!
//! Around it: [`config`] and [`gateway`] put it together, [`postgres`] reaches the database or runs a private one,
//! [`audit`] works the books out again from their entries; [`fixture`], [`redaction`], [`captured`] and [`cli`] are the
//! commands. What always holds is listed in docs/ARCHITECTURE.md.

pub mod audit;
pub mod binding;
pub mod books;
pub mod captured;
pub mod cli;
pub mod config;
pub mod effect;
pub mod endpoint;
pub mod fixture;
pub mod gateway;
pub mod http;
pub mod inbox;
pub mod ledger;
pub mod postgres;
pub mod provider;
pub mod redaction;
pub mod section;
pub mod timestamp;
