//! What becomes of a claimed event: applied, refused with a way back, or dead; and writing that down.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;

use super::claim::Claimed;
use super::failure::shortened;
use super::recorded::Again;
use super::settle::Batch;
use super::{ErrorKind, Trouble, Verdict, stall};
use crate::binding::{self, Bound};
use crate::books::{Change, Difference, Heals, Told};
use crate::ledger::{self, Show};
use crate::provider::{Content, Event};
use crate::timestamp::Timestamp;

/// A failed event is dead after this many attempts, if it is old enough too.
const ATTEMPTS_MAX: i32 = 5;
/// A failed event is not dead before this age.
const AGE_MIN_SECONDS: i64 = 15 * 60;

/// What became of a claimed event, and whether that was an attempt.
pub(super) struct Fate {
    pub(super) verdict: Verdict,
    pub(super) counted: bool,
    pub(super) differences: Vec<Difference>,
    /// Why it means nothing here, if that was found out only when it was applied.
    pub(super) ignored_because: Option<String>,
}

impl Fate {
    pub(super) fn of(verdict: Verdict) -> Self {
        Self { verdict, counted: true, differences: Vec::new(), ignored_because: None }
    }

    pub(super) fn ignored(because: String) -> Self {
        Self { ignored_because: Some(because), ..Self::of(Verdict::Ignored) }
    }
}

/// Hands the changes of claimed events to the binding.
pub(super) async fn apply(
    connection: &mut PgConnection,
    claimed: &[Claimed<'_>],
    now: Timestamp,
    show: Show,
) -> Result<Vec<Fate>, sqlx::Error> {
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
            events.push(Bound {
                tenant: origin.tenant,
                tenant_name: &origin.tenant_name,
                inbox_id: *inbox_id,
                told,
                event_type: &event.kind,
                changes,
                effects: &origin.effects,
            });
        }
    }
    let results = binding::apply(connection, &events, show).await?;
    // Their rows say what was hoped for until they are recorded, so that no query would count them.
    let mut alike: HashMap<(&str, ErrorKind), i64> = HashMap::new();
    let with_changes = claimed.iter().filter(|claimed| matches!(claimed.event.content, Content::Changes(_)));
    for (claimed, result) in with_changes.zip(&results) {
        if let Some((trouble, Heals::WithTime)) = result.as_ref().err().map(trouble_of) {
            *alike.entry((&claimed.origin.endpoint, trouble.kind)).or_default() += 1;
        }
    }
    let mut results = results.into_iter();
    let mut fates = Vec::with_capacity(claimed.len());
    for claimed in claimed {
        fates.push(match &claimed.event.content {
            Content::Ignored(_) => Fate::of(Verdict::Ignored),
            Content::Unreadable(reason) => {
                let text = shortened(reason.clone());
                Fate::of(Verdict::Dead(Trouble { kind: ErrorKind::Unreadable, text }))
            }
            Content::Changes(_) => match results.next().expect("every event of changes has a result") {
                Ok(applied) => Fate { differences: applied.differences, ..Fate::of(Verdict::Processed) },
                Err(reason) => match trouble_of(&reason) {
                    (trouble, Heals::Never) => Fate::of(Verdict::Dead(trouble)),
                    (trouble, Heals::WithTime) => {
                        let others = alike[&(claimed.origin.endpoint.as_str(), trouble.kind)] - 1;
                        failed(connection, claimed, trouble, others, now).await?
                    }
                },
            },
        });
    }
    Ok(fates)
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
pub(super) async fn failed(
    connection: &mut PgConnection,
    claimed: &Claimed<'_>,
    trouble: Trouble,
    others: i64,
    now: Timestamp,
) -> Result<Fate, sqlx::Error> {
    let age = now.seconds() - claimed.first_received_at.seconds();
    let worn_out = age >= AGE_MIN_SECONDS && claimed.attempt >= ATTEMPTS_MAX;
    let dead = claimed.revived
        || last_chance(connection, claimed).await?
        || (worn_out && !stall::holds(connection, claimed, trouble.kind, others, age).await?);
    Ok(Fate::of(if dead { Verdict::Dead(trouble) } else { Verdict::Failed(trouble) }))
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
pub(super) async fn record(
    connection: &mut PgConnection,
    claimed: &[Claimed<'_>],
    fates: &[Fate],
    batch: Batch<'_>,
) -> Result<(), sqlx::Error> {
    record_troubles(connection, claimed, fates).await?;
    record_ignored(connection, claimed, fates).await?;
    let (origin, operator, reason) = match batch {
        Batch::Delivered(_) => ("delivery", None, None),
        Batch::Recorded { again, .. } => match again {
            Again::Retry => (again.origin(), None, None),
            Again::Reprocess { operator, reason } => (again.origin(), Some(operator), reason),
        },
    };
    let is_delivery = matches!(batch, Batch::Delivered(_));
    let attempts: Vec<_> = claimed
        .iter()
        .zip(fates)
        .filter(|(_, fate)| fate.verdict.trouble().is_some() || !is_delivery)
        .collect();
    if attempts.is_empty() {
        return Ok(());
    }
    let troubles = || attempts.iter().map(|(_, fate)| fate.verdict.trouble());
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
    .bind(attempts.iter().map(|(_, fate)| fate.verdict.name()).collect::<Vec<_>>())
    .bind(troubles().map(|trouble| trouble.map(|trouble| trouble.kind.name())).collect::<Vec<_>>())
    .bind(troubles().map(|trouble| trouble.map(|trouble| trouble.text.as_str())).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

async fn record_ignored(
    connection: &mut PgConnection,
    claimed: &[Claimed<'_>],
    fates: &[Fate],
) -> Result<(), sqlx::Error> {
    for (claimed, fate) in claimed.iter().zip(fates) {
        if let Some(because) = &fate.ignored_because {
            sqlx::query("update webhook_inbox set status = 'ignored', ignored_because = $2 where id = $1")
                .bind(claimed.inbox_id)
                .bind(because)
                .execute(&mut *connection)
                .await?;
        }
    }
    Ok(())
}

async fn record_troubles(
    connection: &mut PgConnection,
    claimed: &[Claimed<'_>],
    fates: &[Fate],
) -> Result<(), sqlx::Error> {
    let troubled: Vec<(&Claimed<'_>, &Fate, &Trouble)> = claimed
        .iter()
        .zip(fates)
        .filter_map(|(claimed, fate)| fate.verdict.trouble().map(|trouble| (claimed, fate, trouble)))
        .collect();
    if troubled.is_empty() {
        return Ok(());
    }
    let fingerprint = |(claimed, _, trouble): &(&Claimed<'_>, &Fate, &Trouble)| {
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
    .bind(troubled.iter().map(|(_, fate, _)| matches!(fate.verdict, Verdict::Dead(_))).collect::<Vec<_>>())
    .bind(troubled.iter().map(|(_, fate, _)| fate.counted).collect::<Vec<_>>())
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
