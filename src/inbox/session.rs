//! A database connection that settles, and is replaced when it is lost.

use std::panic::AssertUnwindSafe;
use std::time::{Duration, SystemTime};

use futures_util::FutureExt as _;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;
use tokio::time::timeout;

use super::Settled;
use super::settle::{Batch, settle};
use crate::postgres;

/// Connecting must not take longer: callers wait.
const CONNECT_MAX: Duration = Duration::from_secs(2);
/// A settlement that takes longer has lost its connection without being told.
const SETTLE_MAX: Duration = Duration::from_secs(12);

/// A connection of its own, opened when it is needed.
#[derive(Debug)]
pub struct Session {
    options: PgConnectOptions,
    connection: Option<PgConnection>,
}

impl Session {
    /// Not connected yet.
    pub fn new(options: PgConnectOptions) -> Self {
        Self { options, connection: None }
    }

    /// Settles a batch. A connection that turns out to be gone is replaced once: settling again is safe at any
    /// point, because what a lost commit may have settled is then settled.
    pub async fn settle(&mut self, batch: Batch<'_>) -> Result<Vec<Settled>, Lost> {
        let reused = self.connection.is_some();
        match self.try_to_settle(batch).await {
            Err(Lost::Connection(error)) if reused => {
                tracing::warn!(%error, "the database connection was lost; trying a new one");
                self.try_to_settle(batch).await
            }
            result => result,
        }
    }

    async fn try_to_settle(&mut self, batch: Batch<'_>) -> Result<Vec<Settled>, Lost> {
        // Taken out: whatever ends this function early also drops the connection, and with it the transaction.
        let mut connection = self.take().await?;
        let settling =
            AssertUnwindSafe(settle(&mut connection, batch, SystemTime::now().into())).catch_unwind();
        let settled = timeout(SETTLE_MAX, settling).await.map_err(|_| Lost::Time)?;
        let settled = settled.map_err(|_panic| Lost::Mind)?.map_err(Lost::Connection)?;
        self.connection = Some(connection);
        Ok(settled)
    }

    /// Runs something else on the connection; after an error, the next use opens a new one.
    pub async fn run<T>(
        &mut self,
        work: impl AsyncFnOnce(&mut PgConnection) -> Result<T, sqlx::Error>,
    ) -> Result<T, Lost> {
        let mut connection = self.take().await?;
        let result = timeout(SETTLE_MAX, work(&mut connection)).await.map_err(|_| Lost::Time)?;
        let result = result.map_err(Lost::Connection)?;
        self.connection = Some(connection);
        Ok(result)
    }

    async fn take(&mut self) -> Result<PgConnection, Lost> {
        match self.connection.take() {
            Some(connection) => Ok(connection),
            None => timeout(CONNECT_MAX, postgres::connect(&self.options))
                .await
                .map_err(|_| Lost::Time)?
                .map_err(Lost::Connection),
        }
    }
}

/// Why nothing is known of a batch.
#[derive(Debug, thiserror::Error)]
pub enum Lost {
    /// The connection was not to be had, or broke.
    #[error("the database connection failed: {0}")]
    Connection(sqlx::Error),
    /// Nothing came back.
    #[error("the database did not answer in time")]
    Time,
    /// A fault of ours.
    #[error("settling panicked; please report it")]
    Mind,
}
