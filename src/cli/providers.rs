//! `wharf providers`.

use std::collections::BTreeSet;
use std::io::Write as _;
use std::path::PathBuf;

use clap::{Args, Subcommand};
use comfy_table::Table;
use comfy_table::presets::NOTHING;
use serde_json::json;

use super::Usage;
use crate::config::read_catalogue;
use crate::provider::Definition;
use crate::provider::signature::{Algorithm, Encoding, Format};

#[derive(Debug, Subcommand)]
pub(super) enum Providers {
    /// List the providers, how they sign, and what of theirs is understood.
    List(List),
    /// Check provider files. Reports every mistake with its file, key and way out.
    Check(Check),
}

impl Providers {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        match self {
            Self::List(command) => command.run(),
            Self::Check(command) => command.run(),
        }
    }
}

#[derive(Debug, Args)]
pub(super) struct List {
    /// Your own provider files besides the built-in ones: files or folders.
    paths: Vec<PathBuf>,
    /// One JSON object a line.
    #[arg(long)]
    json: bool,
}

impl List {
    fn run(self) -> anyhow::Result<bool> {
        let mut problems = Vec::new();
        let catalogue = read_catalogue(&self.paths, &mut problems);
        if !problems.is_empty() {
            return Err(Usage::of(&problems).into());
        }
        let mut out = std::io::stdout().lock();
        let mut table = Table::new();
        table.load_style(NOTHING).set_header(["name", "provider", "signature", "event types understood"]);
        for definition in catalogue.iter() {
            let types: BTreeSet<&str> =
                definition.on.iter().flat_map(|on| &on.types).map(String::as_str).collect();
            if self.json {
                let line = json!({
                    "name": definition.name,
                    "title": definition.title,
                    "signature": scheme(definition),
                    "header": definition.signature.headers,
                    "event_types": types,
                    "documentation": definition.documentation,
                });
                writeln!(out, "{line}")?;
            } else {
                let types = types.into_iter().collect::<Vec<_>>().join("\n");
                table.add_row([definition.name.clone(), definition.title.clone(), scheme(definition), types]);
            }
        }
        if !self.json {
            for line in table.to_string().lines() {
                writeln!(out, "{}", line.trim_end())?;
            }
        }
        Ok(true)
    }
}

/// How a provider signs, in a few words.
fn scheme(definition: &Definition) -> String {
    let signature = &definition.signature;
    let algorithm = match signature.algorithm {
        Algorithm::HmacSha256 => "HMAC-SHA256",
        Algorithm::HmacSha1 => "HMAC-SHA1",
        Algorithm::HmacSha512 => "HMAC-SHA512",
    };
    let encoding = match signature.encoding {
        Encoding::Hex => "hex",
        Encoding::Base64 => "base64",
    };
    let several = match signature.format {
        Format::Plain { .. } => "",
        Format::Pairs { .. } | Format::Tagged { .. } => ", several",
    };
    format!("{algorithm} {encoding}{several}\nin {}", signature.headers[0])
}

#[derive(Debug, Args)]
pub(super) struct Check {
    /// Provider files or folders; none: the built-in ones.
    paths: Vec<PathBuf>,
}

impl Check {
    fn run(self) -> anyhow::Result<bool> {
        let mut problems = Vec::new();
        let catalogue = read_catalogue(&self.paths, &mut problems);
        let mut out = std::io::stdout().lock();
        for problem in &problems {
            writeln!(out, "{problem}")?;
        }
        if problems.is_empty() {
            writeln!(out, "{} providers, no problems: {}", catalogue.iter().count(), catalogue.names())?;
        } else {
            writeln!(out, "{} problem{}", problems.len(), if problems.len() == 1 { "" } else { "s" })?;
        }
        Ok(problems.is_empty())
    }
}
