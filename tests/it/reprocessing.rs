//! `wharf inbox reprocess`: many events at once, while others work on them, and whatever stops it.

use std::io::{BufRead as _, BufReader};
use std::process::Stdio;
use std::time::{Duration, Instant};

use crate::support::*;

/// Events `evt_N` of payments `pi_N` of 1.00 USD, on record as if they had been delivered; every `failed_every`th is
/// failed, the others are dead. The invoice's number is an SQL expression over `n`.
fn record(database: &Database, numbers: std::ops::RangeInclusive<u32>, invoice: &str, failed_every: u32) {
    let body = payment_succeeded("evt_EVENT", "pi_EVENT", "INVOICE", 100);
    let (from, to) = (numbers.start(), numbers.end());
    database.execute(&format!(
        "insert into webhook_inbox (tenant_id, endpoint, provider, event_id, event_type, status, attempts, last_error,
                                    error_kind, fingerprint, about, headers, body, received_at, settled_at,
                                    dead_lettered_at, next_attempt_at)
         select tenant.id, 'stripe', 'stripe', 'evt_' || n, 'payment_intent.succeeded',
                case when failed then 'failed' else 'dead' end, 5, 'invoice ' || invoice || ' is not there',
                'invoice_not_found', '0123456789', array[invoice], '{{}}',
                convert_to(replace(replace('{body}', 'EVENT', n::text), 'INVOICE', invoice), 'UTF8'),
                now() - interval '1 hour', case when not failed then now() end, case when not failed then now() end,
                case when failed then now() + interval '1 hour' end
         from tenant, generate_series({from}, {to}) n, lateral (
           select {invoice} as invoice, n % {failed_every} = 0 as failed) as told
         order by n"
    ));
}

fn left(database: &Database) -> String {
    database.rows("select status, count(*) from webhook_inbox group by 1 order by 1")
}

#[test]
fn a_dry_run_of_a_thousand_tells_every_difference_and_changes_nothing() {
    let database = Database::new();
    record(&database, 1..=1000, "'INV-' || (n - 1) % 9 + 1", 4);
    record(&database, 1001..=1001, "'INV-77'", 4);
    let desk = Desk::new(&database);
    let before = database.dump();
    let ran = desk.run(&["inbox", "reprocess", "--all", "--dry-run"]);
    assert_eq!(database.dump(), before);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""), "one of them would not be applied");

    let verdicts: Vec<&str> = ran.out.lines().filter(|line| !line.starts_with("  ")).collect();
    assert_eq!(verdicts.len(), 1002);
    for (n, verdict) in (1..=1000).zip(&verdicts) {
        let wanted = format!("{n}  stripe  evt_{n}  payment_intent.succeeded  would be processed");
        assert_eq!(*verdict, wanted);
    }
    assert_eq!(
        verdicts[1000..],
        [
            "1001  stripe  evt_1001  payment_intent.succeeded  would be a dead letter: invoice_not_found: invoice \
             INV-77 is not there",
            "dry run: 1000 would be applied, 1 would not; nothing was changed"
        ]
    );
    let of = |event: &str| {
        let lines = ran.out.lines().skip_while(|line| !line.contains(event)).skip(1);
        lines.take_while(|line| line.starts_with("  ")).collect::<Vec<_>>()
    };
    assert_eq!(
        of("  evt_1  "),
        [
            "    invoice INV-1 status awaiting_payment -> partially_paid",
            "    invoice INV-1 amount_paid 0.00 USD -> 1.00 USD",
            "    + invoice_entry  payment pi_1 1.00 USD",
            "    + outbox  invoice.paid version 1",
        ]
    );
    // The hundredth payment of INV-1: those before it are seen, whichever batch they were in.
    assert_eq!(
        of("  evt_892  "),
        [
            "    invoice INV-1 status partially_paid -> paid",
            "    invoice INV-1 amount_paid 99.00 USD -> 100.00 USD",
            "    invoice INV-1 paid_at - -> 2025-12-01T12:00:00Z",
            "    + invoice_entry  payment pi_892 1.00 USD",
            "    + outbox  invoice.paid version 100",
        ]
    );
    let ran = desk.run(&["inbox", "reprocess", "--all", "--dry-run", "--json", "--limit", "2"]);
    assert_eq!(ran.code, 0);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(lines.len(), 3);
    assert_eq!((&lines[1]["event_id"], &lines[1]["would_be"]), (&"evt_2".into(), &"processed".into()));
    assert_eq!(
        lines[0]["differences"][1],
        serde_json::json!({
            "row": "invoice INV-1", "column": "amount_paid",
            "old": { "minor": 0, "currency": "USD" }, "new": { "minor": 100, "currency": "USD" },
        })
    );
    assert_eq!(lines[2]["dry_run"]["would_be_applied"], 2);
    assert_eq!(database.dump(), before);
}

#[test]
fn two_operators_and_a_storm_of_redeliveries_apply_every_event_once() {
    const EVENTS: u32 = 5000;
    let database = Database::new();
    record(&database, 1..=EVENTS, "'INV-' || n % 9 + 1", 2);
    let gateway = Gateway::start(&database);
    let desk = Desk::new(&database);
    let (outs, redelivered) = std::thread::scope(|scope| {
        let operators: Vec<_> = ["olga", "otto"]
            .map(|name| {
                let desk = &desk;
                scope.spawn(move || desk.run(&["inbox", "reprocess", "--all", "--yes", "--operator", name]))
            })
            .into();
        let storm: Vec<_> = (0..3)
            .map(|worker| {
                let gateway = &gateway;
                scope.spawn(move || {
                    let mut applied = 0;
                    // From the newest on: the operators come from the other end.
                    for n in (1..=EVENTS).rev().filter(|n| n % 3 == worker).take(300) {
                        let invoice = format!("INV-{}", n % 9 + 1);
                        let reply = gateway.pay(&format!("evt_{n}"), &format!("pi_{n}"), &invoice, 100);
                        assert!([PROCESSED, DUPLICATE].contains(&reply.said()), "{reply:?}");
                        applied += u32::from(reply.said() == PROCESSED);
                    }
                    applied
                })
            })
            .collect();
        let outs: Vec<Ran> = operators.into_iter().map(|operator| operator.join().unwrap()).collect();
        (outs, storm.into_iter().map(|worker| worker.join().unwrap()).sum::<u32>())
    });
    let mut applied = redelivered;
    for ran in &outs {
        assert_eq!((ran.err.as_str(), ran.out.lines().count()), ("", 1), "{}", ran.out);
        assert!(!ran.out.contains("not applied") && !ran.out.contains("undecided"), "{}", ran.out);
        applied += ran.out.split(' ').next().unwrap().parse::<u32>().unwrap();
    }
    assert_eq!(left(&database), format!("processed|{EVENTS}"));
    assert_eq!(applied, EVENTS, "{redelivered} by redeliveries, and {}{}", outs[0].out, outs[1].out);
    assert_eq!(database.rows("select sum(amount_paid) from invoice"), (EVENTS * 100).to_string());
    assert_eq!(
        database.rows(
            "select count(*), count(distinct inbox_id), count(distinct provider_ref) from invoice_entry"
        ),
        format!("{EVENTS}|{EVENTS}|{EVENTS}")
    );
    let ran = desk.run(&["audit"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
}

const POISON: &str = "
    create function poison() returns trigger language plpgsql as $$ begin
      if new.provider_ref = 'pi_5' then raise exception 'this payment is poison'; end if; return new; end $$;
    create trigger poison before insert on invoice_entry for each row execute function poison()";

#[test]
fn a_poisonous_event_does_not_stop_the_rest() {
    let database = Database::new();
    database.execute(POISON);
    record(&database, 1..=10, "'INV-1'", 100);
    let desk = Desk::new(&database);
    let dry = desk.run(&["inbox", "reprocess", "--all", "--dry-run"]);
    assert_eq!(dry.code, 1);
    assert!(
        dry.out.contains("5  stripe  evt_5  payment_intent.succeeded  would be a dead letter: database: this payment is poison\n"),
        "{}",
        dry.out
    );
    let ran = desk.run(&["inbox", "reprocess", "--all", "--yes"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert_eq!(ran.out, "5  dead  database: this payment is poison\n9 applied, 1 not applied\n");
    assert_eq!(database.invoice("INV-1"), "partially_paid|900|0");
    assert_eq!(left(&database), "dead|1\nprocessed|9");
    database.execute("drop trigger poison on invoice_entry");
    let ran = desk.run(&["inbox", "reprocess", "--error-kind", "database", "--yes", "--json"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
    let summary = r#"{"summary":{"applied":1,"ignored":0,"in_other_hands":0,"not_applied":0,"not_run":0,"settled_by_somebody_else":0,"undecided":0}}"#;
    assert_eq!(
        ran.out,
        format!("{{\"error\":null,\"error_kind\":null,\"id\":5,\"outcome\":\"processed\"}}\n{summary}\n")
    );
    assert_eq!(database.invoice("INV-1"), "partially_paid|1000|0");
}

#[test]
fn it_stops_after_so_many_failures_and_takes_no_more_than_the_limit() {
    let database = Database::new();
    record(&database, 1..=10, "case when n % 3 = 0 then 'INV-77' else 'INV-1' end", 100);
    let desk = Desk::new(&database);
    let ran = desk.run(&["inbox", "reprocess", "--all", "--yes", "--stop-after-failures", "2"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    let not_there = "invoice_not_found: invoice INV-77 is not there";
    assert_eq!(
        ran.out,
        format!("3  dead  {not_there}\n6  dead  {not_there}\n4 applied, 2 not applied, 4 not run\n")
    );
    assert_eq!(
        database
            .rows("select string_agg(id::text, ' ' order by id) from webhook_inbox where status = 'dead'"),
        "3 6 7 8 9 10"
    );
    let ran = desk.run(&["inbox", "reprocess", "--all", "--dry-run", "--stop-after-failures", "1"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.out.ends_with(
            "\ndry run: 0 would be applied, 1 would not; nothing was changed\n5 more were not tried, as \
                           --stop-after-failures says\n"
        ),
        "{}",
        ran.out
    );
    database.insert_invoice("INV-77", 1000);
    assert_eq!(desk.out(&["inbox", "reprocess", "--all", "--yes", "--limit", "3"]), "3 applied\n");
    assert_eq!(
        database
            .rows("select string_agg(id::text, ' ' order by id) from webhook_inbox where status = 'dead'"),
        "8 9 10"
    );
}

#[test]
fn the_rate_is_kept() {
    let database = Database::new();
    record(&database, 1..=30, "'INV-1'", 100);
    let started = Instant::now();
    assert_eq!(
        Desk::new(&database).out(&["inbox", "reprocess", "--all", "--yes", "--rate", "20"]),
        "30 applied\n"
    );
    assert!(started.elapsed() >= Duration::from_millis(1400), "{:?}", started.elapsed());
}

#[test]
fn what_cannot_be_run_is_said_before_anything_is_done() {
    let database = Database::new();
    record(&database, 1..=3, "'INV-1'", 100);
    database.execute("update webhook_inbox set endpoint = 'gone' where id = 2");
    let desk = Desk::new(&database);
    let before = database.dump();
    for (arguments, code, err) in [
        (&["reprocess", "--yes"][..], 2, "say which events: ids, a filter such as --error GROUP, or --all"),
        (&["reprocess", "1"], 2, "1 event would be run; there is nobody to ask: say --yes, or --dry-run"),
        (
            &["reprocess", "--status", "processed", "--yes"],
            2,
            "--status processed is not for this command; it works on failed, dead, ignored",
        ),
        (&["reprocess", "--number", "INV-88", "--yes"], 3, "nothing matched; see `wharf inbox list`"),
        (&["reprocess", "evt_88", "--yes"], 3, "no event has the id evt_88; see `wharf inbox list`"),
        (&["show", "88"], 3, "no event has the id 88; see `wharf inbox list`"),
    ] {
        let ran = desk.run(&[&["inbox"], arguments].concat());
        assert_eq!(
            (ran.code, ran.out.as_str(), ran.err),
            (code, "", format!("wharf: {err}\n")),
            "{arguments:?}"
        );
    }
    assert_eq!(desk.run(&["inbox", "reprocess", "1", "--all"]).code, 2);
    assert_eq!(desk.run(&["inbox", "reprocess", "--all", "--limit", "0"]).code, 2);
    assert_eq!(database.dump(), before);
    let ran = desk.run(&["inbox", "reprocess", "--all", "--yes"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "2 applied\n"));
    assert_eq!(
        ran.err,
        "1 left out: endpoint gone is not in wharf.toml; add it, or name another file with --config\n"
    );
    assert_eq!(left(&database), "dead|1\nprocessed|2");
}

#[test]
fn an_event_that_is_named_and_set_aside_is_left_out_with_the_way_in() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, "retries = false");
    let ignored = payment_succeeded("evt_1", "pi_1", "INV-1", 1).replace("payment_intent.succeeded", "x.y");
    assert_eq!(gateway.stripe(ignored.as_bytes()).said(), IGNORED);
    record(&database, 2..=3, "'INV-1'", 100);
    let desk = Desk::new(&database);
    desk.out(&["inbox", "discard", "evt_2", "--reason", "x"]);
    let ran = desk.run(&["inbox", "reprocess", "evt_1", "evt_2", "evt_3", "--yes"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "1 applied\n"));
    assert_eq!(
        ran.err,
        "evt_1 left out: it is ignored; --status ignored runs such events, too\n\
         evt_2 left out: it is discarded; `wharf inbox undiscard` makes it a dead letter again\n"
    );
    assert_eq!(left(&database), "discarded|1\nignored|1\nprocessed|1");
}

#[test]
fn a_provider_file_that_gives_a_type_a_meaning_lets_its_ignored_events_be_applied() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, "retries = false");
    for n in 1..=2 {
        let later = payment_succeeded(&format!("evt_{n}"), &format!("pi_{n}"), "INV-1", 100);
        let later = later.replace("payment_intent.succeeded", "charge.matured");
        assert_eq!(gateway.stripe(later.as_bytes()).said(), IGNORED);
    }
    let arguments = ["inbox", "reprocess", "--status", "ignored", "--type", "charge.matured", "--yes"];
    let ran = Desk::new(&database).out(&arguments);
    assert_eq!(ran, "0 applied, 2 ignored\n");
    let config = ENDPOINTS.replacen("provider = \"stripe\"", "provider = \"matured\"", 1);
    let desk = Desk::with(&database, &format!("[server]\nproviders = \"own\"\n{config}"));
    let provider = std::fs::read_to_string(repository().join("providers/stripe.toml")).unwrap();
    let provider = provider.replace(
        "type = \"payment_intent.succeeded\"",
        "type = [\"payment_intent.succeeded\", \"charge.matured\"]",
    );
    std::fs::create_dir(desk.folder().join("own")).unwrap();
    std::fs::write(desk.folder().join("own/matured.toml"), provider).unwrap();
    assert_eq!(desk.out(&arguments), "2 applied\n");
    assert_eq!(database.invoice("INV-1"), "partially_paid|200|0");
    assert_eq!(
        database.rows("select inbox_id, origin, outcome from webhook_attempt order by at, inbox_id"),
        "1|reprocess|ignored\n2|reprocess|ignored\n1|reprocess|processed\n2|reprocess|processed"
    );
}

#[test]
fn an_event_in_other_hands_is_passed_over() {
    let database = Database::new();
    record(&database, 1..=2, "'INV-1'", 100);
    let desk = Desk::new(&database);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        use sqlx::Executor as _;
        let mut other = wharf::postgres::connect(&database.options).await.unwrap();
        other.execute("begin; select from webhook_inbox where id = 1 for update").await.unwrap();
        let ran = desk.run(&["inbox", "reprocess", "--all", "--yes"]);
        assert_eq!((ran.code, ran.out.as_str()), (1, "1 applied, 1 in other hands\n"));
    });
    drop(runtime);
    assert_eq!(left(&database), "dead|1\nprocessed|1");
}

#[test]
fn what_waits_for_somebody_elses_lock_stays_what_it_was() {
    let database = Database::new();
    record(&database, 1..=2, "'INV-' || n", 100);
    database
        .execute("insert into webhook_attempt (inbox_id, origin, outcome) values (1, 'delivery', 'dead')");
    let desk = Desk::new(&database);
    let row = "select status, attempts, error_kind, last_error, fingerprint, settled_at from webhook_inbox where id = 1";
    let before = database.rows(row);
    let lock = database.lock_invoice("INV-1");
    let ran = desk.run(&["inbox", "reprocess", "--all", "--yes"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert_eq!(ran.out, "1  undecided  canceling statement due to lock timeout\n1 applied, 1 undecided\n");
    drop(lock);
    assert_eq!(database.rows(row), before);
    assert_eq!(database.rows("select count(*) from webhook_attempt where inbox_id = 1"), "1");
    assert_eq!(desk.out(&["inbox", "reprocess", "1", "--yes"]), "1 applied\n");
}

#[test]
fn a_reader_who_has_seen_enough_does_not_end_the_work() {
    let database = Database::new();
    // More lines than a pipe holds.
    record(&database, 1..=1700, "case when n <= 1500 then 'INV-77' else 'INV-1' end", 10_000);
    let desk = Desk::new(&database);
    let mut child = desk
        .command(&["inbox", "reprocess", "--all", "--yes"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "1  dead  invoice_not_found: invoice INV-77 is not there\n");
    assert_eq!(child.wait().unwrap().code(), Some(1), "as if all had been read");
    assert_eq!(left(&database), "dead|1500\nprocessed|200");
}
