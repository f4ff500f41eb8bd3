//! Tests from the outside: the real program, a real Postgres, bytes on a socket.
#![allow(clippy::pedantic, reason = "tests favour what reads well over what generalises")]

mod deliveries;
mod faults;
mod fixtures;
mod support;
