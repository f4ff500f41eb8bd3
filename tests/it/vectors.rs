//! Every test vector of a scheme that a definition can describe, through a definition file made from the scheme.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use secrecy::SecretString;
use serde_json::Value;
use wharf::provider::{Accepts, Catalogue, Definition, Headers, Key, Verified, read};
use wharf::timestamp::Timestamp;

/// Schemes of later tiers, and what they need that a definition cannot say yet.
const NOT_YET: [(&str, &str); 13] = [
    ("adyen_item", "a signature inside the body, one per item"),
    ("braintree", "form fields and a derived key"),
    ("discord", "Ed25519"),
    ("hubspot_v1", "a plain hash of secret and body"),
    ("hubspot_v2", "a plain hash of secret, method, address and body"),
    ("hubspot_v3", "method and address"),
    ("mailgun", "a signature inside the body"),
    ("sendgrid", "ECDSA"),
    ("square", "the address"),
    ("standard_webhooks_ed25519", "Ed25519"),
    ("twilio_form", "the address and sorted form fields"),
    ("twilio_form_sha256", "the address and sorted form fields"),
    ("twilio_json", "the address and a hash of the body in it"),
];

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

/// A provider file for a scheme of the vectors.
fn definition_of(scheme: &Value, vector: &Value) -> Definition {
    let signature = &scheme["signature"];
    let froms: Vec<&str> = match &signature["from"] {
        Value::Array(froms) => froms.iter().map(text).collect(),
        single => vec![text(single)],
    };
    let headers: Vec<&str> = froms.iter().map(|from| from.strip_prefix("header:").unwrap()).collect();
    let time_from = scheme["timestamp"]["from"].as_str();
    let parse = &signature["parse"];
    let format = if parse == "plain" {
        format!("{{ prefix = {:?} }}", signature["strip_prefix"].as_str().unwrap_or(""))
    } else if let Value::Object(_) = parse["kv"] {
        let time = time_from.and_then(|from| from.strip_prefix("sig:"));
        let time = time.map(|name| format!(", timestamp = {name:?}")).unwrap_or_default();
        assert_eq!(parse["kv"]["kv_sep"], "=");
        format!("{{ pairs = {}, signature = {}{time} }}", parse["kv"]["item_sep"], parse["kv"]["key"])
    } else {
        let tagged = &parse["tagged"];
        format!(
            "{{ tagged = {}, separator = {}, tag = {} }}",
            tagged["item_sep"], tagged["tag_sep"], tagged["tag"]
        )
    };
    let key = &scheme["key"];
    let mut key_table = format!("decode = {}", key["decode"]);
    if let Some(prefix) = key["strip_prefix"].as_str() {
        write!(key_table, ", strip_prefix = {prefix:?}").unwrap();
    }
    if key["normalize"] == "nfkd" {
        key_table.push_str(", normalize = \"nfkd\"");
    }
    let signed: String = scheme["signed"].as_array().unwrap().iter().map(text).collect();
    let mut file = format!(
        "title = \"Vectors\"\n[signature]\nheader = {headers:?}\nformat = {format}\nkey = {{ {key_table} }}\n\
         signed = {:?}\nalgorithm = {}\nencoding = {}\n",
        signed.replace("{ts}", "{timestamp}"),
        scheme["algorithm"],
        signature["encoding"],
    );
    if scheme["require_body"] == true {
        file.push_str("require_body = true\n");
    }
    if let Value::Object(time) = &scheme["timestamp"] {
        let format = if time["format"] == "unix_ms" { "unix_milliseconds" } else { "unix_seconds" };
        let place = time_from.unwrap();
        if let Some(header) = place.strip_prefix("header:") {
            writeln!(file, "timestamp = {{ header = {header:?}, as = {format:?} }}").unwrap();
        } else if let Some(pointer) = place.strip_prefix("json:") {
            writeln!(file, "timestamp = {{ at = {pointer:?}, as = {format:?} }}").unwrap();
        }
        let tolerance = |own: &str, of_scheme: &str| {
            vector[own].as_i64().or_else(|| time[of_scheme].as_i64()).filter(|seconds| *seconds > 0)
        };
        let bounds: Vec<String> = [
            ("past", tolerance("tolerance_s", "past")),
            ("future", tolerance("future_tolerance_s", "future")),
        ]
        .iter()
        .filter_map(|(name, seconds)| seconds.map(|seconds| format!("{name} = {seconds}")))
        .collect();
        writeln!(file, "tolerance_seconds = {{ {} }}", bounds.join(", ")).unwrap();
    }
    file.push_str("[event]\nid = \"/id\"\ntype = \"/type\"\n");
    Definition::parse("vectors.toml", &file).unwrap_or_else(|problems| panic!("{file}\n{problems:?}"))
}

#[test]
fn every_vector_gets_the_verdict_that_its_provider_would_give() {
    let all: Value = serde_json::from_str(include_str!("../data/vectors.json")).unwrap();
    let catalogue = Catalogue::built_in();
    assert!(
        NOT_YET.iter().all(|(name, _)| all["schemes"][name].is_object()),
        "a scheme is left out that is none"
    );
    let mut ran = BTreeMap::<&str, usize>::new();
    let mut skipped = 0;
    let mut wrong = Vec::new();
    for vector in all["vectors"].as_array().unwrap() {
        let scheme = text(&vector["scheme"]);
        if NOT_YET.iter().any(|(name, _)| *name == scheme) {
            skipped += 1;
            continue;
        }
        let definition = definition_of(&all["schemes"][scheme], vector);
        let headers = vector["headers"].as_object().unwrap();
        let names: Vec<String> = headers.keys().map(|name| name.to_ascii_lowercase()).collect();
        let lines: Headers<'_> = names
            .iter()
            .zip(headers.values())
            .map(|(name, value)| (name.as_str(), text(value).as_bytes()))
            .collect();
        let body = text(&vector["body"]).as_bytes();
        let now = Timestamp::from_seconds(vector["now"].as_i64().unwrap_or(1_700_000_000)).unwrap();
        let secret = SecretString::from(text(&vector["secret"]));
        // A secret that cannot be made a key is refused at start, and so accepts nothing.
        let check = |definition: &Definition| {
            let key = Key::prepare(&definition.signature, &secret).ok()?;
            let (verified, _) = Verified::check(definition, &[key], &lines, body, now).ok()?;
            Some(read(definition, &Accepts { live: true, account: None }, &verified))
        };
        let event = check(&definition);
        if event.is_some() != (vector["expected"] == "valid") {
            wrong.push(format!("{}: expected {}", vector["id"], vector["expected"]));
        }
        if vector["tolerance_s"].is_null()
            // What a warehouse is asked to send is Standard Webhooks as it is.
            && let Some(built_in) = catalogue.get(if scheme == "standard_webhooks" { "warehouse" } else { scheme })
        {
            assert_eq!(
                check(built_in).is_some(),
                event.is_some(),
                "{}: the built-in definition",
                vector["id"]
            );
            if let (Some(event), Some(id)) = (check(built_in), vector["event_id"].as_str()) {
                assert_eq!(event.id, id, "{}", vector["id"]);
            }
            if let (Some(event), Some(kind)) = (check(built_in), vector["event_type"].as_str()) {
                assert_eq!(event.kind, kind, "{}", vector["id"]);
            }
        }
        *ran.entry(scheme).or_default() += 1;
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!((ran.values().sum::<usize>(), skipped), (65, 39), "{ran:?}");
}
