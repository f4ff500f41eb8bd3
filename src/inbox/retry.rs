//! Wharf's own retries: failed events are tried again from their stored bytes, so that a race with the ERP heals in
//! seconds and not at the provider's next try.
//!
//! Every gateway runs one of these. Rows that another one has in hands are passed over.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use sqlx::postgres::PgConnectOptions;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep};

use super::activity::Activities;
use super::recorded::{Again, Readers, due, fitting};
use super::session::{Lost, Session};
use super::settle::Batch;
use super::stall::{self, Stall};
use super::{Settled, Verdict};

/// A batch of retries is smaller than one of deliveries, whose callers wait.
const BATCH_MAX: usize = 64;
/// How often due events are looked for.
const INTERVAL: Duration = Duration::from_secs(1);
/// How often it is looked whether an endpoint stalls.
const STALL_INTERVAL: Duration = Duration::from_secs(15);

/// The task that tries failed events again.
#[derive(Debug)]
pub struct Retrier {
    session: Session,
    readers: Arc<Readers>,
    endpoints: Vec<String>,
    stop: Arc<Notify>,
    stalls: Vec<Stall>,
    activities: Arc<Activities>,
}

impl Retrier {
    /// Ready to run; ends when `stop` is notified.
    pub fn new(
        options: PgConnectOptions,
        readers: Arc<Readers>,
        stop: Arc<Notify>,
        activities: Arc<Activities>,
    ) -> Self {
        let endpoints = readers.keys().cloned().collect();
        Self { session: Session::new(options), readers, endpoints, stop, stalls: Vec::new(), activities }
    }

    /// Runs until it is stopped.
    pub async fn run(mut self) {
        let stop = Arc::clone(&self.stop);
        let mut stalls_due = Instant::now();
        loop {
            let wait = match self.retry_due().await {
                Ok(true) => Duration::ZERO,
                Ok(false) => INTERVAL,
                Err(lost) => {
                    tracing::warn!(reason = %lost, "failed events cannot be tried again now");
                    5 * INTERVAL
                }
            };
            if Instant::now() >= stalls_due {
                stalls_due = Instant::now() + STALL_INTERVAL;
                self.tell_of_stalls().await;
            }
            tokio::select! {
                () = sleep(wait) => {}
                () = stop.notified() => return,
            }
        }
    }

    /// Tries one batch of due events again; whether there may be more at once.
    async fn retry_due(&mut self) -> Result<bool, Lost> {
        let endpoints = &self.endpoints;
        let due = self.session.run(async |connection| due(connection, endpoints, BATCH_MAX).await).await?;
        let ids = fitting(&due);
        if ids.is_empty() {
            return Ok(false);
        }
        let batch = Batch::Recorded { ids: &ids, again: Again::Retry, readers: &self.readers };
        let settled = self.session.settle(batch).await?;
        let now = SystemTime::now().into();
        for ((id, settled), due) in ids.iter().zip(&settled).zip(&due) {
            write_line(*id, settled);
            if settled.verdict == Verdict::Processed {
                self.activities.applied(&due.endpoint, now);
            }
        }
        // Those in other hands are still due: looking at once would only find them again.
        let has_settled =
            |settled: &Settled| !matches!(settled.verdict, Verdict::Duplicate | Verdict::Undecided(_));
        Ok(settled.iter().any(has_settled) && (ids.len() < due.len() || due.len() == BATCH_MAX))
    }

    /// Says in the log when an endpoint begins or ceases to stall.
    async fn tell_of_stalls(&mut self) {
        let Ok(now) = self.session.run(stall::list).await else { return };
        let same = |a: &Stall, b: &Stall| (&a.endpoint, &a.error_kind) == (&b.endpoint, &b.error_kind);
        for stall in now.iter().filter(|stall| !self.stalls.iter().any(|known| same(known, stall))) {
            tracing::warn!(
                endpoint = stall.endpoint,
                error_kind = stall.error_kind,
                events = stall.events,
                "nothing of this endpoint is applied and all fails alike: its events are held back from becoming dead letters"
            );
        }
        for stall in self.stalls.iter().filter(|known| !now.iter().any(|stall| same(known, stall))) {
            tracing::info!(
                endpoint = stall.endpoint,
                error_kind = stall.error_kind,
                "this endpoint no longer stalls"
            );
        }
        self.stalls = now;
    }
}

fn write_line(inbox_id: i64, settled: &Settled) {
    let attempt = settled.attempt;
    let outcome = settled.verdict.name();
    match &settled.verdict {
        // Somebody else has it.
        Verdict::Duplicate => {}
        Verdict::Undecided(reason) => tracing::warn!(inbox_id, outcome, reason, "retry not settled"),
        verdict => match verdict.trouble() {
            None => tracing::info!(inbox_id, outcome, attempt, "retry settled"),
            Some(trouble) => tracing::warn!(
                inbox_id,
                outcome,
                attempt,
                error_kind = trouble.kind.name(),
                error = trouble.text,
                "retry not applied"
            ),
        },
    }
}
