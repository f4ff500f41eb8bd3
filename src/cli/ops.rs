//! What the commands that work on a gateway's database have in common.

use std::io::{self, IsTerminal as _, Write as _};
use std::path::PathBuf;

use anyhow::Context as _;
use clap::Args;
use comfy_table::presets::NOTHING;
use comfy_table::{Cell, Color, ContentArrangement, Table};
use serde_json::Value;
use sqlx::PgConnection;
use sqlx::postgres::PgConnectOptions;

use super::Usage;
use super::serve::{PRIVATE_PLACE, database};
use crate::config::{Config, Secrets};
use crate::gateway::check_schema;
use crate::postgres::connect;
use crate::postgres::private::PrivateServer;
use crate::timestamp::Timestamp;

/// A connection to the gateway's database; a private one lives as long as this.
pub(super) struct Ops {
    pub(super) connection: PgConnection,
    options: PgConnectOptions,
    _private: Option<PrivateServer>,
}

impl Ops {
    /// Connects, and checks that the schema is this build's.
    pub(super) async fn connect() -> anyhow::Result<Self> {
        let (options, private) = database(PRIVATE_PLACE)?;
        let mut connection = connect(&options)
            .await
            .context("the database cannot be reached; check DATABASE_URL and the server")?;
        check_schema(&mut connection).await?;
        Ok(Self { connection, options, _private: private })
    }

    /// One more connection.
    pub(super) async fn another(&self) -> anyhow::Result<PgConnection> {
        connect(&self.options).await.context("the database does not give a second connection")
    }
}

/// The gateway's configuration, for commands that read events anew.
#[derive(Debug, Args)]
pub(super) struct ConfigFile {
    /// The gateway's configuration: which provider an endpoint has, and how its events are read.
    #[arg(long, default_value = "wharf.toml", value_name = "FILE")]
    pub(super) config: PathBuf,
}

impl ConfigFile {
    pub(super) fn read(&self, secrets: Secrets) -> anyhow::Result<Config> {
        Ok(Config::read(&self.config, secrets).map_err(|problems| Usage::of(&problems))?)
    }
}

/// How a command prints its rows: a table for people, or one JSON object a line.
#[derive(Debug, Clone, Copy, Args)]
pub(super) struct Output {
    /// One JSON object a line, for machines.
    #[arg(long)]
    pub(super) json: bool,
}

impl Output {
    /// Prints rows: tables with their headers for people.
    pub(super) fn rows<C: Into<Cell>>(
        self,
        header: &[&str],
        rows: impl IntoIterator<Item = (Vec<C>, Value)>,
    ) -> io::Result<()> {
        let mut out = io::stdout().lock();
        if self.json {
            for (_, object) in rows {
                writeln!(out, "{object}")?;
            }
            return Ok(());
        }
        write_table(&mut out, header, rows.into_iter().map(|(cells, _)| cells))
    }
}

/// A table without lines. On a terminal it fits the width, with colours; elsewhere every row is one line.
pub(super) fn write_table<C: Into<Cell>>(
    out: &mut impl io::Write,
    header: &[&str],
    rows: impl IntoIterator<Item = Vec<C>>,
) -> io::Result<()> {
    let mut table = Table::new();
    table.load_style(NOTHING).set_header(header.iter().copied());
    if io::stdout().is_terminal() {
        table.set_content_arrangement(ContentArrangement::Dynamic);
    }
    for cells in rows {
        table.add_row(cells);
    }
    for column in table.column_iter_mut() {
        column.set_padding((0, 2));
    }
    for line in table.to_string().lines() {
        writeln!(out, "{}", line.trim_end())?;
    }
    Ok(())
}

/// Who does it: it stands in the event's history.
#[derive(Debug, Args)]
pub(super) struct Operator {
    /// Your name.
    #[arg(long, env = "USER", default_value = "unknown", value_name = "NAME")]
    pub(super) operator: String,
}

/// A status, in the colour that it has on a terminal.
pub(super) fn status_cell(status: &str) -> Cell {
    let cell = Cell::new(status);
    match status {
        "processed" => cell.fg(Color::Green),
        "failed" => cell.fg(Color::Yellow),
        "dead" => cell.fg(Color::Red),
        _ => cell,
    }
}

/// A time for people: to the second.
pub(super) fn seconds(at: Timestamp) -> String {
    Timestamp::from_seconds(at.seconds()).unwrap_or(at).to_string()
}

/// A text from outside, on one line and without what a terminal would obey.
pub(super) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_control() {
            true => plain.extend(c.escape_default()),
            false => plain.push(c),
        }
    }
    plain
}

/// Whoever reads the output may have seen enough; what was asked for is done even so.
pub(super) fn or_unread(written: io::Result<()>) -> io::Result<()> {
    match written {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written,
    }
}
