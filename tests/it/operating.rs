//! Failures and what becomes of them: on record, tried again, held back where all fail alike, applied once.

use std::sync::Barrier;

use crate::support::*;

const OWN_RETRIES_OFF: &str = "retries = false";

/// Moves what has failed back in time.
fn age(database: &Database, minutes: u32) {
    database.execute(&format!("update webhook_inbox set received_at = now() - interval '{minutes} minutes'"));
}

/// What has failed is due at once.
fn due(database: &Database) {
    database.execute("update webhook_inbox set next_attempt_at = now() where status = 'failed'");
}

fn audit_is_clean(database: &Database) {
    let ran = Desk::new(database).run(&["audit"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    assert!(ran.out.ends_with("\nno breaks, no warnings\n"), "{}", ran.out);
}

#[test]
fn a_failing_event_is_on_record_dies_and_is_applied_once_by_an_operator() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, OWN_RETRIES_OFF);
    let desk = Desk::new(&database);
    let body = payment_succeeded("evt_1", "pi_1", "INV-77", 500)
        .replace(",\"data\"", ",\t \"e\":\"\\u00fc😀\",\"data\"");
    let deliver = || gateway.stripe(body.as_bytes());
    for _ in 0..3 {
        assert_eq!(deliver().said(), FAILED);
    }
    let row = "select id, status, attempts, error_kind, last_error, encode(body, 'hex') from webhook_inbox";
    let hex = hex::encode(&body);
    assert_eq!(database.rows(row), format!("1|failed|3|invoice_not_found|invoice INV-77 is not there|{hex}"));
    let history = "select inbox_id, origin, operator, reason, outcome, error_kind, error from webhook_attempt order by at";
    let failed = "1|delivery|||failed|invoice_not_found|invoice INV-77 is not there";
    assert_eq!(database.rows(history), [failed; 3].join("\n"));

    age(&database, 16);
    assert_eq!(deliver().said(), FAILED, "old enough, but not tried enough");
    assert_eq!(deliver().said(), DEAD);
    assert_eq!(deliver().said(), DUPLICATE);
    assert_eq!(database.rows(row), format!("1|dead|5|invoice_not_found|invoice INV-77 is not there|{hex}"));

    let ran = desk.run(&["inbox", "reprocess", "1", "--yes", "--reason", "too early"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.out,
        "1  dead  invoice_not_found: invoice INV-77 is not there\n0 applied, 1 not applied\n"
    );
    database.insert_invoice("INV-77", 500);
    assert_eq!(deliver().said(), DUPLICATE, "a dead letter is its operator's");
    let ran =
        desk.out(&["inbox", "reprocess", "1", "--yes", "--reason", "written late", "--operator", "otto"]);
    assert_eq!(ran, "1 applied\n");
    assert_eq!(database.invoice("INV-77"), "paid|500|0");
    assert_eq!(deliver().said(), DUPLICATE);
    let again = desk.run(&["inbox", "reprocess", "evt_1", "--yes"]);
    assert_eq!((again.code, again.out.as_str()), (3, ""));
    assert_eq!(
        again.err,
        "evt_1 left out: it is processed\nwharf: nothing matched; see `wharf inbox list`\n"
    );

    assert_eq!(database.rows(row), format!("1|processed|7|||{hex}"));
    let dead = "1|delivery|||dead|invoice_not_found|invoice INV-77 is not there";
    let by_operators = [
        "1|reprocess|olga|too early|dead|invoice_not_found|invoice INV-77 is not there",
        "1|reprocess|otto|written late|processed||",
    ];
    assert_eq!(database.rows(history), [&[failed; 4][..], &[dead], &by_operators].concat().join("\n"));
    assert_eq!(database.invoice("INV-77"), "paid|500|0");
    assert_eq!(database.rows("select count(*), sum(amount) from invoice_entry"), "1|500");
    assert_eq!(database.rows("select event_type, aggregate_version from outbox"), "invoice.paid|1");
    audit_is_clean(&database);
}

#[test]
fn an_event_whose_cause_is_gone_heals_without_a_redelivery() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, OWN_RETRIES_OFF);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-77", 500).said(), FAILED);
    assert_eq!(
        database.rows("select next_attempt_at - now() between '1 s' and '8 s' from webhook_inbox"),
        "true",
        "the first retry comes within seconds"
    );
    database.insert_invoice("INV-77", 500);
    due(&database);
    let gateway = Gateway::start(&database);
    database.wait_for("the retry", "select status, attempts from webhook_inbox", "processed|2");
    assert_eq!(
        database.rows("select origin, operator, outcome from webhook_attempt order by at"),
        "delivery||failed\nretry||processed"
    );
    assert_eq!(database.invoice("INV-77"), "paid|500|0");
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-77", 500).said(), DUPLICATE);
    gateway.wait_for_log("\"retry settled\"");
    database.wait_for(
        "what a retry applied counts as applied",
        "select last_applied_at is not null, processed from endpoint_activity",
        "true|0",
    );
    assert_tells_no_secret(&gateway.log());
}

#[test]
fn every_failure_waits_longer_for_the_next_retry() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, OWN_RETRIES_OFF);
    for attempt in 1..=12 {
        assert_eq!(gateway.pay("evt_1", "pi_1", "INV-77", 500).said(), FAILED);
        let seconds = (5 << (attempt - 1)).min(3600);
        let within = format!(
            "select next_attempt_at - now() between make_interval(secs => {} ) and make_interval(secs => {})
             from webhook_inbox",
            f64::from(seconds) * 0.5 - 1.0,
            f64::from(seconds) * 1.5
        );
        assert_eq!(database.rows(&within), "true", "after attempt {attempt}");
    }
}

#[test]
fn redeliveries_that_race_with_retries_have_one_effect() {
    let database = Database::new();
    let gateways = [Gateway::start(&database), Gateway::start(&database)];
    let pay = |gateway: &Gateway, n: i32| gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), "INV-77", 100);
    for n in 0..12 {
        assert_eq!(pay(&gateways[0], n).said(), FAILED);
    }
    database.insert_invoice("INV-77", 1200);
    let barrier = Barrier::new(25);
    std::thread::scope(|scope| {
        for n in 0..24 {
            let (barrier, gateways) = (&barrier, &gateways);
            scope.spawn(move || {
                barrier.wait();
                let reply = pay(&gateways[n as usize % 2], n / 2);
                assert!([PROCESSED, DUPLICATE].contains(&reply.said()), "{reply:?}");
            });
        }
        due(&database);
        barrier.wait();
    });
    assert_eq!(database.invoice("INV-77"), "paid|1200|0");
    assert_eq!(
        database.rows(
            "select count(*), count(distinct inbox_id), count(distinct provider_ref) from invoice_entry"
        ),
        "12|12|12"
    );
    assert_eq!(database.rows("select count(*) from webhook_inbox where status <> 'processed'"), "0");
    audit_is_clean(&database);
}

#[test]
fn two_gateways_that_both_retry_apply_every_event_once() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, OWN_RETRIES_OFF);
    for n in 0..150 {
        assert_eq!(gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), "INV-77", 100).said(), FAILED);
    }
    database.insert_invoice("INV-77", 15_000);
    due(&database);
    let _gateways = [Gateway::start(&database), Gateway::start(&database)];
    let left = "select count(*) from webhook_inbox where status <> 'processed'";
    database.wait_for("all heal", left, "0");
    assert_eq!(database.invoice("INV-77"), "paid|15000|0");
    assert_eq!(
        database.rows(
            "select count(*), count(distinct inbox_id) from webhook_attempt
             where origin = 'retry' and outcome = 'processed'"
        ),
        "150|150"
    );
    assert_eq!(database.rows("select count(*), count(distinct inbox_id) from invoice_entry"), "150|150");
    audit_is_clean(&database);
}

#[test]
fn deliveries_count_against_a_providers_patience_and_retries_do_not() {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let refund = br#"{"id":1,"order_id":99,"created_at":"2026-01-01T00:00:00Z","transactions":[{"id":7,"kind":"refund","status":"success","amount":"1.00","currency":"USD"}]}"#;
    let deliver = || gateway.shopify("w-1", "refunds/create", refund);
    assert_eq!(deliver().said(), FAILED);
    due(&database);
    database.wait_for("a retry fails", "select status, attempts from webhook_inbox", "failed|2");
    database.execute(
        "insert into webhook_attempt (inbox_id, origin, outcome)
         select 1, 'retry', 'failed' from generate_series(1, 10);
         update webhook_inbox set attempts = 12, next_attempt_at = now() + interval '1 hour'",
    );
    for delivery in 2..=8 {
        let wanted = match delivery {
            ..7 => FAILED,
            7 => DEAD,
            _ => DUPLICATE,
        };
        assert_eq!(deliver().said(), wanted, "delivery {delivery}");
    }
    assert_eq!(
        database.rows("select origin, outcome, count(*) from webhook_attempt group by 1, 2 order by 1, 2"),
        "delivery|dead|1\ndelivery|failed|6\nretry|failed|11"
    );
}

/// Twelve events of one endpoint that fail alike and were tried often enough to die.
fn stalled(database: &Database, minutes: u32) {
    let gateway = Gateway::start_with(&database.url, OWN_RETRIES_OFF);
    for n in 0..12 {
        assert_eq!(gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), "INV-77", 100).said(), FAILED);
    }
    database.execute("update webhook_inbox set attempts = 5");
    age(database, minutes);
}

const BY_STATUS: &str = "select status, attempts, count(*) from webhook_inbox group by 1, 2 order by 1, 2";

#[test]
fn an_endpoint_where_all_fails_alike_holds_its_events_back_from_death_and_says_so() {
    let database = Database::new();
    stalled(&database, 20);
    due(&database);
    let gateway = Gateway::start(&database);
    database.wait_for("all are tried again, and none dies", BY_STATUS, "failed|6|12");
    gateway.wait_for_log(
        r#""message":"nothing of this endpoint is applied and all fails alike: its events are held back from becoming dead letters","endpoint":"stripe","error_kind":"invoice_not_found","events":12"#,
    );
    let desk = Desk::new(&database);
    let ran = desk.run(&["status"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let last = ran.out.lines().last().unwrap();
    assert_eq!(
        without_times(last),
        "stalls     stripe: nothing is applied, and 12 events fail with invoice_not_found since TIME; they are held \
         back from becoming dead letters"
    );
    std::thread::scope(|scope| {
        for n in 0..12 {
            let gateway = &gateway;
            scope.spawn(move || {
                let reply = gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), "INV-77", 100);
                assert_eq!(reply.said(), FAILED, "redeliveries that come together are held back, too");
            });
        }
    });
    database.insert_invoice("INV-77", 1200);
    due(&database);
    database.wait_for("when the cause is gone all heal", BY_STATUS, "processed|8|12");
    assert_eq!(database.invoice("INV-77"), "paid|1200|0");
    database.wait_for("it is seen", "select last_applied_at is not null from endpoint_activity", "true");
    assert_eq!(desk.run(&["status"]).code, 0);
}

#[test]
fn where_something_is_applied_events_die() {
    let database = Database::new();
    stalled(&database, 20);
    let gateway = Gateway::start_with(&database.url, OWN_RETRIES_OFF);
    assert_eq!(gateway.pay("evt_0", "pi_0", "INV-77", 100).said(), FAILED);
    assert_eq!(gateway.pay("evt_good", "pi_good", "INV-1", 100).said(), PROCESSED);
    database.wait_for("it is seen", "select last_applied_at is not null from endpoint_activity", "true");
    for n in 0..12 {
        assert_eq!(gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), "INV-77", 100).said(), DEAD, "{n}");
    }
}

#[test]
fn too_few_or_too_old_events_are_not_held_back() {
    let old = Database::new();
    stalled(&old, 24 * 60 + 1);
    let gateway = Gateway::start_with(&old.url, OWN_RETRIES_OFF);
    assert_eq!(gateway.pay("evt_0", "pi_0", "INV-77", 100).said(), DEAD);

    let few = Database::new();
    stalled(&few, 20);
    few.execute("delete from webhook_attempt; delete from webhook_inbox where id > 10");
    let gateway = Gateway::start_with(&few.url, OWN_RETRIES_OFF);
    assert_eq!(gateway.pay("evt_0", "pi_0", "INV-77", 100).said(), DEAD);
    assert!(!Desk::new(&few).run(&["status"]).out.contains("stalls"));
}

#[test]
fn killed_while_it_retries_a_gateway_leaves_every_event_to_be_applied_once() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, OWN_RETRIES_OFF);
    assert_eq!(gateway.pay("evt_0", "pi_0", "INV-77", 100).said(), FAILED);
    drop(gateway);
    // 2,000 more of it.
    database.execute(
        "insert into webhook_inbox (tenant_id, endpoint, provider, event_id, event_type, status, attempts, last_error,
                                    error_kind, fingerprint, about, headers, body, received_at, next_attempt_at)
         select tenant_id, endpoint, provider, 'evt_' || n, event_type, status, attempts, last_error, error_kind,
                fingerprint, about, headers,
                convert_to(replace(replace(convert_from(body, 'UTF8'), 'evt_0', 'evt_' || n), 'pi_0', 'pi_' || n), 'UTF8'),
                received_at, now()
         from webhook_inbox, generate_series(1, 2000) n",
    );
    database.insert_invoice("INV-77", 200_100);
    due(&database);
    let applied = || database.rows("select count(*) from invoice_entry").parse::<u32>().unwrap();
    let mut killed_amid = 0;
    for _ in 0..4 {
        let before = applied();
        let gateway = Gateway::start(&database);
        while applied() == before {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        gateway.kill_dash_9();
        database.wait_for_no_open_transaction();
        killed_amid += u32::from(applied() < 2001);
    }
    assert!(killed_amid > 0, "it was faster than the test");
    let _gateway = Gateway::start(&database);
    database.wait_for("all heal", "select count(*) from webhook_inbox where status <> 'processed'", "0");
    assert_eq!(database.invoice("INV-77"), "paid|200100|0");
    assert_eq!(database.rows("select count(*), count(distinct inbox_id) from invoice_entry"), "2001|2001");
    audit_is_clean(&database);
}

#[test]
fn status_tells_how_it_stands_and_what_waits_for_a_person() {
    let database = Database::new();
    let desk = Desk::new(&database);
    assert_eq!(desk.out(&["status"]), "nothing has come in yet\n");
    let mut gateway = Gateway::start_with(&database.url, OWN_RETRIES_OFF);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 10_000).said(), PROCESSED);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 10_000).said(), DUPLICATE);
    let unknown = payment_succeeded("evt_2", "pi_2", "INV-1", 1).replace("payment_intent.succeeded", "x.y");
    assert_eq!(gateway.stripe(unknown.as_bytes()).said(), IGNORED);
    let euros = payment_succeeded("evt_3", "pi_3", "INV-1", 500).replace("usd", "eur");
    assert_eq!(gateway.stripe(euros.as_bytes()).said(), DEAD);
    assert_eq!(gateway.pay("evt_4", "pi_4", "INV-77", 500).said(), FAILED);
    for _ in 0..3 {
        assert_eq!(gateway.post("/webhooks/stripe", &[("stripe-signature", "t=1,v1=00")], b"{}").status, 401);
    }
    let announced = br#"{"type":"receipt.announced","timestamp":"2026-01-01T00:00:00Z","data":{"receipt":"ASN-1","lines":[{"sku":"A","expected":5}]}}"#;
    assert_eq!(gateway.warehouse("m-1", announced).said(), PROCESSED);
    gateway.terminate();
    assert_eq!(gateway.wait().code(), Some(0));
    let ran = desk.run(&["status"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "a dead letter waits");
    let whole = "\
endpoint   provider   last verified                                  processed  ignored  duplicate  failed  dead  discarded  quarantined
stripe     stripe     TIME payment_intent.succeeded  1          1        1          1       1     0          0
warehouse  warehouse  TIME receipt.announced         1          0        0          0       0     0          0

failed     stripe: 1, the oldest of TIME; they are tried again

dead       stripe: 1; see: wharf inbox errors --endpoint stripe

refused    stripe: 3 signature wrong, the last TIME: no signature fits any of the endpoint's secrets

secret     stripe: env:STRIPE_SECRET fitted 5 times, the last TIME

secret     warehouse: env:WAREHOUSE_SECRET fitted 1 time, the last TIME
";
    assert_eq!(without_times(&ran.out), whole);
    let objects: Vec<serde_json::Value> =
        desk.run(&["status", "--json"]).out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(objects.len(), 5);
    assert_eq!(
        (
            &objects[0]["endpoint"]["name"],
            &objects[0]["endpoint"]["dead_now"],
            &objects[2]["refusals"]["refused"]
        ),
        (&"stripe".into(), &1.into(), &3.into())
    );
    assert_eq!(desk.run(&["inbox", "discard", "evt_3", "--reason", "not ours"]).code, 0);
    assert_eq!(desk.run(&["status"]).code, 0, "what failed is tried again: nothing waits for a person");
}
