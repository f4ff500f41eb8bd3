//! Tests from the outside: the real program, a real Postgres, bytes on a socket.
#![allow(clippy::pedantic, reason = "tests favour what reads well over what generalises")]
#![allow(clippy::print_stderr, reason = "a test that skips says so, and a gateway's log belongs to its test")]
#![allow(unreachable_pub, reason = "one binary: nothing here is public")]

mod commands;
mod convergence;
mod definitions;
mod deliveries;
mod faults;
mod fixtures;
mod reading;
mod settling;
mod signatures;
mod support;
mod tidy;
mod vectors;
