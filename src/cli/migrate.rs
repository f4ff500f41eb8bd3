//! `wharf migrate`.

use std::io::Write as _;

use anyhow::Context as _;
use clap::Args;

use super::runtime;
use super::serve::{PRIVATE_PLACE, database};
use crate::postgres::{SCHEMA, migrate};

#[derive(Debug, Args)]
pub(super) struct Migrate {}

impl Migrate {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let (options, _private) = database(PRIVATE_PLACE)?;
        runtime()?.block_on(migrate(&options)).context("the schema was not migrated")?;
        writeln!(std::io::stdout(), "schema {SCHEMA} is up to date")?;
        Ok(true)
    }
}
