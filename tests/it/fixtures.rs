//! The fixtures are what they say, and the examples in docs/PROVIDERS.md are true.
//!
//! Fixtures are parsed here with nothing of Wharf's own, so that a change of its reader cannot hide.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use secrecy::SecretString;
use toml::Table;
use wharf::books::{Change, InvoiceFact, ReceiptFact};
use wharf::config::{Config, EndpointConfig, Secrets};
use wharf::provider::signature::sign;
use wharf::provider::{
    Accepts, BUILT_IN, Catalogue, Content, Definition, Event, Headers, Key, Verified, read,
};
use wharf::timestamp::Timestamp;

/// A fixture's two files.
struct Fixture {
    path: PathBuf,
    file: Table,
    body: Vec<u8>,
}

impl Fixture {
    /// All fixtures, in path order.
    fn all() -> Vec<Self> {
        let folders = entries(&root().join("fixtures")).into_iter().filter(|path| path.is_dir());
        let files = folders.flat_map(|folder| entries(&folder));
        files
            .filter(|path| path.extension().is_some_and(|extension| extension == "toml"))
            .map(|path| Self {
                file: text(&path).parse().unwrap_or_else(|error| panic!("{}: {error}", path.display())),
                body: fs::read(path.with_extension("json")).expect("a fixture's body stands beside it"),
                path,
            })
            .collect()
    }

    fn provider(&self) -> &str {
        self.path.parent().and_then(Path::file_name).and_then(|name| name.to_str()).expect("a folder")
    }

    fn headers(&self) -> Vec<(String, String)> {
        let headers = self.file["headers"].as_table().expect("[headers] is a table");
        headers.iter().map(|(name, value)| (name.clone(), string(value))).collect()
    }

    fn expected(&self, key: &str) -> String {
        string(&self.file["expect"][key])
    }

    /// The fixture signed, verified and read, as an endpoint of the fixtures' own configuration does.
    fn read(&self, endpoint: &EndpointConfig) -> Event {
        signed_and_read(
            &endpoint.definition,
            &endpoint.secrets[0].key,
            &endpoint.accepts,
            &self.headers(),
            &self.body,
        )
        .unwrap_or_else(|reason| panic!("{}: {reason}", self.path.display()))
    }
}

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn text(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

fn string(value: &toml::Value) -> String {
    value.as_str().expect("a text").to_owned()
}

fn entries(folder: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).expect("the folder can be read");
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.expect("an entry").path()).collect();
    paths.sort();
    paths
}

/// The endpoints of fixtures/wharf.toml; each has the name of its provider.
fn endpoints() -> Vec<EndpointConfig> {
    Config::read(&root().join("fixtures/wharf.toml"), Secrets::Needed)
        .expect("the fixtures' configuration is sound")
        .endpoints
}

fn endpoint<'e>(endpoints: &'e [EndpointConfig], provider: &str) -> &'e EndpointConfig {
    endpoints.iter().find(|endpoint| endpoint.definition.name == provider).expect("every provider has one")
}

fn signed_and_read(
    definition: &Definition,
    key: &Key,
    accepts: &Accepts,
    headers: &[(String, String)],
    body: &[u8],
) -> Result<Event, String> {
    let now = Timestamp::from(SystemTime::now());
    let lines: Headers<'_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let added = sign(&definition.signature, key, &lines, body, now).map_err(|reason| reason.to_string())?;
    let all: Headers<'_> =
        headers.iter().chain(&added).map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let (verified, _) = Verified::check(definition, std::slice::from_ref(key), &all, body, now)
        .map_err(|rejection| rejection.to_string())?;
    Ok(read(definition, accepts, &verified))
}

/// What a gateway makes of an event, as far as that follows from the event alone.
fn outcome(content: &Content) -> &'static str {
    match content {
        Content::Changes(_) => "processed",
        Content::Ignored(_) => "ignored",
        Content::Unreadable(_) => "dead",
    }
}

#[test]
fn every_mapped_type_has_a_fixture() {
    let endpoints = endpoints();
    let mut shown = BTreeSet::new();
    for fixture in Fixture::all() {
        let event = fixture.read(endpoint(&endpoints, fixture.provider()));
        if let Content::Changes(changes) = event.content {
            let names = changes.iter().map(Change::name);
            shown.extend(
                names.map(|name| (fixture.provider().to_owned(), event.kind.clone(), name.to_owned())),
            );
        }
    }
    let mut mapped = BTreeSet::new();
    for (file, text) in BUILT_IN {
        let provider = file.trim_end_matches(".toml");
        let definition: Table = text.parse().expect("a built-in file is TOML");
        for on in definition["on"].as_array().expect("[[on]] is a list") {
            let types = match &on["type"] {
                toml::Value::Array(types) => types.clone(),
                single => vec![single.clone()],
            };
            mapped
                .extend(types.iter().map(|kind| (provider.to_owned(), string(kind), string(&on["change"]))));
        }
    }
    let missing: Vec<_> = mapped.difference(&shown).collect();
    assert!(missing.is_empty(), "no fixture shows (provider, event type, change): {missing:#?}");
}

#[test]
fn every_fixture_reads_as_it_expects() {
    let endpoints = endpoints();
    let mut keys = BTreeSet::new();
    for fixture in Fixture::all() {
        let name = fixture.path.display();
        let event = fixture.read(endpoint(&endpoints, fixture.provider()));
        assert_eq!(outcome(&event.content), fixture.expected("outcome"), "{name}: {:?}", event.content);
        assert_eq!(event.id, fixture.expected("event_id"), "{name}");
        assert_eq!(event.kind, fixture.expected("event_type"), "{name}");
        assert_eq!(fixture.file["expect"]["status"].as_integer(), Some(200), "{name}");
        assert!(["synthetic", "captured"].contains(&string(&fixture.file["origin"]).as_str()), "{name}");
        assert!(string(&fixture.file["about"]).ends_with('.'), "{name}: `about` is one sentence");
        assert!(keys.insert((fixture.provider().to_owned(), event.id)), "{name}: another fixture has its id");
    }
    assert!(!keys.is_empty());
}

#[test]
fn every_provider_has_a_fixture_that_is_ignored() {
    let all = Fixture::all();
    for (file, _) in BUILT_IN {
        let provider = file.trim_end_matches(".toml");
        let mut own = all.iter().filter(|fixture| fixture.provider() == provider);
        assert!(own.any(|fixture| fixture.expected("outcome") == "ignored"), "{provider}");
    }
}

/// Numbers above 2^53 lose their last digits in any program that reads them as floats.
#[test]
fn an_order_id_above_two_to_the_53_comes_out_digit_by_digit() {
    let endpoints = endpoints();
    let mut seen = 0;
    for fixture in Fixture::all().iter().filter(|fixture| fixture.provider() == "shopify") {
        let Content::Changes(changes) = fixture.read(endpoint(&endpoints, "shopify")).content else {
            continue;
        };
        for change in changes {
            let Change::Invoice(change) = change else { continue };
            let InvoiceFact::Paid { payment, .. } = change.fact else { continue };
            let digits = payment.strip_prefix("order:").expect("an order's payment is the order");
            assert!(digits.parse::<u64>().expect("a number") > 1 << 53, "{payment}");
            assert!(String::from_utf8_lossy(&fixture.body).contains(digits), "{payment}");
            seen += 1;
        }
    }
    assert!(seen > 0);
}

/// The code blocks of docs/PROVIDERS.md in one language, in order.
fn blocks(language: &str) -> Vec<String> {
    let docs = text(&root().join("docs/PROVIDERS.md"));
    let fence = format!("```{language}\n");
    let after = docs.split(&fence).skip(1);
    after.map(|rest| rest.split_once("\n```").expect("a code block has an end").0.to_owned()).collect()
}

/// The code block that follows a path's first mention.
fn file_in_docs(path: &str) -> String {
    let docs = text(&root().join("docs/PROVIDERS.md"));
    let (_, after) = docs.split_once(&format!("`{path}`")).expect("the docs show this file");
    let (_, block) = after.split_once("\n```").expect("a code block follows");
    let (_, block) = block.split_once('\n').expect("the block's first line names its language");
    block.split_once("\n```").expect("a code block has an end").0.to_owned()
}

fn acme() -> Definition {
    Definition::parse("providers/acme.toml", &file_in_docs("providers/acme.toml"))
        .unwrap_or_else(|problems| panic!("{problems:#?}"))
}

fn key(definition: &Definition, secret: &str) -> Key {
    Key::prepare(&definition.signature, &SecretString::from(secret)).expect("the secret fits")
}

#[test]
fn the_worked_example_in_the_docs_reads_as_it_expects() {
    let definition = acme();
    let key = key(&definition, "acme-test-secret");
    let accepts = Accepts { live: true, account: None };
    let expectations = blocks("toml").into_iter().filter(|block| block.contains("[expect]"));
    let bodies = ["fixtures/acme/010-announced.json", "fixtures/acme/020-finished.json"];
    let mut counted = Vec::new();
    for (fixture, body) in expectations.zip(bodies) {
        let fixture: Table = fixture.parse().expect("a fixture of the docs is TOML");
        let headers: Vec<(String, String)> = fixture["headers"]
            .as_table()
            .expect("[headers] is a table")
            .iter()
            .map(|(name, value)| (name.clone(), string(value)))
            .collect();
        let event =
            signed_and_read(&definition, &key, &accepts, &headers, file_in_docs(body).as_bytes()).unwrap();
        assert_eq!(outcome(&event.content), string(&fixture["expect"]["outcome"]), "{:?}", event.content);
        assert_eq!(event.id, string(&fixture["expect"]["event_id"]));
        assert_eq!(event.kind, string(&fixture["expect"]["event_type"]));
        let Content::Changes(changes) = event.content else { unreachable!("both are processed") };
        for change in changes {
            let Change::Receipt(change) = change else { panic!("Acme tells of receipts only") };
            assert_eq!(change.number, "PO-5001");
            match change.fact {
                ReceiptFact::Announced { lines } => {
                    counted.extend(lines.into_iter().map(|line| (line.sku, line.expected, 0)));
                }
                ReceiptFact::Received { lines, .. } => {
                    counted.extend(lines.into_iter().map(|line| (line.sku, line.received, line.rejected)));
                }
                other => assert_eq!(other, ReceiptFact::Closed),
            }
        }
    }
    let expected = [("LANTERN", 120, 0), ("MUG", 40, 0), ("LANTERN", 120, 0), ("MUG", 38, 2)];
    let counted: Vec<_> =
        counted.iter().map(|(sku, count, rejected)| (sku.as_str(), *count, *rejected)).collect();
    assert_eq!(counted, expected);
}

/// `wharf sign` prints what the docs show, and the gateway's configuration in the docs is sound.
#[test]
fn the_worked_example_signs_as_the_docs_show() {
    let definition = acme();
    let key = key(&definition, "acme-test-secret");
    let body = file_in_docs("fixtures/acme/010-announced.json");
    let headers: Headers<'_> = [("x-acme-delivery", b"d-90017".as_slice())].into_iter().collect();
    let at = Timestamp::from_seconds(1_772_438_400).unwrap();
    let added = sign(&definition.signature, &key, &headers, body.as_bytes(), at).unwrap();
    let [(name, value)] = added.as_slice() else { panic!("one header carries all: {added:?}") };
    let shown = text(&root().join("docs/PROVIDERS.md"));
    assert_eq!(shown.matches(&format!("{name}: {value}")).count(), 2);

    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("providers")).unwrap();
    fs::write(folder.path().join("providers/acme.toml"), file_in_docs("providers/acme.toml")).unwrap();
    fs::write(folder.path().join("secret"), "acme-test-secret\n").unwrap();
    // The environment belongs to all tests at once, so the secret comes from a file here.
    let config =
        blocks("toml").into_iter().find(|block| block.contains("[[endpoint]]")).expect("it is there");
    let config = config.replace("env:ACME_SECRET", "file:secret");
    fs::write(folder.path().join("wharf.toml"), config).unwrap();
    let config = Config::read(&folder.path().join("wharf.toml"), Secrets::Needed)
        .unwrap_or_else(|all| panic!("{all:#?}"));
    assert_eq!(config.endpoints[0].definition.title, "Acme Logistics");
}

#[test]
fn every_warehouse_example_in_the_docs_is_read_as_the_change_of_its_type() {
    let catalogue = Catalogue::built_in();
    let definition = catalogue.get("warehouse").expect("it is built in");
    let key = key(definition, text(&root().join("fixtures/secrets/warehouse.txt")).trim_end());
    let accepts = Accepts { live: true, account: None };
    let headers = [("webhook-id".to_owned(), "msg_0001".to_owned())];
    let mut shown = BTreeSet::new();
    for body in blocks("json").iter().filter(|body| body.contains("\"type\"")) {
        let event = signed_and_read(definition, &key, &accepts, &headers, body.as_bytes()).unwrap();
        let Content::Changes(changes) = event.content else { panic!("{body}: {:?}", event.content) };
        let names: Vec<&str> = changes.iter().map(Change::name).collect();
        assert_eq!(names, [event.kind.as_str()], "{body}");
        shown.insert(event.kind);
    }
    let mapped: BTreeSet<String> = definition.on.iter().flat_map(|on| on.types.clone()).collect();
    assert_eq!(shown, mapped);
}

/// Senders compare their code with this request.
#[test]
fn the_signed_request_in_the_docs_is_genuine() {
    let secret = text(&root().join("fixtures/secrets/warehouse.txt"));
    assert!(text(&root().join("docs/PROVIDERS.md")).contains(&format!("`{}`", secret.trim_end())));
    let catalogue = Catalogue::built_in();
    let definition = catalogue.get("warehouse").expect("it is built in");
    let request = blocks("http").remove(0);
    let (head, body) = request.split_once("\n\n").expect("a blank line ends the headers");
    let headers: Headers<'_> = head
        .lines()
        .skip(1)
        .map(|line| line.split_once(": ").expect("name: value"))
        .map(|(name, value)| (name, value.as_bytes()))
        .collect();
    let at = Timestamp::from_seconds(1_772_460_300).unwrap();
    let keys = [key(definition, secret.trim_end())];
    let (verified, _) = Verified::check(definition, &keys, &headers, body.as_bytes(), at).unwrap();
    let event = read(definition, &Accepts { live: true, account: None }, &verified);
    assert_eq!((event.id.as_str(), outcome(&event.content)), ("msg_0001", "processed"));
}

/// The reference promises that these mistakes are refused, each at its key.
#[test]
fn what_the_docs_say_is_refused_is_refused() {
    let good = file_in_docs("providers/acme.toml");
    for (from, to, key) in [
        ("key = { decode = \"utf8\" }", "key = { }", "signature.key.decode"),
        ("tolerance_seconds = { past = 300, future = 300 }", "", "signature.tolerance_seconds"),
        ("{timestamp}:{body}", "{body}", "signature.signed"),
        (":{body}", "", "signature.signed"),
        ("type = \"/event\"", "type = { header = \"x-acme-event\" }", "on[0].require"),
        ("{ at = \"/occurredAt\",", "{ header = \"x-acme-time\",", "event.occurred_at"),
        (
            "receipt = [\"/goodsIn/customerReference\",",
            "receipt = { header = \"x-acme-po\" } #",
            "on[0].receipt",
        ),
        ("gives_up_after = 6", "give_up_after = 6", "redelivery.give_up_after"),
        (", per_pack = \"@/unitsPerCarton\"", "", "on[0].lines.unit.per_pack"),
        ("counting = \"totals\"", "", "on[1].counting"),
        ("counting = \"totals\"", "counting = \"deltas\"", "on[1].notice"),
        ("received = \"@/counted\"", "received = \"@/counted\", accepted = \"@/good\"", "on[1].lines"),
        ("title = \"Acme Logistics\"", "", "title"),
    ] {
        assert!(good.contains(from), "the example holds {from}");
        let problems = Definition::parse("acme.toml", &good.replacen(from, to, 1)).expect_err(to);
        assert!(problems.iter().any(|problem| problem.key == key), "{to}: {problems:#?}");
    }
    // A header that is signed may carry the type, the time and fields.
    let signed = good.replace("type = \"/event\"", "type = { header = \"x-acme-delivery\" }");
    assert!(Definition::parse("acme.toml", &signed).is_ok());
}

/// Asks the reader itself which keys it knows, by writing one that it cannot know into every table.
#[test]
fn every_key_of_a_provider_file_is_in_the_reference() {
    let docs = text(&root().join("docs/PROVIDERS.md"));
    let (_, reference) = docs.split_once("## Reference").expect("there is a reference");
    let (reference, _) = reference.split_once("## Traps").expect("the traps follow");
    let envelope = "nokeyatall = 1\n\
         [signature]\nnokeyatall = 1\nformat = { pairs = \",\", nokeyatall = 1 }\n\
         timestamp = { nokeyatall = 1 }\ntolerance_seconds = { nokeyatall = 1 }\nkey = { nokeyatall = 1 }\n\
         [event]\nnokeyatall = 1\nid = { nokeyatall = 1 }\noccurred_at = { nokeyatall = 1 }\n\
         test = { nokeyatall = 1 }\n[answer]\nnokeyatall = 1\n[redelivery]\nnokeyatall = 1\n[export]\nnokeyatall = 1\n";
    let mut files = vec![
        envelope.to_owned(),
        "[signature]\nformat = { tagged = \" \", nokeyatall = 1 }".to_owned(),
        "[signature]\nformat = { prefix = \"\", nokeyatall = 1 }".to_owned(),
    ];
    let names = Definition::parse("probe.toml", "[[on]]\nchange = \"none\"").expect_err("it is no change");
    let names = names.iter().find(|problem| problem.key == "on[0].change").expect("it is refused");
    let (_, names) = names.text.split_once("one of: ").expect("the changes are listed");
    let changes = names.split(", ").map(|name| name.trim_matches('"')).flat_map(|name| {
        ["total", "single", "totals", "deltas"].map(|counting| {
            format!(
                "[[on]]\nnokeyatall = 1\nchange = \"{name}\"\ncounting = \"{counting}\"\n\
                 amount = {{ minor = \"/a\", nokeyatall = 1 }}\ncurrency = \"/c\"\n\
                 lines = {{ nokeyatall = 1, received = {{ nokeyatall = 1 }}, unit = {{ nokeyatall = 1 }} }}\n"
            )
        })
    });
    files.extend(changes);
    let mut known = BTreeSet::new();
    for file in files {
        for problem in Definition::parse("probe.toml", &file).expect_err("it has a key that is none") {
            if let Some((_, keys)) = problem.text.split_once("use one of: ") {
                known.extend(keys.split(", ").map(str::to_owned));
            }
        }
    }
    assert!(known.contains("per_pack") && known.contains("refused_status"), "{known:?}");
    let missing: Vec<_> = known
        .iter()
        .filter(|key| {
            let word = |found: &&str| {
                found.split(|c: char| !c.is_alphanumeric() && c != '_').any(|part| part == *key)
            };
            !reference.split('`').skip(1).step_by(2).any(|code| word(&code))
        })
        .collect();
    assert!(missing.is_empty(), "not in the reference: {missing:?}");
}
