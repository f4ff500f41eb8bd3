//! The database: how to reach it, its schema, and the private server for when there is none.

pub mod plan;
pub mod private;

use std::str::FromStr;
use std::time::Duration;

use sqlx::migrate::{MigrateError, Migrator};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{ConnectOptions as _, Connection as _, Executor as _, PgConnection, PgPool};

/// The migrations that this build knows.
static MIGRATIONS: Migrator = sqlx::migrate!();

/// Wharf's own schema; no other is touched.
pub const SCHEMA: &str = "wharf";

/// Reads a database URL. The error does not repeat the URL, which may hold a password.
pub fn options(url: &str) -> Result<PgConnectOptions, &'static str> {
    let options = PgConnectOptions::from_str(url).map_err(
        |_| "DATABASE_URL is not a Postgres URL; write postgres://user:password@host:5432/database",
    )?;
    Ok(quiet(options))
}

/// What all connections have in common.
fn quiet(options: PgConnectOptions) -> PgConnectOptions {
    options.application_name("wharf").disable_statement_logging()
}

/// Opens a connection that sees Wharf's tables.
pub async fn connect(options: &PgConnectOptions) -> Result<PgConnection, sqlx::Error> {
    let mut connection = PgConnection::connect_with(options).await?;
    connection.execute("set search_path = wharf").await?;
    Ok(connection)
}

/// A small pool for everything but deliveries: health, commands.
pub fn pool(options: &PgConnectOptions) -> PgPool {
    PgPoolOptions::new()
        .max_connections(4)
        .acquire_timeout(Duration::from_secs(2))
        .after_connect(|connection, _| {
            Box::pin(async move { connection.execute("set search_path = wharf").await.map(drop) })
        })
        .connect_lazy_with(options.clone())
}

/// Brings the schema to the version of this build. Two at once wait for each other (advisory lock).
pub async fn migrate(options: &PgConnectOptions) -> Result<(), MigrateError> {
    let mut connection = PgConnection::connect_with(options).await.map_err(MigrateError::Execute)?;
    let schema = "create schema if not exists wharf; set search_path = wharf";
    // Two that create the schema at one moment: the second is told of a unique violation, and finds it there.
    if connection.execute(schema).await.is_err() {
        connection.execute(schema).await.map_err(MigrateError::Execute)?;
    }
    MIGRATIONS.run(&mut connection).await
}

/// How the database's schema stands to this build.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SchemaState {
    /// They fit.
    Current,
    /// The database is behind: `wharf migrate` has not been run.
    Behind,
    /// The database was migrated by a newer Wharf.
    Ahead,
}

/// Compares the database's schema with this build.
pub async fn schema_state(connection: &mut PgConnection) -> Result<SchemaState, sqlx::Error> {
    let known = MIGRATIONS.iter().map(|migration| migration.version).max().unwrap_or(0);
    let there: bool = sqlx::query_scalar("select to_regclass('wharf._sqlx_migrations') is not null")
        .fetch_one(&mut *connection)
        .await?;
    if !there {
        return Ok(SchemaState::Behind);
    }
    let applied: Option<i64> = sqlx::query_scalar("select max(version) from _sqlx_migrations where success")
        .fetch_one(connection)
        .await?;
    Ok(match applied.unwrap_or(0).cmp(&known) {
        std::cmp::Ordering::Less => SchemaState::Behind,
        std::cmp::Ordering::Equal => SchemaState::Current,
        std::cmp::Ordering::Greater => SchemaState::Ahead,
    })
}
