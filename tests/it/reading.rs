//! READ on odd payloads: what is not exact, not confirmed or not ours never becomes a change.
//!
//! Every body is signed and verified first, as the gateway does it; most are written out by hand, because a JSON
//! library would tidy up the very oddities that are meant.

use std::fs;
use std::sync::Arc;

use secrecy::SecretString;
use sha2::{Digest as _, Sha256};
use wharf::books::{Change, CountedLine, Counting, InvoiceFact, Money, ReceiptFact};
use wharf::provider::signature::{KeyDecoding, sign};
use wharf::provider::{Accepts, Catalogue, Content, Definition, Event, Headers, Key, Verified, read};
use wharf::timestamp::Timestamp;

use crate::support::repository;

const NOW: i64 = 1_764_590_400;

/// An endpoint: a built-in provider with a key, and what it accepts.
struct Endpoint {
    definition: Arc<Definition>,
    key: Key,
    accepts: Accepts,
}

impl Endpoint {
    fn live(provider: &str) -> Self {
        let definition = Catalogue::built_in().get(provider).unwrap().clone();
        let secret = match definition.signature.key.decode {
            KeyDecoding::Base64 => "whsec_d2FyZWhvdXNl",
            KeyDecoding::Utf8 | KeyDecoding::Hex => "abcd1234",
        };
        let key = Key::prepare(&definition.signature, &SecretString::from(secret)).unwrap();
        Self { definition, key, accepts: Accepts { live: true, account: None } }
    }

    fn test(provider: &str) -> Self {
        Self { accepts: Accepts { live: false, account: None }, ..Self::live(provider) }
    }

    fn of_account(provider: &str, account: &str) -> Self {
        Self { accepts: Accepts { live: true, account: Some(account.to_owned()) }, ..Self::live(provider) }
    }

    /// Signs, verifies and reads a delivery.
    fn read(&self, headers: &[(&str, &str)], body: impl AsRef<[u8]>) -> Event {
        let (rule, body) = (&self.definition.signature, body.as_ref());
        let now = Timestamp::from_seconds(NOW).unwrap();
        let own: Headers<'_> = headers.iter().map(|(name, value)| (*name, value.as_bytes())).collect();
        let added = sign(rule, &self.key, &own, body, now).unwrap();
        let all: Headers<'_> =
            own.iter().chain(added.iter().map(|(name, value)| (name.as_str(), value.as_bytes()))).collect();
        let keys = std::slice::from_ref(&self.key);
        let (verified, _) = Verified::check(&self.definition, keys, &all, body, now).unwrap();
        read(&self.definition, &self.accepts, &verified)
    }
}

fn changes(event: Event) -> Vec<Change> {
    match event.content {
        Content::Changes(changes) => changes,
        other => panic!("{} {}: {other:?}", event.kind, event.id),
    }
}

#[track_caller]
fn ignored(event: &Event, reason: &str) {
    match &event.content {
        Content::Ignored(found) if found.contains(reason) => {}
        other => panic!("not ignored for `{reason}`: {other:?}"),
    }
}

#[track_caller]
fn unreadable(event: &Event, reason: &str) {
    match &event.content {
        Content::Unreadable(found) if found.contains(reason) => {}
        other => panic!("not unreadable for `{reason}`: {other:?}"),
    }
}

fn digest_id(body: &str) -> String {
    format!("sha256:{}", hex::encode(Sha256::digest(body)))
}

// --- Stripe ---

fn stripe_event(kind: &str, object: &str) -> String {
    format!(
        r#"{{"id":"evt_1","object":"event","api_version":"2024-06-20","created":1764590000,"livemode":true,"type":"{kind}","data":{{"object":{object}}}}}"#
    )
}

fn stripe(kind: &str, object: &str) -> Event {
    Endpoint::live("stripe").read(&[], stripe_event(kind, object))
}

fn payment_intent(amount: &str, currency: &str, metadata: &str) -> Event {
    let object = format!(
        r#"{{"id":"pi_1","amount":99999,"amount_received":{amount},"currency":{currency},"metadata":{metadata}}}"#
    );
    stripe("payment_intent.succeeded", &object)
}

const OURS: &str = r#"{"invoice_id":"INV-1"}"#;

/// Of an event that tells one payment: the invoice, the payment's id and the amount.
#[track_caller]
fn paid(event: Event) -> (String, String, Money) {
    match changes(event).as_slice() {
        [Change::Invoice(change)] => match &change.fact {
            InvoiceFact::Paid { payment, amount } => {
                (change.number.clone().unwrap(), payment.clone(), amount.clone())
            }
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    }
}

fn money(minor: i64, currency: &str) -> Money {
    Money { minor, currency: currency.to_owned() }
}

#[test]
fn an_amount_is_exact_in_whatever_way_it_is_written() {
    for (written, minor) in [
        ("1099", 1099),
        ("1099.0", 1099),
        ("1099.000", 1099),
        ("1.099e3", 1099),
        ("1.099E+3", 1099),
        ("109900e-2", 1099),
        ("\"1099\"", 1099),
        ("\" 1099 \"", 1099),
        ("-0", 0),
        ("0", 0),
        ("0.0", 0),
        ("9007199254740993", 9_007_199_254_740_993),
        ("9223372036854775807", i64::MAX),
    ] {
        let (_, _, amount) = paid(payment_intent(written, "\"usd\"", OURS));
        assert_eq!(amount, money(minor, "USD"), "{written}");
    }
}

#[test]
fn an_amount_that_is_not_exact_is_unreadable() {
    for (written, reason) in [
        ("2.5", "is not a whole number of minor units of USD"),
        ("1e-1", "is not a whole number of minor units of USD"),
        ("9223372036854775808", "is not a whole number of minor units of USD"),
        ("18446744073709551616", "is not a whole number of minor units of USD"),
        ("1e400", "is not a number"),
        ("1e-2147483648", "is not a number"),
        ("0e-2147483648", "is not a number"),
        ("1e99999999999", "is not a number"),
        ("1099.0000000000000000000000000001", "is not a number"),
        ("\"1,099\"", "is not a number"),
        ("\"0x10\"", "is not a number"),
        ("\"NaN\"", "is not a number"),
        ("\"1e++2\"", "is not a number"),
        ("\" \"", "is not a number"),
        ("-1", "is negative"),
        ("null", "there is no amount"),
        ("\"\"", "there is no amount"),
        ("true", "is true or false"),
        ("{}", "is an object"),
        ("[1099]", "is a list"),
    ] {
        let event = payment_intent(written, "\"usd\"", OURS);
        unreadable(&event, reason);
        unreadable(&event, "at /data/object/amount_received");
        assert_eq!(event.id, "evt_1", "{written}: the envelope could be read");
    }
}

#[test]
fn a_currency_says_what_its_minor_unit_is() {
    for (written, currency, minor) in [
        ("500", "jpy", 500),
        ("1010", "usd", 1010),
        ("1234", "kwd", 1234),
        // Stripe counts these two in hundredths, though ISO 4217 gives them no decimals.
        ("50000", "isk", 500),
        ("50000", "UGX", 500),
    ] {
        let (_, _, amount) = paid(payment_intent(written, &format!("{currency:?}"), OURS));
        assert_eq!(amount, money(minor, &currency.to_ascii_uppercase()), "{written} {currency}");
    }
    let no_whole_krona = payment_intent("50050", "\"isk\"", OURS);
    unreadable(&no_whole_krona, "is not a whole number of minor units of ISK");
    for (currency, reason) in [
        ("\"xxx\"", "is not in ISO 4217"),
        ("\"usdt\"", "is not in ISO 4217"),
        ("840", "is not in ISO 4217"),
        ("null", "there is no currency"),
        ("{}", "is an object"),
    ] {
        unreadable(&payment_intent("500", currency, OURS), reason);
    }
}

#[test]
fn a_payment_that_names_no_invoice_is_not_ours() {
    for metadata in ["{}", "null", r#"{"invoice_id":null}"#, r#"{"invoice_id":""}"#, "[]", "7", "\"INV-1\""] {
        ignored(&payment_intent("500", "\"usd\"", metadata), "guards do not hold");
    }
    let without = r#"{"id":"pi_1","amount_received":500,"currency":"usd"}"#;
    ignored(&stripe("payment_intent.succeeded", without), "guards do not hold");
    // Nothing of a payment that is not ours is looked at, so nothing of it can be unreadable.
    ignored(&payment_intent("2.5", "\"xxx\"", "{}"), "guards do not hold");
    ignored(&stripe("payment_intent.succeeded", "null"), "guards do not hold");
    ignored(&stripe("payment_intent.succeeded", "[]"), "guards do not hold");
}

#[test]
fn an_invoice_number_may_be_a_number_and_nothing_else() {
    let numeric = payment_intent("500", "\"usd\"", r#"{"invoice_id":1042}"#);
    assert_eq!(paid(numeric).0, "1042");
    let large = payment_intent("500", "\"usd\"", r#"{"invoice_id":9007199254740993}"#);
    assert_eq!(paid(large).0, "9007199254740993");
    for (value, shape) in [("{}", "an object"), ("[1]", "a list"), ("true", "true or false")] {
        let event = payment_intent("500", "\"usd\"", &format!(r#"{{"invoice_id":{value}}}"#));
        unreadable(&event, &format!("the invoice at /data/object/metadata/invoice_id is {shape}"));
    }
}

#[test]
fn only_an_event_that_says_live_is_live() {
    let event = stripe_event(
        "payment_intent.succeeded",
        r#"{"id":"pi_1","amount_received":500,"currency":"usd","metadata":{"invoice_id":"INV-1"}}"#,
    );
    let with = |value: &str| event.replace("\"livemode\":true,", value);
    for value in [
        "\"livemode\":false,",
        "",
        "\"livemode\":\"false\",",
        "\"livemode\":\"true\",",
        "\"livemode\":1,",
        "\"livemode\":null,",
    ] {
        let body = with(value);
        ignored(&Endpoint::live("stripe").read(&[], &body), "it is a test event");
        assert_eq!(paid(Endpoint::test("stripe").read(&[], &body)).0, "INV-1", "{value}");
    }
    assert_eq!(paid(Endpoint::live("stripe").read(&[], &event)).0, "INV-1");
    ignored(&Endpoint::test("stripe").read(&[], &event), "it is a live event");
}

#[test]
fn another_accounts_event_is_ignored() {
    let event = stripe_event(
        "payment_intent.succeeded",
        r#"{"id":"pi_1","amount_received":500,"currency":"usd","metadata":{"invoice_id":"INV-1"}}"#,
    );
    let of = |account: &str| event.replacen('{', &format!("{{\"account\":{account},"), 1);
    let endpoint = Endpoint::of_account("stripe", "acct_1");
    assert_eq!(paid(endpoint.read(&[], of("\"acct_1\""))).0, "INV-1");
    ignored(&endpoint.read(&[], of("\"acct_2\"")), "another account's");
    ignored(&endpoint.read(&[], of("\"ACCT_1\"")), "another account's");
    ignored(&endpoint.read(&[], of("null")), "names no account");
    ignored(&endpoint.read(&[], of("{\"id\":\"acct_1\"}")), "names no account");
    ignored(&endpoint.read(&[], &event), "names no account");
    // An endpoint that names no account takes them all.
    assert_eq!(paid(Endpoint::live("stripe").read(&[], of("\"acct_2\""))).0, "INV-1");

    let endpoint = Endpoint::of_account("shopify", "acme.myshopify.com");
    let shop = |name: &'static str| [topic("orders/paid"), ("x-shopify-shop-domain", name)];
    assert_eq!(changes(endpoint.read(&shop("acme.myshopify.com"), order(""))).len(), 2);
    ignored(&endpoint.read(&shop("other.myshopify.com"), order("")), "another account's");
    ignored(&endpoint.read(&[topic("orders/paid")], order("")), "names no account");
    let both = [shop("acme.myshopify.com"), shop("other.myshopify.com")].concat();
    let both: Vec<_> = both.into_iter().skip(1).collect();
    ignored(&endpoint.read(&both, order("")), "names no account");
}

#[test]
fn a_paid_invoice_is_linked_to_its_payment_in_every_version_of_the_interface() {
    let invoice = |amount: &str, link: &str| {
        let object =
            format!(r#"{{"id":"in_1","amount_paid":{amount},"currency":"usd","metadata":{OURS}{link}}}"#);
        stripe("invoice.paid", &object)
    };
    let in_list =
        |payment: &str| format!(r#","payments":{{"data":[{{"payment":{{"payment_intent":{payment}}}}}]}}"#);
    for (link, payment) in [
        (r#","payment_intent":"pi_1""#.to_owned(), "pi_1"),
        (r#","payment_intent":{"id":"pi_1","object":"payment_intent"}"#.to_owned(), "pi_1"),
        (in_list("\"pi_1\""), "pi_1"),
        (in_list(r#"{"id":"pi_1"}"#), "pi_1"),
        (r#","payment_intent":null,"charge":"ch_1""#.to_owned(), "ch_1"),
        (r#","charge":{"id":"ch_1"}"#.to_owned(), "ch_1"),
    ] {
        let told = paid(invoice("500", &link));
        assert_eq!(told, ("INV-1".to_owned(), payment.to_owned(), money(500, "USD")), "{link}");
    }
    // Without a link one payment could count twice: a dead letter, which says with which version it came.
    for link in ["", r#","payment_intent":null"#, r#","payments":{"data":[]}"#, r#","payments":null"#] {
        let event = invoice("500", link);
        unreadable(&event, "invoice.paid (version 2024-06-20): there is no payment at");
    }
    // Nothing was due, so there is no payment to link to.
    let free = invoice("0", r#","payment_intent":null"#);
    assert_eq!(paid(free), ("INV-1".to_owned(), "in_1".to_owned(), money(0, "USD")));
    ignored(&invoice("null", ""), "guards do not hold");
}

#[test]
fn a_thin_event_means_nothing_here() {
    let body = r#"{"id":"evt_v2","object":"v2.core.event","type":"v1.billing.meter.error_report_triggered",
        "livemode":true,"created":"2026-03-01T10:00:00.000Z","related_object":{"id":"mtr_1","url":"/v1"}}"#;
    let event = Endpoint::live("stripe").read(&[], body);
    ignored(&event, "this event type is not mapped");
    assert_eq!((event.id.as_str(), event.occurred_at), ("evt_v2", None));
    // The same time at an event that means something decides which fact counts, so it has to be one.
    let mapped = body.replace("v1.billing.meter.error_report_triggered", "payment_intent.succeeded");
    unreadable(&Endpoint::live("stripe").read(&[], mapped), "the time at /created");
}

#[test]
fn only_money_that_was_captured_is_a_payment() {
    let partial = r#"{"id":"pi_1","amount":2000,"amount_received":500,"currency":"usd","metadata":{"invoice_id":"INV-1"}}"#;
    assert_eq!(paid(stripe("payment_intent.succeeded", partial)).2, money(500, "USD"));
    let charge = |captured: &str| {
        let object = format!(
            r#"{{"id":"ch_1","payment_intent":"pi_1","amount":2000,"amount_captured":500,"currency":"usd","metadata":{OURS}{captured}}}"#
        );
        stripe("charge.succeeded", &object)
    };
    let told = paid(charge(",\"captured\":true"));
    assert_eq!(told, ("INV-1".to_owned(), "pi_1".to_owned(), money(500, "USD")));
    for other in
        [",\"captured\":false", "", ",\"captured\":null", ",\"captured\":\"true\"", ",\"captured\":1"]
    {
        ignored(&charge(other), "guards do not hold");
    }
}

#[test]
fn a_refund_that_is_pending_is_no_money_yet() {
    let refund = |kind: &str, status: &str| {
        let object = format!(
            r#"{{"id":"re_1","payment_intent":"pi_1","amount":500,"currency":"usd","status":{status}}}"#
        );
        stripe(kind, &object)
    };
    let failed = |event: Event| match changes(event).as_slice() {
        [Change::Invoice(change)] => match &change.fact {
            InvoiceFact::Refund { failed, .. } if change.number.is_none() => *failed,
            other => panic!("{other:?}"),
        },
        other => panic!("{other:?}"),
    };
    assert!(!failed(refund("refund.created", "\"succeeded\"")));
    assert!(!failed(refund("refund.updated", "\"succeeded\"")));
    assert!(failed(refund("refund.updated", "\"failed\"")));
    assert!(failed(refund("refund.failed", "\"canceled\"")));
    for status in ["\"pending\"", "\"requires_action\"", "null", "true"] {
        ignored(&refund("refund.created", status), "guards do not hold");
        ignored(&refund("refund.updated", status), "guards do not hold");
    }
}

// --- Shopify ---

fn topic(topic: &'static str) -> (&'static str, &'static str) {
    ("x-shopify-topic", topic)
}

/// An order that is paid, with more fields or other ones.
fn order(more: &str) -> String {
    let order = r##"{"id":820982911946154508,"name":"#1001","total_price":"398.00","currency":"USD",
        "financial_status":"paid","cancelled_at":null,"updated_at":"2026-03-01T10:00:00+08:00"}"##;
    order.replacen('}', &format!("{more}}}"), 1)
}

fn shopify(name: &'static str, body: impl AsRef<[u8]>) -> Event {
    Endpoint::live("shopify").read(&[topic(name), ("x-shopify-webhook-id", "w-1")], body)
}

#[test]
fn major_units_are_turned_into_minor_ones_without_rounding() {
    let issued = |price: &str, currency: &str| {
        let body = order("").replace("\"398.00\"", price).replace("USD", currency);
        shopify("orders/create", body)
    };
    for (price, currency, minor) in [
        ("\"500\"", "JPY", 500),
        ("\"500.00\"", "JPY", 500),
        ("\"10.1\"", "USD", 1010),
        ("\"10.10\"", "USD", 1010),
        ("10.10", "USD", 1010),
        ("1.01e1", "USD", 1010),
        ("\"1.234\"", "KWD", 1234),
        ("\"0.00\"", "USD", 0),
        // Shopify writes whole kronur: the exception of Stripe's minor units is not Shopify's.
        ("\"500\"", "ISK", 500),
    ] {
        match changes(issued(price, currency)).as_slice() {
            [Change::Invoice(change)] => {
                assert_eq!(change.fact, InvoiceFact::Issued { amount: money(minor, currency) }, "{price}");
            }
            other => panic!("{other:?}"),
        }
    }
    for (price, currency) in
        [("\"10.105\"", "USD"), ("\"500.5\"", "JPY"), ("\"1.2345\"", "KWD"), ("10.105", "USD")]
    {
        unreadable(&issued(price, currency), "is not a whole number of minor units of");
    }
    unreadable(&issued("\"-1.00\"", "USD"), "is negative");
}

#[test]
fn a_topic_that_the_body_does_not_confirm_is_unreadable() {
    let refund =
        r#"{"id":7,"order_id":820982911946154508,"created_at":"2026-03-01T10:00:00Z","transactions":[]}"#;
    for (name, body, place) in [
        ("orders/create", refund.to_owned(), "/total_price"),
        ("orders/updated", refund.to_owned(), "/total_price"),
        ("orders/paid", refund.to_owned(), "/total_price"),
        ("orders/paid", order("").replace("\"paid\"", "\"pending\""), "/financial_status"),
        ("orders/paid", order("").replace("\"paid\"", "null"), "/financial_status"),
        ("orders/paid", order("").replace("\"paid\"", "true"), "/financial_status"),
        ("orders/cancelled", order(""), "/cancelled_at"),
        ("refunds/create", order(""), "/order_id"),
    ] {
        unreadable(&shopify(name, body), &format!("does not confirm the event type at {place}"));
    }
    let cancelled = order("").replace("\"cancelled_at\":null", "\"cancelled_at\":\"2026-03-01T09:00:00Z\"");
    assert_eq!(changes(shopify("orders/cancelled", cancelled)).len(), 2);
    ignored(&shopify("orders/edited", r#"{"order_edit":{"id":1}}"#), "this event type is not mapped");
    ignored(&Endpoint::live("shopify").read(&[], order("")), "this event type is not mapped");
    let twice = [topic("orders/create"), topic("orders/paid")];
    unreadable(&Endpoint::live("shopify").read(&twice, order("")), "a header that stands there twice");
}

#[test]
fn a_refund_document_counts_the_transactions_that_are_money() {
    let refund = |transactions: &str| {
        let body = format!(
            r#"{{"id":9007199254740993,"order_id":820982911946154508,"created_at":"2026-03-01T10:00:00Z","transactions":{transactions}}}"#
        );
        shopify("refunds/create", body)
    };
    let transaction = |id: &str, kind: &str, status: &str| {
        format!(r#"{{"id":{id},"kind":"{kind}","status":"{status}","amount":"40.00","currency":"USD"}}"#)
    };
    let fact = |id: &str| InvoiceFact::Refund {
        payment: "order:820982911946154508".to_owned(),
        refund: id.to_owned(),
        amount: money(4000, "USD"),
        failed: false,
    };
    let facts = |event: Event| -> Vec<InvoiceFact> {
        let facts = changes(event).into_iter().map(|change| match change {
            Change::Invoice(change) => change.fact,
            other => panic!("{other:?}"),
        });
        facts.collect()
    };
    // Ids above 2^53 are told digit by digit.
    let done = transaction("9007199254740993", "refund", "success");
    assert_eq!(facts(refund(&format!("[{done}]"))), [fact("9007199254740993")]);
    let other = transaction("\"18446744073709551617\"", "refund", "success");
    let pending = transaction("1", "refund", "pending");
    let sale = transaction("2", "sale", "success");
    let mixed = format!("[{pending},{done},{sale},{other}]");
    assert_eq!(facts(refund(&mixed)), [fact("9007199254740993"), fact("18446744073709551617")]);
    for none in [format!("[{pending}]"), format!("[{sale},{pending}]"), "[]".to_owned(), "[ ]".to_owned()] {
        ignored(&refund(&none), "guards do not hold");
    }
    unreadable(&refund("null"), "there is no list at /transactions");
    unreadable(&refund("{}"), "at /transactions there is an object, not a list");
    let broken = done.replace("\"40.00\"", "\"40.005\"");
    unreadable(&refund(&format!("[{broken},{done}]")), "minor units of USD");
}

#[test]
fn a_test_order_is_ignored_by_header_and_by_body() {
    let header = ("x-shopify-test", "true");
    let event = Endpoint::live("shopify").read(&[topic("orders/paid"), header], order(""));
    ignored(&event, "it is a test event");
    ignored(&shopify("orders/paid", order(",\"test\":true")), "it is a test event");
    assert_eq!(changes(shopify("orders/paid", order(",\"test\":false"))).len(), 2);
    assert_eq!(changes(Endpoint::test("shopify").read(&[topic("orders/paid"), header], order(""))).len(), 2);
}

#[test]
fn times_are_read_as_instants() {
    let at = |time: &str| {
        let body = order("").replace("\"2026-03-01T10:00:00+08:00\"", time);
        shopify("orders/paid", body)
    };
    let instant = |time: &str| at(time).occurred_at.unwrap();
    assert_eq!(instant("\"2026-03-01T10:00:00+08:00\""), instant("\"2026-03-01T02:00:00Z\""));
    assert!(instant("\"2026-03-01T10:00:00+08:00\"") < instant("\"2026-03-01T03:30:00Z\""));
    assert!(instant("\"2026-03-01T03:30:00Z\"") < instant("\"2026-03-01T03:30:00.000001Z\""));
    for time in [
        "\"2026-03-01\"",
        "\"2026-03-01 10:00:00\"",
        "\"yesterday\"",
        "1764590400",
        "\"1969-12-31T23:59:59Z\"",
    ] {
        unreadable(&at(time), "the time at /updated_at");
    }
    assert_eq!(at("null").occurred_at, None);
}

// --- Warehouses ---

fn counted(event: Event) -> (String, Counting, Vec<(String, i64, i64)>) {
    let all = changes(event);
    let Some(Change::Receipt(change)) = all.first() else { panic!("{all:?}") };
    let ReceiptFact::Received { counting, lines } = &change.fact else { panic!("{change:?}") };
    let lines =
        lines.iter().map(|CountedLine { sku, received, rejected }| (sku.clone(), *received, *rejected));
    (change.number.clone(), counting.clone(), lines.collect())
}

fn line(sku: &str, received: i64, rejected: i64) -> (String, i64, i64) {
    (sku.to_owned(), received, rejected)
}

#[test]
fn shiphero_is_read_nested_and_flat() {
    let shiphero = Endpoint::live("shiphero");
    let id = [("x-shiphero-message-id", "m-1")];
    let flat = r#""po_number":"PO-1","line_items":[{"sku":"A","quantity_received":4},{"sku":"B","quantity_received":"0"}]"#;
    let wanted = ("PO-1".to_owned(), Counting::Totals, vec![line("A", 4, 0), line("B", 0, 0)]);
    for body in [
        format!(r#"{{"webhook_type":"PO Update",{flat}}}"#),
        format!(r#"{{"webhook_type":"PO Update","purchase_order":{{{flat}}}}}"#),
        format!(r#"{{"purchase_order":{{"webhook_type":"PO Update",{flat}}}}}"#),
        format!(r#"{{"webhook_type":"PO Update","purchase_order":null,{flat}}}"#),
    ] {
        assert_eq!(counted(shiphero.read(&id, &body)), wanted, "{body}");
    }
    for (body, reason) in [
        (r#"{"webhook_type":"PO Update"}"#, "there is no receipt at /purchase_order/po_number or /po_number"),
        (r#"{"webhook_type":"PO Update","po_number":"PO-1"}"#, "there is no list at"),
        (
            r#"{"webhook_type":"PO Update","po_number":"PO-1","line_items":{}}"#,
            "there is an object, not a list",
        ),
        (r#"{"webhook_type":"PO Update","po_number":"PO-1","line_items":["A"]}"#, "there is no sku at @/sku"),
        (r#"{"webhook_type":"PO Update","po_number":{"id":1},"line_items":[]}"#, "is an object"),
    ] {
        unreadable(&shiphero.read(&id, body), reason);
    }
    ignored(&shiphero.read(&id, "{}"), "this event type is not mapped");
    for test in ["\"1\"", "1", "true"] {
        let body = format!(r#"{{"webhook_type":"PO Update","test":{test},{flat}}}"#);
        ignored(&shiphero.read(&id, body), "it is a test event");
    }
    let body = format!(r#"{{"webhook_type":"PO Update","test":"0",{flat}}}"#);
    assert_eq!(counted(shiphero.read(&id, body)), wanted);
}

#[test]
fn an_event_without_an_id_has_the_digest_of_its_body() {
    let body = r#"{"webhook_type":"Inventory Update"}"#;
    let shiphero = Endpoint::live("shiphero");
    assert_eq!(shiphero.read(&[], body).id, digest_id(body));
    assert_eq!(shiphero.read(&[("x-shiphero-message-id", "")], body).id, digest_id(body));
    assert_eq!(shiphero.read(&[("x-shiphero-message-id", "m-1")], body).id, "m-1");
    let twice = [("x-shiphero-message-id", "m-1"), ("x-shiphero-message-id", "m-2")];
    let event = shiphero.read(&twice, body);
    unreadable(&event, "the event id at header x-shiphero-message-id is a header that stands there twice");
    assert_eq!(event.id, digest_id(body));
}

fn warehouse(lines: &str) -> Event {
    let body = format!(
        r#"{{"type":"receipt.received","timestamp":"2026-03-01T10:00:00Z","data":{{"receipt":"ASN-1","counting":"totals","lines":{lines}}}}}"#
    );
    Endpoint::live("warehouse").read(&[("webhook-id", "msg_1")], body)
}

#[test]
fn packs_are_counted_as_the_units_in_them() {
    for (lines, wanted) in [
        (r#"[{"sku":"A","accepted":12,"unit":"EA"}]"#, line("A", 12, 0)),
        (r#"[{"sku":"A","accepted":1,"unit":"CS","per_case":12}]"#, line("A", 12, 0)),
        (r#"[{"sku":"A","accepted":"1.0","unit":"CS","per_case":"12"}]"#, line("A", 12, 0)),
        (r#"[{"sku":"A","accepted":12}]"#, line("A", 12, 0)),
        (r#"[{"sku":"A","accepted":12,"unit":null}]"#, line("A", 12, 0)),
        // One SKU on several lines is one line here.
        (
            r#"[{"sku":"A","accepted":6,"unit":"EA"},{"sku":"A","accepted":1,"unit":"CS","per_case":6}]"#,
            line("A", 12, 0),
        ),
        // What was not accepted came, too.
        (r#"[{"sku":"A","accepted":1,"rejected":1,"unit":"CS","per_case":6}]"#, line("A", 12, 6)),
    ] {
        assert_eq!(counted(warehouse(lines)).2, [wanted], "{lines}");
    }
    for (lines, reason) in [
        (r#"[{"sku":"A","accepted":1,"unit":"PAL"}]"#, "the unit at @/unit is none of those"),
        (r#"[{"sku":"A","accepted":1,"unit":"ea"}]"#, "the unit at @/unit is none of those"),
        (r#"[{"sku":"A","accepted":1,"unit":{}}]"#, "the unit at @/unit is an object"),
        (r#"[{"sku":"A","accepted":1,"unit":"CS"}]"#, "there is no per_pack at @/per_case"),
        (
            r#"[{"sku":"A","accepted":1,"unit":"CS","per_case":0}]"#,
            "the quantity per_pack at @/per_case is zero",
        ),
        (r#"[{"sku":"A","accepted":1,"unit":"CS","per_case":-1}]"#, "is negative"),
        (r#"[{"sku":"A","accepted":1,"unit":"CS","per_case":2.5}]"#, "is not a whole number"),
        (
            r#"[{"sku":"A","accepted":9223372036854775807,"unit":"CS","per_case":2}]"#,
            "a quantity is too large",
        ),
        (
            r#"[{"sku":"A","accepted":9223372036854775807},{"sku":"A","accepted":1}]"#,
            "a quantity is too large",
        ),
        (r#"[{"sku":"A","accepted":2.5}]"#, "the quantity received at @/accepted is not a whole number"),
        (r#"[{"sku":"A","accepted":-1}]"#, "the quantity received at @/accepted is negative"),
        (r#"[{"sku":"A","accepted":null}]"#, "there is no received at @/accepted"),
        (r#"[{"sku":null,"accepted":1}]"#, "there is no sku at @/sku"),
        (r#"[{"sku":"","accepted":1}]"#, "there is no sku at @/sku"),
        (r#"[{"accepted":1}]"#, "there is no sku at @/sku"),
        // One bad line of many: none is told.
        (
            r#"[{"sku":"A","accepted":1},{"sku":null,"accepted":1},{"sku":"B","accepted":1}]"#,
            "there is no sku",
        ),
        ("[null]", "there is no sku at @/sku"),
        ("null", "there is no list at /data/lines"),
    ] {
        unreadable(&warehouse(lines), reason);
    }
}

#[test]
fn an_empty_list_is_not_there_whatever_stands_between_its_brackets() {
    let shipbob = Endpoint::live("shipbob");
    let headers = [("webhook-id", "msg_1"), ("x-webhook-topic", "wro.box.stowed")];
    let event = |list: &str| {
        let body = format!(r#"{{"id":7,"status":"Arrived","inventory_quantities":{list}}}"#);
        shipbob.read(&headers, body)
    };
    for list in ["[]", "[ ]", "[\n\n]"] {
        unreadable(&event(list), "does not confirm the event type at /inventory_quantities");
    }
    let one = event(r#"[ {"sku":"A","received_quantity":3} ]"#);
    assert_eq!(counted(one), ("7".to_owned(), Counting::Totals, vec![line("A", 3, 0)]));
}

// --- Texts, keys and shapes ---

#[test]
fn an_id_is_short_and_storable_or_the_digest_stands_in() {
    let event = stripe_event("customer.created", "{}");
    let with = |id: &str| event.replace("evt_1", id);
    let stripe = Endpoint::live("stripe");
    // Characters are counted, not bytes.
    for id in ["e".repeat(255), "é".repeat(255)] {
        assert_eq!(stripe.read(&[], with(&id)).id, id);
    }
    for (id, reason) in [
        ("e".repeat(300), "the event id is longer than 255 characters"),
        ("é".repeat(256), "the event id is longer than 255 characters"),
        (r"evt_\u0000".to_owned(), "the event id contains U+0000"),
    ] {
        let body = with(&id);
        let event = stripe.read(&[], &body);
        unreadable(&event, reason);
        assert_eq!((event.id, event.kind), (digest_id(&body), String::new()));
    }
    let body = event.replace("customer.created", r"customer\u0000");
    unreadable(&stripe.read(&[], &body), "the event type contains U+0000");
    let body = event.replace("\"evt_1\"", "{\"id\":\"evt_1\"}");
    unreadable(&stripe.read(&[], &body), "the event id at /id is an object");
    assert_eq!(stripe.read(&[], event.replace("\"evt_1\"", "9007199254740993")).id, "9007199254740993");
}

#[test]
fn a_text_of_a_change_is_short_and_storable() {
    let invoice = |number: &str| payment_intent("500", "\"usd\"", &format!(r#"{{"invoice_id":"{number}"}}"#));
    let long = "ü".repeat(255);
    assert_eq!(paid(invoice(&long)).0, long);
    assert_eq!(paid(invoice(r"\u0049NV-1")).0, "INV-1");
    let event = invoice(&"I".repeat(256));
    unreadable(&event, "the invoice at /data/object/metadata/invoice_id is longer than 255");
    assert_eq!(event.id, "evt_1");
    unreadable(&invoice(r"INV\u0000"), "contains U+0000");
    unreadable(&warehouse(r#"[{"sku":"A\u0000","accepted":1}]"#), "the sku at @/sku contains U+0000");
    // What nobody looks at may hold it.
    let noted = payment_intent("500", "\"usd\"", r#"{"invoice_id":"INV-1","note":"\u0000"}"#);
    assert_eq!(paid(noted).0, "INV-1");
}

#[test]
fn two_answers_to_one_question_are_none() {
    let good = stripe_event(
        "payment_intent.succeeded",
        r#"{"id":"pi_1","amount_received":500,"currency":"usd","metadata":{"invoice_id":"INV-1"}}"#,
    );
    let stripe = Endpoint::live("stripe");
    let twice = |from: &str, to: &str| {
        assert!(good.contains(from));
        let body = good.replacen(from, to, 1);
        (stripe.read(&[], &body), digest_id(&body))
    };
    for (from, to, key) in [
        ("\"id\":\"evt_1\"", r#""id":"evt_1","id":"evt_2""#, "id"),
        ("\"id\":\"evt_1\"", r#""id":"evt_1","\u0069d":"evt_2""#, "id"),
        ("\"livemode\":true", r#""livemode":true,"livemode":false"#, "livemode"),
    ] {
        let (event, digest) = twice(from, to);
        unreadable(&event, &format!("the key `{key}` stands twice"));
        assert_eq!(event.id, digest);
    }
    for (from, to, key) in [
        ("\"amount_received\":500", r#""amount_received":500,"amount_received":900"#, "amount_received"),
        ("\"invoice_id\":\"INV-1\"", r#""invoice_id":"INV-1","invoice_id":"INV-2""#, "invoice_id"),
        ("\"data\":", r#""data":{},"data":"#, "data"),
    ] {
        let (event, _) = twice(from, to);
        unreadable(&event, &format!("the key `{key}` stands twice"));
        assert_eq!(event.id, "evt_1");
    }
    let (event, _) = twice("\"currency\"", r#""unused":1,"unused":2,"currency""#);
    assert_eq!(paid(event).2, money(500, "USD"));
}

#[test]
fn a_body_that_is_not_one_object_is_an_event_that_says_so() {
    for (body, reason) in [
        ("[]", "a list"),
        (r#"["evt_1","invoice.paid",{}]"#, "a list"),
        ("\"x\"", "a text"),
        ("1", "a number"),
        ("null", "null"),
        ("a=1&b=2", "not JSON"),
        ("", "empty"),
        (r#"{"id":"evt_1""#, "not JSON that can be read"),
        (r#"{"id":"evt_1"}{}"#, "not JSON that can be read"),
        (r#"{"note":"\ud83d","id":"evt_1"}"#, "half a surrogate pair"),
    ] {
        let event = Endpoint::live("stripe").read(&[], body);
        unreadable(&event, reason);
        assert_eq!(event.id, digest_id(body), "{body}");
    }
    let empty = Endpoint::live("stripe").read(&[], "{}");
    ignored(&empty, "it is a test event");
    assert_eq!(empty.id, digest_id("{}"));
}

/// Replaces every value of every fixture by odd ones, one at a time. Whatever comes of it can be stored.
#[test]
fn no_odd_value_in_any_field_makes_reading_panic() {
    const ODD: [&str; 14] = [
        "null",
        "true",
        "\"\"",
        "\" \"",
        "{}",
        "[]",
        "[{}]",
        "-1",
        "1e400",
        "1e-2147483648",
        "9223372036854775807",
        "0.1",
        r#""\u0000""#,
        r#""2026-13-41T99:99:99Z""#,
    ];
    let mut reads = 0;
    for (provider, headers, body) in fixtures() {
        let endpoint = Endpoint::live(&provider);
        let headers: Vec<_> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let whole: serde_json::Value = serde_json::from_str(&body).unwrap();
        for leaf in 0..leaves(&mut whole.clone(), usize::MAX) {
            let mut marked = whole.clone();
            leaves(&mut marked, leaf);
            let marked = marked.to_string();
            for odd in ODD {
                let body = marked.replace(MARK, odd);
                let event = endpoint.read(&headers, &body);
                let characters = event.id.chars().count();
                assert!((1..=255).contains(&characters) && !event.id.contains('\0'), "{body}");
                assert!(!event.kind.contains('\0'), "{body}");
                if let Content::Changes(changes) = &event.content {
                    assert!(!changes.is_empty() && changes.iter().all(tells_nothing_negative), "{body}");
                }
                reads += 1;
            }
        }
    }
    assert!(reads > 10_000, "{reads}");
}

/// In quotes, as it stands in the JSON.
const MARK: &str = "\"-- an odd value --\"";

/// Counts the values of a document, and puts the mark in the place of number `at`.
fn leaves(value: &mut serde_json::Value, at: usize) -> usize {
    fn walk(value: &mut serde_json::Value, at: usize, count: &mut usize) {
        let here = *count;
        *count += 1;
        match value {
            serde_json::Value::Object(fields) => fields.values_mut().for_each(|value| walk(value, at, count)),
            serde_json::Value::Array(items) => items.iter_mut().for_each(|value| walk(value, at, count)),
            _ => {}
        }
        if here == at {
            *value = serde_json::from_str(MARK).unwrap();
        }
    }
    let mut count = 0;
    walk(value, at, &mut count);
    count
}

fn tells_nothing_negative(change: &Change) -> bool {
    match change {
        Change::Invoice(change) => match &change.fact {
            InvoiceFact::Issued { amount }
            | InvoiceFact::Paid { amount, .. }
            | InvoiceFact::Refund { amount, .. }
            | InvoiceFact::Disputed { amount, .. }
            | InvoiceFact::RefundTotal { total: amount, .. } => amount.minor >= 0,
            InvoiceFact::PaymentFailed { .. } | InvoiceFact::Voided { .. } => true,
        },
        Change::Receipt(change) => match &change.fact {
            ReceiptFact::Announced { lines } => lines.iter().all(|line| line.expected >= 0),
            ReceiptFact::Received { lines, .. } => {
                lines.iter().all(|line| line.received >= 0 && line.rejected >= 0)
            }
            _ => true,
        },
        // Its fields are texts, which nobody counts with.
        Change::Own(_) => true,
    }
}

/// A fixture's provider, headers and body.
type Delivery = (String, Vec<(String, String)>, String);

fn fixtures() -> Vec<Delivery> {
    let mut found = Vec::new();
    for provider in Catalogue::built_in().iter() {
        for entry in fs::read_dir(repository().join("fixtures").join(&provider.name)).unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|extension| extension != "toml") {
                continue;
            }
            let file: toml::Table = fs::read_to_string(&path).unwrap().parse().unwrap();
            let headers = file["headers"].as_table().unwrap().iter();
            let headers = headers.map(|(name, value)| (name.clone(), value.as_str().unwrap().to_owned()));
            let body = fs::read_to_string(path.with_extension("json")).unwrap();
            found.push((provider.name.clone(), headers.collect(), body));
        }
    }
    found
}
