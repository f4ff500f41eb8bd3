//! `wharf.toml` and the environment, read into [`Config`]: every problem in one message, before anything listens.

use std::collections::BTreeSet;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use secrecy::SecretString;

use crate::books::Change;
use crate::effect::{Effect, EffectRule, Mode};
use crate::inbox::activity::QuarantineLimits;
use crate::provider::definition::is_name;
use crate::provider::{Accepts, Catalogue, Definition, Key, Reader};
use crate::section::{Problem, Problems, Section};

/// All that `wharf serve` is told.
#[derive(Debug, Clone)]
pub struct Config {
    /// The listeners and their limits.
    pub server: ServerConfig,
    /// The registrations at providers.
    pub endpoints: Vec<EndpointConfig>,
    /// Which changes go to functions of the company's own.
    pub effects: Vec<EffectRule>,
    /// Which refused deliveries are kept.
    pub quarantine: QuarantineLimits,
    /// All providers known, the built-in ones and the user's own.
    pub catalogue: Catalogue,
}

/// The listeners and their limits.
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// The public listener: webhooks and nothing else.
    pub listen: SocketAddr,
    /// The admin listener: health. Keep it off the internet.
    pub admin_listen: SocketAddr,
    /// A delivery is answered within this time, settled or not.
    pub answer_within: Duration,
    /// Larger bodies are refused.
    pub body_limit_bytes: usize,
    /// A request's headers must be there within this time.
    pub header_timeout: Duration,
    /// A request's body must be there within this time.
    pub body_timeout: Duration,
    /// A connection without a request is closed after this time.
    pub idle_timeout: Duration,
    /// Open connections at most, per worker thread.
    pub connections_max: usize,
    /// Deliveries that wait for the database at most.
    pub queue_max: usize,
    /// On shutdown, deliveries in flight are waited for this long.
    pub shutdown_timeout: Duration,
    /// Threads that serve HTTP.
    pub workers: usize,
    /// Transactions that settle at a time.
    pub settlers: usize,
    /// Whether failed events are tried again by this gateway.
    pub retries: bool,
}

/// One registration at one provider.
#[derive(Debug, Clone)]
pub struct EndpointConfig {
    /// The path is `/webhooks/{name}`.
    pub name: String,
    /// The provider.
    pub definition: Arc<Definition>,
    /// Whose books.
    pub tenant: String,
    /// What of the provider's events it takes.
    pub accepts: Accepts,
    /// The secrets, newest first; none where they were not asked for.
    pub secrets: Vec<Secret>,
}

impl EndpointConfig {
    /// How its events are read.
    pub fn reader(&self) -> Reader {
        Reader { definition: Arc::clone(&self.definition), accepts: self.accepts.clone() }
    }

    /// The secrets made ready, newest first.
    pub fn keys(&self) -> Vec<Key> {
        self.secrets.iter().map(|secret| secret.key.clone()).collect()
    }
}

/// One secret of an endpoint.
#[derive(Debug, Clone)]
pub struct Secret {
    /// Where it comes from, `env:NAME` or `file:PATH`: the name by which people are told of it.
    pub reference: String,
    /// The secret itself.
    pub text: SecretString,
    /// Made ready for the endpoint's provider.
    pub key: Key,
}

/// Whether a command needs the secrets: what works on the inbox alone must run where they are not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Secrets {
    /// A secret that cannot be read is a problem.
    Needed,
    /// They are not looked at.
    NotNeeded,
}

impl Config {
    /// Reads a configuration file. Paths in it are relative to its folder.
    pub fn read(path: &Path, secrets: Secrets) -> Result<Self, Vec<Problem>> {
        let problems = Problems::of(path.display().to_string());
        let text = match fs::read_to_string(path) {
            Ok(text) => text,
            Err(error) => {
                problems.add("", format!("cannot be read ({error}); copy wharf.example.toml, or name another file with --config"));
                return Err(problems.into_inner());
            }
        };
        let folder = path.parent().unwrap_or(Path::new("."));
        let Some(table) = problems.parse(&text) else { return Err(problems.into_inner()) };
        let mut file = Section::root(table, &problems);
        let mut own = file
            .section("server")
            .unwrap_or_else(|| Section::at("server".to_owned(), toml::Table::new(), &problems));
        let providers = own.text("providers").map(|providers| folder.join(providers));
        let server = read_server(own);
        let mut others = Vec::new();
        let catalogue = match &providers {
            Some(providers) => read_catalogue(std::slice::from_ref(providers), &mut others),
            None => Catalogue::built_in(),
        };
        let endpoints = read_endpoints(&mut file, &catalogue, folder, secrets);
        let effects = read_effects(&mut file, &endpoints);
        unbound_changes(&file, &endpoints, &effects);
        let quarantine = read_quarantine(file.section("quarantine"));
        file.finish();
        let mut found = problems.into_inner();
        found.append(&mut others);
        if found.is_empty() {
            Ok(Self { server, endpoints, effects, quarantine, catalogue })
        } else {
            Err(found)
        }
    }
}

/// The built-in providers, and those of files and folders named by the user.
pub fn read_catalogue(paths: &[PathBuf], problems: &mut Vec<Problem>) -> Catalogue {
    let mut catalogue = Catalogue::built_in();
    for path in paths {
        let cannot = |error: std::io::Error| Problem {
            file: path.display().to_string(),
            key: String::new(),
            text: format!("cannot be read ({error}); name a folder with provider files"),
        };
        let files = match provider_files(path) {
            Ok(files) => files,
            Err(error) => {
                problems.push(cannot(error));
                continue;
            }
        };
        for file in files {
            match fs::read_to_string(&file) {
                Ok(text) => {
                    if let Err(mut found) = catalogue.add(&file.display().to_string(), &text) {
                        problems.append(&mut found);
                    }
                }
                Err(error) => problems.push(Problem { file: file.display().to_string(), ..cannot(error) }),
            }
        }
    }
    catalogue
}

/// The provider files of a folder, by name; a file is itself.
fn provider_files(path: &Path) -> Result<Vec<PathBuf>, std::io::Error> {
    if path.is_file() {
        return Ok(vec![path.to_owned()]);
    }
    let mut files = Vec::new();
    for entry in fs::read_dir(path)? {
        let file = entry?.path();
        if file.extension().is_some_and(|extension| extension == "toml") {
            files.push(file);
        }
    }
    files.sort();
    Ok(files)
}

fn read_server(mut section: Section<'_>) -> ServerConfig {
    let mut address = |key, default: &str| {
        let text = section.text(key).unwrap_or_else(|| default.to_owned());
        let address = text.parse::<SocketAddr>();
        if address.is_err() {
            section.problem(key, format!("`{text}` is not an address; write for example \"{default}\""));
        }
        address.ok()
    };
    let listen = address("listen", "127.0.0.1:8080");
    let admin_listen = address("admin_listen", "127.0.0.1:9090");
    let mut number = |key, default: usize, bounds: std::ops::RangeInclusive<i64>| {
        section.integer(key, bounds).and_then(|number| usize::try_from(number).ok()).unwrap_or(default)
    };
    let milliseconds = |number: usize| Duration::from_millis(number as u64);
    let cores = std::thread::available_parallelism().map_or(2, usize::from);
    let server = ServerConfig {
        listen: listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 8080))),
        admin_listen: admin_listen.unwrap_or_else(|| SocketAddr::from(([127, 0, 0, 1], 9090))),
        answer_within: milliseconds(number("answer_within_ms", 2500, 100..=60_000)),
        body_limit_bytes: number("body_limit_bytes", 2 << 20, 1024..=(256 << 20)),
        header_timeout: milliseconds(number("header_timeout_ms", 5000, 100..=60_000)),
        body_timeout: milliseconds(number("body_timeout_ms", 10_000, 100..=300_000)),
        idle_timeout: milliseconds(number("idle_timeout_ms", 75_000, 100..=3_600_000)),
        connections_max: number("connections_max", 4096, 1..=100_000),
        queue_max: number("queue_max", 4096, 1..=1_000_000),
        shutdown_timeout: milliseconds(number("shutdown_timeout_ms", 20_000, 0..=600_000)),
        workers: number("workers", cores, 1..=256),
        settlers: number("settlers", 2, 1..=64),
        retries: section.boolean("retries").unwrap_or(true),
    };
    section.finish();
    server
}

fn read_effects(file: &mut Section<'_>, endpoints: &[EndpointConfig]) -> Vec<EffectRule> {
    let mut rules: Vec<EffectRule> = Vec::new();
    for mut section in file.sections("effect") {
        let change = section.required_text("change", "\"invoice.paid\"");
        let known = |change: &&str| Change::NAMES.contains(change) || change.starts_with("x.");
        if let Some(change) = change.as_deref().filter(|change| !known(change)) {
            let names = Change::NAMES.join(", ");
            section.problem("change", format!("`{change}` is not a change; the changes are: {names}"));
        }
        let call = section.required_text("call", "\"erp.invoice_paid\"").and_then(|call| {
            let parts = call.split_once('.').filter(|(schema, name)| !schema.is_empty() && !name.is_empty());
            if parts.is_none_or(|(_, name)| name.contains(['.', '('])) {
                section.problem(
                    "call",
                    format!("`{call}` is not schema.function; write for example \"erp.invoice_paid\""),
                );
            }
            parts.map(|(schema, name)| (schema.to_owned(), name.to_owned()))
        });
        let mode =
            section.required_text("mode", "\"instead\" or \"also\"").and_then(|mode| match mode.as_str() {
                "instead" => Some(Mode::Instead),
                "also" => Some(Mode::Also),
                _ => {
                    section.problem("mode", format!("is `{mode}`; write \"instead\" or \"also\""));
                    None
                }
            });
        let (tenant, endpoint) = (section.text("tenant"), section.text("endpoint"));
        if let Some(unknown) =
            endpoint.as_ref().filter(|name| !endpoints.iter().any(|known| known.name == **name))
        {
            section.problem("endpoint", format!("`{unknown}` is not one of the endpoints"));
        }
        if let Some(unknown) =
            tenant.as_ref().filter(|name| !endpoints.iter().any(|known| known.tenant == **name))
        {
            section.problem("tenant", format!("no endpoint has the tenant `{unknown}`"));
        }
        if let (Some(change), Some(Mode::Also)) = (&change, mode)
            && change.starts_with("x.")
        {
            section.problem("mode", "is \"also\", but the books do not know this change; write \"instead\"");
        }
        if let (Some(change), Some(call), Some(mode)) = (change, call, mode) {
            let rule = EffectRule { change, effect: Effect { call, mode }, tenant, endpoint };
            let same = |other: &&EffectRule| {
                (&other.change, &other.tenant, &other.endpoint)
                    == (&rule.change, &rule.tenant, &rule.endpoint)
            };
            if rules.iter().any(|other| same(&other)) {
                section.problem("change", format!("`{}` is bound twice for the same events", rule.change));
            }
            rules.push(rule);
        }
        section.finish();
    }
    rules
}

/// A change of the company's own has no books to go to.
fn unbound_changes(file: &Section<'_>, endpoints: &[EndpointConfig], rules: &[EffectRule]) {
    for endpoint in endpoints {
        let effects = EffectRule::for_endpoint(rules, &endpoint.name, &endpoint.tenant);
        for change in endpoint.definition.own_changes().filter(|change| effects.of(change).is_none()) {
            let text = format!(
                "endpoint {} maps `{change}`, which is bound to no function; write an [[effect]] for it",
                endpoint.name
            );
            file.problem("effect", text);
        }
    }
}

fn read_quarantine(section: Option<Section<'_>>) -> QuarantineLimits {
    let mut limits = QuarantineLimits { keep: 0, per_minute: 20, body_limit_bytes: 64 << 10 };
    let Some(mut section) = section else { return limits };
    let mut number = |key, limit: &mut usize, max: i64| {
        if let Some(number) = section.integer(key, 0..=max).and_then(|number| usize::try_from(number).ok()) {
            *limit = number;
        }
    };
    number("keep", &mut limits.keep, 1000);
    number("per_minute", &mut limits.per_minute, 1000);
    number("body_limit_bytes", &mut limits.body_limit_bytes, 2 << 20);
    section.finish();
    limits
}

fn read_endpoints(
    file: &mut Section<'_>,
    catalogue: &Catalogue,
    folder: &Path,
    needed: Secrets,
) -> Vec<EndpointConfig> {
    let sections = file.sections("endpoint");
    if sections.is_empty() {
        file.problem("endpoint", "is missing; write an [[endpoint]] with name, provider, tenant and secrets");
    }
    let mut names = BTreeSet::new();
    let mut endpoints = Vec::new();
    for mut section in sections {
        let name = section.required_text("name", "\"stripe\"");
        if let Some(name) = &name {
            if !is_name(name) {
                section.problem(
                    "name",
                    format!("`{name}` stands in a path; write it with a-z, 0-9, `-` and `_`"),
                );
            }
            if !names.insert(name.clone()) {
                section.problem("name", format!("`{name}` is given twice; every endpoint has its own name"));
            }
        }
        let definition = section.required_text("provider", "\"stripe\"").and_then(|provider| {
            let known = catalogue.get(&provider).cloned();
            if known.is_none() {
                let names = catalogue.names();
                section.problem("provider", format!("`{provider}` is not known; the providers are: {names}"));
            }
            known
        });
        let tenant = section.required_text("tenant", "\"acme\"");
        let live = section.require("live", "true").then(|| section.boolean("live")).flatten();
        let account = section.text("account");
        if account.is_some()
            && definition.as_ref().is_some_and(|definition| definition.event.account.is_empty())
        {
            section.problem("account", "is given, but this provider's events name no account; remove it");
        }
        let secrets = read_secrets(&mut section, definition.as_deref(), folder, needed);
        section.finish();
        if let (Some(name), Some(definition), Some(tenant), Some(live)) = (name, definition, tenant, live) {
            endpoints.push(EndpointConfig {
                name,
                definition,
                tenant,
                accepts: Accepts { live, account },
                secrets,
            });
        }
    }
    endpoints
}

fn read_secrets(
    section: &mut Section<'_>,
    definition: Option<&Definition>,
    folder: &Path,
    needed: Secrets,
) -> Vec<Secret> {
    if !section.require("secrets", "[\"env:STRIPE_WEBHOOK_SECRET\"]") {
        return Vec::new();
    }
    let references = section.texts("secrets").unwrap_or_default();
    if references.is_empty() {
        section.problem("secrets", "is empty; without a secret nothing can be verified");
    }
    if needed == Secrets::NotNeeded {
        return Vec::new();
    }
    let mut secrets = Vec::new();
    for reference in references {
        match read_secret(&reference, folder) {
            Err(reason) => section.problem("secrets", reason),
            Ok(text) => match definition.map(|definition| Key::prepare(&definition.signature, &text)) {
                Some(Ok(key)) => secrets.push(Secret { reference, text, key }),
                Some(Err(reason)) => {
                    section.problem("secrets", format!("the secret of `{reference}` {reason}"));
                }
                None => {}
            },
        }
    }
    secrets
}

/// Reads a secret by its reference: `env:NAME` or `file:PATH`. The error never holds the secret.
pub fn read_secret(reference: &str, folder: &Path) -> Result<SecretString, String> {
    if let Some(name) = reference.strip_prefix("env:") {
        let value = std::env::var(name)
            .map_err(|_| format!("`{reference}`: the environment variable {name} is not set"))?;
        return Ok(SecretString::from(value));
    }
    if let Some(path) = reference.strip_prefix("file:") {
        let path = folder.join(path);
        let text = fs::read_to_string(&path)
            .map_err(|error| format!("`{reference}`: {} cannot be read ({error})", path.display()))?;
        // Editors end a file with a line end, which is no part of the secret.
        return Ok(SecretString::from(text.trim_end_matches(['\n', '\r'])));
    }
    Err("holds a text that is neither `env:NAME` nor `file:PATH`; a secret itself must not stand in the file"
        .to_owned())
}
