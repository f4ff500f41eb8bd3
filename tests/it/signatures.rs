//! VERIFY on its own: header forms, secrets, clocks, and signatures made by other people's code.

use std::process::Command;

use proptest::prelude::*;
use secrecy::SecretString;
use wharf::provider::signature::{KeyProblem, sign, verify};
use wharf::provider::{Catalogue, Definition, Headers, Key, Rejection};
use wharf::timestamp::Timestamp;

use crate::support::{base64, mac, repository};

const AT: i64 = 1_764_590_400;

fn definition(name: &str) -> std::sync::Arc<Definition> {
    Catalogue::built_in().get(name).unwrap().clone()
}

fn key(definition: &Definition, secret: &str) -> Key {
    Key::prepare(&definition.signature, &SecretString::from(secret)).unwrap()
}

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_seconds(seconds).unwrap()
}

fn check(
    definition: &Definition,
    keys: &[Key],
    headers: &[(&str, &str)],
    body: &[u8],
    now: i64,
) -> Result<usize, &'static str> {
    let lines: Headers<'_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
    verify(&definition.signature, keys, &lines, body, at(now))
        .map(|signed| signed.secret)
        .map_err(|rejection: Rejection| rejection.class())
}

const SECRET: &str = "whsec_headers";

fn hex_signature(time: &str, body: &[u8]) -> String {
    hex::encode(mac(SECRET.as_bytes(), &[time.as_bytes(), b".", body]))
}

#[test]
fn stripe_headers_of_every_form_get_their_verdict() {
    let stripe = definition("stripe");
    let keys = [key(&stripe, SECRET)];
    let body = b"{}";
    let time = AT.to_string();
    let good = hex_signature(&time, body);
    let bad = "0".repeat(64);
    let mixed: String =
        good.chars().enumerate().map(|(n, c)| if n % 2 == 0 { c.to_ascii_uppercase() } else { c }).collect();
    let commas = ",".repeat(65_536);
    let wrong_time = hex_signature("abc", body);
    let cases: &[(String, Result<usize, &str>)] = &[
        (format!("t={time},v1={good}"), Ok(0)),
        (format!("v1={good},t={time}"), Ok(0)),
        (format!("t={time},v1={bad},v1={good}"), Ok(0)),
        (format!("t={time},v1={good},v1={bad}"), Ok(0)),
        (format!("t={time},v1=zz,v1={good}"), Ok(0)),
        (format!("t={time},v0={bad},v1={good},v1={bad}"), Ok(0)),
        (format!("t={time}, v1={good}"), Ok(0)),
        (format!("t={time},v1={good},"), Ok(0)),
        (format!("t={time},v1={}", good.to_uppercase()), Ok(0)),
        (format!("t={time},v1={mixed}"), Ok(0)),
        (format!("t={time},v1={bad}"), Err("wrong")),
        (format!("t={time},v1={}", &good[..62]), Err("wrong")),
        (format!("t={time},v1=zz"), Err("wrong")),
        (String::new(), Err("malformed")),
        ("t".to_owned(), Err("malformed")),
        ("t,v1".to_owned(), Err("malformed")),
        (format!("t={time}=junk,v1={good}"), Err("malformed")),
        (format!("t=abc,v1={wrong_time}"), Err("malformed")),
        (format!("t=,v1={good}"), Err("missing")),
        (format!("v1={good}"), Err("missing")),
        (format!("t={time},v0={good}"), Err("malformed")),
        (format!("t={time},t={time},v1={good}"), Err("malformed")),
        ("=,=,".to_owned(), Err("malformed")),
        (commas, Err("malformed")),
    ];
    for (header, verdict) in cases {
        let shown = &header[..header.len().min(200)];
        assert_eq!(check(&stripe, &keys, &[("stripe-signature", header)], body, AT), *verdict, "{shown}");
    }
}

#[test]
fn a_signature_is_good_for_300_seconds_both_ways() {
    let stripe = definition("stripe");
    let keys = [key(&stripe, SECRET)];
    let header = format!("t={AT},v1={}", hex_signature(&AT.to_string(), b"{}"));
    let verdict = |now| check(&stripe, &keys, &[("stripe-signature", header.as_str())], b"{}", now);
    assert_eq!(verdict(AT + 300), Ok(0));
    assert_eq!(verdict(AT + 301), Err("stale"));
    assert_eq!(verdict(AT - 300), Ok(0));
    assert_eq!(verdict(AT - 301), Err("from the future"));
}

#[test]
fn both_secrets_of_a_rotation_are_tried() {
    let shopify = definition("shopify");
    let keys = [key(&shopify, "new"), key(&shopify, "old")];
    let verdict = |secret: &str| {
        let signature = base64(&mac(secret.as_bytes(), &[b"{}"]));
        check(&shopify, &keys, &[("x-shopify-hmac-sha256", signature.as_str())], b"{}", AT)
    };
    assert_eq!(verdict("new"), Ok(0));
    assert_eq!(verdict("old"), Ok(1));
    assert_eq!(verdict(""), Err("wrong"));
    let signature = base64(&mac(b"old", &[b"{}"]));
    assert_eq!(check(&shopify, &keys, &[("shopify-hmac-sha256", signature.as_str())], b"{}", AT), Ok(1));
    assert_eq!(
        check(&shopify, &keys, &[("x-shopify-hmac-sha256", signature.as_str())], b"", AT),
        Err("malformed")
    );
}

#[test]
fn a_header_that_decides_must_stand_there_once() {
    let warehouse = definition("warehouse");
    let keys = [key(&warehouse, "whsec_d2FyZWhvdXNlLWJsYWNrLWJveC1rZXktMQ==")];
    let time = AT.to_string();
    let raw = mac(b"warehouse-black-box-key-1", &[b"msg_1.", time.as_bytes(), b".{}"]);
    let signature = format!("v1,{}", base64(&raw));
    let good = [
        ("webhook-id", "msg_1"),
        ("webhook-timestamp", time.as_str()),
        ("webhook-signature", signature.as_str()),
    ];
    assert_eq!(check(&warehouse, &keys, &good, b"{}", AT), Ok(0));
    for header in good {
        let twice: Vec<_> = good.into_iter().chain([header]).collect();
        assert_eq!(check(&warehouse, &keys, &twice, b"{}", AT), Err("malformed"), "{}", header.0);
        let without: Vec<_> = good.into_iter().filter(|other| other.0 != header.0).collect();
        assert_eq!(check(&warehouse, &keys, &without, b"{}", AT), Err("missing"), "{}", header.0);
    }
    let several = format!("v1,AAAA v1,{} v2,X v1a,Y", base64(&raw));
    let headers = [good[0], good[1], ("webhook-signature", several.as_str())];
    assert_eq!(check(&warehouse, &keys, &headers, b"{}", AT), Ok(0));
}

#[test]
fn a_secret_that_is_none_is_refused_before_anything_is_verified() {
    let prepare = |name: &str, secret: &str| {
        Key::prepare(&definition(name).signature, &SecretString::from(secret)).map(drop)
    };
    assert_eq!(prepare("stripe", ""), Err(KeyProblem::Empty));
    assert_eq!(prepare("stripe", "   "), Err(KeyProblem::Empty));
    assert_eq!(prepare("warehouse", "whsec_"), Err(KeyProblem::Empty));
    assert_eq!(prepare("stripe", "whsec_x\n"), Err(KeyProblem::Blanks));
    assert_eq!(prepare("stripe", "sk_live_1"), Err(KeyProblem::WrongKind("sk_".to_owned())));
    assert_eq!(prepare("warehouse", "whsec_!!"), Err(KeyProblem::Undecodable("base64")));
    assert!(!format!("{:?}", key(&definition("stripe"), SECRET)).contains("headers"));
}

/// The headers that a signer adds, and a fixed id for schemes that sign one.
fn signed(definition: &Definition, key: &Key, body: &[u8]) -> Vec<(String, String)> {
    let own = Headers::from_iter([("webhook-id", &b"msg_1"[..])]);
    let mut headers = sign(&definition.signature, key, &own, body, at(AT)).unwrap();
    headers.push(("webhook-id".to_owned(), "msg_1".to_owned()));
    headers
}

fn secret_for(definition: &Definition, bytes: &[u8]) -> String {
    match definition.signature.key.decode {
        wharf::provider::signature::KeyDecoding::Base64 => format!("whsec_{}", base64(bytes)),
        _ => format!("k{}", hex::encode(bytes)),
    }
}

proptest! {
    #[test]
    fn what_is_signed_verifies_and_one_changed_bit_does_not(
        body in proptest::collection::vec(any::<u8>(), 1..300),
        secret in proptest::collection::vec(any::<u8>(), 1..64),
        flip in any::<prop::sample::Index>(),
        bit in 0..8_u32,
    ) {
        for definition in Catalogue::built_in().iter() {
            let key = key(definition, &secret_for(definition, &secret));
            let headers = signed(definition, &key, &body);
            let lines: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
            let keys = [key];
            prop_assert_eq!(check(definition, &keys, &lines, &body, AT), Ok(0));
            let mut changed = body.clone();
            let index = flip.index(changed.len());
            changed[index] ^= 1 << bit;
            prop_assert_eq!(check(definition, &keys, &lines, &changed, AT), Err("wrong"));
        }
    }

    #[test]
    fn no_header_and_no_body_makes_it_panic(
        values in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..80), 6),
        names in proptest::collection::vec(0..8_usize, 6),
        body in proptest::collection::vec(any::<u8>(), 0..100),
    ) {
        const NAMES: [&str; 8] = [
            "stripe-signature", "x-shopify-hmac-sha256", "shopify-hmac-sha256", "webhook-id",
            "webhook-timestamp", "webhook-signature", "x-shiphero-hmac-sha256", "other",
        ];
        let lines: Headers<'_> =
            names.iter().zip(&values).map(|(name, value)| (NAMES[*name], value.as_slice())).collect();
        for definition in Catalogue::built_in().iter() {
            let keys = [key(definition, &secret_for(definition, b"some key"))];
            prop_assert!(verify(&definition.signature, &keys, &lines, &body, at(AT)).is_err());
        }
    }
}

#[test]
fn one_changed_character_of_what_is_signed_beside_the_body_is_refused() {
    let mut changed = 0;
    for definition in Catalogue::built_in().iter() {
        let keys = [key(definition, &secret_for(definition, b"some key"))];
        let headers = signed(definition, &keys[0], b"{}");
        for (index, (name, value)) in headers.iter().enumerate() {
            let signed_positions = match name.as_str() {
                "webhook-timestamp" => 0..value.len(),
                "webhook-id" if !headers.iter().any(|(name, _)| name == "webhook-timestamp") => 0..0,
                "webhook-id" => 0..value.len(),
                // `t=1764590400,v1=…`
                "stripe-signature" => 2..value.find(',').unwrap(),
                _ => 0..0,
            };
            for position in signed_positions {
                let mut bytes = value.clone().into_bytes();
                bytes[position] ^= 1;
                let mut all = headers.clone();
                all[index].1 = String::from_utf8(bytes).unwrap();
                let lines: Vec<_> = all.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
                assert_eq!(check(definition, &keys, &lines, b"{}", AT), Err("wrong"), "{lines:?}");
                changed += 1;
            }
        }
    }
    // Ten digits at Stripe's; ten and the id at the two of Standard Webhooks.
    assert_eq!(changed, 10 + 2 * (10 + "msg_1".len()));
}

#[test]
fn the_standardwebhooks_crate_signs_what_we_accept_and_accepts_what_we_sign() {
    let secret = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";
    let theirs = standardwebhooks::Webhook::new(secret).unwrap();
    let body = r#"{"type":"receipt.arrived","data":{"receipt":"😀"}}"#;
    let time = AT.to_string();
    let signature = theirs.sign("msg_1", AT, body.as_bytes()).unwrap();
    for name in ["warehouse", "shipbob"] {
        let ours = definition(name);
        let keys = [key(&ours, secret)];
        let headers = [
            ("webhook-id", "msg_1"),
            ("webhook-timestamp", time.as_str()),
            ("webhook-signature", signature.as_str()),
        ];
        assert_eq!(check(&ours, &keys, &headers, body.as_bytes(), AT), Ok(0));
        let changed = body.replace("arrived", "Arrived");
        assert_eq!(check(&ours, &keys, &headers, changed.as_bytes(), AT), Err("wrong"));
        let made = signed(&ours, &keys[0], body.as_bytes());
        assert!(made.contains(&("webhook-signature".to_owned(), signature.clone())));
    }
}

#[test]
fn async_stripe_signs_what_we_accept_and_refuses_what_we_refuse() {
    use stripe_webhook::{Webhook, WebhookError};
    let stripe = definition("stripe");
    let keys = [key(&stripe, SECRET)];
    let body =
        std::fs::read_to_string(repository().join("fixtures/stripe/010-payment_intent.succeeded.json"))
            .unwrap();
    let theirs = Webhook::generate_test_header(&body, SECRET, Some(AT));
    let changed = body.replace("12900", "12901");
    assert_eq!(check(&stripe, &keys, &[("stripe-signature", &theirs)], body.as_bytes(), AT), Ok(0));
    assert_eq!(check(&stripe, &keys, &[("stripe-signature", &theirs)], changed.as_bytes(), AT), Err("wrong"));

    let ours = sign(&stripe.signature, &keys[0], &Headers::default(), body.as_bytes(), at(AT)).unwrap();
    let verdict = |body: &str| Webhook::construct_event_with_timestamp(body, &ours[0].1, SECRET, AT);
    // It reads the whole event once the signature is found good; what it makes of the event is not in question.
    assert!(!matches!(verdict(&body), Err(WebhookError::BadSignature)));
    assert!(matches!(verdict(&changed), Err(WebhookError::BadSignature)));
}

/// Runs another language's signer: arguments are secret, time, body; it prints the header's value.
fn signed_elsewhere(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8(output.stdout).unwrap().trim().to_owned())
}

#[test]
fn the_official_stripe_library_signs_what_we_accept() {
    // Node's library is the one that can sign for tests; `make test` installs it where npm is there.
    let folder = repository().join("target/sdk");
    let script = "const stripe = require('stripe'); const [secret, time, payload] = process.argv.slice(1);\
        const s = new stripe('sk_test_x');\
        console.log(s.webhooks.generateTestHeaderString({payload, secret, timestamp: Number(time)}))";
    let time = AT.to_string();
    let body = r#"{"id":"evt_1","type":"x","n":"é😀\u2028","w":136.0}"#;
    let modules = folder.join("node_modules");
    if !modules.join("stripe").exists() {
        eprintln!("SKIPPED: npm's `stripe` is not in target/sdk; run scripts/sdks");
        return;
    }
    let header = Command::new("node")
        .env("NODE_PATH", &modules)
        .args(["-e", script, SECRET, &time, body])
        .output()
        .map(|output| String::from_utf8(output.stdout).unwrap().trim().to_owned())
        .unwrap();
    assert!(header.starts_with("t="), "{header}");
    let stripe = definition("stripe");
    let keys = [key(&stripe, SECRET)];
    assert_eq!(check(&stripe, &keys, &[("stripe-signature", &header)], body.as_bytes(), AT), Ok(0));
    let changed = body.replace("136.0", "136.1");
    assert_eq!(check(&stripe, &keys, &[("stripe-signature", &header)], changed.as_bytes(), AT), Err("wrong"));
}

#[test]
fn shopifys_algorithm_in_openssl_signs_what_we_accept() {
    let body = r#"{"total_price":"398.00","note":"Rampe 3 🚚"}"#;
    let script = r#"printf '%s' "$2" | openssl dgst -sha256 -hmac "$1" -binary | base64"#;
    let Some(header) =
        signed_elsewhere("sh", &["-c", script, "sh", "hush", body]).filter(|out| !out.is_empty())
    else {
        eprintln!("SKIPPED: no openssl");
        return;
    };
    for name in ["shopify", "shiphero"] {
        let ours = definition(name);
        let keys = [key(&ours, "hush")];
        let headers = [(ours.signature.headers[0].as_str(), header.as_str())];
        assert_eq!(check(&ours, &keys, &headers, body.as_bytes(), AT), Ok(0));
        assert_eq!(check(&ours, &keys, &headers, &body.as_bytes()[1..], AT), Err("wrong"));
    }
}
