//! What a gateway sees of its endpoints, added up in memory and written down every few seconds: for people, not for
//! the books. However many deliveries are refused, writing it down is a few statements.
//!
//! A gateway that is killed loses the last seconds of it.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use sqlx::PgConnection;
use sqlx::types::time::OffsetDateTime;

use super::Verdict;
use crate::captured::Captured;
use crate::provider::{Headers, Rejection};
use crate::timestamp::Timestamp;

/// How often it is written down.
pub const FLUSH_INTERVAL: Duration = Duration::from_secs(2);

/// Which refused deliveries are kept, and how many.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QuarantineLimits {
    /// The newest so many of an endpoint; 0: none.
    pub keep: usize,
    /// No more than so many of an endpoint in a minute.
    pub per_minute: usize,
    /// Larger bodies are only counted.
    pub body_limit_bytes: usize,
}

/// All endpoints of a gateway.
#[derive(Debug)]
pub struct Activities {
    endpoints: HashMap<String, Activity>,
    quarantine: QuarantineLimits,
}

/// What was seen of one endpoint since it was last written down.
#[derive(Debug)]
struct Activity {
    provider: String,
    secrets: Vec<String>,
    seen: Mutex<Seen>,
}

#[derive(Debug, Clone, Default)]
struct Seen {
    last_verified: Option<(Timestamp, String, String)>,
    last_applied: Option<Timestamp>,
    answers: BTreeMap<&'static str, i64>,
    /// By position in the configuration.
    secrets: BTreeMap<usize, (i64, Timestamp)>,
    refusals: BTreeMap<&'static str, Refusals>,
    kept: VecDeque<Kept>,
    /// The minute that is counted, and how many were kept in it.
    minute: (i64, usize),
}

#[derive(Debug, Clone)]
struct Refusals {
    count: i64,
    first: Timestamp,
    last: Timestamp,
    detail: String,
}

/// A refused delivery on its way into the quarantine.
#[derive(Debug, Clone)]
struct Kept {
    reason: &'static str,
    detail: String,
    at: Timestamp,
    head: Vec<u8>,
    body: Vec<u8>,
}

impl Activities {
    /// Nothing seen yet. Endpoints: name, provider, the secrets' names.
    pub fn new(
        endpoints: impl IntoIterator<Item = (String, String, Vec<String>)>,
        quarantine: QuarantineLimits,
    ) -> Self {
        let endpoints = endpoints
            .into_iter()
            .map(|(name, provider, secrets)| (name, Activity { provider, secrets, seen: Mutex::default() }));
        Self { endpoints: endpoints.collect(), quarantine }
    }

    fn seen(&self, endpoint: &str) -> Option<MutexGuard<'_, Seen>> {
        Some(self.endpoints.get(endpoint)?.seen())
    }

    /// A delivery was verified with one of the endpoint's secrets, and answered.
    pub fn answered(
        &self,
        endpoint: &str,
        secret: usize,
        event: (String, String),
        verdict: &Verdict,
        at: Timestamp,
    ) {
        let Some(mut seen) = self.seen(endpoint) else { return };
        *seen.answers.entry(verdict.name()).or_default() += 1;
        let (count, last) = seen.secrets.entry(secret).or_insert((0, at));
        (*count, *last) = (*count + 1, at.max(*last));
        if *verdict == Verdict::Processed {
            seen.last_applied = seen.last_applied.max(Some(at));
        }
        seen.last_verified = Some((at, event.0, event.1));
    }

    /// An event of the endpoint was applied without a delivery.
    pub fn applied(&self, endpoint: &str, at: Timestamp) {
        if let Some(mut seen) = self.seen(endpoint) {
            seen.last_applied = seen.last_applied.max(Some(at));
        }
    }

    /// A delivery was refused for its signature.
    pub fn refused(
        &self,
        endpoint: &str,
        rejection: &Rejection,
        headers: &Headers<'_>,
        body: &[u8],
        at: Timestamp,
    ) {
        let Some(mut seen) = self.seen(endpoint) else { return };
        let (reason, detail) = (rejection.class(), rejection.to_string());
        let refusals = seen.refusals.entry(reason).or_insert_with(|| Refusals {
            count: 0,
            first: at,
            last: at,
            detail: String::new(),
        });
        refusals.count += 1;
        refusals.last = at;
        refusals.detail.clone_from(&detail);

        let limits = self.quarantine;
        let minute = at.seconds() / 60;
        if seen.minute.0 != minute {
            seen.minute = (minute, 0);
        }
        if limits.keep == 0 || seen.minute.1 >= limits.per_minute || body.len() > limits.body_limit_bytes {
            return;
        }
        seen.minute.1 += 1;
        if seen.kept.len() >= limits.keep {
            seen.kept.pop_front();
        }
        let head = Captured::head(&headers.without_credentials());
        seen.kept.push_back(Kept { reason, detail, at, head, body: body.to_owned() });
    }

    /// Writes down what was seen since the last time. After an error, what is not yet written is kept for the next.
    pub async fn flush(&self, connection: &mut PgConnection) -> Result<(), sqlx::Error> {
        for (endpoint, activity) in &self.endpoints {
            let mut seen = activity.take();
            if let Err(error) = seen.write(connection, endpoint, activity, self.quarantine.keep).await {
                activity.put_back(seen, self.quarantine.keep);
                return Err(error);
            }
        }
        Ok(())
    }
}

/// Writes down that events of these endpoints were applied now, without a gateway.
pub async fn write_applied(connection: &mut PgConnection, endpoints: &[&str]) -> Result<(), sqlx::Error> {
    sqlx::query("update endpoint_activity set last_applied_at = now() where endpoint = any($1)")
        .bind(endpoints)
        .execute(connection)
        .await?;
    Ok(())
}

impl Activity {
    fn seen(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self) -> Seen {
        let mut seen = self.seen();
        let minute = seen.minute;
        std::mem::replace(&mut *seen, Seen { minute, ..Seen::default() })
    }

    /// What could not be written is added to what was seen since.
    fn put_back(&self, old: Seen, keep: usize) {
        let mut seen = self.seen();
        let newer = std::mem::replace(&mut *seen, old);
        for (outcome, count) in newer.answers {
            *seen.answers.entry(outcome).or_default() += count;
        }
        for (secret, (count, last)) in newer.secrets {
            let known = seen.secrets.entry(secret).or_insert((0, last));
            *known = (known.0 + count, last.max(known.1));
        }
        for (reason, refusals) in newer.refusals {
            let count = seen.refusals.get(reason).map_or(0, |known| known.count) + refusals.count;
            let first = seen.refusals.get(reason).map_or(refusals.first, |known| known.first);
            seen.refusals.insert(reason, Refusals { count, first, ..refusals });
        }
        seen.last_verified = newer.last_verified.or(seen.last_verified.take());
        seen.last_applied = newer.last_applied.max(seen.last_applied);
        seen.kept.extend(newer.kept);
        let too_many = seen.kept.len().saturating_sub(keep);
        seen.kept.drain(..too_many);
        seen.minute = newer.minute;
    }
}

impl Seen {
    /// What is written is no longer there.
    async fn write(
        &mut self,
        connection: &mut PgConnection,
        endpoint: &str,
        activity: &Activity,
        keep: usize,
    ) -> Result<(), sqlx::Error> {
        if self.last_verified.is_some() || self.last_applied.is_some() {
            self.write_activity(connection, endpoint, &activity.provider).await?;
            (self.last_verified, self.last_applied) = (None, None);
            self.answers.clear();
        }
        if !self.secrets.is_empty() {
            self.write_secrets(connection, endpoint, &activity.secrets).await?;
            self.secrets.clear();
        }
        if !self.refusals.is_empty() {
            self.write_refusals(connection, endpoint).await?;
            self.refusals.clear();
        }
        if !self.kept.is_empty() {
            self.write_kept(connection, endpoint, &activity.provider).await?;
            self.kept.clear();
            clear_old(connection, endpoint, keep).await?;
        }
        Ok(())
    }

    async fn write_activity(
        &self,
        connection: &mut PgConnection,
        endpoint: &str,
        provider: &str,
    ) -> Result<(), sqlx::Error> {
        let count = |outcome| self.answers.get(outcome).copied().unwrap_or(0);
        let (at, id, kind) = match &self.last_verified {
            Some((at, id, kind)) => (Some(OffsetDateTime::from(*at)), Some(id), Some(kind)),
            None => (None, None, None),
        };
        sqlx::query(
            "insert into endpoint_activity as known
               (endpoint, provider, last_verified_at, last_event_id, last_event_type, last_applied_at,
                processed, ignored, duplicate, failed, dead, undecided)
             values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12)
             on conflict (endpoint) do update
               set provider = excluded.provider,
                   last_verified_at = greatest(known.last_verified_at, excluded.last_verified_at),
                   last_event_id = coalesce(excluded.last_event_id, known.last_event_id),
                   last_event_type = coalesce(excluded.last_event_type, known.last_event_type),
                   last_applied_at = greatest(known.last_applied_at, excluded.last_applied_at),
                   processed = known.processed + excluded.processed, ignored = known.ignored + excluded.ignored,
                   duplicate = known.duplicate + excluded.duplicate, failed = known.failed + excluded.failed,
                   dead = known.dead + excluded.dead, undecided = known.undecided + excluded.undecided",
        )
        .bind(endpoint)
        .bind(provider)
        .bind(at)
        .bind(id)
        .bind(kind)
        .bind(self.last_applied.map(OffsetDateTime::from))
        .bind(count("processed"))
        .bind(count("ignored"))
        .bind(count("duplicate"))
        .bind(count("failed"))
        .bind(count("dead"))
        .bind(count("undecided"))
        .execute(connection)
        .await?;
        Ok(())
    }

    async fn write_secrets(
        &self,
        connection: &mut PgConnection,
        endpoint: &str,
        names: &[String],
    ) -> Result<(), sqlx::Error> {
        let name = |at: &usize| names.get(*at).cloned().unwrap_or_default();
        sqlx::query(
            "insert into endpoint_secret as known (endpoint, secret, matched, last_matched_at)
             select $1, * from unnest($2::text[], $3::bigint[], $4::timestamptz[])
             on conflict (endpoint, secret) do update
               set matched = known.matched + excluded.matched,
                   last_matched_at = greatest(known.last_matched_at, excluded.last_matched_at)",
        )
        .bind(endpoint)
        .bind(self.secrets.keys().map(name).collect::<Vec<_>>())
        .bind(self.secrets.values().map(|(count, _)| *count).collect::<Vec<_>>())
        .bind(self.secrets.values().map(|(_, last)| OffsetDateTime::from(*last)).collect::<Vec<_>>())
        .execute(connection)
        .await?;
        Ok(())
    }

    async fn write_refusals(&self, connection: &mut PgConnection, endpoint: &str) -> Result<(), sqlx::Error> {
        let all = || self.refusals.values();
        sqlx::query(
            "insert into endpoint_refusal as known (endpoint, reason, refused, first_at, last_at, detail)
             select $1, * from unnest($2::text[], $3::bigint[], $4::timestamptz[], $5::timestamptz[], $6::text[])
             on conflict (endpoint, reason) do update
               set refused = known.refused + excluded.refused, last_at = excluded.last_at, detail = excluded.detail",
        )
        .bind(endpoint)
        .bind(self.refusals.keys().copied().collect::<Vec<_>>())
        .bind(all().map(|refusals| refusals.count).collect::<Vec<_>>())
        .bind(all().map(|refusals| OffsetDateTime::from(refusals.first)).collect::<Vec<_>>())
        .bind(all().map(|refusals| OffsetDateTime::from(refusals.last)).collect::<Vec<_>>())
        .bind(all().map(|refusals| refusals.detail.as_str()).collect::<Vec<_>>())
        .execute(connection)
        .await?;
        Ok(())
    }

    async fn write_kept(
        &self,
        connection: &mut PgConnection,
        endpoint: &str,
        provider: &str,
    ) -> Result<(), sqlx::Error> {
        let all = || self.kept.iter();
        sqlx::query(
            "insert into quarantine (endpoint, provider, reason, detail, received_at, head, body)
             select $1, $2, * from unnest($3::text[], $4::text[], $5::timestamptz[], $6::bytea[], $7::bytea[])",
        )
        .bind(endpoint)
        .bind(provider)
        .bind(all().map(|kept| kept.reason).collect::<Vec<_>>())
        .bind(all().map(|kept| kept.detail.as_str()).collect::<Vec<_>>())
        .bind(all().map(|kept| OffsetDateTime::from(kept.at)).collect::<Vec<_>>())
        .bind(all().map(|kept| kept.head.as_slice()).collect::<Vec<_>>())
        .bind(all().map(|kept| kept.body.as_slice()).collect::<Vec<_>>())
        .execute(connection)
        .await?;
        Ok(())
    }
}

/// Leaves the newest kept deliveries of an endpoint.
async fn clear_old(connection: &mut PgConnection, endpoint: &str, keep: usize) -> Result<(), sqlx::Error> {
    sqlx::query(
        "delete from quarantine where endpoint = $1 and id <= (
           select id from quarantine where endpoint = $1 order by id desc offset $2 limit 1)",
    )
    .bind(endpoint)
    .bind(i64::try_from(keep).unwrap_or(i64::MAX))
    .execute(connection)
    .await?;
    Ok(())
}
