//! `wharf serve`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use sqlx::postgres::PgConnectOptions;
use tokio::signal::unix::{SignalKind, signal};
use tracing_subscriber::EnvFilter;

use super::{Usage, runtime};
use crate::config::{Config, Secrets};
use crate::gateway;
use crate::postgres::private::{Durability, PrivateServer};
use crate::postgres::{migrate, options};

/// Where the private Postgres of `wharf serve` and `wharf migrate` lives, below the current folder.
pub(super) const PRIVATE_PLACE: &str = ".wharf/postgres";

#[derive(Debug, Args)]
pub(super) struct Serve {
    /// The configuration file. See wharf.example.toml.
    #[arg(long, default_value = "wharf.toml", value_name = "FILE")]
    config: PathBuf,
    /// How log lines are written.
    #[arg(long, value_enum, default_value = "text", env = "WHARF_LOG_FORMAT", value_name = "FORMAT")]
    log: LogFormat,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum LogFormat {
    /// For people.
    Text,
    /// One JSON object a line, for machines.
    Json,
}

/// Logs go to stderr; `WHARF_LOG` filters them (`warn`, `wharf=debug`, …).
pub(super) fn start_logging(format: LogFormat) {
    let filter = EnvFilter::try_from_env("WHARF_LOG")
        .unwrap_or_else(|_| EnvFilter::new("info,actix_server=warn,sqlx=warn"));
    let lines =
        tracing_subscriber::fmt().with_env_filter(filter).with_writer(std::io::stderr).with_target(false);
    match format {
        LogFormat::Text => lines.with_ansi(std::io::IsTerminal::is_terminal(&std::io::stderr())).init(),
        LogFormat::Json => lines.json().flatten_event(true).init(),
    }
}

/// Whether the user names a database.
pub(super) fn names_database() -> bool {
    std::env::var("DATABASE_URL").is_ok_and(|url| !url.is_empty())
}

/// The user's database, or a private one that lives as long as the returned value.
pub(super) fn database(place: &str) -> anyhow::Result<(PgConnectOptions, Option<PrivateServer>)> {
    match std::env::var("DATABASE_URL") {
        Ok(url) if !url.is_empty() => Ok((options(&url).map_err(|reason| Usage(reason.to_owned()))?, None)),
        _ => {
            let program = std::env::current_exe()?;
            let server = PrivateServer::start(&program, place.as_ref(), Durability::Durable)?;
            Ok((server.options(), Some(server)))
        }
    }
}

impl Serve {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let config = Config::read(&self.config, Secrets::Needed).map_err(|problems| Usage::of(&problems))?;
        start_logging(self.log);
        let (options, private) = database(PRIVATE_PLACE)?;
        runtime()?.block_on(async {
            // Before anything else: a signal that comes while we start is not lost.
            let (mut interrupted, mut terminated) =
                (signal(SignalKind::interrupt())?, signal(SignalKind::terminate())?);
            if let Some(private) = &private {
                migrate(&options).await?;
                tracing::info!(database = private.url(), "no DATABASE_URL: using a private Postgres");
            }
            let running = gateway::start(&config, &options).await?;
            tracing::info!(listen = %running.address, admin_listen = %running.admin_address, endpoints = config.endpoints.len(), "serving");
            tokio::select! {
                _ = interrupted.recv() => {}
                _ = terminated.recv() => {}
            }
            tracing::info!("stopping: settling what is queued");
            let in_time = running.stop().await;
            if in_time {
                tracing::info!("stopped");
            } else {
                tracing::error!("not everything was settled in time; the providers will send it again");
            }
            Ok(in_time)
        })
    }
}
