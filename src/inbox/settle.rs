//! SETTLE: a batch of deliveries in one transaction. The only begin and commit of deliveries stand here.
//!
//! ```text
//! begin ─▶ claim ─▶ apply (the binding: loads, folds, stores) ─▶ record what was refused ─▶ commit
//! ```
//!
//! Refusals cost nothing: the binding finds them in memory, and the batch goes on without the refused events. If
//! a *statement* fails, the transaction is rolled back and the batch is settled again, one by one, each event in
//! a savepoint of its own: one poison event hurts only itself. Either way the claim, and the failure if there is
//! one, are committed together, so that a failure always leaves a record.

use std::time::{Duration, Instant};

use sqlx::{Executor as _, PgConnection};

use super::claim::{Claimed, claim};
use super::failure::{StatementFailure, said, shortened, statement_failure};
use super::fate::{Fate, apply, failed, record};
use super::recorded::{self, Again, Readers, Stored};
use super::{Delivery, Settled, Trouble, Verdict};
use crate::ledger::Show;
use crate::timestamp::Timestamp;

/// Settling one by one fates here; what is left is sent again by its providers.
const ONE_BY_ONE_MAX: Duration = Duration::from_secs(5);
/// Serialization failures and deadlocks are tried again this often at once.
const CONFLICT_RETRIES: usize = 3;

/// Waits for locks are bounded well under the providers' patience. Plans are generic, because planning costs more
/// than most of these statements; sequential scans are off, because a generic plan made while a table was
/// empty would scan it for ever.
const BEGIN: &str = "begin; set local search_path = wharf; set local lock_timeout = '1s'; \
    set local statement_timeout = '4s'; set local idle_in_transaction_session_timeout = '10s'; \
    set local plan_cache_mode = force_generic_plan; set local enable_seqscan = off; \
    set local enable_hashjoin = off; set local enable_mergejoin = off";
/// One by one, somebody may already have waited a full lock timeout.
const SHORTER_WAITS: &str = "set local lock_timeout = '300ms'";
/// `commit` alone answers success when Postgres rolled back after an error; the query before it does not.
const COMMIT: &str = "select 1; commit";

/// What is settled together.
#[derive(Debug, Clone, Copy)]
pub enum Batch<'a> {
    /// Deliveries, whose keys are distinct.
    Delivered(&'a [&'a Delivery]),
    /// Rows of the inbox, tried again.
    Recorded {
        /// Their ids.
        ids: &'a [i64],
        /// Who tries again.
        again: Again<'a>,
        /// How their events are read.
        readers: &'a Readers,
    },
}

impl<'a> Batch<'a> {
    fn len(&self) -> usize {
        match self {
            Self::Delivered(deliveries) => deliveries.len(),
            Self::Recorded { ids, .. } => ids.len(),
        }
    }

    /// Its events, each as a batch of its own.
    fn singly(self) -> impl Iterator<Item = Self> {
        (0..self.len()).map(move |at| match self {
            Self::Delivered(deliveries) => Self::Delivered(&deliveries[at..=at]),
            Self::Recorded { ids, again, readers } => Self::Recorded { ids: &ids[at..=at], again, readers },
        })
    }

    async fn lock(self, connection: &mut PgConnection) -> Result<Vec<Stored>, sqlx::Error> {
        match self {
            Self::Delivered(_) => Ok(Vec::new()),
            Self::Recorded { ids, again, readers } => recorded::lock(connection, ids, again, readers).await,
        }
    }

    async fn claim<'s>(
        self,
        connection: &mut PgConnection,
        stored: &'s [Stored],
    ) -> Result<Vec<Option<Claimed<'s>>>, sqlx::Error>
    where
        'a: 's,
    {
        match self {
            Self::Delivered(deliveries) => claim(connection, deliveries).await,
            Self::Recorded { ids, .. } => recorded::claim(connection, ids, stored).await,
        }
    }
}

/// Settles a batch. One entry per event, in order.
///
/// An error means that nothing is known: the connection is of no use any more, and every caller must ask for
/// redelivery.
pub async fn settle(
    connection: &mut PgConnection,
    batch: Batch<'_>,
    now: Timestamp,
) -> Result<Vec<Settled>, sqlx::Error> {
    for _ in 0..=CONFLICT_RETRIES {
        let settling = async {
            connection.execute(BEGIN).await?;
            let settled = try_together(connection, batch, now, Show::Nothing).await?;
            connection.execute(COMMIT).await?;
            Ok(settled)
        };
        match settling.await {
            Ok(settled) => return Ok(settled),
            Err(error) => {
                let Some(failure) = statement_failure(&error) else { return Err(error) };
                connection.execute("rollback").await?;
                if failure != StatementFailure::Conflict {
                    break;
                }
            }
        }
    }
    connection.execute(BEGIN).await?;
    let settled = try_one_by_one(connection, batch, now, Show::Nothing).await?;
    connection.execute(COMMIT).await?;
    Ok(settled)
}

/// The same as [`settle`], with a transaction that is rolled back: what would happen, and what would change.
///
/// Whatever it touches stays locked until it fates.
#[derive(Debug)]
pub struct Rehearsal<'c> {
    connection: &'c mut PgConnection,
}

impl<'c> Rehearsal<'c> {
    /// Begins. Batches that follow see what those before them would have done.
    pub async fn begin(connection: &'c mut PgConnection) -> Result<Self, sqlx::Error> {
        connection.execute(BEGIN).await?;
        Ok(Self { connection })
    }

    /// The connection, for what else is to be seen in the same transaction.
    pub fn connection(&mut self) -> &mut PgConnection {
        self.connection
    }

    /// Settles a batch, for show.
    pub async fn settle(&mut self, batch: Batch<'_>, now: Timestamp) -> Result<Vec<Settled>, sqlx::Error> {
        self.connection.execute("savepoint batch").await?;
        match try_together(self.connection, batch, now, Show::Differences).await {
            Ok(settled) => Ok(settled),
            Err(error) if statement_failure(&error).is_none() => Err(error),
            Err(_) => {
                self.connection.execute("rollback to batch").await?;
                try_one_by_one(self.connection, batch, now, Show::Differences).await
            }
        }
    }

    /// Ends. Nothing has happened.
    pub async fn end(self) -> Result<(), sqlx::Error> {
        self.connection.execute("rollback").await.map(drop)
    }
}

/// All events of a batch at once. On an error the transaction, or the caller's savepoint, must be rolled back.
async fn try_together(
    connection: &mut PgConnection,
    batch: Batch<'_>,
    now: Timestamp,
    show: Show,
) -> Result<Vec<Settled>, sqlx::Error> {
    let stored = batch.lock(connection).await?;
    let claims = batch.claim(connection, &stored).await?;
    let claimed: Vec<Claimed<'_>> = claims.iter().flatten().copied().collect();
    let fates = apply(connection, &claimed, now, show).await?;
    record(connection, &claimed, &fates, batch).await?;
    let mut fates = claimed.iter().zip(fates);
    let settled = claims.iter().map(|claim| match claim {
        Some(_) => {
            let (claimed, fate) = fates.next().expect("every claimed event has an end");
            Settled {
                verdict: fate.verdict,
                attempt: claimed.attempt,
                batch: batch.len(),
                differences: fate.differences,
            }
        }
        None => unclaimed(Verdict::Duplicate, batch),
    });
    Ok(settled.collect())
}

/// One event after the other, each in a savepoint of its own, so that one that fails hurts only itself.
async fn try_one_by_one(
    connection: &mut PgConnection,
    batch: Batch<'_>,
    now: Timestamp,
    show: Show,
) -> Result<Vec<Settled>, sqlx::Error> {
    let until = Instant::now() + ONE_BY_ONE_MAX;
    let mut settled = Vec::with_capacity(batch.len());
    connection.execute(SHORTER_WAITS).await?;
    for single in batch.singly() {
        settled.push(if Instant::now() >= until {
            unclaimed(Verdict::Undecided("its batch took too long".to_owned()), batch)
        } else {
            Settled { batch: batch.len(), ..try_one(connection, single, now, show).await? }
        });
    }
    Ok(settled)
}

async fn try_one(
    connection: &mut PgConnection,
    single: Batch<'_>,
    now: Timestamp,
    show: Show,
) -> Result<Settled, sqlx::Error> {
    connection.execute("savepoint claiming").await?;
    let (stored, locked) = match single.lock(connection).await {
        Ok(stored) => (stored, Ok(())),
        Err(error) => (Vec::new(), Err(error)),
    };
    let claims = match locked {
        Ok(()) => single.claim(connection, &stored).await,
        Err(error) => Err(error),
    };
    let claimed = match claims {
        Ok(claims) => match claims[0] {
            Some(claimed) => claimed,
            None => return Ok(unclaimed(Verdict::Duplicate, single)),
        },
        Err(error) if statement_failure(&error).is_some() => {
            connection.execute("rollback to claiming").await?;
            return Ok(unclaimed(Verdict::Undecided(said(&error)), single));
        }
        Err(error) => return Err(error),
    };
    connection.execute("savepoint applying").await?;
    let alone = [claimed];
    let fate = match apply(connection, &alone, now, show).await {
        Ok(mut fates) => fates.remove(0),
        Err(error) => {
            let Some(failure) = statement_failure(&error) else { return Err(error) };
            connection.execute("rollback to applying").await?;
            let trouble = Trouble { kind: failure.kind(), text: shortened(said(&error)) };
            match failure {
                StatementFailure::Own | StatementFailure::NotYet => {
                    failed(connection, &claimed, trouble, 0, now).await?
                }
                StatementFailure::Refused => Fate::of(Verdict::Dead(trouble)),
                StatementFailure::Ignored => Fate::ignored(trouble.text),
                // It stays as it was: settled, and nobody's attempt.
                StatementFailure::Conflict | StatementFailure::System if claimed.revived => {
                    connection.execute("rollback to claiming").await?;
                    return Ok(unclaimed(Verdict::Undecided(trouble.text), single));
                }
                StatementFailure::Conflict | StatementFailure::System => {
                    Fate { counted: false, ..Fate::of(Verdict::Failed(trouble)) }
                }
            }
        }
    };
    record(connection, &alone, std::slice::from_ref(&fate), single).await?;
    connection.execute("release claiming").await?;
    Ok(Settled { verdict: fate.verdict, attempt: claimed.attempt, batch: 1, differences: fate.differences })
}

fn unclaimed(verdict: Verdict, batch: Batch<'_>) -> Settled {
    Settled { verdict, attempt: 0, batch: batch.len(), differences: Vec::new() }
}
