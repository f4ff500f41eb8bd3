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

use std::collections::{BTreeSet, HashMap};
use std::time::{Duration, Instant};

use sqlx::{Executor as _, PgConnection};

use super::claim::{Claimed, claim};
use super::recorded::{self, Again, Readers, Stored};
use super::{Delivery, ErrorKind, Settled, Trouble, Verdict, stall};
use crate::books::{BooksEvent, Change, Difference, Heals, Told};
use crate::ledger::{self, Show};
use crate::provider::{Content, Event};
use crate::timestamp::Timestamp;

/// A failed event is dead after this many attempts, if it is old enough too.
const ATTEMPTS_MAX: i32 = 5;
/// A failed event is not dead before this age.
const AGE_MIN_SECONDS: i64 = 15 * 60;
/// Settling one by one ends here; what is left is sent again by its providers.
const ONE_BY_ONE_MAX: Duration = Duration::from_secs(5);
/// Serialization failures and deadlocks are tried again this often at once.
const CONFLICT_RETRIES: usize = 3;
/// An error text in the database is no longer than this.
const ERROR_LENGTH_MAX: usize = 2000;

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
/// Whatever it touches stays locked until it ends.
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
    let ends = apply(connection, &claimed, now, show).await?;
    record(connection, &claimed, &ends, batch).await?;
    let mut ends = claimed.iter().zip(ends);
    let settled = claims.iter().map(|claim| match claim {
        Some(_) => {
            let (claimed, end) = ends.next().expect("every claimed event has an end");
            Settled {
                verdict: end.verdict,
                attempt: claimed.attempt,
                batch: batch.len(),
                differences: end.differences,
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
    let end = match apply(connection, &alone, now, show).await {
        Ok(mut ends) => ends.remove(0),
        Err(error) => {
            let Some(failure) = statement_failure(&error) else { return Err(error) };
            connection.execute("rollback to applying").await?;
            let trouble = Trouble { kind: failure.kind(), text: shortened(said(&error)) };
            match failure {
                StatementFailure::Own => failed(connection, &claimed, trouble, 0, now).await?,
                // It stays as it was: settled, and nobody's attempt.
                StatementFailure::Conflict | StatementFailure::System if claimed.revived => {
                    connection.execute("rollback to claiming").await?;
                    return Ok(unclaimed(Verdict::Undecided(trouble.text), single));
                }
                StatementFailure::Conflict | StatementFailure::System => {
                    End { verdict: Verdict::Failed(trouble), counted: false, differences: Vec::new() }
                }
            }
        }
    };
    record(connection, &alone, std::slice::from_ref(&end), single).await?;
    connection.execute("release claiming").await?;
    Ok(Settled { verdict: end.verdict, attempt: claimed.attempt, batch: 1, differences: end.differences })
}

fn unclaimed(verdict: Verdict, batch: Batch<'_>) -> Settled {
    Settled { verdict, attempt: 0, batch: batch.len(), differences: Vec::new() }
}

/// What became of a claimed event, and whether that was an attempt.
struct End {
    verdict: Verdict,
    counted: bool,
    differences: Vec<Difference>,
}

impl End {
    fn of(verdict: Verdict) -> Self {
        Self { verdict, counted: true, differences: Vec::new() }
    }
}

/// Hands the changes of claimed events to the binding.
async fn apply(
    connection: &mut PgConnection,
    claimed: &[Claimed<'_>],
    now: Timestamp,
    show: Show,
) -> Result<Vec<End>, sqlx::Error> {
    let mut events = Vec::with_capacity(claimed.len());
    for Claimed { inbox_id, first_received_at, origin, event, .. } in claimed {
        if let Content::Changes(changes) = &event.content {
            let told = Told {
                at: event.occurred_at,
                received_at: *first_received_at,
                provider: &origin.provider,
                endpoint: &origin.endpoint,
                event_id: &event.id,
            };
            events.push(BooksEvent { tenant: origin.tenant, inbox_id: *inbox_id, told, changes });
        }
    }
    let results = ledger::apply(connection, &events, show).await?;
    // Their rows say what was hoped for until they are recorded, so that no query would count them.
    let mut alike: HashMap<(&str, ErrorKind), i64> = HashMap::new();
    let with_changes = claimed.iter().filter(|claimed| matches!(claimed.event.content, Content::Changes(_)));
    for (claimed, result) in with_changes.zip(&results) {
        if let Some((trouble, Heals::WithTime)) = result.as_ref().err().map(trouble_of) {
            *alike.entry((&claimed.origin.endpoint, trouble.kind)).or_default() += 1;
        }
    }
    let mut results = results.into_iter();
    let mut ends = Vec::with_capacity(claimed.len());
    for claimed in claimed {
        ends.push(match &claimed.event.content {
            Content::Ignored(_) => End::of(Verdict::Ignored),
            Content::Unreadable(reason) => {
                let text = shortened(reason.clone());
                End::of(Verdict::Dead(Trouble { kind: ErrorKind::Unreadable, text }))
            }
            Content::Changes(_) => match results.next().expect("every event of changes has a result") {
                Ok(differences) => End { differences, ..End::of(Verdict::Processed) },
                Err(reason) => match trouble_of(&reason) {
                    (trouble, Heals::Never) => End::of(Verdict::Dead(trouble)),
                    (trouble, Heals::WithTime) => {
                        let others = alike[&(claimed.origin.endpoint.as_str(), trouble.kind)] - 1;
                        failed(connection, claimed, trouble, others, now).await?
                    }
                },
            },
        });
    }
    Ok(ends)
}

fn trouble_of(reason: &ledger::NotApplied) -> (Trouble, Heals) {
    match reason {
        ledger::NotApplied::Refused(refusal) => {
            (Trouble { kind: refusal.into(), text: shortened(refusal.to_string()) }, refusal.heals())
        }
        ledger::NotApplied::Panicked => {
            let text = "applying this event panicked; please report it".to_owned();
            (Trouble { kind: ErrorKind::Panic, text }, Heals::WithTime)
        }
    }
}

/// A failed event is tried again, until it was tried often enough for long enough, or until its provider would
/// give up at the next failure. What an operator ran again without success is what it was: a dead letter.
///
/// `others`: how many more of its batch fail alike.
async fn failed(
    connection: &mut PgConnection,
    claimed: &Claimed<'_>,
    trouble: Trouble,
    others: i64,
    now: Timestamp,
) -> Result<End, sqlx::Error> {
    let age = now.seconds() - claimed.first_received_at.seconds();
    let worn_out = age >= AGE_MIN_SECONDS && claimed.attempt >= ATTEMPTS_MAX;
    let dead = claimed.revived
        || last_chance(connection, claimed).await?
        || (worn_out && !stall::holds(connection, claimed, trouble.kind, others, age).await?);
    Ok(End::of(if dead { Verdict::Dead(trouble) } else { Verdict::Failed(trouble) }))
}

/// Whether the provider gives up on the endpoint after the next failed delivery. Wharf's own retries do not count:
/// the provider knows nothing of them.
async fn last_chance(connection: &mut PgConnection, claimed: &Claimed<'_>) -> Result<bool, sqlx::Error> {
    let Some(limit) = claimed.origin.gives_up_after else { return Ok(false) };
    let failed_before: i64 = sqlx::query_scalar(
        "select count(*) from webhook_attempt where inbox_id = $1 and origin = 'delivery'",
    )
    .bind(claimed.inbox_id)
    .fetch_one(connection)
    .await?;
    Ok(failed_before + 1 >= i64::from(limit) - 1)
}

/// Writes down what was not applied, and every attempt that was not a first delivery's.
async fn record(
    connection: &mut PgConnection,
    claimed: &[Claimed<'_>],
    ends: &[End],
    batch: Batch<'_>,
) -> Result<(), sqlx::Error> {
    record_troubles(connection, claimed, ends).await?;
    let (origin, operator, reason) = match batch {
        Batch::Delivered(_) => ("delivery", None, None),
        Batch::Recorded { again, .. } => match again {
            Again::Retry => (again.origin(), None, None),
            Again::Reprocess { operator, reason } => (again.origin(), Some(operator), reason),
        },
    };
    let is_delivery = matches!(batch, Batch::Delivered(_));
    let attempts: Vec<_> =
        claimed.iter().zip(ends).filter(|(_, end)| end.verdict.trouble().is_some() || !is_delivery).collect();
    if attempts.is_empty() {
        return Ok(());
    }
    let troubles = || attempts.iter().map(|(_, end)| end.verdict.trouble());
    sqlx::query(
        "insert into webhook_attempt (inbox_id, origin, operator, reason, outcome, error_kind, error)
         select attempt.inbox_id, $1, $2, $3, attempt.outcome, attempt.error_kind, attempt.error
         from unnest($4::bigint[], $5::text[], $6::text[], $7::text[])
           as attempt (inbox_id, outcome, error_kind, error)",
    )
    .bind(origin)
    .bind(operator)
    .bind(reason)
    .bind(attempts.iter().map(|(claimed, _)| claimed.inbox_id).collect::<Vec<_>>())
    .bind(attempts.iter().map(|(_, end)| end.verdict.name()).collect::<Vec<_>>())
    .bind(troubles().map(|trouble| trouble.map(|trouble| trouble.kind.name())).collect::<Vec<_>>())
    .bind(troubles().map(|trouble| trouble.map(|trouble| trouble.text.as_str())).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

async fn record_troubles(
    connection: &mut PgConnection,
    claimed: &[Claimed<'_>],
    ends: &[End],
) -> Result<(), sqlx::Error> {
    let troubled: Vec<(&Claimed<'_>, &End, &Trouble)> = claimed
        .iter()
        .zip(ends)
        .filter_map(|(claimed, end)| end.verdict.trouble().map(|trouble| (claimed, end, trouble)))
        .collect();
    if troubled.is_empty() {
        return Ok(());
    }
    let fingerprint = |(claimed, _, trouble): &(&Claimed<'_>, &End, &Trouble)| {
        trouble.fingerprint(&claimed.origin.endpoint, &claimed.event.kind)
    };
    sqlx::query(
        "update webhook_inbox inbox
         set status = case when dead then 'dead' else 'failed' end,
             error_kind = refused.kind, last_error = refused.error, fingerprint = refused.fingerprint,
             about = array(select jsonb_array_elements_text(refused.about::jsonb)),
             attempts = inbox.attempts - case when counted then 0 else 1 end,
             settled_at = case when dead then now() end,
             dead_lettered_at = case when dead then now() end,
             -- Five seconds, doubled with every attempt up to an hour, give or take half.
             next_attempt_at = case when not dead then
               now() + least(5 * power(2, least(inbox.attempts, 12) - 1), 3600)
                     * (0.5 + random()) * interval '1 second' end
         from unnest($1::bigint[], $2::text[], $3::text[], $4::text[], $5::text[], $6::bool[], $7::bool[])
           as refused (id, kind, error, fingerprint, about, dead, counted)
         where inbox.id = refused.id",
    )
    .bind(troubled.iter().map(|(claimed, ..)| claimed.inbox_id).collect::<Vec<_>>())
    .bind(troubled.iter().map(|(.., trouble)| trouble.kind.name()).collect::<Vec<_>>())
    .bind(troubled.iter().map(|(.., trouble)| trouble.text.as_str()).collect::<Vec<_>>())
    .bind(troubled.iter().map(fingerprint).collect::<Vec<_>>())
    .bind(troubled.iter().map(|(claimed, ..)| about(claimed.event)).collect::<Vec<_>>())
    .bind(troubled.iter().map(|(_, end, _)| matches!(end.verdict, Verdict::Dead(_))).collect::<Vec<_>>())
    .bind(troubled.iter().map(|(_, end, _)| end.counted).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// The numbers of the invoices and receipts that an event names, as a JSON array (an array of arrays must be a
/// rectangle in Postgres).
fn about(event: &Event) -> String {
    let changes = match &event.content {
        Content::Changes(changes) => changes.as_slice(),
        Content::Ignored(_) | Content::Unreadable(_) => &[],
    };
    let numbers: BTreeSet<&str> = changes.iter().filter_map(Change::number).collect();
    serde_json::Value::from_iter(numbers).to_string()
}

/// The database's own words.
fn said(error: &sqlx::Error) -> String {
    error.as_database_error().map_or_else(|| error.to_string(), |error| error.message().to_owned())
}

fn shortened(mut text: String) -> String {
    if text.len() > ERROR_LENGTH_MAX {
        let end = (0..=ERROR_LENGTH_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
    }
    text
}

/// What a failed statement says about the event that it failed for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum StatementFailure {
    /// The event cannot be written as it is: an attempt.
    Own,
    /// Somebody else was at the same rows: try again.
    Conflict,
    /// The database is in trouble or busy: nobody's fault, no attempt.
    System,
}

impl StatementFailure {
    fn kind(self) -> ErrorKind {
        match self {
            Self::Own => ErrorKind::Database,
            Self::Conflict => ErrorKind::Conflict,
            Self::System => ErrorKind::DatabaseBusy,
        }
    }
}

/// Classifies an error of the database; `None`: the connection itself failed, and nothing is known.
fn statement_failure(error: &sqlx::Error) -> Option<StatementFailure> {
    let code = error.as_database_error()?.code()?;
    match &*code {
        // Serialization failure, deadlock.
        "40001" | "40P01" => Some(StatementFailure::Conflict),
        // Lock not available, statement canceled, a plan that outlived a change of the schema.
        "55P03" | "57014" | "0A000" => Some(StatementFailure::System),
        // Shutting down, starting up, idle in transaction too long: the session is gone.
        "57P01" | "57P02" | "57P03" | "25P03" => None,
        // Out of disk, memory or connections.
        code if code.starts_with("53") => Some(StatementFailure::System),
        // A read-only server (a standby that was promoted elsewhere) will not get better on this connection.
        "25006" => None,
        _ => Some(StatementFailure::Own),
    }
}
