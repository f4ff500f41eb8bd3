//! Captured requests as files: readable by people, exact to the byte.
//!
//! A fixture is `NAME.toml` (what it is, the headers, what to expect) with the body beside it, untouched, in
//! `NAME.json`. The signature is left out of the headers: it is made anew whenever the fixture is sent.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use toml::Value;

use crate::provider::signature::{CannotSign, sign};
use crate::provider::{Definition, Headers, Key};
use crate::section::{Problem, Problems, Section};
use crate::timestamp::Timestamp;

/// A captured request, and what is to become of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fixture {
    /// Its path without `.toml`.
    pub name: String,
    /// The provider: the name of its folder.
    pub provider: String,
    /// One sentence.
    pub about: String,
    /// Where it comes from.
    pub origin: Origin,
    /// As sent, without the signature.
    pub headers: BTreeMap<String, String>,
    /// The exact bytes.
    pub body: Vec<u8>,
    /// What to expect of a gateway.
    pub expect: Expect,
}

/// Where a fixture comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A provider sent it.
    Captured,
    /// Somebody wrote it.
    Synthetic,
}

/// What to expect of a gateway that gets a fixture for the first time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expect {
    /// The HTTP status.
    pub status: u16,
    /// `processed`, `ignored`, `dead` or `failed`.
    pub outcome: String,
    /// The event's id.
    pub event_id: Option<String>,
    /// The event's type.
    pub event_type: Option<String>,
}

impl Fixture {
    /// Reads a fixture by the path of its `.toml` file.
    pub fn read(path: &Path) -> Result<Self, Vec<Problem>> {
        let problems = Problems::of(path.display().to_string());
        let text = fs::read_to_string(path).unwrap_or_else(|error| {
            problems.add("", format!("cannot be read ({error})"));
            String::new()
        });
        let fixture =
            problems.parse(&text).and_then(|table| Self::from_section(path, Section::root(table, &problems)));
        match fixture {
            Some(fixture) if problems.count() == 0 => Ok(fixture),
            _ => Err(problems.into_inner()),
        }
    }

    fn from_section(path: &Path, mut file: Section<'_>) -> Option<Self> {
        let about = file.required_text("about", "\"An invoice is paid.\"");
        let origin = file.required_text("origin", "\"captured\" or \"synthetic\"").and_then(|origin| {
            match origin.as_str() {
                "captured" => Some(Origin::Captured),
                "synthetic" => Some(Origin::Synthetic),
                _ => {
                    file.problem("origin", format!("is `{origin}`; write \"captured\" or \"synthetic\""));
                    None
                }
            }
        });
        let mut headers = BTreeMap::new();
        if let Some(section) = file.section("headers") {
            let problems = section.problems();
            for (name, value) in section.into_entries() {
                match value {
                    Value::String(value) => {
                        headers.insert(name.to_ascii_lowercase(), value);
                    }
                    _ => problems.add(format!("headers.{name}"), "is not a text; put the value in quotes"),
                }
            }
        }
        let expect =
            file.require("expect", "a table with status and outcome").then(|| file.section("expect"));
        let expect = expect.flatten().and_then(|mut section| {
            let status = section.integer("status", 200..=599).unwrap_or(200);
            let outcome = section.required_text("outcome", "\"processed\"");
            let (event_id, event_type) = (section.text("event_id"), section.text("event_type"));
            section.finish();
            Some(Expect { status: u16::try_from(status).ok()?, outcome: outcome?, event_id, event_type })
        });
        let body_path = path.with_extension("json");
        let body = fs::read(&body_path).map_err(|error| {
            file.problem("", format!("its body {} cannot be read ({error})", body_path.display()));
        });
        file.finish();
        let folder = path.parent().and_then(Path::file_name).unwrap_or_default();
        Some(Self {
            name: path.with_extension("").display().to_string(),
            provider: folder.to_string_lossy().into_owned(),
            about: about?,
            origin: origin?,
            headers,
            body: body.ok()?,
            expect: expect?,
        })
    }

    /// Writes the fixture to the path of its `.toml` file, and the body beside it. Files that are there are replaced.
    pub fn write(&self, path: &Path) -> std::io::Result<()> {
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        // The body first: what has no body is not found.
        fs::write(path.with_extension("json"), &self.body)?;
        fs::write(path, self.text())
    }

    /// The text of the `.toml` file.
    fn text(&self) -> String {
        let quoted = |text: &str| Value::from(text).to_string();
        let origin = match self.origin {
            Origin::Captured => "captured",
            Origin::Synthetic => "synthetic",
        };
        let mut lines = vec![format!("about = {}", quoted(&self.about)), format!("origin = \"{origin}\"")];
        lines.extend([String::new(), "[headers]".to_owned()]);
        for (name, value) in &self.headers {
            let is_bare =
                name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_');
            let name = if is_bare { name.clone() } else { quoted(name) };
            lines.push(format!("{name} = {}", quoted(value)));
        }
        let Expect { status, outcome, event_id, event_type } = &self.expect;
        lines.extend([String::new(), "[expect]".to_owned(), format!("status = {status}")]);
        lines.push(format!("outcome = {}", quoted(outcome)));
        lines.extend(event_id.iter().map(|id| format!("event_id = {}", quoted(id))));
        lines.extend(event_type.iter().map(|kind| format!("event_type = {}", quoted(kind))));
        lines.push(String::new());
        lines.join("\n")
    }

    /// All headers of the request, signed now.
    pub fn signed(
        &self,
        definition: &Definition,
        key: &Key,
        now: Timestamp,
    ) -> Result<Vec<(String, String)>, CannotSign> {
        let lines: Headers<'_> =
            self.headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
        let added = sign(&definition.signature, key, &lines, &self.body, now)?;
        let own = self.headers.iter().map(|(name, value)| (name.clone(), value.clone()));
        Ok(own.filter(|(name, _)| added.iter().all(|(new, _)| new != name)).chain(added.clone()).collect())
    }
}

/// The fixtures of files and folders, in path order. A folder is searched for `<provider>/<name>.toml`.
pub fn find(paths: &[PathBuf]) -> Result<Vec<Fixture>, Vec<Problem>> {
    let mut files = Vec::new();
    let mut problems = Vec::new();
    for path in paths {
        let before = files.len();
        if let Err(error) = collect(path, &mut files, 0) {
            let text = format!("cannot be read ({error})");
            problems.push(Problem { file: path.display().to_string(), key: String::new(), text });
        } else if files.len() == before {
            let text = "holds no fixture; a fixture is NAME.toml with NAME.json beside it".to_owned();
            problems.push(Problem { file: path.display().to_string(), key: String::new(), text });
        }
    }
    let mut fixtures = Vec::new();
    for file in files {
        match Fixture::read(&file) {
            Ok(fixture) => fixtures.push(fixture),
            Err(mut found) => problems.append(&mut found),
        }
    }
    if problems.is_empty() { Ok(fixtures) } else { Err(problems) }
}

fn collect(path: &Path, files: &mut Vec<PathBuf>, depth: usize) -> std::io::Result<()> {
    if path.is_file() {
        files.push(path.to_owned());
        return Ok(());
    }
    let mut entries: Vec<PathBuf> =
        fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.path())).collect::<Result<_, _>>()?;
    entries.sort();
    for entry in entries {
        if entry.is_dir() && depth < 3 {
            collect(&entry, files, depth + 1)?;
        } else if entry.extension().is_some_and(|extension| extension == "toml")
            && entry.with_extension("json").exists()
        {
            files.push(entry);
        }
    }
    Ok(())
}
