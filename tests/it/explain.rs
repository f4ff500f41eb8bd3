//! Why a delivery was refused: every known way to mangle a request is found, and nothing is made up.

use std::sync::Arc;

use hmac::{Hmac, KeyInit as _, Mac as _};
use proptest::prelude::*;
use secrecy::SecretString;
use sha1::Sha1;
use wharf::provider::diagnosis::{Candidate, Certainty, Diagnosis, NamedSecret, Suspect, diagnose};
use wharf::provider::{Catalogue, Definition, Headers};
use wharf::timestamp::Timestamp;

use crate::support::*;

const AT: u64 = 1_764_590_400;
const BODY: &str =
    r#"{"id":"evt_1","url":"https://x.example/a?b&c","price":136.0,"of":{"name":"Jürgen","tags":[]}}"#;

/// An endpoint of the test's configuration: its name, provider and secret.
struct Endpoint {
    name: &'static str,
    definition: Arc<Definition>,
    reference: String,
    secret: SecretString,
}

fn endpoint(name: &'static str, provider: &str, secret: &str) -> Endpoint {
    let definition = Catalogue::built_in().get(provider).unwrap().clone();
    Endpoint { name, definition, reference: format!("env:{}", name.to_uppercase()), secret: secret.into() }
}

impl Endpoint {
    fn candidate(&self) -> Candidate<'_> {
        let secret = NamedSecret { reference: &self.reference, text: &self.secret };
        Candidate { endpoint: self.name, definition: &self.definition, secrets: vec![secret] }
    }
}

fn endpoints() -> [Endpoint; 3] {
    [
        endpoint("stripe", "stripe", STRIPE_SECRET),
        endpoint("shopify", "shopify", SHOPIFY_SECRET),
        endpoint("warehouse", "warehouse", WAREHOUSE_SECRET),
    ]
}

fn ask(own: &str, headers: &[(&str, &str)], body: &[u8], at: u64) -> Diagnosis {
    let endpoints = endpoints();
    let (own, others): (Vec<_>, Vec<_>) =
        endpoints.iter().map(Endpoint::candidate).partition(|candidate| candidate.endpoint == own);
    let headers: Headers<'_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    let at = Timestamp::from_seconds(i64::try_from(at).unwrap()).unwrap();
    diagnose(&own[0], &others, &Catalogue::built_in(), &Suspect { headers: &headers, body, at })
}

/// `cause+cause secret`, one line for each finding; hints with a `?`.
fn told(diagnosis: &Diagnosis) -> String {
    match diagnosis {
        Diagnosis::Accepted { secret, .. } => format!("accepted {secret}"),
        Diagnosis::NoKnownCause { all_tried, .. } => {
            assert!(all_tried);
            "no known cause".to_owned()
        }
        Diagnosis::Explained { findings, .. } => {
            let told = findings.iter().map(|finding| {
                let causes: Vec<&str> = finding.causes.iter().map(|cause| cause.name).collect();
                let secret = finding.fit.as_ref().map_or("-", |fit| fit.secret.as_str());
                let mark = if finding.certainty == Certainty::Hint { "?" } else { "" };
                format!("{}{mark} {secret}", causes.join("+"))
            });
            told.collect::<Vec<_>>().join("\n")
        }
    }
}

/// A stripe delivery of which `signed` was signed and `came` came.
fn stripe_body(signed: impl AsRef<[u8]>, came: impl AsRef<[u8]>) -> String {
    told(&ask(
        "stripe",
        &[("stripe-signature", &stripe_signature(signed.as_ref(), AT))],
        came.as_ref(),
        AT + 2,
    ))
}

fn stripe_header(header: &str) -> String {
    told(&ask("stripe", &[("stripe-signature", header)], BODY.as_bytes(), AT + 2))
}

fn shopify_header(header: &str) -> String {
    told(&ask("shopify", &[("x-shopify-hmac-sha256", header)], BODY.as_bytes(), AT))
}

/// A stripe header of a signature over `parts` by `key`.
fn stripe_signed(key: &[u8], parts: &[&[u8]]) -> String {
    format!("t={AT},v1={}", hex::encode(mac(key, parts)))
}

fn time() -> String {
    AT.to_string()
}

fn warehouse_headers() -> Vec<(String, String)> {
    let signature = warehouse_signature("msg_1", &time(), BODY.as_bytes());
    [("webhook-id", "msg_1"), ("webhook-timestamp", &time()), ("webhook-signature", &signature)]
        .map(|(name, value)| (name.to_owned(), value.to_owned()))
        .to_vec()
}

fn warehouse(headers: &[(String, String)]) -> String {
    let headers: Vec<(&str, &str)> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    told(&ask("warehouse", &headers, BODY.as_bytes(), AT))
}

#[test]
fn what_is_good_is_accepted() {
    assert_eq!(stripe_body(BODY, BODY), "accepted env:STRIPE");
    assert_eq!(shopify_header(&shopify_signature(BODY.as_bytes())), "accepted env:SHOPIFY");
    assert_eq!(warehouse(&warehouse_headers()), "accepted env:WAREHOUSE");
}

#[test]
fn what_nobody_signed_has_no_known_cause() {
    assert_eq!(stripe_header(&format!("t={AT},v1={}", "0123456789abcdef".repeat(4))), "no known cause");
    let body = BODY.replace("136.0", "136.1");
    assert_eq!(stripe_body(BODY, &body), "no known cause");
    let mut flipped = BODY.as_bytes().to_vec();
    flipped[10] ^= 1;
    assert_eq!(stripe_body(BODY, &flipped), "no known cause");
    assert_eq!(shopify_header(&base64(&[7; 32])), "no known cause");
}

#[test]
fn a_line_end_that_was_added_or_removed_is_found() {
    assert_eq!(stripe_body(BODY, format!("{BODY}\n")), "body-line-end-added env:STRIPE");
    assert_eq!(stripe_body(BODY, format!("{BODY}\r\n")), "body-line-end-added env:STRIPE");
    assert_eq!(stripe_body(format!("{BODY}\n"), BODY), "body-line-end-removed env:STRIPE");
    assert_eq!(stripe_body(format!("{BODY}\r\n"), BODY), "body-line-end-removed env:STRIPE");
    assert_eq!(stripe_body(BODY, format!("  {BODY}\n\n")), "body-blanks-added env:STRIPE");
}

#[test]
fn line_ends_that_were_changed_are_found() {
    assert_eq!(stripe_body("{\n\"a\": 1\n}", "{\r\n\"a\": 1\r\n}"), "body-line-ends-changed env:STRIPE");
    assert_eq!(stripe_body("{\r\n\"a\": 1\r\n}", "{\n\"a\": 1\n}"), "body-line-ends-changed env:STRIPE");
}

#[test]
fn a_byte_order_mark_is_found() {
    assert_eq!(stripe_body(BODY, format!("\u{feff}{BODY}")), "body-mark-added env:STRIPE");
    assert_eq!(stripe_body(format!("\u{feff}{BODY}"), BODY), "body-mark-removed env:STRIPE");
}

#[test]
fn json_that_was_spaced_anew_is_found_with_its_numbers_and_order_kept() {
    let compact = r#"{"b":136.0,"a":[1e5,{},[]],"b":{"c":null}}"#;
    let python = r#"{"b": 136.0, "a": [1e5, {}, []], "b": {"c": null}}"#;
    let by = |indent: &str| {
        format!(
            "{{\n{0}\"b\": 136.0,\n{0}\"a\": [\n{0}{0}1e5,\n{0}{0}{{}},\n{0}{0}[]\n{0}],\n{0}\"b\": {{\n{0}{0}\"c\": null\n{0}}}\n}}",
            indent
        )
    };
    let all = [compact.to_owned(), python.to_owned(), by("  "), by("    "), by("\t")];
    for signed in &all {
        for came in all.iter().filter(|came| *came != signed) {
            assert_eq!(stripe_body(signed, came), "body-json-respaced env:STRIPE", "{signed} {came}");
        }
    }
}

#[test]
fn json_that_was_spelled_anew_is_found() {
    let respelled = |from: &str, to: &str| {
        let (plain, changed) = (BODY.to_owned(), BODY.replace(from, to));
        assert_ne!(plain, changed);
        assert_eq!(stripe_body(&plain, &changed), "body-json-respelled env:STRIPE", "{to}");
        assert_eq!(stripe_body(&changed, &plain), "body-json-respelled env:STRIPE", "{to}");
    };
    respelled("ü", "\\u00fc");
    respelled("ü", "\\u00FC");
    respelled("/", "\\/");
    respelled("&", "\\u0026");
}

#[test]
fn json_as_another_language_writes_it_is_found() {
    let php = r#"{"n":"J\u00fcrgen","u":"a\/b"}"#;
    let python = r#"{"n": "J\u00fcrgen", "u": "a/b"}"#;
    let pretty = "{\n  \"n\": \"Jürgen\",\n  \"u\": \"a/b\"\n}";
    let javascript = r#"{"n":"Jürgen","u":"a/b"}"#;
    for signed in [php, python, javascript] {
        for came in [php, python, javascript, pretty].into_iter().filter(|came| *came != signed) {
            let told = stripe_body(signed, came);
            assert!(
                told.starts_with("body-json-") && told.ends_with(" env:STRIPE"),
                "{told}: {signed} {came}"
            );
            assert!(!told.contains('+'), "{told}");
        }
    }
}

#[test]
fn members_that_were_sorted_where_it_was_signed_are_found() {
    assert_eq!(
        stripe_body(r#"{"a":{"x":1,"y":2},"b":[2,1]}"#, r#"{"b":[2,1],"a":{"y":2,"x":1}}"#),
        "body-json-sorted env:STRIPE"
    );
}

#[test]
fn text_in_a_wrong_encoding_is_found() {
    let twice: String = BODY.bytes().map(char::from).collect();
    assert_eq!(stripe_body(BODY, &twice), "body-encoded-twice env:STRIPE");
    let latin1: Vec<u8> = BODY.chars().map(|character| character as u8).collect();
    assert_eq!(stripe_body(BODY, latin1), "body-decoded-as-latin-1 env:STRIPE");
}

#[test]
fn json_inside_of_something_else_is_found() {
    let in_a_text = serde_json::to_string(BODY).unwrap();
    assert_eq!(stripe_body(BODY, in_a_text), "body-json-in-a-text env:STRIPE");
    assert_eq!(
        stripe_body(r#"{"a":"b c"}"#, "payload=%7B%22a%22%3A%22b+c%22%7D"),
        "body-in-a-form env:STRIPE"
    );
}

#[test]
fn a_body_that_is_gone_is_a_hint_and_a_body_that_was_not_signed_is_proven() {
    assert_eq!(stripe_body(BODY, ""), "body-empty? -");
    assert_eq!(stripe_body("", BODY), "body-signed-empty env:STRIPE");
    assert_eq!(shopify_header(&shopify_signature(b"")), "body-signed-empty env:SHOPIFY");
    let headers = [("stripe-signature", &*stripe_signature(BODY.as_bytes(), AT)), ("content-length", "95")];
    assert_eq!(told(&ask("stripe", &headers, &BODY.as_bytes()[..50], AT)), "body-length-differs? -");
    assert_eq!(stripe_body("Jürgen\u{e000}", "J\u{fffd}rgen"), "body-characters-lost? -");
}

#[test]
fn two_changes_of_a_body_are_found() {
    let indented = "{\n  \"n\": \"ü\"\n}\n";
    assert_eq!(stripe_body(indented, r#"{"n":"ü"}"#), "body-line-end-removed+body-json-respaced env:STRIPE");
}

#[test]
fn the_secret_of_another_endpoint_is_found() {
    let header = stripe_signed(SHOPIFY_SECRET.as_bytes(), &[time().as_bytes(), b".", BODY.as_bytes()]);
    assert_eq!(stripe_header(&header), "other-endpoints-secret env:SHOPIFY");
    let stale = told(&ask("stripe", &[("stripe-signature", &header)], BODY.as_bytes(), AT + 900));
    assert_eq!(stale, "other-endpoints-secret+clock-stale env:SHOPIFY");
    let body = format!("{BODY}\n");
    let added = told(&ask("stripe", &[("stripe-signature", &header)], body.as_bytes(), AT));
    assert_eq!(added, "other-endpoints-secret+body-line-end-added env:SHOPIFY");
}

#[test]
fn a_registration_at_the_wrong_endpoint_is_found() {
    let shopify = shopify_signature(BODY.as_bytes());
    let headers = [("x-shopify-hmac-sha256", shopify.as_str()), ("x-shopify-topic", "orders/paid")];
    assert_eq!(told(&ask("stripe", &headers, BODY.as_bytes(), AT)), "other-endpoint env:SHOPIFY");
    let body = format!("{BODY}\n");
    let with_line_end = told(&ask("stripe", &headers, body.as_bytes(), AT));
    assert_eq!(with_line_end, "other-endpoint+body-line-end-added env:SHOPIFY");
}

#[test]
fn the_scheme_of_a_provider_without_an_endpoint_is_found() {
    let signature = base64(&mac(STRIPE_SECRET.as_bytes(), &[BODY.as_bytes()]));
    let headers = [("x-shiphero-hmac-sha256", signature.as_str())];
    assert_eq!(told(&ask("stripe", &headers, BODY.as_bytes(), AT)), "other-provider env:STRIPE");
}

#[test]
fn a_secret_that_was_read_otherwise_is_found() {
    let stripe = |key: &[u8]| stripe_header(&stripe_signed(key, &[time().as_bytes(), b".", BODY.as_bytes()]));
    assert_eq!(stripe(b"test_black_box"), "secret-decoding env:STRIPE");
    assert_eq!(stripe(format!("{STRIPE_SECRET}\n").as_bytes()), "secret-with-line-end env:STRIPE");
    assert_eq!(stripe(format!("{STRIPE_SECRET} ").as_bytes()), "secret-with-blanks env:STRIPE");
    assert_eq!(stripe(format!("\"{STRIPE_SECRET}\"").as_bytes()), "secret-in-quotes env:STRIPE");
    assert_eq!(stripe(b""), "secret-empty env:STRIPE");
    let warehouse_with = |key: &[u8]| {
        let mut headers = warehouse_headers();
        let parts = [&b"msg_1."[..], time().as_bytes(), b".", BODY.as_bytes()].concat();
        headers[2].1 = format!("v1,{}", base64(&mac(key, &[&parts])));
        warehouse(&headers)
    };
    let text = WAREHOUSE_SECRET.strip_prefix("whsec_").unwrap();
    for key in [WAREHOUSE_SECRET, text] {
        assert_eq!(warehouse_with(key.as_bytes()), "secret-decoding env:WAREHOUSE");
    }
    assert_eq!(
        warehouse_with(format!("{WAREHOUSE_SECRET}\n").as_bytes()),
        "secret-with-line-end env:WAREHOUSE"
    );
}

#[test]
fn a_secret_that_is_hexadecimal_is_found_decoded() {
    let own = endpoint("hex", "stripe", "00112233445566778899aabbccddeeff");
    let key = hex::decode("00112233445566778899aabbccddeeff").unwrap();
    let header = stripe_signed(&key, &[time().as_bytes(), b".", BODY.as_bytes()]);
    let headers = Headers::from_iter([("stripe-signature", header.as_bytes())]);
    let at = Timestamp::from_seconds(AT as i64).unwrap();
    let suspect = Suspect { headers: &headers, body: BODY.as_bytes(), at };
    let diagnosis = diagnose(&own.candidate(), &[], &Catalogue::built_in(), &suspect);
    assert_eq!(told(&diagnosis), "secret-decoding env:HEX");
    let Diagnosis::Explained { findings, .. } = &diagnosis else { panic!("{diagnosis:?}") };
    assert!(findings[0].causes[0].what.contains("hexadecimal"), "{findings:?}");
}

#[test]
fn an_older_secret_of_the_endpoint_is_accepted() {
    let (new, old) = (endpoint("new", "shopify", "new-secret"), endpoint("old", "shopify", "old-secret"));
    let secrets = [new.candidate().secrets, old.candidate().secrets].concat();
    let own = Candidate { endpoint: "shop", definition: &new.definition, secrets };
    let signature = base64(&mac(b"old-secret", &[BODY.as_bytes()]));
    let headers = Headers::from_iter([("x-shopify-hmac-sha256", signature.as_bytes())]);
    let at = Timestamp::from_seconds(AT as i64).unwrap();
    let suspect = Suspect { headers: &headers, body: BODY.as_bytes(), at };
    assert_eq!(told(&diagnose(&own, &[], &Catalogue::built_in(), &suspect)), "accepted env:OLD");
}

#[test]
fn a_signature_in_another_encoding_is_found() {
    let digest = mac(SHOPIFY_SECRET.as_bytes(), &[BODY.as_bytes()]);
    assert_eq!(shopify_header(&hex::encode(&digest)), "signature-encoding env:SHOPIFY");
    assert_eq!(shopify_header(&hex::encode_upper(&digest)), "signature-encoding env:SHOPIFY");
    let digest = mac(STRIPE_SECRET.as_bytes(), &[time().as_bytes(), b".", BODY.as_bytes()]);
    assert_eq!(stripe_header(&format!("t={AT},v1={}", base64(&digest))), "signature-encoding env:STRIPE");
}

#[test]
fn a_signature_with_its_characters_changed_is_found() {
    // A body whose signature has all that is special in base64.
    let special = |body: &String| {
        let signature = shopify_signature(body.as_bytes());
        signature.contains('+') && signature.contains('/') && signature.ends_with('=')
    };
    let body = (0..1000).map(|number| format!("{{\"n\":{number}}}")).find(special).unwrap();
    let good = shopify_signature(body.as_bytes());
    let of = |header: String| {
        told(&ask("shopify", &[("x-shopify-hmac-sha256", header.as_str())], body.as_bytes(), AT))
    };
    assert_eq!(of(good.replace('+', "-").replace('/', "_")), "signature-base64url env:SHOPIFY");
    assert_eq!(of(good.replace('=', "%3D").replace('+', "%2B")), "signature-url-encoded env:SHOPIFY");
    assert_eq!(of(good.replace('+', " ")), "signature-plus-lost env:SHOPIFY");
    assert_eq!(of(format!("\"{good}\"")), "signature-in-quotes env:SHOPIFY");
    assert_eq!(of(format!("{} {}", &good[..20], &good[20..])), "signature-folded env:SHOPIFY");
    assert_eq!(of(good.to_lowercase()), "signature-case-changed? env:SHOPIFY");
    assert_eq!(of(good[..30].to_owned()), "signature-cut-off? env:SHOPIFY");
    assert_eq!(of(good[..8].to_owned()), "no known cause");
    let stripe = stripe_signature(BODY.as_bytes(), AT);
    assert_eq!(stripe_header(&stripe[..50]), "signature-cut-off? env:STRIPE");
    assert_eq!(stripe_header(&stripe[..51]), "signature-cut-off? env:STRIPE");
}

#[test]
fn a_prefix_that_is_missing_or_too_much_is_found() {
    let good = shopify_signature(BODY.as_bytes());
    assert_eq!(shopify_header(&format!("sha256={good}")), "signature-prefix env:SHOPIFY");
    assert_eq!(shopify_header(&format!("v1,{good}")), "signature-prefix env:SHOPIFY");
    let mut headers = warehouse_headers();
    headers[2].1 = headers[2].1.replace("v1,", "");
    assert_eq!(warehouse(&headers), "signature-prefix env:WAREHOUSE");
}

#[test]
fn other_labels_and_separators_are_found() {
    let good = stripe_signature(BODY.as_bytes(), AT);
    assert_eq!(stripe_header(&good.replace("v1=", "v0=")), "signature-label env:STRIPE");
    assert_eq!(stripe_header(&good.replace("t=", "ts=")), "signature-label env:STRIPE");
    assert_eq!(stripe_header(&good.replace(',', ";")), "signature-label env:STRIPE");
    let mut headers = warehouse_headers();
    headers[2].1 = headers[2].1.replace("v1,", "v1a,");
    assert_eq!(warehouse(&headers), "signature-label env:WAREHOUSE");
}

#[test]
fn headers_under_other_names_are_found() {
    let good = stripe_signature(BODY.as_bytes(), AT);
    for name in ["http_stripe_signature", "stripe_signature", "HTTP_STRIPE_SIGNATURE", "x-stripe-signature"] {
        assert_eq!(told(&ask("stripe", &[(name, &good)], BODY.as_bytes(), AT)), "header-renamed env:STRIPE");
    }
    let elsewhere = [("user-agent", "Stripe/1.0"), ("x-quite-other", good.as_str())];
    assert_eq!(told(&ask("stripe", &elsewhere, BODY.as_bytes(), AT)), "header-renamed env:STRIPE");
    let renamed = |rename: &dyn Fn(&str) -> String| {
        let headers: Vec<_> =
            warehouse_headers().into_iter().map(|(name, value)| (rename(&name), value)).collect();
        warehouse(&headers)
    };
    assert_eq!(renamed(&|name| format!("http_{}", name.replace('-', "_"))), "header-renamed env:WAREHOUSE");
    assert_eq!(renamed(&|name| name.replace("webhook-", "svix-")), "header-renamed env:WAREHOUSE");
}

#[test]
fn headers_that_were_doubled_or_joined_are_found() {
    let good = stripe_signature(BODY.as_bytes(), AT);
    let bad = format!("t={AT},v1={}", "0".repeat(64));
    for [first, second] in [[&good, &good], [&good, &bad], [&bad, &good]] {
        let headers = [("stripe-signature", first.as_str()), ("stripe-signature", second.as_str())];
        assert_eq!(told(&ask("stripe", &headers, BODY.as_bytes(), AT)), "header-repeated env:STRIPE");
        assert_eq!(stripe_header(&format!("{first}, {second}")), "header-joined env:STRIPE");
    }
    let joined: Vec<_> =
        warehouse_headers().into_iter().map(|(name, value)| (name, format!("{value}, {value}"))).collect();
    assert_eq!(warehouse(&joined), "header-joined env:WAREHOUSE");
}

#[test]
fn a_clock_that_is_off_is_found_with_its_seconds() {
    let good = stripe_signature(BODY.as_bytes(), AT);
    let at = |at| ask("stripe", &[("stripe-signature", &good)], BODY.as_bytes(), at);
    assert_eq!(told(&at(AT + 301)), "clock-stale env:STRIPE");
    assert_eq!(told(&at(AT - 301)), "clock-ahead env:STRIPE");
    let Diagnosis::Explained { findings, .. } = at(AT + 4000) else { panic!("explained") };
    assert!(findings[0].causes[0].what.starts_with("it was signed at 2025-12-01T12:00:00Z, 4000 s before"));
}

#[test]
fn a_time_in_another_unit_is_found() {
    let stripe = |time: &str, at| {
        let digest = mac(STRIPE_SECRET.as_bytes(), &[time.as_bytes(), b".", BODY.as_bytes()]);
        let header = format!("t={time},v1={}", hex::encode(digest));
        told(&ask("stripe", &[("stripe-signature", &header)], BODY.as_bytes(), at))
    };
    assert_eq!(stripe(&format!("{AT}123"), AT), "time-unit env:STRIPE");
    assert_eq!(stripe(&format!("{AT}123"), AT + 4000), "time-unit+clock-stale env:STRIPE");
    assert_eq!(stripe("2025-12-01T12:00:00Z", AT), "time-unit env:STRIPE");
    assert_eq!(stripe("yesterday", AT), "time-unreadable env:STRIPE");
    let mut catalogue = Catalogue::built_in();
    let text = std::fs::read_to_string(repository().join("providers/warehouse.toml")).unwrap();
    catalogue.add("milli.toml", &text.replacen("unix_seconds", "unix_milliseconds", 1)).unwrap();
    let mut own = endpoint("milli", "warehouse", WAREHOUSE_SECRET);
    own.definition = catalogue.get("milli").unwrap().clone();
    let headers = warehouse_headers();
    let headers: Headers<'_> =
        headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    let at = Timestamp::from_seconds(AT as i64).unwrap();
    let suspect = Suspect { headers: &headers, body: BODY.as_bytes(), at };
    assert_eq!(told(&diagnose(&own.candidate(), &[], &catalogue, &suspect)), "time-unit env:MILLI");
}

#[test]
fn other_signed_content_is_found() {
    let (key, time) = (STRIPE_SECRET.as_bytes(), time());
    let (time, body) = (time.as_bytes(), BODY.as_bytes());
    for parts in [&[body][..], &[time, body], &[time, b":", body], &[time, b"\n", body], &[body, b".", time]]
    {
        assert_eq!(stripe_header(&stripe_signed(key, parts)), "signed-content env:STRIPE");
    }
    let mut headers = warehouse_headers();
    headers[2].1 = format!("v1,{}", base64(&mac(b"warehouse-black-box-key-1", &[time, b".", body])));
    assert_eq!(warehouse(&headers), "signed-content env:WAREHOUSE");
}

#[test]
fn a_signed_header_that_was_changed_is_found() {
    let mut headers = warehouse_headers();
    headers[0].1 = "proxy-made-this".to_owned();
    headers.push(("x-original-webhook-id".to_owned(), "msg_1".to_owned()));
    assert_eq!(warehouse(&headers), "signed-header-changed env:WAREHOUSE");
    let mut headers = warehouse_headers();
    headers.remove(0);
    assert_eq!(warehouse(&headers), "header-missing? -");
    let mut headers = warehouse_headers();
    headers[0].1 = "msg.1".to_owned();
    headers[2].1 = warehouse_signature("msg.1", &time(), BODY.as_bytes());
    assert_eq!(warehouse(&headers), "signed-header-ambiguous env:WAREHOUSE");
    assert_eq!(told(&ask("stripe", &[("accept", "*/*")], BODY.as_bytes(), AT)), "header-missing? -");
}

#[test]
fn another_algorithm_is_found() {
    let mut mac = Hmac::<Sha1>::new_from_slice(SHOPIFY_SECRET.as_bytes()).unwrap();
    mac.update(BODY.as_bytes());
    let digest = mac.finalize().into_bytes();
    assert_eq!(shopify_header(&base64(&digest)), "signature-algorithm env:SHOPIFY");
    assert_eq!(shopify_header(&hex::encode(digest)), "signature-encoding+signature-algorithm env:SHOPIFY");
    let mut mac = Hmac::<sha2::Sha512>::new_from_slice(SHOPIFY_SECRET.as_bytes()).unwrap();
    mac.update(BODY.as_bytes());
    assert_eq!(shopify_header(&base64(&mac.finalize().into_bytes())), "signature-algorithm env:SHOPIFY");
}

#[test]
fn one_thing_in_the_headers_and_one_in_the_body_are_found() {
    let good = stripe_signature(BODY.as_bytes(), AT);
    let headers = [("http_stripe_signature", good.as_str())];
    let body = format!("{BODY}\n");
    let told = told(&ask("stripe", &headers, body.as_bytes(), AT));
    assert_eq!(told, "header-renamed+body-line-end-added env:STRIPE");
}

#[test]
fn a_large_body_ends_the_search_early_and_says_so() {
    let body = vec![b'\n'; 2 << 20];
    let header = format!("t={AT},v1={}", "0".repeat(64));
    let headers = Headers::from_iter([("stripe-signature", header.as_bytes())]);
    let endpoints = endpoints();
    let at = Timestamp::from_seconds(AT as i64).unwrap();
    let others: Vec<Candidate<'_>> = endpoints[1..].iter().map(Endpoint::candidate).collect();
    let suspect = Suspect { headers: &headers, body: &body, at };
    let diagnosis = diagnose(&endpoints[0].candidate(), &others, &Catalogue::built_in(), &suspect);
    assert!(matches!(diagnosis, Diagnosis::NoKnownCause { all_tried: false, .. }), "{diagnosis:?}");
}

const SECRETS: [(&str, &str); 3] = [
    ("STRIPE_SECRET", STRIPE_SECRET),
    ("SHOPIFY_SECRET", SHOPIFY_SECRET),
    ("WAREHOUSE_SECRET", WAREHOUSE_SECRET),
];

/// Runs `wharf explain` in a folder with a configuration and a request, and checks that it tells no secret.
fn explain(folder: &std::path::Path, environment: &[(&str, &str)], arguments: &[&str]) -> Ran {
    std::fs::write(folder.join("wharf.toml"), ENDPOINTS).unwrap();
    let environment = [&SECRETS, environment].concat();
    let ran = wharf(folder, &environment, &[&["explain"], arguments].concat());
    for secret in [STRIPE_SECRET, SHOPIFY_SECRET, WAREHOUSE_SECRET, "warehouse-black-box-key-1"] {
        assert!(!ran.out.contains(secret) && !ran.err.contains(secret), "{}{}", ran.out, ran.err);
    }
    ran
}

const BODY_WAY_OUT: &str = "way out: find what between the sender and Wharf reads and rewrites bodies (a proxy, a \
    function, a framework) and let it pass the bytes on untouched; or let the sender sign the bytes that it sends\n";

#[test]
fn the_command_tells_cause_secret_and_way_out() {
    let folder = tempfile::tempdir().unwrap();
    let write = |signature: &str, body: &str| {
        let request =
            format!("POST /webhooks/stripe HTTP/1.1\r\nStripe-Signature: {signature}\r\n\r\n{body}");
        std::fs::write(folder.path().join("request.http"), request).unwrap();
    };
    let at = (AT + 10).to_string();
    let run = |more: &[&str]| {
        explain(folder.path(), &[], &[&["--request", "request.http", "--at", &at], more].concat())
    };
    let head = "endpoint: stripe (provider stripe)\nas of: 2025-12-01T12:00:10Z (the time given with --at)\n";
    let good = stripe_signature(BODY.as_bytes(), AT);

    write(&good, BODY);
    let ran = run(&[]);
    let said = "accepted: it is signed with the secret of env:STRIPE_SECRET 10 s before that time\n";
    assert_eq!((ran.code, ran.out, ran.err), (0, format!("{head}{said}"), String::new()));

    write(&good, &format!("{BODY}\n"));
    let ran = run(&[]);
    let said = format!(
        "refused: no signature fits any of the endpoint's secrets\n\
         cause: body-line-end-added: the body was signed without the line end that it came with\n\
         fits: the secret of env:STRIPE_SECRET (endpoint stripe)\n{BODY_WAY_OUT}"
    );
    assert_eq!((ran.code, ran.out, ran.err), (0, format!("{head}{said}"), String::new()));

    write(&good, &BODY.replace("136.0", "137.0"));
    let ran = run(&[]);
    let said = "refused: no signature fits any of the endpoint's secrets\nno known cause\n\
        way out: compare the secret at the provider with yours, letter by letter; if it is right, somebody else \
        sent this\n";
    assert_eq!((ran.code, ran.out, ran.err), (1, format!("{head}{said}"), String::new()));
}

#[test]
fn the_command_tells_machines_one_object_for_each_finding() {
    let folder = tempfile::tempdir().unwrap();
    let header = stripe_signed(SHOPIFY_SECRET.as_bytes(), &[time().as_bytes(), b".", BODY.as_bytes()]);
    std::fs::write(folder.path().join("request.http"), format!("stripe-signature: {header}\n\n{BODY}"))
        .unwrap();
    let arguments =
        ["--request", "request.http", "--endpoint", "stripe", "--at", "2025-12-01T12:20:00Z", "--json"];
    let ran = explain(folder.path(), &[], &arguments);
    assert_eq!((ran.code, ran.err.as_str(), ran.out.lines().count()), (0, "", 1));
    let object: serde_json::Value = serde_json::from_str(&ran.out).unwrap();
    let names: Vec<_> =
        object["causes"].as_array().unwrap().iter().map(|cause| cause["name"].clone()).collect();
    assert_eq!(names, ["other-endpoints-secret", "clock-stale"]);
    for (key, value) in [
        ("endpoint", "stripe"),
        ("provider", "stripe"),
        ("at", "2025-12-01T12:20:00Z"),
        ("clock", "the time given with --at"),
        ("verdict", "explained"),
        ("certainty", "proof"),
        ("secret", "env:SHOPIFY_SECRET"),
        ("secret_of", "shopify"),
        ("refused", "no signature fits any of the endpoint's secrets"),
    ] {
        assert_eq!(object[key], value, "{key}");
    }
}

#[test]
fn a_fixture_is_explained_by_the_endpoint_of_its_provider() {
    let folder = tempfile::tempdir().unwrap();
    let fixtures = folder.path().join("shopify");
    std::fs::create_dir(&fixtures).unwrap();
    let signature = hex::encode(mac(SHOPIFY_SECRET.as_bytes(), &[BODY.as_bytes()]));
    let text = format!(
        "about = \"x\"\norigin = \"captured\"\n[headers]\nx-shopify-hmac-sha256 = \"{signature}\"\n\
         [expect]\nstatus = 401\noutcome = \"refused\"\n"
    );
    std::fs::write(fixtures.join("a.toml"), text).unwrap();
    std::fs::write(fixtures.join("a.json"), BODY).unwrap();
    let ran = explain(folder.path(), &[], &["--fixture", "shopify/a.toml"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    assert!(ran.out.starts_with("endpoint: shopify (provider shopify)\nas of: "), "{}", ran.out);
    assert!(ran.out.contains(" (now; name the time it came with --at)\nrefused: "), "{}", ran.out);
    assert!(ran.out.contains("\ncause: signature-encoding: "), "{}", ran.out);
    assert!(ran.out.contains("\nfits: the secret of env:SHOPIFY_SECRET (endpoint shopify)\n"), "{}", ran.out);
}

#[test]
fn a_quarantined_delivery_is_explained_at_the_time_it_came() {
    let database = Database::new();
    let signature = stripe_signature(BODY.as_bytes(), AT);
    let quarantine = |received_at: &str| {
        database.execute(&format!(
            "insert into wharf.quarantine (endpoint, provider, reason, detail, received_at, head, body)
             values ('stripe', 'stripe', 'stale', 'x', '{received_at}', '\\x{}', '\\x{}')",
            hex::encode(format!("stripe-signature: {signature}\n\n")),
            hex::encode(BODY),
        ));
        database.rows("select max(id) from wharf.quarantine")
    };
    let folder = tempfile::tempdir().unwrap();
    let run = |id: &str| explain(folder.path(), &[("DATABASE_URL", &database.url)], &["--quarantine", id]);
    let ran = run(&quarantine("2025-12-01T12:10:00Z"));
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let said = "endpoint: stripe (provider stripe)\n\
        as of: 2025-12-01T12:10:00Z (the time it was received)\n\
        refused: signed 600 s ago, more than the 300 s allowed\n\
        cause: clock-stale: it was signed at 2025-12-01T12:00:00Z, 600 s before it came, and 300 s are allowed: ";
    assert!(ran.out.starts_with(said), "{}", ran.out);
    assert!(run(&quarantine("2025-12-01T12:00:10Z")).out.contains("\naccepted: "));
    let ran = run("999999");
    assert_eq!((ran.code, ran.out.as_str()), (3, ""));
    assert_eq!(
        ran.err,
        "wharf: nothing is kept under the id 999999; only the newest of an endpoint are kept, see `wharf quarantine \
         list`\n"
    );
}

#[test]
fn what_is_wrong_with_the_command_line_is_said_with_the_way_out() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("a.http"), "x: y\n\n{}").unwrap();
    std::fs::write(folder.path().join("b.http"), "POST /webhooks/paypal HTTP/1.1\n\n{}").unwrap();
    std::fs::write(folder.path().join("c.http"), "{}").unwrap();
    for (file, said) in [
        (
            "none.http",
            "the request none.http cannot be read (No such file or directory (os error 2)); name a file with \
             --request",
        ),
        (
            "a.http",
            "a.http does not say which endpoint it came to (a line such as `POST /webhooks/stripe HTTP/1.1`); name \
             it with --endpoint: one of stripe, shopify, warehouse",
        ),
        (
            "b.http",
            "the endpoint `paypal` is not known; name with --endpoint one of: stripe, shopify, warehouse",
        ),
        ("c.http", "c.http: no empty line ends the headers; the body comes after it"),
    ] {
        let ran = explain(folder.path(), &[], &["--request", file]);
        assert_eq!((ran.code, ran.out.as_str(), ran.err), (2, "", format!("wharf: {said}\n")));
    }
    assert_eq!(explain(folder.path(), &[], &[]).code, 2);
    assert_eq!(explain(folder.path(), &[], &["--request", "a.http", "--at", "noon"]).code, 2);
    let help = explain(folder.path(), &[], &["--help"]);
    assert!(help.out.contains("wharf explain --quarantine 17"), "{}", help.out);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_request_makes_it_panic_and_none_is_explained_without_a_secret_of_ours(
        values in proptest::collection::vec("\\PC{0,60}|[\",=%+ a-z0-9_.]{0,80}|v1,[A-Za-z0-9+/]{43}=?|t=[0-9]{1,20},v1=[0-9a-f]{64}", 5),
        names in proptest::collection::vec(0..9_usize, 5),
        body in prop_oneof![
            proptest::collection::vec(any::<u8>(), 0..60),
            "[\\[\\]{},:\"\\\\u0-9a-fé/ \n]{0,60}".prop_map(String::into_bytes),
        ],
    ) {
        const NAMES: [&str; 9] = [
            "stripe-signature", "x-shopify-hmac-sha256", "http_stripe_signature", "webhook-id", "svix-id",
            "webhook-timestamp", "webhook-signature", "content-length", "other",
        ];
        let lines: Vec<(&str, &str)> =
            names.iter().zip(&values).map(|(name, value)| (NAMES[*name], value.as_str())).collect();
        for own in ["stripe", "shopify", "warehouse"] {
            let diagnosis = ask(own, &lines, &body, AT);
            if let Diagnosis::Explained { findings, .. } = &diagnosis {
                prop_assert!(findings.iter().all(|finding| finding.certainty == Certainty::Hint), "{:?}", diagnosis);
            }
        }
    }
}
