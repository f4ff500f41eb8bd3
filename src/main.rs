//! The `wharf` program: parse, dispatch, exit.

use std::process::ExitCode;

fn main() -> ExitCode {
    wharf::cli::run()
}
