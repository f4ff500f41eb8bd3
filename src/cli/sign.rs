//! `wharf sign` and `wharf verify`: one request, offline.

use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::Context as _;
use clap::Args;

use super::Usage;
use crate::config::{read_catalogue, read_secret};
use crate::provider::signature::sign;
use crate::provider::{Accepts, Content, Definition, Headers, Key, Verified, read};
use crate::timestamp::Timestamp;

#[derive(Debug, Args)]
pub(super) struct Request {
    /// The provider whose scheme applies.
    #[arg(long, value_name = "NAME")]
    provider: String,
    /// Your own provider files: a file or a folder.
    #[arg(long, value_name = "PATH")]
    providers: Vec<PathBuf>,
    /// The secret, as env:NAME or file:PATH. Several: any may fit.
    #[arg(long, required = true, value_name = "REFERENCE")]
    secret: Vec<String>,
    /// A header of the request, such as 'webhook-id: msg_1'.
    #[arg(long, value_name = "NAME: VALUE")]
    header: Vec<String>,
    /// The file that holds the exact body.
    #[arg(long, value_name = "FILE")]
    body: PathBuf,
    /// The time, in seconds since 1970, instead of now.
    #[arg(long, value_name = "UNIX_SECONDS")]
    at: Option<i64>,
}

/// A request as the command line gives it, made ready.
struct Ready {
    definition: Arc<Definition>,
    keys: Vec<Key>,
    headers: Vec<(String, String)>,
    body: Vec<u8>,
    at: Timestamp,
}

impl Request {
    fn ready(&self) -> anyhow::Result<Ready> {
        let mut problems = Vec::new();
        let catalogue = read_catalogue(&self.providers, &mut problems);
        if !problems.is_empty() {
            return Err(Usage::of(&problems).into());
        }
        let definition = catalogue.get(&self.provider).cloned().ok_or_else(|| {
            Usage(format!(
                "provider `{}` is not known; the providers are: {}",
                self.provider,
                catalogue.names()
            ))
        })?;
        let mut keys = Vec::new();
        for reference in &self.secret {
            let secret = read_secret(reference, Path::new(".")).map_err(Usage)?;
            let key = Key::prepare(&definition.signature, &secret);
            keys.push(key.map_err(|reason| Usage(format!("the secret of `{reference}` {reason}")))?);
        }
        let headers = self.header.iter().map(|line| {
            let (name, value) = line
                .split_once(':')
                .ok_or_else(|| Usage(format!("`{line}` is not a header; write --header 'name: value'")))?;
            Ok((name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        });
        let headers = headers.collect::<Result<Vec<_>, Usage>>()?;
        let body = std::fs::read(&self.body)
            .map_err(|error| Usage(format!("the body {} cannot be read ({error})", self.body.display())))?;
        let at = match self.at {
            None => Timestamp::from(SystemTime::now()),
            Some(seconds) => Timestamp::from_seconds(seconds)
                .ok_or_else(|| Usage(format!("{seconds} is not a time; write seconds since 1970")))?,
        };
        Ok(Ready { definition, keys, headers, body, at })
    }
}

impl Ready {
    fn lines(&self) -> Headers<'_> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect()
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Prints the headers to add, one a line, for example for curl:
  wharf sign --provider stripe --secret env:SECRET --body event.json
  stripe-signature: t=1767225600,v1=5257a8…")]
pub(super) struct Sign {
    #[command(flatten)]
    request: Request,
}

impl Sign {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let ready = self.request.ready()?;
        let [key, ..] = ready.keys.as_slice() else { return Err(Usage("name a --secret".to_owned()).into()) };
        let headers = sign(&ready.definition.signature, key, &ready.lines(), &ready.body, ready.at)
            .map_err(|reason| Usage(format!("{reason}: --header 'NAME: VALUE'")))?;
        let mut out = std::io::stdout().lock();
        for (name, value) in headers {
            writeln!(out, "{name}: {value}")?;
        }
        Ok(true)
    }
}

#[derive(Debug, Args)]
#[command(after_help = "\
Exit codes: 0 valid, 1 refused, 2 the command line is wrong.

  wharf verify --provider stripe --secret env:SECRET --at 1767225600 \\
      --header 'Stripe-Signature: t=1767225600,v1=5257a8…' --body event.json")]
pub(super) struct Verify {
    #[command(flatten)]
    request: Request,
    /// The address that the provider called, for schemes that sign it.
    #[arg(long, value_name = "URL")]
    url: Option<String>,
    /// The method that the provider used, for schemes that sign it.
    #[arg(long, default_value = "POST", value_name = "METHOD")]
    method: String,
}

impl Verify {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let ready = self.request.ready()?;
        // No scheme that can be described yet signs the address or the method; they are taken so that scripts last.
        let _ = (&self.url, &self.method);
        let lines = ready.lines();
        let mut out = std::io::stdout().lock();
        let checked = Verified::check(&ready.definition, &ready.keys, &lines, &ready.body, ready.at);
        let (verified, signed) = match checked {
            Ok(checked) => checked,
            Err(rejection) => {
                writeln!(out, "refused: {rejection}\nfailed check: signature {}", rejection.class())?;
                return Ok(false);
            }
        };
        let reference =
            self.request.secret.get(signed.secret).context("the secret that fitted is one of those")?;
        writeln!(out, "valid: signed with the secret of {reference}")?;
        if let Some(at) = signed.at {
            writeln!(out, "signed at: {at} ({} s before the given time)", ready.at.seconds() - at.seconds())?;
        }
        // Whether the event is live or a test does not matter here: what is asked is what it says.
        let event = [true, false]
            .map(|live| read(&ready.definition, &Accepts { live, account: None }, &verified))
            .into_iter()
            .reduce(|live, test| if matches!(live.content, Content::Ignored(_)) { test } else { live })
            .context("there are two modes")?;
        writeln!(out, "event id: {}\nevent type: {}", event.id, event.kind)?;
        match event.content {
            Content::Changes(changes) => {
                let names: Vec<&str> = changes.iter().map(|change| change.name()).collect();
                writeln!(out, "changes: {}", names.join(", "))?;
            }
            Content::Ignored(reason) => writeln!(out, "ignored: {reason}")?,
            Content::Unreadable(reason) => writeln!(out, "unreadable, would be a dead letter: {reason}")?,
        }
        Ok(true)
    }
}
