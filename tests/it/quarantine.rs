//! Refused deliveries: only counted, unless some are to be kept; nobody's events until their signature is good.

use serde_json::Value;
use wharf::inbox::activity::{Activities, QuarantineLimits};
use wharf::provider::{Headers, Rejection};
use wharf::timestamp::Timestamp;

use crate::support::*;

const KEEP_3: &str = "retries = false\n[quarantine]\nkeep = 3";

fn wrong_signature(body: &[u8], at: u64) -> String {
    format!("t={at},v1={}", hex::encode(mac(b"whsec_the_old_one", &[at.to_string().as_bytes(), b".", body])))
}

/// Delivers with a signature by another secret: refused.
fn refused(gateway: &Gateway, body: &str) {
    let signature = wrong_signature(body.as_bytes(), now());
    let reply = gateway.post("/webhooks/stripe", &[("stripe-signature", &signature)], body.as_bytes());
    assert_eq!(reply.said(), (401, r#"{"status":"refused","reason":"signature wrong"}"#));
}

fn wait_for_refusals(database: &Database, count: usize) {
    database.wait_for(
        "what was refused is counted",
        "select coalesce(sum(refused), 0) from endpoint_refusal",
        &count.to_string(),
    );
}

#[test]
fn without_being_asked_for_nothing_is_kept_and_no_refusal_costs_a_row() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, "retries = false");
    let statements = || -> i64 {
        let sql =
            "select coalesce(sum(xact_commit), 0) from pg_stat_database where datname = current_database()";
        database.rows(sql).parse().unwrap()
    };
    let before = statements();
    std::thread::scope(|scope| {
        for worker in 0..4 {
            let gateway = &gateway;
            scope.spawn(move || {
                for n in 0..500 {
                    refused(gateway, &payment_succeeded(&format!("evt_{worker}_{n}"), "pi_1", "INV-1", 100));
                }
            });
        }
    });
    wait_for_refusals(&database, 2000);
    assert_eq!(
        database.rows(
            "select endpoint, reason, refused, first_at <= last_at, detail,
                    (select count(*) from webhook_inbox), (select count(*) from quarantine) from endpoint_refusal"
        ),
        "stripe|wrong|2000|true|no signature fits any of the endpoint's secrets|0|0"
    );
    let spent = statements() - before;
    assert!(spent < 1000, "{spent} transactions for 2000 refusals");
    let desk = Desk::new(&database);
    assert_eq!(desk.out(&["quarantine", "list"]), "id  received  endpoint  bytes  refused because\n");
    let ran = desk.run(&["quarantine", "reverify"]);
    assert_eq!((ran.code, ran.out.as_str(), ran.err.as_str()), (3, "", "wharf: nothing is kept\n"));
    assert_tells_no_secret(&gateway.log());
}

#[test]
fn the_newest_of_each_endpoint_are_kept_without_credentials_and_occupy_no_event_id() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, KEEP_3);
    for n in 1..=5 {
        refused(&gateway, &payment_succeeded(&format!("evt_{n}"), &format!("pi_{n}"), "INV-1", 100));
    }
    wait_for_refusals(&database, 5);
    let body = br#"{"some": "order"}"#;
    let headers = [
        ("x-shopify-hmac-sha256", "AAAA"),
        ("Authorization", "Bearer abc"),
        ("Proxy-Authorization", "Basic def"),
        ("Cookie", "session=ghi"),
        ("X-Api-Key", "jkl"),
        ("x-shopify-topic", "orders/paid"),
    ];
    assert_eq!(gateway.post("/webhooks/shopify", &headers, body).status, 401);
    refused(&gateway, &payment_succeeded("evt_6", "pi_6", "INV-1", 100));
    wait_for_refusals(&database, 7);
    let kept = "select endpoint, provider, reason, convert_from(body, 'UTF8') ~ 'evt_6', octet_length(body)
                from quarantine order by endpoint, id";
    let length = payment_succeeded("evt_6", "pi_6", "INV-1", 100).len();
    database.wait_for(
        "the newest three of stripe are kept",
        kept,
        &format!(
            "shopify|shopify|wrong|false|17\nstripe|stripe|wrong|false|{length}\n\
             stripe|stripe|wrong|false|{length}\nstripe|stripe|wrong|true|{length}"
        ),
    );
    let head = database.rows("select convert_from(head, 'UTF8') from quarantine where endpoint = 'shopify'");
    let mut lines: Vec<&str> = head.strip_suffix("\n\n").unwrap().lines().collect();
    lines.sort_unstable();
    assert_eq!(
        lines,
        ["content-length: 17", "host: t", "x-shopify-hmac-sha256: AAAA", "x-shopify-topic: orders/paid"]
    );
    assert_eq!(database.inbox(), "");
    assert_eq!(gateway.pay("evt_6", "pi_6", "INV-1", 100).said(), PROCESSED, "its id is free");

    let desk = Desk::new(&database);
    assert_eq!(desk.run(&["quarantine", "list", "4711"]).code, 3);
    assert_eq!(desk.out(&["quarantine", "list", "--endpoint", "stripe"]).lines().count(), 4);
    let ids = database.rows("select id from quarantine order by id");
    let line = desk.out(&["quarantine", "list", "--endpoint", "shopify", "--json"]);
    let line: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&line["reason"], &line["bytes"]), (&"wrong".into(), &17.into()));
    let first = ids.lines().next().unwrap();
    assert_eq!(desk.out(&["quarantine", "clear", first]), "1 removed\n");
    assert_eq!(desk.out(&["quarantine", "clear", "--endpoint", "shopify"]), "1 removed\n");
    assert_eq!(desk.out(&["quarantine", "clear"]), "2 removed\n");
    assert_eq!(database.rows("select count(*) from quarantine"), "0");
}

#[test]
fn no_more_are_kept_in_a_minute_and_none_that_are_too_large() {
    let database = Database::new();
    let limits = "retries = false\n[quarantine]\nkeep = 10\nper_minute = 2\nbody_limit_bytes = 300";
    let gateway = Gateway::start_with(&database.url, limits);
    // Not over the end of a minute.
    while now() % 60 > 55 {
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    refused(&gateway, &format!("{:>301}", "{}"));
    refused(&gateway, &format!("{:>300}", "{}"));
    for _ in 0..4 {
        refused(&gateway, "{}");
    }
    wait_for_refusals(&database, 6);
    database.wait_for("two are kept", "select octet_length(body) from quarantine order by id", "300\n2");
}

#[test]
fn after_the_secret_was_corrected_what_was_good_is_let_in_at_the_time_it_came() {
    let database = Database::new();
    let folder = tempfile::tempdir().unwrap();
    let secret = folder.path().join("secret");
    std::fs::write(&secret, "whsec_a_wrong_one").unwrap();
    let config = format!(
        "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nretries = false\n\
         [quarantine]\nkeep = 20\n{}",
        ENDPOINTS.replace("env:STRIPE_SECRET", &format!("file:{}", secret.display()))
    );
    std::fs::write(folder.path().join("wharf.toml"), &config).unwrap();
    let start = || Gateway::start_configured(&database.url, &folder.path().join("wharf.toml"));
    let gateway = start();
    let earlier = now() - 100;
    let deliver = |body: &str, signature: String| {
        let headers = [("stripe-signature", signature.as_str()), ("cookie", "a=b")];
        assert_eq!(gateway.post("/webhooks/stripe", &headers, body.as_bytes()).status, 401);
    };
    let good = payment_succeeded("evt_1", "pi_1", "INV-1", 100);
    deliver(&good, stripe_signature(good.as_bytes(), earlier));
    // The provider's second try of it.
    deliver(&good, stripe_signature(good.as_bytes(), earlier + 50));
    let bad = payment_succeeded("evt_2", "pi_2", "INV-1", 100);
    deliver(&bad, wrong_signature(bad.as_bytes(), earlier));
    let failing = payment_succeeded("evt_3", "pi_3", "INV-77", 100);
    deliver(&failing, stripe_signature(failing.as_bytes(), earlier));
    let redelivered = payment_succeeded("evt_4", "pi_4", "INV-1", 100);
    deliver(&redelivered, stripe_signature(redelivered.as_bytes(), earlier));
    database.wait_for("all are kept", "select count(*) from quarantine", "5");

    let desk = Desk::with(&database, &config);
    let explain =
        |id: &str| desk.run(&["explain", "--quarantine", id]).out.lines().nth(2).unwrap().to_owned();
    assert_eq!(explain("1"), "refused: no signature fits any of the endpoint's secrets");
    let ran = desk.run(&["quarantine", "reverify"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert!(ran.out.ends_with("\n0 of 5 let in\n"), "{}", ran.out);

    std::fs::write(&secret, STRIPE_SECRET).unwrap();
    // An hour has passed since they came and were signed.
    database.execute("update quarantine set received_at = received_at - interval '1 hour'");
    for (id, body, at) in
        [(1, &good, earlier), (2, &good, earlier + 50), (4, &failing, earlier), (5, &redelivered, earlier)]
    {
        let head = format!("stripe-signature: {}\n\n", stripe_signature(body.as_bytes(), at - 3600));
        database.execute(&format!("update quarantine set head = '\\x{}' where id = {id}", hex::encode(head)));
    }
    let gateway = start();
    assert_eq!(gateway.stripe(redelivered.as_bytes()).said(), PROCESSED, "sent again meanwhile");
    assert_eq!(
        explain("1"),
        "accepted: it is signed with the secret of file:SECRET 100 s before that time"
            .replace("SECRET", &secret.display().to_string())
    );
    let ran = desk.run(&["quarantine", "reverify"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert_eq!(
        ran.out,
        "1  stripe  let in: evt_1 processed\n\
         2  stripe  let in: evt_1 duplicate\n\
         3  stripe  still refused: no signature fits any of the endpoint's secrets\n\
         4  stripe  let in: evt_3 failed: invoice INV-77 is not there\n\
         5  stripe  let in: evt_4 duplicate\n\
         4 of 5 let in\n"
    );
    assert_eq!(database.rows("select id from quarantine"), "3");
    assert_eq!(
        database.rows(
            "select event_id, status, attempts, now() - received_at between '59 min' and '63 min',
                    headers::text ~ '(cookie|signature)' from webhook_inbox order by event_id"
        ),
        "evt_1|processed|1|true|false\nevt_3|failed|1|true|false\nevt_4|processed|1|false|false"
    );
    assert_eq!(database.invoice("INV-1"), "partially_paid|200|0");
    assert_eq!(gateway.stripe(good.as_bytes()).said(), DUPLICATE);
    let ran = desk.run(&["quarantine", "reverify", "--json"]);
    assert_eq!(ran.code, 1);
    let line: Value = serde_json::from_str(&ran.out).unwrap();
    assert_eq!((&line["id"], &line["let_in"]), (&3.into(), &false.into()));

    database.execute("update quarantine set endpoint = 'gone'");
    let ran = desk.run(&["quarantine", "reverify", "3"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out, "3  gone  still refused: endpoint gone is not in the configuration\n0 of 1 let in\n");
    assert_eq!(desk.out(&["quarantine", "clear", "3"]), "1 removed\n");
    assert_eq!(desk.run(&["audit"]).code, 0);
}

#[test]
fn a_reader_who_has_seen_enough_does_not_end_the_letting_in() {
    let database = Database::new();
    for n in 1..=3 {
        let body = payment_succeeded(&format!("evt_{n}"), &format!("pi_{n}"), "INV-1", 100);
        let head = format!("stripe-signature: {}\n\n", stripe_signature(body.as_bytes(), now()));
        database.execute(&format!(
            "insert into quarantine (endpoint, provider, reason, detail, received_at, head, body)
             values ('stripe', 'stripe', 'wrong', 'x', now(), '\\x{}', '\\x{}')",
            hex::encode(head),
            hex::encode(body)
        ));
    }
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let desk = Desk::new(&database);
    let output = desk.command(&["quarantine", "reverify"]).stdout(writer).output().unwrap();
    assert_eq!((output.status.code(), output.stderr.as_slice()), (Some(0), &b""[..]));
    assert_eq!(database.rows("select count(*) from quarantine"), "0");
    assert_eq!(database.invoice("INV-1"), "partially_paid|300|0");
}

#[test]
fn what_could_not_be_written_down_is_written_once_and_does_not_grow_meanwhile() {
    let database = Database::new();
    let limits = QuarantineLimits { keep: 3, per_minute: 100, body_limit_bytes: 100 };
    let endpoint = ("stripe".to_owned(), "stripe".to_owned(), vec!["env:S".to_owned()]);
    let activities = Activities::new([endpoint], limits);
    let refuse = |body: &str, second: i64| {
        let at = Timestamp::from_seconds(1_764_590_400 + second).unwrap();
        activities.refused("stripe", &Rejection::BodyEmpty, &Headers::default(), body.as_bytes(), at);
    };
    let flush = || {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let mut connection = wharf::postgres::connect(&database.options).await.unwrap();
            activities.flush(&mut connection).await
        })
    };
    let counted = "select refused, extract(epoch from last_at - first_at)::int from endpoint_refusal";
    let kept = "select convert_from(body, 'UTF8') from quarantine order by id";
    database.execute("alter table quarantine rename to elsewhere");
    (1..=3).for_each(|n| refuse(&format!("a{n}"), n));
    assert!(flush().is_err());
    assert_eq!(database.rows(counted), "3|2");
    database.execute("alter table endpoint_refusal rename to elsewhere_too");
    (4..=5).for_each(|n| refuse(&format!("b{n}"), n));
    assert!(flush().is_err());
    refuse("c6", 6);
    assert!(flush().is_err());
    database.execute(
        "alter table elsewhere rename to quarantine; alter table elsewhere_too rename to endpoint_refusal",
    );
    for _ in 0..2 {
        flush().unwrap();
        assert_eq!(database.rows(counted), "6|5");
        assert_eq!(database.rows(kept), "b4\nb5\nc6");
    }
}
