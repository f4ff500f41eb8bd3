//! The command line: one enum of commands, one file each. Data goes to stdout, logs and errors to stderr.

mod audit;
mod demo;
mod demo_erp;
mod difference;
mod effects;
mod explain;
mod filter;
mod fixtures;
mod inbox;
mod migrate;
mod ops;
mod providers;
mod quarantine;
mod send;
mod serve;
mod sign;
mod status;

use std::fmt;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{CommandFactory as _, Parser, Subcommand};
use clap_complete::Shell;

use crate::postgres::private::{Durability, keep};
use crate::section::Problem;

/// Webhook ingestion for an ERP in Postgres: verify, settle in one transaction, answer.
#[derive(Debug, Parser)]
#[command(
    name = "wharf",
    version,
    max_term_width = 100,
    after_help = "\
Exit codes: 0 done, 1 not done or a difference was found, 2 the command line or a file is wrong,
3 what is named is not there.

Start here:
  wharf demo                                   see it work, with a database of its own
  wharf serve --config wharf.toml              receive webhooks
  wharf providers list                         what it understands
  wharf status                                 how it stands
  wharf inbox errors                           what was not applied, and why"
)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Receive webhooks. Without DATABASE_URL, on a private Postgres in .wharf/postgres.
    Serve(serve::Serve),
    /// Bring the database's schema `wharf` to this version. Safe to run twice, or from two places at once.
    Migrate(migrate::Migrate),
    /// Work every balance out again from the append-only entries, and report what differs.
    Audit(audit::Audit),
    /// Show the main job on the fixtures: deliver all, deliver all again, deliver all with one byte changed.
    Demo(demo::Demo),
    /// The providers that are known.
    #[command(subcommand)]
    Providers(providers::Providers),
    /// Print the headers that a provider would send with a body.
    Sign(sign::Sign),
    /// Check one captured request offline, at the time it was sent.
    Verify(sign::Verify),
    /// Events that came in: find them, understand them, run them again.
    #[command(subcommand)]
    Inbox(inbox::Inbox),
    /// Why a delivery was refused: try what may have happened to it until the signature fits.
    Explain(explain::Explain),
    /// Deliveries that were refused for their signature and kept.
    #[command(subcommand)]
    Quarantine(quarantine::Quarantine),
    /// How it stands: endpoints, secrets, what failed, what was refused.
    Status(status::Status),
    /// A company's own functions: check them, or start one.
    #[command(subcommand)]
    Effects(effects::Effects),
    /// Captured requests as tests.
    #[command(subcommand)]
    Fixtures(fixtures::Fixtures),
    /// Print the completions for a shell: `wharf completions bash > /etc/bash_completion.d/wharf`.
    Completions {
        /// Which shell.
        shell: Shell,
    },
    /// Keep a private Postgres until standard input ends. Wharf starts this itself.
    #[command(hide = true)]
    PrivatePostgres {
        /// Where its data is.
        place: PathBuf,
        /// Do not wait for the disk.
        #[arg(long)]
        fast: bool,
    },
}

/// The command line, or a file that it names, is wrong: exit code 2.
#[derive(Debug)]
struct Usage(String);

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// What the command line names is not there: exit code 3.
#[derive(Debug)]
struct NotFound(String);

impl fmt::Display for NotFound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NotFound {}

impl Usage {
    /// All problems of files in one message.
    fn of(problems: &[Problem]) -> Self {
        let count = problems.len();
        let lines: Vec<String> = problems.iter().map(ToString::to_string).collect();
        Self(format!("{count} problem{}:\n  {}", if count == 1 { "" } else { "s" }, lines.join("\n  ")))
    }
}

/// Runs the program.
pub fn run() -> ExitCode {
    let result = match Cli::parse().command {
        Command::Serve(command) => command.run(),
        Command::Migrate(command) => command.run(),
        Command::Audit(command) => command.run(),
        Command::Demo(command) => command.run(),
        Command::Providers(command) => command.run(),
        Command::Sign(command) => command.run(),
        Command::Verify(command) => command.run(),
        Command::Inbox(command) => command.run(),
        Command::Explain(command) => command.run(),
        Command::Quarantine(command) => command.run(),
        Command::Status(command) => command.run(),
        Command::Completions { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut Cli::command(), "wharf", &mut script);
            std::io::stdout().write_all(&script).map(|()| true).map_err(anyhow::Error::from)
        }
        Command::Effects(command) => command.run(),
        Command::Fixtures(command) => command.run(),
        Command::PrivatePostgres { place, fast } => {
            let durability = if fast { Durability::Fast } else { Durability::Durable };
            runtime().map(|runtime| runtime.block_on(keep(&place, durability, std::io::stdout())))
        }
    };
    match result {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(1),
        // `wharf … | head`: whoever read our output has seen enough.
        Err(error) if is_broken_pipe(&error) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "wharf: {error:#}");
            ExitCode::from(exit_code(&error))
        }
    }
}

fn exit_code(error: &anyhow::Error) -> u8 {
    if error.is::<Usage>() {
        2
    } else if error.is::<NotFound>() {
        3
    } else {
        1
    }
}

fn is_broken_pipe(error: &anyhow::Error) -> bool {
    error.downcast_ref::<std::io::Error>().is_some_and(|error| error.kind() == std::io::ErrorKind::BrokenPipe)
}

fn runtime() -> anyhow::Result<tokio::runtime::Runtime> {
    Ok(tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?)
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    #[test]
    fn the_tree_of_commands_is_sound() {
        super::Cli::command().debug_assert();
    }
}
