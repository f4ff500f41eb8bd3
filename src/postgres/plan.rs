//! What [`migrate`](super::migrate) would do, found out by reading alone.

use std::collections::BTreeMap;

use sqlx::postgres::PgConnectOptions;
use sqlx::{Connection as _, PgConnection};

use super::MIGRATIONS;

/// A migration of this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// Its number.
    pub version: i64,
    /// What it is about.
    pub description: &'static str,
    /// Its text.
    pub sql: &'static str,
}

/// How this build's migrations stand to those that a database has had.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    /// The newest migration that the database has had; `None`: none yet.
    pub applied: Option<i64>,
    /// Those that would be applied, in order.
    pub pending: Vec<Step>,
    /// Those whose text is not the one that was applied: nothing can be applied before that is cleared up.
    pub changed: Vec<Step>,
    /// Versions and descriptions that the database has had and this build does not know: it is ahead.
    pub unknown: Vec<(i64, String)>,
}

/// A migration as the database remembers it.
#[derive(Debug, Clone, sqlx::FromRow)]
struct Applied {
    version: i64,
    description: String,
    checksum: Vec<u8>,
}

impl Plan {
    /// The plan for a database, which is only read.
    pub async fn of(options: &PgConnectOptions) -> Result<Self, sqlx::Error> {
        let mut connection = PgConnection::connect_with(options).await?;
        let there: bool = sqlx::query_scalar("select to_regclass('wharf._sqlx_migrations') is not null")
            .fetch_one(&mut connection)
            .await?;
        if !there {
            return Ok(Self::of_nothing());
        }
        let applied = sqlx::query_as(
            "select version, description, checksum from wharf._sqlx_migrations where success order by version",
        )
        .fetch_all(&mut connection)
        .await?;
        connection.close().await?;
        Ok(Self::after(applied))
    }

    /// The plan for a database that is yet to be made.
    pub fn of_nothing() -> Self {
        Self::after(Vec::new())
    }

    fn after(applied: Vec<Applied>) -> Self {
        let mut plan = Self { applied: applied.last().map(|newest| newest.version), ..Self::default() };
        let mut applied: BTreeMap<i64, Applied> =
            applied.into_iter().map(|applied| (applied.version, applied)).collect();
        for migration in MIGRATIONS.iter() {
            let step = Step {
                version: migration.version,
                description: &migration.description,
                sql: migration.sql.as_str(),
            };
            match applied.remove(&migration.version) {
                None => plan.pending.push(step),
                Some(known) if known.checksum != *migration.checksum => plan.changed.push(step),
                Some(_) => {}
            }
        }
        plan.unknown = applied.into_values().map(|known| (known.version, known.description)).collect();
        plan
    }

    /// Whether `migrate` would refuse to do anything.
    pub fn is_blocked(&self) -> bool {
        !self.changed.is_empty() || !self.unknown.is_empty()
    }

    /// Whether the database has what this build has, and nothing else.
    pub fn is_up_to_date(&self) -> bool {
        !self.is_blocked() && self.pending.is_empty()
    }
}
