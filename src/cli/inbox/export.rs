//! `wharf inbox export`: from an incident to a fixture.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use anyhow::Context as _;
use clap::Args;
use serde_json::{Value, json};
use sqlx::PgConnection;

use super::{find, reader_of};
use crate::cli::ops::{ConfigFile, Ops, Output};
use crate::cli::{Usage, runtime};
use crate::config::{Config, Secrets};
use crate::fixture::{Expect, Fixture, Origin};
use crate::inbox::history::request;
use crate::inbox::recorded::{header_lines, read_again};
use crate::inbox::select::Entry;
use crate::provider::{Content, Event, Headers, Reader, Verified, digest_id};
use crate::redaction::{Left, Policy, Redacted, Replaced, StandIns};

#[derive(Debug, Args)]
#[command(after_help = "\
Every entry becomes FOLDER/PROVIDER/NNN-EVENT_TYPE.toml with its body beside it in .json. What is personal by the
provider file's [export] table, by the name of its key, or by its shape is replaced, the same value by the same in all
files of a run. What events are read from stays, so that the fixture means what the entry meant; otherwise it is not
written. A person must look at the files before they are committed.
Exit codes: 0 all written, 1 something was not written, 2 the command line or a file is wrong, 3 no such entry.

  wharf inbox export 1042 --to fixtures
  wharf inbox export evt_1QRh2L evt_1QRh2M --to fixtures --about \"Two payments of one invoice.\"")]
pub(in crate::cli) struct Export {
    /// Entries of the inbox: their numbers, or the provider's event ids.
    #[arg(required = true, value_name = "ID")]
    ids: Vec<String>,
    /// The folder of fixtures; or a provider's folder in it.
    #[arg(long, value_name = "FOLDER")]
    to: PathBuf,
    /// One sentence that says what the fixture shows.
    #[arg(long, value_name = "TEXT")]
    about: Option<String>,
    /// What follows the number in the file's name, instead of the event type.
    #[arg(long, value_name = "NAME", value_parser = parse_name)]
    name: Option<String>,
    /// Replace the fixture of the same event, if there is one.
    #[arg(long)]
    force: bool,
    #[command(flatten)]
    config: ConfigFile,
    #[command(flatten)]
    output: Output,
}

/// A name becomes part of a path.
fn parse_name(name: &str) -> Result<String, String> {
    if slug(name) == name && !name.is_empty() {
        Ok(name.to_owned())
    } else {
        Err("write it with a-z, 0-9, `.`, `-` and `_`".to_owned())
    }
}

/// An event, and how it is read.
struct Readable {
    entry: Entry,
    headers: BTreeMap<String, Vec<String>>,
    body: Vec<u8>,
    reader: Reader,
    told: Event,
}

/// A fixture that is to be written, and what was done to make it.
struct Made<'b> {
    fixture: Fixture,
    redacted: Redacted<'b>,
    replaced_in_headers: Vec<Replaced>,
}

/// Why an entry was not written.
struct NotWritten(String);

impl Export {
    pub(super) fn run(self) -> anyhow::Result<bool> {
        let config = self.config.read(Secrets::NotNeeded)?;
        let readable = runtime()?.block_on(async {
            let mut ops = Ops::connect().await?;
            let mut readable = BTreeMap::new();
            for id in &self.ids {
                let event = Readable::find(&mut ops.connection, id, &config).await?;
                readable.insert(event.entry.id, event);
            }
            anyhow::Ok(readable)
        })?;
        let mut stand_ins = StandIns::default();
        for event in readable.values() {
            stand_ins.learn(&event.policy(), &event.body);
        }
        let mut count = 0;
        for event in readable.values() {
            let made = event.fixture(&mut stand_ins, self.about.as_deref());
            let written = match made {
                Ok(mut made) => self.write(event, &mut made.fixture)?.map(|path| (path, made)),
                Err(reason) => Err(reason),
            };
            count += usize::from(written.is_ok());
            self.print(event, &written)?;
        }
        if count > 0 && !self.output.json {
            let out = &mut io::stdout();
            writeln!(
                out,
                "Look at every file before it is committed: no program knows all that is personal."
            )?;
        }
        Ok(count == readable.len())
    }

    /// Writes a fixture; the path, or why it was not written.
    fn write(&self, entry: &Readable, fixture: &mut Fixture) -> anyhow::Result<Result<PathBuf, NotWritten>> {
        let provider = &entry.entry.provider;
        let folder = match self.to.file_name() == Some(OsStr::new(provider)) {
            true => self.to.clone(),
            false => self.to.join(provider),
        };
        let there = existing(&folder)?;
        let same = there.iter().find(|path| {
            Fixture::read(path).is_ok_and(|other| other.expect.event_id == fixture.expect.event_id)
        });
        let path = match same {
            Some(same) if !self.force => {
                let reason = format!("{} is a fixture of this event; --force replaces it", same.display());
                return Ok(Err(NotWritten(reason)));
            }
            Some(same) => same.clone(),
            None => {
                let kind = fixture.expect.event_type.as_deref().unwrap_or("unreadable");
                let name = self.name.clone().unwrap_or_else(|| slug(kind));
                folder.join(format!("{:03}-{name}.toml", next_number(&there)))
            }
        };
        fixture.name = path.with_extension("").display().to_string();
        fixture.write(&path).with_context(|| format!("{} was not written", path.display()))?;
        Ok(Ok(path))
    }

    fn print(&self, entry: &Readable, written: &Result<(PathBuf, Made<'_>), NotWritten>) -> io::Result<()> {
        let mut out = io::stdout().lock();
        let Entry { id, event_id, endpoint, .. } = &entry.entry;
        if self.output.json {
            let mut line = json!({ "id": id, "endpoint": endpoint, "event_id": event_id });
            line.as_object_mut().expect("it is one").extend(describe(written));
            return writeln!(out, "{line}");
        }
        match written {
            Err(NotWritten(reason)) => {
                writeln!(out, "entry {id} of {endpoint}, {event_id}: not written: {reason}")
            }
            Ok((path, made)) => {
                writeln!(out, "entry {id} of {endpoint}, {event_id}: {}", path.display())?;
                if !made.redacted.is_json {
                    let text =
                        "the body is not JSON: names and addresses are hard to tell in it, so look closely";
                    writeln!(out, "  {text}")?;
                }
                for Replaced { place, kind, stand_in } in made.replaced() {
                    writeln!(out, "  {place} ({kind}) -> {stand_in}")?;
                }
                for Left { place, kind, .. } in &made.redacted.left {
                    writeln!(out, "  {place} looks personal ({kind}) and was left: events are read from it")?;
                }
                Ok(())
            }
        }
    }
}

/// What a line of JSON says of an entry's end.
fn describe(written: &Result<(PathBuf, Made<'_>), NotWritten>) -> serde_json::Map<String, Value> {
    let line = match written {
        Err(NotWritten(reason)) => json!({ "written": null, "reason": reason }),
        Ok((path, made)) => {
            let replaced = made.replaced().map(|replaced| {
                let Replaced { place, kind, stand_in } = replaced;
                json!({ "place": place, "kind": kind.name(), "stand_in": stand_in })
            });
            let left = made
                .redacted
                .left
                .iter()
                .map(|left| json!({ "place": left.place, "kind": left.kind.name() }));
            json!({
                "written": path.display().to_string(),
                "is_json": made.redacted.is_json,
                "replaced": replaced.collect::<Vec<_>>(),
                "left": left.collect::<Vec<_>>(),
            })
        }
    };
    match line {
        Value::Object(fields) => fields,
        _ => serde_json::Map::new(),
    }
}

impl Made<'_> {
    fn replaced(&self) -> impl Iterator<Item = &Replaced> {
        self.replaced_in_headers.iter().chain(self.redacted.replaced())
    }
}

impl Readable {
    async fn find(connection: &mut PgConnection, id: &str, config: &Config) -> anyhow::Result<Self> {
        let entry = find(connection, id).await?;
        let request = request(connection, entry.id).await?;
        let reader = reader_of(Some(config), &entry, &request).ok_or_else(|| {
            Usage(format!(
                "event {}: provider `{}` is not known; name its file in the configuration",
                entry.id, entry.provider
            ))
        })?;
        let told = read_again(&reader, &request.headers, &request.body);
        let mut headers = BTreeMap::<String, Vec<String>>::new();
        for (name, value) in header_lines(&request.headers) {
            headers.entry(name).or_default().push(value);
        }
        Ok(Self { entry, headers, body: request.body, reader, told })
    }

    fn policy(&self) -> Policy<'_> {
        Policy::of(&self.reader.definition, &self.told.kind)
    }

    /// The entry as a fixture that tells the same.
    fn fixture(&self, stand_ins: &mut StandIns, about: Option<&str>) -> Result<Made<'_>, NotWritten> {
        let policy = self.policy();
        let redacted = stand_ins.redact(&policy, &self.body);
        if let Some(left) = redacted.left.iter().find(|left| left.is_named) {
            return Err(NotWritten(format!(
                "the provider file's [export] names {} as personal, and events are read from it; \
                 take it out of `personal`, or add it to `keep`",
                left.place
            )));
        }
        let (headers, replaced_in_headers) = stand_ins.headers(&policy, &self.headers);
        let lines: Headers<'_> =
            headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let same = |body: &[u8]| {
            let told = self.reader.read(&Verified::from_inbox(&lines, body));
            tells_the_same((&self.told, &self.body), (&told, body))
        };
        let body = redacted.body();
        if !same(&body) {
            let place = redacted.fault(same).unwrap_or("a header");
            return Err(NotWritten(format!(
                "with {place} replaced, the event means something else; add it to `keep` in the provider file's [export]"
            )));
        }
        let event = self.reader.read(&Verified::from_inbox(&lines, &body));
        let expect = self.expectation(event);
        let about = about.map_or_else(|| self.about(&expect), str::to_owned);
        let fixture = Fixture {
            name: String::new(),
            provider: self.entry.provider.clone(),
            about,
            origin: Origin::Captured,
            headers,
            body,
            expect,
        };
        Ok(Made { fixture, redacted, replaced_in_headers })
    }

    /// What a gateway answers when it gets the event for the first time.
    fn expectation(&self, event: Event) -> Expect {
        let success = self.reader.definition.answer.success_status;
        let (status, outcome) = match self.entry.status.as_str() {
            "failed" => (500, "failed"),
            // An operator has put it aside since.
            "discarded" => (success, "dead"),
            settled => (success, settled),
        };
        Expect {
            status,
            outcome: outcome.to_owned(),
            event_id: Some(event.id),
            event_type: Some(event.kind).filter(|kind| !kind.is_empty()),
        }
    }

    fn about(&self, expect: &Expect) -> String {
        let kind = expect.event_type.as_deref().unwrap_or("event without a type");
        let end = match expect.outcome.as_str() {
            "failed" => "was not applied yet",
            "dead" => "became a dead letter",
            "ignored" => "was ignored",
            _ => "was applied",
        };
        format!("{}: {kind} that {end}.", self.reader.definition.title)
    }
}

/// Whether two deliveries tell the same. An event without an id of its own has its body's digest, which must differ;
/// an error may say at which column it is, which may differ.
fn tells_the_same(one: (&Event, &[u8]), other: (&Event, &[u8])) -> bool {
    let ((one, one_body), (other, other_body)) = (one, other);
    let same_id = one.id == other.id || (one.id == digest_id(one_body) && other.id == digest_id(other_body));
    let same_content = match (&one.content, &other.content) {
        (Content::Unreadable(one), Content::Unreadable(other)) => {
            let words = |text: &str| text.replace(|c: char| c.is_ascii_digit(), "");
            words(one) == words(other)
        }
        (one, other) => one == other,
    };
    same_id && same_content && one.kind == other.kind && one.occurred_at == other.occurred_at
}

/// The fixtures of a folder.
fn existing(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(folder) {
        Ok(entries) => entries,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let mut paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<io::Result<Vec<_>>>()?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "toml"));
    paths.sort();
    Ok(paths)
}

/// The number after the highest.
fn next_number(fixtures: &[PathBuf]) -> u32 {
    let number = |path: &PathBuf| {
        let name = path.file_name()?.to_str()?;
        name.split('-').next()?.parse::<u32>().ok()
    };
    fixtures.iter().filter_map(number).max().map_or(1, |highest| highest.saturating_add(1))
}

/// A text as part of a file's name.
fn slug(text: &str) -> String {
    let plain = |c: char| {
        if c.is_ascii_alphanumeric() || c == '.' || c == '_' { c.to_ascii_lowercase() } else { '-' }
    };
    text.chars().take(80).map(plain).collect()
}
