//! How deliveries become batches.
//!
//! A request's handler puts its delivery here and waits for the verdict. A *settler* takes whatever has queued
//! while the last commit was in flight: alone, a delivery waits for nobody; in a crowd, many share one commit.
//! A client that hangs up takes nothing with it: the settler owns the transaction.

use std::collections::{HashSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use sqlx::postgres::PgConnectOptions;
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinSet;

use super::session::Session;
use super::settle::Batch;
use super::{Delivery, Settled, Verdict};

/// A batch is no larger than this.
pub const BATCH_MAX: usize = 256;
/// A batch holds no more bytes of bodies than this, one delivery excepted.
pub const BATCH_BYTES_MAX: usize = 16 << 20;
/// What the queue holds at most.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Deliveries.
    pub deliveries: usize,
    /// Bytes of their bodies.
    pub bytes: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { deliveries: 4096, bytes: 128 << 20 }
    }
}

/// The bounded queue between the listener and the settlers.
#[derive(Debug)]
pub struct Queue {
    limits: Limits,
    state: Mutex<State>,
    arrived: Notify,
}

#[derive(Debug, Default)]
struct State {
    waiting: VecDeque<Job>,
    bytes: usize,
    closed: bool,
}

#[derive(Debug)]
struct Job {
    delivery: Delivery,
    answer: oneshot::Sender<Settled>,
}

/// The queue takes no more: it is full, or the gateway is shutting down.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Full;

impl Queue {
    /// An empty queue.
    pub fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self { limits, state: Mutex::default(), arrived: Notify::new() })
    }

    /// Puts a delivery in; the verdict comes through the receiver. Never waits.
    pub fn put(&self, delivery: Delivery) -> Result<oneshot::Receiver<Settled>, Full> {
        let (answer, verdict) = oneshot::channel();
        {
            let mut state = self.state();
            let bytes = state.bytes + delivery.body.len();
            if state.closed || state.waiting.len() >= self.limits.deliveries || bytes > self.limits.bytes {
                return Err(Full);
            }
            state.bytes = bytes;
            state.waiting.push_back(Job { delivery, answer });
        }
        self.arrived.notify_one();
        Ok(verdict)
    }

    /// Takes no more deliveries. What is queued is still settled.
    pub fn close(&self) {
        self.state().closed = true;
        self.arrived.notify_waiters();
        self.arrived.notify_one();
    }

    fn state(&self) -> std::sync::MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whatever has queued; `None` when the queue is closed and empty.
    async fn next_batch(&self) -> Option<Vec<Job>> {
        loop {
            let arrived = self.arrived.notified();
            {
                let mut state = self.state();
                let batch = state.take_batch();
                if !batch.is_empty() {
                    if !state.waiting.is_empty() {
                        self.arrived.notify_one();
                    }
                    return Some(batch);
                }
                if state.closed {
                    // The next settler must find out too.
                    self.arrived.notify_one();
                    return None;
                }
            }
            arrived.await;
        }
    }
}

impl State {
    /// Two deliveries of one event are not taken together: the second waits for the next batch, and finds the
    /// first one settled.
    fn take_batch(&mut self) -> Vec<Job> {
        let mut batch: Vec<Job> = Vec::new();
        let mut seen = HashSet::new();
        let mut later = Vec::new();
        let mut bytes = 0;
        while batch.len() < BATCH_MAX && bytes < BATCH_BYTES_MAX {
            let Some(job) = self.waiting.pop_front() else { break };
            let (endpoint, event_id) = job.delivery.key();
            if seen.insert((endpoint.to_owned(), event_id.to_owned())) {
                bytes += job.delivery.body.len();
                batch.push(job);
            } else {
                later.push(job);
            }
        }
        for job in later.into_iter().rev() {
            self.waiting.push_front(job);
        }
        self.bytes -= bytes;
        batch
    }
}

/// Starts settlers; each has a database connection of its own. They end when the queue is closed and empty.
pub fn start_settlers(queue: &Arc<Queue>, options: &PgConnectOptions, count: usize) -> JoinSet<()> {
    let mut settlers = JoinSet::new();
    for _ in 0..count {
        let settler = Settler { queue: Arc::clone(queue), session: Session::new(options.clone()) };
        settlers.spawn(settler.run());
    }
    settlers
}

struct Settler {
    queue: Arc<Queue>,
    session: Session,
}

impl Settler {
    async fn run(mut self) {
        while let Some(jobs) = self.queue.next_batch().await {
            let deliveries: Vec<&Delivery> = jobs.iter().map(|job| &job.delivery).collect();
            let settled = self.session.settle(Batch::Delivered(&deliveries)).await;
            let settled = settled.unwrap_or_else(|lost| {
                let reason = lost.to_string();
                tracing::error!(batch = jobs.len(), reason, "a batch could not be settled");
                let verdict = Verdict::Undecided(reason);
                let end = Settled { verdict, attempt: 0, batch: jobs.len(), differences: Vec::new() };
                vec![end; jobs.len()]
            });
            for (job, settled) in jobs.into_iter().zip(settled) {
                // Nobody there any more: the redelivery will find it settled.
                let _ = job.answer.send(settled);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;
    use crate::inbox::Origin;
    use crate::provider::{Content, Event};

    fn delivery(id: &str) -> Delivery {
        Delivery {
            origin: Arc::new(Origin {
                endpoint: "e".into(),
                provider: "p".into(),
                tenant: uuid::Uuid::nil(),
                tenant_name: String::new(),
                effects: Arc::default(),
                gives_up_after: None,
            }),
            event: Event {
                id: id.into(),
                kind: String::new(),
                occurred_at: None,
                content: Content::Changes(vec![]),
            },
            headers: "{}".into(),
            body: bytes::Bytes::from_static(b"12345"),
            received_at: SystemTime::now().into(),
        }
    }

    #[test]
    fn a_second_delivery_of_one_event_waits_for_the_next_batch() {
        let queue = Queue::new(Limits::default());
        let _answers: Vec<_> = ["a", "b", "a", "c"].map(|id| queue.put(delivery(id)).unwrap()).into();
        let ids = |batch: &[Job]| batch.iter().map(|job| job.delivery.event.id.clone()).collect::<Vec<_>>();
        let first = queue.state().take_batch();
        let second = queue.state().take_batch();
        assert_eq!((ids(&first), ids(&second)), (vec!["a".into(), "b".into(), "c".into()], vec!["a".into()]));
        assert_eq!(queue.state().bytes, 0);
    }

    #[test]
    fn a_full_queue_says_so_at_once() {
        let queue = Queue::new(Limits { deliveries: 2, bytes: 100 });
        let _answers: Vec<_> = ["a", "b"].map(|id| queue.put(delivery(id)).unwrap()).into();
        assert_eq!(queue.put(delivery("c")).err(), Some(Full));
        let queue = Queue::new(Limits { deliveries: 10, bytes: 9 });
        let _answer = queue.put(delivery("a")).unwrap();
        assert_eq!(queue.put(delivery("b")).err(), Some(Full));
    }
}
