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

use super::claim::{Claim, UNREADABLE, claim};
use super::{Delivery, Settled, Trouble, Verdict};
use crate::books::{BooksEvent, Heals, Told};
use crate::ledger;
use crate::provider::Content;
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

/// Settles a batch whose keys are distinct. One entry per delivery, in order.
///
/// An error means that nothing is known: the connection is of no use any more, and every caller must ask for
/// redelivery.
pub async fn settle(
    connection: &mut PgConnection,
    batch: &[&Delivery],
    now: Timestamp,
) -> Result<Vec<Settled>, sqlx::Error> {
    let mut conflicts = 0;
    loop {
        match settle_together(connection, batch, now).await {
            Ok(settled) => return Ok(settled),
            Err(error) => match statement_failure(&error) {
                None => return Err(error),
                Some(failure) => {
                    connection.execute("rollback").await?;
                    if failure != StatementFailure::Conflict || conflicts == CONFLICT_RETRIES {
                        return settle_one_by_one(connection, batch, now).await;
                    }
                    conflicts += 1;
                }
            },
        }
    }
}

async fn settle_together(
    connection: &mut PgConnection,
    batch: &[&Delivery],
    now: Timestamp,
) -> Result<Vec<Settled>, sqlx::Error> {
    connection.execute(BEGIN).await?;
    let claims = claim(connection, batch).await?;
    let claimed: Vec<(&Delivery, Claim)> = batch
        .iter()
        .zip(&claims)
        .filter_map(|(delivery, claim)| claim.map(|claim| (*delivery, claim)))
        .collect();
    let ends = apply(connection, &claimed, now).await?;
    record(connection, &claimed, &ends).await?;
    connection.execute(COMMIT).await?;

    let mut ends = claimed.iter().zip(ends).map(|((_, claim), end)| (end.verdict, claim.attempt));
    let settled = claims.iter().map(|claim| {
        let (verdict, attempt) = match claim {
            Some(_) => ends.next().expect("every claimed delivery has an end"),
            None => (Verdict::Duplicate, 0),
        };
        Settled { verdict, attempt, batch: batch.len() }
    });
    Ok(settled.collect())
}

async fn settle_one_by_one(
    connection: &mut PgConnection,
    batch: &[&Delivery],
    now: Timestamp,
) -> Result<Vec<Settled>, sqlx::Error> {
    let until = Instant::now() + ONE_BY_ONE_MAX;
    let mut settled = Vec::with_capacity(batch.len());
    connection.execute(BEGIN).await?;
    connection.execute(SHORTER_WAITS).await?;
    for delivery in batch {
        if Instant::now() >= until {
            let verdict = Verdict::Undecided("its batch took too long".to_owned());
            settled.push(Settled { verdict, attempt: 0, batch: batch.len() });
            continue;
        }
        let (verdict, attempt) = settle_one(connection, delivery, now).await?;
        settled.push(Settled { verdict, attempt, batch: batch.len() });
    }
    connection.execute(COMMIT).await?;
    Ok(settled)
}

async fn settle_one(
    connection: &mut PgConnection,
    delivery: &Delivery,
    now: Timestamp,
) -> Result<(Verdict, i32), sqlx::Error> {
    connection.execute("savepoint claiming").await?;
    let claim = match claim(connection, &[delivery]).await {
        Ok(claims) => claims[0],
        Err(error) if statement_failure(&error).is_some() => {
            connection.execute("rollback to claiming").await?;
            return Ok((Verdict::Undecided(said(&error)), 0));
        }
        Err(error) => return Err(error),
    };
    let Some(claim) = claim else { return Ok((Verdict::Duplicate, 0)) };
    let claimed = [(delivery, claim)];
    connection.execute("savepoint applying").await?;
    let end = match apply(connection, &claimed, now).await {
        Ok(mut ends) => ends.remove(0),
        Err(error) => {
            let Some(failure) = statement_failure(&error) else { return Err(error) };
            connection.execute("rollback to applying").await?;
            let trouble = Trouble { kind: failure.kind(), text: shortened(said(&error)) };
            match failure {
                StatementFailure::Own => failed(delivery, &claim, trouble, now),
                StatementFailure::Conflict | StatementFailure::System => {
                    End { verdict: Verdict::Failed(trouble), counted: false }
                }
            }
        }
    };
    record(connection, &claimed, std::slice::from_ref(&end)).await?;
    connection.execute("release claiming").await?;
    Ok((end.verdict, claim.attempt))
}

/// What became of a claimed event, and whether that was an attempt.
struct End {
    verdict: Verdict,
    counted: bool,
}

/// Hands the changes of claimed events to the binding.
async fn apply(
    connection: &mut PgConnection,
    claimed: &[(&Delivery, Claim)],
    now: Timestamp,
) -> Result<Vec<End>, sqlx::Error> {
    let mut events = Vec::with_capacity(claimed.len());
    for (delivery, claim) in claimed {
        if let Content::Changes(changes) = &delivery.event.content {
            events.push(BooksEvent {
                tenant: delivery.origin.tenant,
                inbox_id: claim.inbox_id,
                told: Told {
                    at: delivery.event.occurred_at,
                    received_at: claim.first_received_at,
                    provider: &delivery.origin.provider,
                    endpoint: &delivery.origin.endpoint,
                    event_id: &delivery.event.id,
                },
                changes,
            });
        }
    }
    let mut results = ledger::apply(connection, &events).await?.into_iter();
    let mut end = |(delivery, claim): &(&Delivery, Claim)| {
        let verdict = match &delivery.event.content {
            Content::Ignored(_) => Verdict::Ignored,
            Content::Unreadable(reason) => {
                Verdict::Dead(Trouble { kind: UNREADABLE, text: shortened(reason.clone()) })
            }
            Content::Changes(_) => match results.next().expect("every event of changes has a result") {
                Ok(()) => Verdict::Processed,
                Err(ledger::NotApplied::Refused(refusal)) => {
                    let trouble = Trouble { kind: refusal.kind(), text: shortened(refusal.to_string()) };
                    match refusal.heals() {
                        Heals::Never => Verdict::Dead(trouble),
                        Heals::WithTime => return failed(delivery, claim, trouble, now),
                    }
                }
                Err(ledger::NotApplied::Panicked) => {
                    let text = "applying this event panicked; please report it".to_owned();
                    return failed(delivery, claim, Trouble { kind: "panic", text }, now);
                }
            },
        };
        End { verdict, counted: true }
    };
    Ok(claimed.iter().map(&mut end).collect())
}

/// A failed event asks for redelivery, until it was tried often enough for long enough, or until its provider
/// would give up at the next failure.
fn failed(delivery: &Delivery, claim: &Claim, trouble: Trouble, now: Timestamp) -> End {
    let old = now.seconds() - claim.first_received_at.seconds() >= AGE_MIN_SECONDS;
    let tried = claim.attempt >= ATTEMPTS_MAX;
    let last_chance = delivery.origin.gives_up_after.is_some_and(|limit| claim.attempt >= limit - 1);
    let verdict =
        if (old && tried) || last_chance { Verdict::Dead(trouble) } else { Verdict::Failed(trouble) };
    End { verdict, counted: true }
}

/// Writes down what was not applied: the status, and one row per attempt.
async fn record(
    connection: &mut PgConnection,
    claimed: &[(&Delivery, Claim)],
    ends: &[End],
) -> Result<(), sqlx::Error> {
    let mut ids = Vec::new();
    let (mut kinds, mut texts, mut dead, mut counted) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for ((_, claim), end) in claimed.iter().zip(ends) {
        if let Verdict::Dead(trouble) | Verdict::Failed(trouble) = &end.verdict {
            ids.push(claim.inbox_id);
            kinds.push(trouble.kind);
            texts.push(trouble.text.as_str());
            dead.push(matches!(end.verdict, Verdict::Dead(_)));
            counted.push(end.counted);
        }
    }
    if ids.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "with refused as (
           select * from unnest($1::bigint[], $2::text[], $3::text[], $4::bool[], $5::bool[])
             as refused (id, kind, error, dead, counted)),
         written as (
           update webhook_inbox inbox
           set status = case when dead then 'dead' else 'failed' end,
               error_kind = refused.kind, last_error = refused.error,
               attempts = inbox.attempts - case when counted then 0 else 1 end,
               settled_at = case when dead then now() end,
               dead_lettered_at = case when dead then now() end,
               -- Five seconds, doubled with every attempt up to an hour, give or take half.
               next_attempt_at = case when not dead then
                 now() + least(5 * power(2, least(inbox.attempts, 12) - 1), 3600)
                       * (0.5 + random()) * interval '1 second' end
           from refused where inbox.id = refused.id)
         insert into webhook_attempt (inbox_id, origin, outcome, error)
         select id, 'delivery', case when dead then 'dead' else 'failed' end, error from refused where counted",
    )
    .bind(ids)
    .bind(kinds)
    .bind(texts)
    .bind(dead)
    .bind(counted)
    .execute(connection)
    .await?;
    Ok(())
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
    fn kind(self) -> &'static str {
        match self {
            Self::Own => "database",
            Self::Conflict => "conflict",
            Self::System => "database_busy",
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
