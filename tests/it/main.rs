//! Tests from the outside: the real program, a real Postgres, bytes on a socket.
#![allow(clippy::pedantic, reason = "tests favour what reads well over what generalises")]
#![allow(
    clippy::print_stderr,
    reason = "what the gateway logs, and why a test is skipped, belongs to the test's output"
)]
#![allow(unreachable_pub, reason = "one binary: nothing here is public")]

mod audit;
mod commands;
mod convergence;
mod definitions;
mod deliveries;
mod effects;
mod explain;
mod export;
mod faults;
mod fixtures;
mod inbox_commands;
mod migrating;
mod operating;
mod quarantine;
mod reading;
mod reprocessing;
mod searching;
mod settling;
mod signatures;
mod support;
mod tidy;
mod vectors;
