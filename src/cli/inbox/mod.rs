//! `wharf inbox`: what the gateway keeps of every event.

mod export;

use clap::Subcommand;

#[derive(Debug, Subcommand)]
pub(super) enum Inbox {
    /// Write entries as fixtures, with personal details replaced.
    Export(export::Export),
}

impl Inbox {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let Self::Export(command) = self;
        command.run()
    }
}
