//! From an entry of the inbox to a fixture: no person is left in it, and it still tells the same.

use std::collections::BTreeMap;
use std::fs;
use std::sync::Arc;

use proptest::prelude::*;
use serde_json::Value;
use wharf::fixture::{Expect, Fixture, Origin, find};
use wharf::provider::{Accepts, Catalogue, Content, Definition, Event, Headers, Verified, read};
use wharf::redaction::{Policy, StandIns};

use crate::support::*;

fn provider(name: &str) -> Arc<Definition> {
    Catalogue::built_in().get(name).unwrap().clone()
}

/// A definition with another `[export]` table.
fn stripe_with(export: &str) -> Definition {
    let text = fs::read_to_string(repository().join("providers/stripe.toml")).unwrap();
    let (front, rest) = text.split_once("[export]").unwrap();
    let (_, back) = rest.split_once("# --- Payments.").unwrap();
    Definition::parse("stripe.toml", &format!("{front}[export]\n{export}\n# {back}")).unwrap()
}

fn redacted(definition: &Definition, kind: &str, body: &str) -> String {
    let redacted = StandIns::default().redact(&Policy::of(definition, kind), body.as_bytes()).body();
    String::from_utf8(redacted).unwrap()
}

fn told(definition: &Definition, headers: &BTreeMap<String, String>, body: &[u8]) -> Event {
    let lines: Headers<'_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_bytes())).collect();
    read(definition, &Accepts { live: true, account: None }, &Verified::from_inbox(&lines, body))
}

/// A charge with all that Stripe knows of a buyer; spaced, escaped and numbered oddly on purpose.
const STRIPE: &str = r#"{"id":"evt_1QPerson","object":"event","api_version":"2024-06-20", "created":1764590400,
 "data":{"object":{"id":"ch_3QPerson","object":"charge","amount":10000,"amount_captured":1.0000e4,"big":820982911946154508,
  "billing_details":{"address":{"city":"Hamburg","country":"DE","line1":"Hafenstra\u00dfe 12","line2":"","postal_code":"20457","state":null},
   "email":"ada.lovelace\u0040harbour.example","name":"Ada Lovelace","phone":"+49 40 1234567"},
  "captured":true,"currency":"usd","customer":"cus_QhXwW2bDk3vQ","description":"Paid by Ada Lovelace (ada.lovelace@harbour.example)",
  "metadata":{"invoice_id":"INV-1","channel":"web","contact":"Grace.Hopper@navy.example","hook":"https://u:pw9@hooks.example/x?token=t0k3n"},
  "outcome":{"risk_score":11,"seller_message":"Payment complete."},"payment_intent":"pi_3QPerson",
  "payment_method_details":{"card":{"brand":"visa","exp_month":4,"fingerprint":"Xt5EWLLDS7FJjR1c","last4":"1881"},"type":"card"},
  "receipt_email":"ADA.Lovelace@harbour.example","receipt_number":null,
  "receipt_url":"https:\/\/pay.stripe.com\/receipts\/payment\/CAcaFwoVYWNjdF8xUVJo",
  "shipping":{"address":{"city":"K\u00f6ln","country":"DE","line1":"Domplatte 1","postal_code":"50667"},"carrier":"DHL","name":"Zoë Müller","phone":null},
  "note":"Ring Mrs. Hopper","notify":{"ada.lovelace@harbour.example":true}}},
 "livemode":true, "pending_webhooks":1,"request":{"id":"req_1","idempotency_key":null},"type":"charge.succeeded"}
"#;

const STRIPE_PERSONS: [&str; 22] = [
    "Hamburg",
    "Hafenstra",
    "20457",
    "ada.lovelace",
    "ADA.Lovelace",
    "harbour.example",
    "Ada Lovelace",
    "Lovelace",
    "1234567",
    "Grace",
    "navy.example",
    "pw9",
    "t0k3n",
    "Xt5EWLLDS7FJjR1c",
    "1881",
    "CAcaFwoVYWNjdF8xUVJo",
    "Domplatte",
    "50667",
    "Köln",
    "K\\u00f6ln",
    "Zoë",
    "Hopper",
];

const SHOPIFY: &str = r##"{
  "id": 820982911946154508, "admin_graphql_api_id": "gid://shopify/Order/820982911946154508",
  "browser_ip": "203.0.113.77", "cancel_reason": null, "cancelled_at": null,
  "checkout_token": "bd5a8aa1ecd019dd3520ff791ee3a24c", "contact_email": "ada@harbour.example",
  "client_details": {"accept_language": "en-GB", "browser_height": 1320, "browser_ip": "203.0.113.77", "user_agent": "Mozilla/5.0 (X11)"},
  "created_at": "2025-12-01T09:00:00+01:00", "currency": "EUR", "current_total_price": "398.00",
  "email": "ada@harbour.example", "financial_status": "paid", "name": "#7001", "note": "Bitte an Ada Lovelace, Rampe 3",
  "note_attributes": [{"name": "driver", "value": "Charles Babbage"}],
  "order_status_url": "https://shop.example/690933842/orders/b1946ac92492d2347c6235b4d2611184/authenticate?key=abcdef",
  "phone": "+49 170 7654321", "processed_at": "2025-12-01T09:00:00+01:00", "test": false, "total_price": "398.00",
  "updated_at": "2025-12-01T09:00:05+01:00",
  "billing_address": {"first_name": "Ada", "address1": "Hafenstra\u00dfe 12", "phone": "+49 170 7654321", "city": "Hamburg", "zip": "20457",
    "province": "Hansestadt", "country": "Germany", "last_name": "Lovelace", "address2": "3. Stock", "company": "Analytical Engines", "latitude": 53.5436,
    "longitude": 9.9889, "name": "Ada Lovelace", "country_code": "DE", "province_code": null},
  "customer": {"id": 207119551, "email": "ada@harbour.example", "first_name": "Ada", "last_name": "Lovelace", "state": "disabled", "note": null,
    "verified_email": true, "phone": null, "currency": "EUR", "default_address": {"id": 1, "name": "Ada Lovelace", "zip": "20457", "default": true}},
  "line_items": [{"id": 866550311766439020, "name": "Rope-10M", "price": "199.00", "quantity": 2, "sku": "ROPE-10M",
    "properties": [{"name": "engraving", "value": "For Grace"}]}],
  "payment_gateway_names": ["visa"], "shipping_lines": [{"id": 271878346, "phone": null, "title": "Standard", "source": "shopify"}]
}"##;

const SHOPIFY_PERSONS: [&str; 22] = [
    "203.0.113.77",
    "bd5a8aa1",
    "ada@",
    "harbour.example",
    "Mozilla",
    "en-GB",
    "Ada",
    "Lovelace",
    "Rampe",
    "Babbage",
    "b1946ac9",
    "abcdef",
    "7654321",
    "Hafenstra",
    "Hamburg",
    "20457",
    "Hansestadt",
    "3. Stock",
    "Analytical",
    "53.5436",
    "9.9889",
    "Grace",
];

#[test]
fn no_personal_detail_of_a_stripe_charge_is_left() {
    let stripe = provider("stripe");
    let body = redacted(&stripe, "charge.succeeded", STRIPE);
    for person in STRIPE_PERSONS {
        assert!(!body.contains(person), "{person} is left in {body}");
    }
    let before = told(&stripe, &BTreeMap::new(), STRIPE.as_bytes());
    assert!(matches!(before.content, Content::Changes(_)), "{before:?}");
    assert_eq!(told(&stripe, &BTreeMap::new(), body.as_bytes()), before);
    // All that is not personal stands there as it was written.
    for same in [
        r#"{"id":"evt_1QPerson","object":"event","api_version":"2024-06-20", "created":1764590400,"#,
        r#""amount":10000,"amount_captured":1.0000e4,"big":820982911946154508,"#,
        r#""country":"DE","#,
        r#""line2":"","#,
        r#""state":null}"#,
        r#""customer":"cus_QhXwW2bDk3vQ","#,
        r#""metadata":{"invoice_id":"INV-1","channel":"web","#,
        r#""carrier":"DHL","#,
        " \"livemode\":true, \"pending_webhooks\":1,",
    ] {
        assert!(body.contains(same), "{same} is not in {body}");
    }
    for new in [
        r#""email":"person-1@example.com","name":"Person 1","phone":"+15550100001"}"#,
        r#""description":"Paid by Person 1 (person-1@example.com)""#,
        r#""receipt_email":"person-1@example.com""#,
        r#""last4":"4242""#,
        r#"{"person-1@example.com":true}"#,
    ] {
        assert!(body.contains(new), "{new} is not in {body}");
    }
}

#[test]
fn no_personal_detail_of_a_shopify_order_is_left() {
    let shopify = provider("shopify");
    let body = redacted(&shopify, "orders/paid", SHOPIFY);
    for person in SHOPIFY_PERSONS {
        assert!(!body.contains(person), "{person} is left in {body}");
    }
    for same in [
        r#""id": 820982911946154508, "admin_graphql_api_id": "gid://shopify/Order/820982911946154508""#,
        r##""name": "#7001""##,
        r#""total_price": "398.00""#,
        r#""browser_height": 1320"#,
        r#""name": "Rope-10M", "price": "199.00", "quantity": 2, "sku": "ROPE-10M""#,
        r#""country_code": "DE", "province_code": null"#,
        r#""customer": {"id": 207119551, "#,
        r#""state": "disabled", "note": null"#,
        r#""title": "Standard", "source": "shopify"}"#,
    ] {
        assert!(body.contains(same), "{same} is not in {body}");
    }
    let headers = BTreeMap::from([
        ("x-shopify-webhook-id".to_owned(), "w-1".to_owned()),
        ("x-shopify-topic".to_owned(), "orders/paid".to_owned()),
    ]);
    let before = told(&shopify, &headers, SHOPIFY.as_bytes());
    assert!(matches!(before.content, Content::Changes(_)), "{before:?}");
    assert_eq!(told(&shopify, &headers, body.as_bytes()), before);
}

#[test]
fn a_value_has_one_stand_in_in_all_files_of_a_run() {
    let stripe = provider("stripe");
    let policy = Policy::of(&stripe, "customer.updated");
    let mut run = StandIns::default();
    let first = r#"{"memo":"for Ada Lovelace","email":"b@b.example"}"#;
    let second = r#"{"customer":{"name":"Ada Lovelace"},"email":"A@a.example","mail":"B@B.example"}"#;
    for body in [first, second] {
        run.learn(&policy, body.as_bytes());
    }
    let texts =
        [first, second].map(|body| String::from_utf8(run.redact(&policy, body.as_bytes()).body()).unwrap());
    assert_eq!(
        texts,
        [
            r#"{"memo":"for Person 1","email":"person-1@example.com"}"#,
            r#"{"customer":{"name":"Person 1"},"email":"person-2@example.com","mail":"person-1@example.com"}"#,
        ]
    );
}

#[test]
fn names_are_found_in_other_places_and_spellings() {
    let stripe = provider("stripe");
    let body = r#"{"customer":"Ada Lovelace","memo":"ADA LOVELACE, for Mrs Lovelace","sent":"{\"first_name\":\"Ada\",\"n\":1.0}","buyer":{"name":{"first":"Grace"}}}"#;
    assert_eq!(
        redacted(&stripe, "x", body),
        r#"{"customer":"Person 1","memo":"Person 1, for Mrs Person 2","sent":"{\"first_name\":\"Person 3\",\"n\":1.0}","buyer":{"name":{"first":"Person 4"}}}"#
    );
}

#[test]
fn card_numbers_are_replaced_and_identifiers_are_not() {
    let stripe = provider("stripe");
    // All of them pass the check digit.
    let body = r#"{"memo":"4111 1111 1111 1111","order_id":"4111111111111111","id":4111111111111111,"sku":"4012888888881881","x":"5555555555554444","card_number":6011111111111117}"#;
    assert_eq!(
        redacted(&stripe, "x", body),
        r#"{"memo":"4242424242424242","order_id":"4111111111111111","id":4111111111111111,"sku":"4012888888881881","x":"4242424200000026","card_number":4242424200000034}"#
    );
}

#[test]
fn the_file_says_what_else_is_personal_and_what_is_not() {
    let body = r#"{"a":{"b":["x y",7,true,null,""]},"email":"a@b.example","list":[{"email":"c@d.example"}],"~/":"z"}"#;
    let rules = r#"personal = ["/a/b", "/~0~1"]
keep = ["/email", "/list/*/email"]"#;
    assert_eq!(
        redacted(&stripe_with(rules), "x", body),
        r#"{"a":{"b":["Redacted text 1",2,true,null,""]},"email":"a@b.example","list":[{"email":"c@d.example"}],"~/":"Redacted text 3"}"#
    );
}

#[test]
fn what_events_are_read_from_is_left_and_told() {
    let stripe = stripe_with(r#"personal = ["/data/object/id"]"#);
    let body = STRIPE.replace("INV-1", "ada@harbour.example");
    let redacted = StandIns::default().redact(&Policy::of(&stripe, "charge.succeeded"), body.as_bytes()).left;
    let left: Vec<_> =
        redacted.iter().map(|left| (left.place.as_str(), left.kind.name(), left.is_named)).collect();
    assert_eq!(
        left,
        [("/data/object/id", "text", true), ("/data/object/metadata/invoice_id", "e-mail address", false)]
    );
}

#[test]
fn of_a_body_that_is_not_json_the_shapes_are_replaced() {
    let stripe = provider("stripe");
    let policy = Policy::of(&stripe, "");
    for (body, expected) in [
        (
            &b"\xff name=Ada ada@harbour.example +49 40 1234567"[..],
            &b"\xff name=Ada person-1@example.com +15550100001"[..],
        ),
        (
            b"{\"name\":\"x\",\"email\":\"a@b.example\",\"t\":\"4111111111111111",
            b"{\"name\":\"x\",\"email\":\"person-1@example.com\",\"t\":\"4242424242424242",
        ),
        (b"email=ada%40b.example&phone=123", b"email=person-1@example.com&phone=+15550100001"),
        (b"\xef\xbb\xbf{\"first_name\":\"Ada\"}", b"\xef\xbb\xbf{\"first_name\":\"Person 1\"}"),
    ] {
        let redacted = StandIns::default().redact(&policy, body);
        assert!(!redacted.is_json);
        assert_eq!(String::from_utf8_lossy(&redacted.body()), String::from_utf8_lossy(expected));
    }
}

#[test]
fn headers_of_the_way_are_dropped_and_personal_ones_replaced() {
    let warehouse = provider("warehouse");
    let headers = [
        ("accept", "*/*"),
        ("cf-connecting-ip", "203.0.113.7"),
        ("content-length", "12"),
        ("host", "hooks.acme.example"),
        ("user-agent", "Sender/1.0"),
        ("via", "1.1 proxy"),
        ("webhook-id", "+49 40 1234567"),
        ("webhook-timestamp", "1"),
        ("x-acme-token", "abc"),
        ("x-forwarded-for", "203.0.113.7"),
        ("x-sent-by", "ada@harbour.example"),
    ];
    let headers =
        headers.map(|(name, value)| (name.to_owned(), vec![value.to_owned()])).into_iter().collect();
    let (kept, replaced) = StandIns::default().headers(&Policy::of(&warehouse, ""), &headers);
    let kept: Vec<(&str, &str)> = kept.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(
        kept,
        [
            ("user-agent", "Sender/1.0"),
            ("webhook-id", "+49 40 1234567"),
            ("x-acme-token", "redacted-token-1"),
            ("x-sent-by", "person-1@example.com"),
        ]
    );
    let places: Vec<&str> = replaced.iter().map(|replaced| replaced.place.as_str()).collect();
    assert_eq!(places, ["header x-acme-token", "header x-sent-by"]);
}

#[test]
fn every_fixture_tells_the_same_without_its_persons() {
    let fixtures = find(&[repository().join("fixtures")]).unwrap();
    let catalogue = Catalogue::built_in();
    assert!(fixtures.len() > 50);
    for fixture in fixtures {
        let definition = catalogue.get(&fixture.provider).unwrap();
        let before = told(definition, &fixture.headers, &fixture.body);
        let policy = Policy::of(definition, &before.kind);
        let mut run = StandIns::default();
        let redacted = run.redact(&policy, &fixture.body);
        assert_eq!(redacted.left, [], "{}", fixture.name);
        let body = redacted.body();
        for person in ["ada@", "Zoë", "Hafenstr", "20457", "Hamburg", "Bitte"] {
            assert!(!String::from_utf8_lossy(&body).contains(person), "{}: {person}", fixture.name);
        }
        let headers =
            fixture.headers.iter().map(|(name, value)| (name.clone(), vec![value.clone()])).collect();
        let (headers, _) = run.headers(&policy, &headers);
        let after = told(definition, &headers, &body);
        // An event without an id has its body's digest.
        let digest = before.id.starts_with("sha256:");
        let before = Event { id: if digest { after.id.clone() } else { before.id }, ..before };
        assert_eq!(after, before, "{}", fixture.name);
    }
}

#[test]
fn a_fixture_that_is_written_reads_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("acme/001-a.b.toml");
    let fixture = Fixture {
        name: path.with_extension("").display().to_string(),
        provider: "acme".to_owned(),
        about: "A \"quoted\" sentence with \\ and ü.".to_owned(),
        origin: Origin::Captured,
        headers: BTreeMap::from([
            ("x-a".to_owned(), "it's = \"this\"".to_owned()),
            ("x!odd.name".to_owned(), String::new()),
        ]),
        body: b"{\"a\":1}\xff\r\n".to_vec(),
        expect: Expect {
            status: 500,
            outcome: "failed".to_owned(),
            event_id: Some("#'\"\n".to_owned()),
            event_type: None,
        },
    };
    fixture.write(&path).unwrap();
    assert_eq!(Fixture::read(&path).unwrap(), fixture);
}

/// A folder with a configuration for `ENDPOINTS`, and what the commands need to use it.
struct House {
    database: Database,
    folder: tempfile::TempDir,
}

impl House {
    fn new() -> Self {
        let (database, folder) = (Database::new(), tempfile::tempdir().unwrap());
        let server = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n";
        fs::write(folder.path().join("wharf.toml"), format!("{server}{ENDPOINTS}")).unwrap();
        Self { database, folder }
    }

    fn gateway(&self) -> Gateway {
        Gateway::start_configured(&self.database.url, &self.folder.path().join("wharf.toml"))
    }

    fn run(&self, arguments: &[&str]) -> Ran {
        let environment = [
            ("DATABASE_URL", self.database.url.as_str()),
            ("STRIPE_SECRET", STRIPE_SECRET),
            ("SHOPIFY_SECRET", SHOPIFY_SECRET),
            ("WAREHOUSE_SECRET", WAREHOUSE_SECRET),
        ];
        wharf(self.folder.path(), &environment, arguments)
    }

    fn export(&self, arguments: &[&str]) -> Ran {
        self.run(&[&["inbox", "export"], arguments].concat())
    }

    fn file(&self, path: &str) -> String {
        fs::read_to_string(self.folder.path().join(path)).unwrap()
    }
}

const EXPORTED: &str = r"entry 1 of stripe, evt_1QPerson: fixtures/stripe/001-charge.succeeded.toml
  /data/object/billing_details/address/city (city) -> City 1
  /data/object/billing_details/address/line1 (street) -> 1 Example Street
  /data/object/billing_details/address/postal_code (postal code) -> 10001
  /data/object/billing_details/email (e-mail address) -> person-1@example.com
  /data/object/billing_details/name (person) -> Person 1
  /data/object/billing_details/phone (phone number) -> +15550100001
  /data/object/description (person) -> Person 1
  /data/object/description (e-mail address) -> person-1@example.com
  /data/object/metadata/contact (e-mail address) -> person-2@example.com
  /data/object/metadata/hook (secret or token) -> redacted-token-1
  /data/object/metadata/hook (secret or token) -> redacted-token-2
  /data/object/payment_method_details/card/fingerprint (secret or token) -> redacted-token-3
  /data/object/payment_method_details/card/last4 (end of a card number) -> 4242
  /data/object/receipt_email (e-mail address) -> person-1@example.com
  /data/object/receipt_url (address of a page) -> https://example.com/redacted-1
  /data/object/shipping/address/city (city) -> City 2
  /data/object/shipping/address/line1 (street) -> 2 Example Street
  /data/object/shipping/address/postal_code (postal code) -> 10002
  /data/object/shipping/name (person) -> Person 2
  /data/object/note (text) -> Redacted text 1
  /data/object/notify/person-1@example.com (e-mail address) -> person-1@example.com
entry 2 of shopify, w-1: fixtures/shopify/001-orders-paid.toml
  /browser_ip (IP address) -> 192.0.2.1
  /checkout_token (secret or token) -> redacted-token-4
  /contact_email (e-mail address) -> person-3@example.com
  /client_details/accept_language (text) -> Redacted text 2
  /client_details/browser_ip (IP address) -> 192.0.2.1
  /client_details/user_agent (text) -> Redacted text 3
  /email (e-mail address) -> person-3@example.com
  /note (text) -> Redacted text 4
  /note_attributes/0/value (text) -> Redacted text 5
  /order_status_url (address of a page) -> https://example.com/redacted-2
  /phone (phone number) -> +15550100002
  /billing_address/first_name (person) -> Person 3
  /billing_address/address1 (street) -> 1 Example Street
  /billing_address/phone (phone number) -> +15550100002
  /billing_address/city (city) -> City 1
  /billing_address/zip (postal code) -> 10001
  /billing_address/province (region) -> Region 1
  /billing_address/last_name (person) -> Person 4
  /billing_address/address2 (street) -> 3 Example Street
  /billing_address/company (company) -> Company 1
  /billing_address/latitude (coordinate) -> 1
  /billing_address/longitude (coordinate) -> 2
  /billing_address/name (person) -> Person 1
  /customer/email (e-mail address) -> person-3@example.com
  /customer/first_name (person) -> Person 3
  /customer/last_name (person) -> Person 4
  /customer/default_address/name (person) -> Person 1
  /customer/default_address/zip (postal code) -> 10001
  /line_items/0/properties/0/value (text) -> Redacted text 6
entry 3 of stripe, evt_early: fixtures/stripe/002-payment_intent.succeeded.toml
entry 4 of warehouse, sha256:56bc787b2d85be7c094e02bf76afafb5bc71bbf9bdfbcc880ed69864ef64906b: fixtures/warehouse/001-unreadable.toml
  the body is not JSON: names and addresses are hard to tell in it, so look closely
  /mail (e-mail address) -> person-3@example.com
Look at every file before it is committed: no program knows all that is personal.
";

#[test]
fn what_was_received_is_exported_and_replayed_elsewhere() {
    let house = House::new();
    let gateway = house.gateway();
    assert_eq!(gateway.stripe(STRIPE.as_bytes()).said(), PROCESSED);
    assert_eq!(gateway.shopify("w-1", "orders/paid", SHOPIFY.as_bytes()).said(), PROCESSED);
    assert_eq!(gateway.pay("evt_early", "pi_early", "INV-77", 100).said(), FAILED);
    assert_eq!(
        gateway
            .warehouse("msg_broken", b"{\"type\":\"receipt.closed\",\"mail\":\"ada@harbour.example")
            .said(),
        DEAD
    );
    let ran = house.export(&["1", "w-1", "evt_early", "4", "--to", "fixtures", "--about", "As it came."]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert_eq!(ran.out, EXPORTED);

    let stripe = house.file("fixtures/stripe/001-charge.succeeded.json");
    let shopify = house.file("fixtures/shopify/001-orders-paid.json");
    let headers = house.file("fixtures/shopify/001-orders-paid.toml");
    for person in STRIPE_PERSONS.iter().chain(&SHOPIFY_PERSONS) {
        for text in [&stripe, &shopify, &headers] {
            assert!(!text.contains(person), "{person} is left in {text}");
        }
    }

    let other = House::new();
    let gateway = other.gateway();
    let fixtures = house.folder.path().join("fixtures").display().to_string();
    let url = format!("http://{}", gateway.address);
    let ran = other.run(&["fixtures", "replay", &fixtures, "--url", &url]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    let expected = format!(
        "ok    {fixtures}/shopify/001-orders-paid 200 processed\n\
         ok    {fixtures}/stripe/001-charge.succeeded 200 processed\n\
         ok    {fixtures}/stripe/002-payment_intent.succeeded 500 failed\n\
         ok    {fixtures}/warehouse/001-unreadable 200 dead\n\
         4 fixtures, 0 differences\n"
    );
    assert_eq!(ran.out, expected);
    assert_eq!(other.database.invoice("INV-1"), house.database.invoice("INV-1"));
    assert_eq!(other.database.invoice("#7001"), house.database.invoice("#7001"));
}

#[test]
fn what_is_not_written_is_said_with_its_reason() {
    let house = House::new();
    house.database.execute(
        "insert into wharf.webhook_inbox (tenant_id, endpoint, provider, event_id, event_type, status, attempts,
           headers, body, received_at, settled_at)
         select id, endpoint, provider, 'evt_1', 'payout.paid', 'discarded', 1,
           '{\"x-a\": [\"1\", \"ada@harbour.example\"], \"host\": \"h\"}',
           convert_to('{\"id\":\"evt_1\",\"type\":\"payout.paid\",\"created\":1,\"livemode\":false}', 'UTF8'), now(), now()
         from wharf.tenant, (values ('stripe', 'stripe'), ('old', 'stripe'), ('acme', 'acme')) e (endpoint, provider)",
    );
    let end = |arguments: &[&str]| {
        let ran = house.export(arguments);
        (ran.code, ran.out, ran.err)
    };
    let nothing = String::new();
    assert_eq!(
        end(&["evt_1", "--to", "f"]),
        (
            2,
            nothing.clone(),
            "wharf: evt_1 came in at several endpoints; name one by its inbox id: 3 (acme), 2 (old), 1 (stripe)\n"
                .to_owned()
        )
    );
    assert_eq!(
        end(&["1", "99", "evt_9", "--to", "f"]),
        (3, nothing.clone(), "wharf: no event has the id 99; see `wharf inbox list`\n".to_owned())
    );
    assert_eq!(
        end(&["3", "--to", "f"]),
        (
            2,
            nothing.clone(),
            "wharf: event 3: provider `acme` is not known; name its file in the configuration\n".to_owned()
        )
    );
    assert_eq!(end(&["1", "--to", "f", "--name", "../x"]).0, 2);
    assert!(!house.folder.path().join("f").exists());

    // The endpoint is in no configuration any more, and the event is a test event.
    let last = "Look at every file before it is committed: no program knows all that is personal.\n";
    let written = format!(
        "entry 2 of old, evt_1: stripe/001-a.toml\n  header x-a (e-mail address) -> person-1@example.com\n{last}"
    );
    assert_eq!(end(&["2", "--to", "stripe", "--name", "a"]), (0, written.clone(), nothing.clone()));
    assert_eq!(
        house.file("stripe/001-a.toml"),
        "about = \"Stripe: payout.paid that became a dead letter.\"\norigin = \"captured\"\n\n\
         [headers]\nx-a = \"1, person-1@example.com\"\n\n\
         [expect]\nstatus = 200\noutcome = \"dead\"\nevent_id = \"evt_1\"\nevent_type = \"payout.paid\"\n"
    );
    let refused = "entry 2 of old, evt_1: not written: stripe/001-a.toml is a fixture of this event; --force replaces it\n";
    assert_eq!(end(&["2", "--to", "stripe"]), (1, refused.to_owned(), nothing.clone()));
    assert_eq!(end(&["2", "--to", "stripe", "--force"]), (0, written, nothing.clone()));

    let (code, out, _) = end(&["1", "--to", "stripe", "--json"]);
    assert_eq!(code, 1);
    let line: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((&line["id"], &line["written"]), (&1.into(), &Value::Null));
    let (code, out, _) = end(&["1", "--to", "other", "--json"]);
    assert_eq!(code, 0);
    let line: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(line["written"], "other/stripe/001-payout.paid.toml");
    assert_eq!(line["replaced"][0]["stand_in"], "person-1@example.com");
}

#[test]
fn a_file_that_contradicts_itself_writes_nothing() {
    let house = House::new();
    let gateway = house.gateway();
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 100).said(), PROCESSED);
    let stripe = fs::read_to_string(repository().join("providers/stripe.toml")).unwrap();
    fs::create_dir(house.folder.path().join("providers")).unwrap();
    let own = |text: &str| fs::write(house.folder.path().join("providers/stripe.toml"), text).unwrap();
    let config = house.file("wharf.toml").replace("[server]", "[server]\nproviders = \"providers\"");
    fs::write(house.folder.path().join("wharf.toml"), config).unwrap();

    let contradicts = stripe.replace("personal = [", "personal = [\"/data/object/metadata\",");
    assert_ne!(contradicts, stripe);
    own(&contradicts);
    let ran = house.export(&["1", "--to", "f"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert_eq!(
        ran.out,
        "entry 1 of stripe, evt_1: not written: the provider file's [export] names /data/object/metadata/invoice_id as \
         personal, and events are read from it; take it out of `personal`, or add it to `keep`\n"
    );
    own(&contradicts.replace("keep = [", "keep = [\"/data/object/metadata/invoice_id\","));
    assert_eq!(house.export(&["1", "--to", "f"]).code, 0);
}

#[test]
fn what_would_tell_something_else_is_not_written() {
    let house = House::new();
    let gateway = house.gateway();
    // Half a surrogate pair makes it a dead letter; with the address replaced, it would not be one.
    let broken = payment_succeeded("evt_1", "pi_1", "INV-1", 100).replace(
        "\"livemode\"",
        "\"email\":\"ada\\ud800@harbour.example\",\"phone\":\"+49401234567\",\"livemode\"",
    );
    assert_eq!(gateway.stripe(broken.as_bytes()).said(), DEAD);
    assert_eq!(gateway.pay("evt_2", "pi_2", "ada@harbour.example", 100).said(), FAILED);
    let ran = house.export(&["1", "2", "--to", "f"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let id = house.database.rows("select event_id from webhook_inbox where id = 1");
    assert_eq!(
        ran.out,
        format!(
            "entry 1 of stripe, {id}: not written: with /email replaced, the event means something else; \
             add it to `keep` in the provider file's [export]\n\
             entry 2 of stripe, evt_2: f/stripe/001-payment_intent.succeeded.toml\n  \
             /data/object/metadata/invoice_id looks personal (e-mail address) and was left: events are read from it\n\
             Look at every file before it is committed: no program knows all that is personal.\n"
        )
    );
}

/// The shape of a JSON value: without its texts and numbers.
fn shape(value: &Value) -> Value {
    match value {
        Value::String(_) => "text".into(),
        Value::Number(_) => 1.into(),
        Value::Array(items) => items.iter().map(shape).collect(),
        Value::Object(members) => members.values().map(shape).collect(),
        other => other.clone(),
    }
}

fn any_json() -> impl Strategy<Value = Value> {
    let key = prop_oneof![
        "[a-z_]{0,8}",
        Just("email".to_owned()),
        Just("zip".to_owned()),
        Just("customer".to_owned())
    ];
    let text = prop_oneof![
        any::<String>(),
        "[ +()0-9.-]{0,24}",
        "[a-z]{1,5}@[a-z]{1,5}\\.[a-z]{2}",
        "[A-Za-z0-9_=&?/:-]{0,50}",
    ];
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        text.prop_map(Value::from),
    ];
    leaf.prop_recursive(4, 40, 6, move |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..6).prop_map(Value::from),
            // In a list, so that members that come to have one name do not hide each other.
            (key.clone(), inner).prop_map(|(key, value)| serde_json::json!({ key: value })),
        ]
    })
}

proptest! {
    #[test]
    fn json_stays_json_of_the_same_shape(value in any_json()) {
        let stripe = provider("stripe");
        let body = value.to_string();
        let redacted = StandIns::default().redact(&Policy::of(&stripe, "x"), body.as_bytes());
        prop_assert!(redacted.is_json);
        let after: Value = serde_json::from_slice(&redacted.body()).unwrap();
        prop_assert_eq!(shape(&after), shape(&value));
    }

    #[test]
    fn no_bytes_are_too_odd(body in prop::collection::vec(any::<u8>(), 0..200), text in "[{}\\[\\]\",:@+0-9a-zé\\\\ u.%=-]{0,120}") {
        let stripe = provider("stripe");
        let policy = Policy::of(&stripe, "x");
        StandIns::default().redact(&policy, &body).body();
        StandIns::default().redact(&policy, text.as_bytes()).body();
    }
}
