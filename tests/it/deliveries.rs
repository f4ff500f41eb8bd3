//! Deliveries over HTTP against the real program: answers, and what stands in the database afterwards.

use std::io::{BufReader, Write as _};
use std::net::TcpStream;
use std::time::Duration;

use crate::support::*;

#[test]
fn a_delivery_is_applied_once_and_its_repeats_are_duplicates() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 10_000).said(), PROCESSED);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 10_000).said(), DUPLICATE);
    assert_eq!(database.invoice("INV-1"), "paid|10000|0");
    assert_eq!(database.rows("select count(*) from invoice_entry"), "1");
    assert_eq!(
        database.rows("select event_type, aggregate_version, payload ->> 'status' from outbox"),
        "invoice.paid|1|paid"
    );
    assert_eq!(database.inbox(), "evt_1|processed|1");
}

#[test]
fn the_stored_body_is_the_signed_bytes() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let body = payment_succeeded("evt_raw", "pi_raw", "INV-1", 10_000).replace(
        "\"object\":\"event\"",
        r#""w":136.0, "u":"a\/b","n":"x\u0026y",  "e":"😀 \ud83d\ude00 \u2028""#,
    );
    assert_eq!(gateway.stripe(body.as_bytes()).said(), PROCESSED);
    let stored = database.rows("select encode(body, 'hex') from webhook_inbox");
    assert_eq!(stored, hex::encode(body.as_bytes()));
    let headers = database.rows("select headers::text from webhook_inbox");
    assert!(headers.contains("\"host\"") && !headers.contains("stripe-signature"), "{headers}");
}

#[test]
fn one_payment_told_by_several_events_is_credited_once() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 10_000).said(), PROCESSED);
    assert_eq!(gateway.pay("evt_2", "pi_1", "INV-1", 10_000).said(), PROCESSED);
    let charge = r#"{"id":"evt_3","type":"charge.succeeded","created":1764590401,"livemode":true,"data":{"object":{"id":"ch_1","payment_intent":"pi_1","captured":true,"amount_captured":10000,"currency":"usd","metadata":{"invoice_id":"INV-1"}}}}"#;
    assert_eq!(gateway.stripe(charge.as_bytes()).said(), PROCESSED);
    assert_eq!(database.invoice("INV-1"), "paid|10000|0");
    assert_eq!(database.rows("select count(*) from invoice_entry"), "1");
    assert_eq!(database.rows("select count(*) from outbox"), "1");
    assert_eq!(database.rows("select count(*) from webhook_inbox where status = 'processed'"), "3");
}

#[test]
fn twenty_copies_at_once_over_two_gateways_have_one_effect() {
    let database = Database::new();
    let gateways = [Gateway::start(&database), Gateway::start(&database)];
    for round in 1..=5 {
        let (event, payment, invoice) =
            (format!("evt_{round}"), format!("pi_{round}"), format!("INV-{round}"));
        let replies: Vec<Reply> = std::thread::scope(|scope| {
            let threads: Vec<_> = (0..20)
                .map(|copy| {
                    let gateway = &gateways[copy % 2];
                    let (event, payment, invoice) = (&event, &payment, &invoice);
                    scope.spawn(move || gateway.pay(event, payment, invoice, 10_000))
                })
                .collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });
        let processed = replies.iter().filter(|reply| reply.said() == PROCESSED).count();
        let duplicate = replies.iter().filter(|reply| reply.said() == DUPLICATE).count();
        assert_eq!((processed, duplicate), (1, 19));
        assert_eq!(database.invoice(&invoice), "paid|10000|0");
    }
    assert_eq!(database.rows("select count(*), sum(attempts) from webhook_inbox"), "5|5");
    assert_eq!(database.rows("select count(*) from outbox"), "5");
}

#[test]
fn a_refused_signature_leaves_no_row() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let body = payment_succeeded("evt_1", "pi_1", "INV-1", 10_000);
    let good = stripe_signature(body.as_bytes(), now());
    let stale = stripe_signature(body.as_bytes(), now() - 1000);
    let ahead = stripe_signature(body.as_bytes(), now() + 1000);
    let mut tampered = body.clone().into_bytes();
    tampered[40] ^= 1;
    let commas = ",".repeat(60_000);
    let refused = |headers: &[(&str, &str)], body: &[u8], class: &str| {
        let reply = gateway.post("/webhooks/stripe", headers, body);
        let said = format!(r#"{{"status":"refused","reason":"signature {class}"}}"#);
        assert_eq!(reply.said(), (401, said.as_str()));
    };
    refused(&[], body.as_bytes(), "missing");
    refused(&[("stripe-signature", "")], body.as_bytes(), "malformed");
    refused(&[("stripe-signature", &good)], &tampered, "wrong");
    refused(&[("stripe-signature", &stale)], body.as_bytes(), "stale");
    refused(&[("stripe-signature", &ahead)], body.as_bytes(), "from the future");
    refused(&[("stripe-signature", &commas)], body.as_bytes(), "malformed");
    refused(&[("stripe-signature", "t=1,v1=00"), ("Stripe-Signature", &good)], body.as_bytes(), "malformed");
    refused(&[("stripe-signature", &good), ("stripe-signature", &good)], body.as_bytes(), "malformed");
    assert_eq!(database.rows("select count(*) from webhook_inbox"), "0");
    let reply = gateway.post("/webhooks/stripe", &[("STRIPE-Signature", &good)], body.as_bytes());
    assert_eq!(reply.said(), PROCESSED, "the case of a header's name does not matter");
}

#[test]
fn what_is_not_a_delivery_gets_the_status_that_says_what_to_fix() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let body = payment_succeeded("evt_1", "pi_1", "INV-1", 10_000);
    let signature = stripe_signature(body.as_bytes(), now());
    let signed = [("stripe-signature", signature.as_str())];
    assert_eq!(gateway.post("/webhooks/nobody", &signed, body.as_bytes()).status, 404);
    assert_eq!(gateway.post("/", &signed, body.as_bytes()).status, 404);
    assert_eq!(gateway.post("/webhooks/../webhooks/stripe", &signed, body.as_bytes()).status, 404);
    let get = request(gateway.address, b"GET /webhooks/stripe HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    assert_eq!((get.status, get.headers["allow"].as_str()), (405, "POST"));
    let compressed = [signed[0], ("content-encoding", "gzip")];
    assert_eq!(gateway.post("/webhooks/stripe", &compressed, body.as_bytes()).status, 415);
    assert_eq!(database.rows("select count(*) from webhook_inbox"), "0");
    for content_type in ["text/plain", "application/json; charset=utf-8", "application/x-nonsense"] {
        let headers = [signed[0], ("content-type", content_type)];
        assert_eq!(gateway.post("/webhooks/stripe", &headers, body.as_bytes()).status, 200);
    }
    assert_eq!(gateway.post("/webhooks/stripe/", &signed, body.as_bytes()).said(), DUPLICATE);
    assert_eq!(request(gateway.admin, b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap().status, 200);
    assert_eq!(request(gateway.admin, b"GET /readyz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap().status, 200);
    assert_eq!(request(gateway.address, b"GET /healthz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap().status, 404);
}

#[test]
fn a_large_body_is_taken_and_a_too_large_one_gets_an_answer_that_can_be_read() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let order = payment_succeeded("evt_big", "pi_big", "INV-1", 10_000)
        .replace("\"object\":\"event\"", &format!("\"pad\":\"{}\"", "x".repeat(300_000)));
    assert_eq!(gateway.stripe(order.as_bytes()).said(), PROCESSED);

    let signature = stripe_signature(order.as_bytes(), now());
    let mut chunked = format!(
        "POST /webhooks/stripe HTTP/1.1\r\nhost: t\r\nstripe-signature: {signature}\r\ntransfer-encoding: chunked\r\n\r\n"
    )
    .into_bytes();
    for chunk in order.as_bytes().chunks(10_000) {
        chunked.extend_from_slice(format!("{:x}\r\n", chunk.len()).as_bytes());
        chunked.extend_from_slice(chunk);
        chunked.extend_from_slice(b"\r\n");
    }
    chunked.extend_from_slice(b"0\r\n\r\n");
    assert_eq!(request(gateway.address, &chunked).unwrap().said(), DUPLICATE);

    let exact = vec![b' '; 2 << 20];
    assert_eq!(gateway.stripe(&exact).said(), DEAD, "at the limit it is a body, if a useless one");
    let over = vec![b' '; (2 << 20) + 1];
    assert_eq!(gateway.stripe(&over).status, 413);
    assert_eq!(gateway.stripe(&vec![b' '; 4 << 20]).status, 413);
    assert_eq!(database.rows("select count(*) from webhook_inbox"), "2");
}

#[test]
fn a_refusal_while_the_body_is_still_coming_does_not_spoil_the_next_request() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let mut stream = TcpStream::connect(gateway.address).unwrap();
    let junk = vec![b'x'; 1 << 20];
    let bad = post_bytes("/webhooks/stripe", &[("stripe-signature", "t=1,v1=00")], &junk);
    let head = bad.len() - junk.len();
    stream.write_all(&bad[..head]).unwrap();
    std::thread::sleep(Duration::from_millis(150));
    stream.write_all(&bad[head..]).unwrap();
    let body = payment_succeeded("evt_1", "pi_1", "INV-1", 10_000);
    let signature = stripe_signature(body.as_bytes(), now());
    let good = post_bytes("/webhooks/stripe", &[("stripe-signature", &signature)], body.as_bytes());
    stream.write_all(&good).unwrap();
    let mut stream = BufReader::new(stream);
    assert_eq!(read_reply(&mut stream).unwrap().status, 401);
    assert_eq!(read_reply(&mut stream).unwrap().said(), PROCESSED);
}

#[test]
fn a_body_that_does_not_come_is_not_waited_for_for_ever() {
    let database = Database::new();
    let limits = "header_timeout_ms = 500\nbody_timeout_ms = 500";
    let gateway = Gateway::start_with(&database.url, limits);
    let half = b"POST /webhooks/stripe HTTP/1.1\r\nhost: t\r\ncontent-length: 100\r\n\r\nhalf";
    assert_eq!(request(gateway.address, half).unwrap().status, 408);
    let no_end = b"POST /webhooks/stripe HTTP/1.1\r\nhost: t\r\nx: ";
    assert_eq!(request(gateway.address, no_end).unwrap().status, 408);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 10_000).said(), PROCESSED);
}

#[test]
fn odd_bodies_are_dead_letters_and_never_a_loop_of_500s() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let good = payment_succeeded("evt_1", "pi_1", "INV-1", 10_000);
    let deep = format!("{{\"a\":{}{},{}", "[".repeat(128), "]".repeat(128), &good[1..]);
    let with_key = |key: &str| good.replace("\"object\":\"event\"", key).into_bytes();
    let odd: Vec<Vec<u8>> = vec![
        b"[]".to_vec(),
        br#"["evt_1","payment_intent.succeeded",{}]"#.to_vec(),
        b"\"x\"".to_vec(),
        b"1".to_vec(),
        b"null".to_vec(),
        b"".to_vec(),
        b"not json".to_vec(),
        [b"\xef\xbb\xbf", good.as_bytes()].concat(),
        good.encode_utf16().flat_map(u16::to_le_bytes).collect(),
        with_key(r#""name":"\ud800""#),
        with_key(r#""name":"\udc00 x""#),
        [&good.as_bytes()[..20], b"\xff", &good.as_bytes()[20..]].concat(),
        with_key(r#""id":"evt_2""#),
        deep.into_bytes(),
        good.replace("evt_1", &"a".repeat(300)).into_bytes(),
        good.replace("evt_1", &"0123456789abcdef".repeat(200)).into_bytes(),
        good.replace("evt_1", r"evt_\u0000").into_bytes(),
        good.replace("INV-1", r"INV-\u0000").into_bytes(),
        good.replace("10000", "10.5").into_bytes(),
        good.replace("10000", "1e400").into_bytes(),
        good.replace("10000", "-5").into_bytes(),
        good.replace("\"usd\"", "\"dollars\"").into_bytes(),
    ];
    for (index, body) in odd.iter().enumerate() {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let reply = gateway.stripe(body);
        assert_eq!(reply.status, 200, "{index}: {shown}");
        assert!([DEAD, DUPLICATE].contains(&reply.said()), "{index}: {shown}: {}", reply.body);
        assert_eq!(gateway.stripe(body).said(), DUPLICATE, "{index}: {shown}");
    }
    assert_eq!(database.invoice("INV-1"), "awaiting_payment|0|0");
    assert_eq!(database.rows("select count(*) from webhook_inbox where status <> 'dead'"), "0");
    assert_eq!(
        database.rows(
            "select count(*) from webhook_inbox where last_error is null or error_kind <> 'unreadable'"
        ),
        "0"
    );
    let nul = good.replace("evt_1", "evt_ok").replace("\"object\":\"event\"", r#""name":"a\u0000b""#);
    assert_eq!(gateway.stripe(nul.as_bytes()).said(), PROCESSED, "U+0000 where nobody reads does no harm");
    let exact = good.replace("evt_1", "evt_exact").replace("pi_1", "pi_2").replace("10000", "1.00e2");
    assert_eq!(gateway.stripe(exact.as_bytes()).said(), PROCESSED);
    assert_eq!(database.invoice("INV-1"), "paid|10100|0");
}

#[test]
fn what_is_not_ours_is_ignored_on_record() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let good = payment_succeeded("evt_0", "pi_1", "INV-1", 10_000);
    let cases = [
        good.replace("evt_0", "evt_1").replace("\"livemode\":true", "\"livemode\":false"),
        good.replace("evt_0", "evt_2").replace("\"livemode\":true", "\"livemode\":\"true\""),
        good.replace("evt_0", "evt_3").replace("\"livemode\":true,", ""),
        good.replace("evt_0", "evt_4").replace(r#"{"invoice_id":"INV-1"}"#, "{}"),
        good.replace("evt_0", "evt_5").replace(r#"{"invoice_id":"INV-1"}"#, "null"),
        good.replace("evt_0", "evt_6").replace("INV-1", ""),
        good.replace("evt_0", "evt_7").replace("payment_intent.succeeded", "customer.created"),
    ];
    for case in &cases {
        assert_eq!(gateway.stripe(case.as_bytes()).said(), IGNORED, "{case}");
    }
    assert_eq!(database.invoice("INV-1"), "awaiting_payment|0|0");
    assert_eq!(
        database.rows(
            "select count(*) from webhook_inbox where status = 'ignored' and ignored_because is not null"
        ),
        "7"
    );
}

#[test]
fn a_failure_leaves_a_record_and_its_redelivery_runs_again() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    for _ in 0..3 {
        assert_eq!(gateway.pay("evt_1", "pi_1", "INV-77", 500).said(), FAILED);
    }
    assert_eq!(
        database.rows(
            "select status, attempts, error_kind, last_error, octet_length(body) > 100 from webhook_inbox"
        ),
        "failed|3|invoice_not_found|invoice INV-77 is not there|true"
    );
    assert_eq!(database.rows("select count(*) from webhook_attempt where outcome = 'failed'"), "3");
    database.execute(
        "insert into invoice (tenant_id, number, currency, amount_due) select id, 'INV-77', 'USD', 500 from tenant",
    );
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-77", 500).said(), PROCESSED);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-77", 500).said(), DUPLICATE);
    assert_eq!(database.inbox(), "evt_1|processed|4");
    assert_eq!(database.invoice("INV-77"), "paid|500|0");
}

#[test]
fn a_contradiction_is_dead_at_once() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let euros = payment_succeeded("evt_1", "pi_1", "INV-1", 500).replace("usd", "eur");
    assert_eq!(gateway.stripe(euros.as_bytes()).said(), DEAD);
    assert_eq!(
        database.rows("select status, error_kind, last_error from webhook_inbox"),
        "dead|currency_differs|invoice INV-1 is in USD, the event is in EUR"
    );
    assert_eq!(gateway.stripe(euros.as_bytes()).said(), DUPLICATE);
}

fn order(name: &str, status: &str, total: &str, updated: &str) -> String {
    format!(
        r#"{{"id":820982911946154508,"name":"{name}","currency":"USD","total_price":"{total}","current_total_price":"{total}","financial_status":"{status}","cancelled_at":null,"updated_at":"{updated}"}}"#
    )
}

#[test]
fn shopify_is_answered_before_it_gives_up_on_us() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let refund = br#"{"id":1,"order_id":99,"created_at":"2026-01-01T00:00:00Z","transactions":[{"id":7,"kind":"refund","status":"success","amount":"1.00","currency":"USD"}]}"#;
    for delivery in 1..=9 {
        let reply = gateway.shopify("w-1", "refunds/create", refund);
        let wanted = match delivery {
            1..=6 => FAILED,
            7 => DEAD,
            _ => DUPLICATE,
        };
        assert_eq!(reply.said(), wanted, "delivery {delivery}");
        let healthy = order(&format!("#{delivery}"), "paid", "5.00", "2026-01-01T00:00:00Z");
        let healthy = healthy.replace("508", &format!("5{delivery}8"));
        assert_eq!(
            gateway.shopify(&format!("h-{delivery}"), "orders/paid", healthy.as_bytes()).said(),
            PROCESSED
        );
    }
}

#[test]
fn an_order_may_come_paid_before_it_comes_created() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let paid = order("#1001", "paid", "10.10", "2026-03-01T10:00:05+08:00");
    let created = order("#1001", "pending", "10.10", "2026-03-01T02:00:01Z");
    assert_eq!(gateway.shopify("w-1", "orders/paid", paid.as_bytes()).said(), PROCESSED);
    assert_eq!(gateway.shopify("w-2", "orders/create", created.as_bytes()).said(), PROCESSED);
    assert_eq!(gateway.shopify("w-3", "orders/paid", paid.as_bytes()).said(), PROCESSED);
    assert_eq!(database.invoice("#1001"), "paid|1010|0");
    assert_eq!(database.rows("select amount_due from invoice where number = '#1001'"), "1010");
    let unconfirmed = order("#1002", "pending", "10.10", "2026-03-01T10:00:05+08:00");
    assert_eq!(gateway.shopify("w-4", "orders/paid", unconfirmed.as_bytes()).said(), DEAD);
    assert_eq!(database.rows("select count(*) from invoice where number = '#1002'"), "0");
}

#[test]
fn an_order_paid_in_parallel_with_its_creation_is_one_invoice() {
    let database = Database::new();
    let gateways = [Gateway::start(&database), Gateway::start(&database)];
    std::thread::scope(|scope| {
        for n in 0..20 {
            for (topic, status) in
                [("orders/create", "pending"), ("orders/paid", "paid"), ("orders/updated", "paid")]
            {
                let gateway = &gateways[n % 2];
                scope.spawn(move || {
                    let body = order(&format!("#{n}"), status, "7.00", "2026-03-01T10:00:05Z")
                        .replace("154508", &format!("1545{n}"));
                    let reply = gateway.shopify(&format!("{topic}-{n}"), topic, body.as_bytes());
                    assert_eq!(reply.said(), PROCESSED, "{topic} {n}");
                });
            }
        }
    });
    assert_eq!(
        database.rows("select status, amount_due, amount_paid, count(*) from invoice where number like '#%' group by 1, 2, 3"),
        "paid|700|700|20"
    );
}

#[test]
fn an_unknown_sku_stops_the_whole_receipt_until_it_is_there() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let announced = br#"{"type":"receipt.announced","timestamp":"2026-01-01T00:00:00Z","data":{"receipt":"ASN-1","lines":[{"sku":"A","expected":5},{"sku":"NEW","expected":6},{"sku":"B","expected":7}]}}"#;
    assert_eq!(gateway.warehouse("m-1", announced).said(), FAILED);
    assert_eq!(database.rows("select last_error from webhook_inbox"), "SKU NEW is not there");
    assert_eq!(
        database.rows("select count(*) from receipt"),
        "0",
        "the row that was made to be locked is gone"
    );
    assert_eq!(database.rows("select sum(on_order) from sku_position"), "0");
    database.execute("insert into sku_position (tenant_id, sku) select id, 'NEW' from tenant");
    assert_eq!(gateway.warehouse("m-1", announced).said(), PROCESSED);
    assert_eq!(database.rows("select sku, on_order from sku_position order by sku"), "A|5\nB|7\nNEW|6");
}

#[test]
fn totals_and_deltas_of_a_receipt_count_once_however_often_they_are_told() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let announce = |receipt: &str| {
        format!(
            r#"{{"type":"receipt.announced","timestamp":"2026-01-01T00:00:00Z","data":{{"receipt":"{receipt}","lines":[{{"sku":"A","expected":100}}]}}}}"#
        )
    };
    let count = |receipt: &str, what: &str, quantity: i64, at: &str| {
        format!(
            r#"{{"type":"receipt.received","timestamp":"{at}","data":{{"receipt":"{receipt}",{what},"lines":[{{"sku":"A","accepted":{quantity}}}]}}}}"#
        )
    };
    for receipt in ["T", "D"] {
        assert_eq!(
            gateway.warehouse(&format!("a-{receipt}"), announce(receipt).as_bytes()).said(),
            PROCESSED
        );
    }
    let totals = r#""counting":"totals""#;
    let notices = [r#""counting":"deltas","notice":"N1""#, r#""counting":"deltas","notice":"N2""#];
    std::thread::scope(|scope| {
        for copy in 0..4 {
            for (name, body) in [
                ("t40", count("T", totals, 40, "2026-01-02T00:00:00Z")),
                ("t100", count("T", totals, 100, "2026-01-03T00:00:00Z")),
                ("d40", count("D", notices[0], 40, "2026-01-02T00:00:00Z")),
                ("d60", count("D", notices[1], 60, "2026-01-03T00:00:00Z")),
            ] {
                let gateway = &gateway;
                scope.spawn(move || {
                    let reply = gateway.warehouse(&format!("{name}-{copy}"), body.as_bytes());
                    assert_eq!(reply.said(), PROCESSED, "{name}");
                });
            }
        }
    });
    let lines = "select number, status, quantity_received from receipt join receipt_line on receipt_id = receipt.id order by 1";
    assert_eq!(database.rows(lines), "D|received|100\nT|received|100");
    assert_eq!(database.rows("select on_hand, on_order from sku_position where sku = 'A'"), "200|0");
    assert_eq!(
        database.rows("select sum(on_hand_delta), sum(on_order_delta) from stock_entry where sku = 'A'"),
        "200|0"
    );
}

#[test]
fn two_receipts_with_the_same_skus_in_opposite_order_do_not_deadlock() {
    let database = Database::new();
    let gateways = [Gateway::start(&database), Gateway::start(&database)];
    std::thread::scope(|scope| {
        for (worker, (first, second)) in [("A", "B"), ("B", "A")].into_iter().enumerate() {
            let gateway = &gateways[worker];
            scope.spawn(move || {
                for round in 0..100 {
                    let body = format!(
                        r#"{{"type":"receipt.announced","timestamp":"2026-01-01T00:00:00Z","data":{{"receipt":"R{worker}-{round}","lines":[{{"sku":"{first}","expected":1}},{{"sku":"{second}","expected":2}}]}}}}"#
                    );
                    assert_eq!(gateway.warehouse(&format!("m{worker}-{round}"), body.as_bytes()).said(), PROCESSED);
                }
            });
        }
    });
    assert_eq!(database.rows("select sku, on_order from sku_position order by 1"), "A|300\nB|300");
    assert_eq!(
        database.rows("select deadlocks from pg_stat_database where datname = current_database()"),
        "0"
    );
}
