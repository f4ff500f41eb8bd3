//! `wharf inbox`: finding events, understanding them, and setting them aside; what all commands have in common.

use std::process::Stdio;

use serde_json::{Value, json};

use crate::support::*;

const ORDER: &str = r##"{"id":820982911946154508,"name":"#1001","currency":"USD","total_price":"10.10","current_total_price":"10.10","financial_status":"paid","cancelled_at":null,"updated_at":"2026-03-01T10:00:05+08:00"}"##;

fn announced(receipt: &str, sku: &str) -> String {
    format!(
        r#"{{"type":"receipt.announced","timestamp":"2026-01-01T00:00:00Z","data":{{"receipt":"{receipt}","lines":[{{"sku":"{sku}","expected":5}}]}}}}"#
    )
}

/// Nine events of all that can become of one. Their ids are 1 to 9.
fn history() -> (Database, Desk) {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, "retries = false");
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 10_000).said(), PROCESSED);
    let unknown = payment_succeeded("evt_2", "pi_2", "INV-1", 1).replace("payment_intent.succeeded", "x.y");
    assert_eq!(gateway.stripe(unknown.as_bytes()).said(), IGNORED);
    let euros = payment_succeeded("evt_3", "pi_3", "INV-2", 500).replace("usd", "eur");
    assert_eq!(gateway.stripe(euros.as_bytes()).said(), DEAD);
    assert_eq!(gateway.pay("evt_4", "pi_4", "INV-77", 500).said(), FAILED);
    assert_eq!(gateway.warehouse("m-1", announced("ASN-1", "A").as_bytes()).said(), PROCESSED);
    assert_eq!(gateway.warehouse("m-2", announced("ASN-2", "NEW").as_bytes()).said(), FAILED);
    assert_eq!(gateway.shopify("w-1", "orders/paid", ORDER.as_bytes()).said(), PROCESSED);
    assert_eq!(gateway.stripe(payment_succeeded("evt_8", "pi_8", "INV-1", -1).as_bytes()).said(), DEAD);
    assert_eq!(gateway.pay("evt_9", "pi_9", "INV-77", 700).said(), FAILED);
    let desk = Desk::new(&database);
    assert_eq!(desk.out(&["inbox", "discard", "9", "--reason", "a test"]), "9: discarded\n");
    (database, desk)
}

/// The ids that `wharf inbox list` finds.
fn listed(desk: &Desk, filter: &[&str]) -> String {
    let out = desk.out(&[&["inbox", "list", "--json"], filter].concat());
    let ids = out.lines().map(|line| serde_json::from_str::<Value>(line).unwrap()["id"].to_string());
    ids.collect::<Vec<_>>().join(" ")
}

#[test]
fn events_are_found_by_whatever_is_known_of_them() {
    let (database, desk) = history();
    let group = database.rows("select fingerprint from webhook_inbox where id = 4");
    for (filter, ids) in [
        (&[][..], "9 8 7 6 5 4 3 2 1"),
        (&["--status", "processed"], "7 5 1"),
        (&["--status", "ignored"], "2"),
        (&["--status", "failed"], "6 4"),
        (&["--status", "dead"], "8 3"),
        (&["--status", "discarded"], "9"),
        (&["--status", "dead", "--status", "failed"], "8 6 4 3"),
        (&["--status", "dead", "--status", "processed"], "8 7 5 3 1"),
        (&["--endpoint", "warehouse"], "6 5"),
        (&["--endpoint", "warehouse", "--endpoint", "shopify"], "7 6 5"),
        (&["--endpoint", "warehouse", "--status", "failed"], "6"),
        (&["--endpoint", "paypal"], ""),
        (&["--provider", "shopify"], "7"),
        (&["--provider", "paypal"], ""),
        (&["--provider", "stripe", "--endpoint", "warehouse"], ""),
        (&["--type", "receipt.announced"], "6 5"),
        (&["--type", "x.y", "--type", "orders/paid"], "7 2"),
        (&["--type", "payment_intent.succeeded", "--status", "dead"], "8 3"),
        (&["--error-kind", "currency_differs"], "3"),
        (&["--error-kind", "invoice_not_found"], "9 4"),
        (&["--error-kind", "invoice_not_found", "--status", "failed"], "4"),
        (&["--error", &group], "9 4"),
        (&["--event-id", "m-2"], "6"),
        (&["--event-id", "m-2", "--endpoint", "stripe"], ""),
        (&["--event-id", "m-3"], ""),
        // What changed it, and what wanted to.
        (&["--number", "INV-1"], "1"),
        (&["--number", "#1001"], "7"),
        (&["--number", "ASN-1"], "5"),
        (&["--number", "ASN-2"], "6"),
        (&["--number", "INV-2"], "3"),
        (&["--number", "INV-77"], "9 4"),
        (&["--number", "INV-77", "--status", "discarded"], "9"),
        (&["--number", "INV-88"], ""),
    ] {
        assert_eq!(listed(&desk, filter), ids, "{filter:?}");
    }
    database.execute("update webhook_inbox set received_at = now() - make_interval(hours => 10 - id::int)");
    for (filter, ids) in [
        (&["--since", "150m"][..], "9 8"),
        (&["--until", "150m"], "7 6 5 4 3 2 1"),
        (&["--since", "330m", "--until", "2h30m"], "7 6 5"),
        (&["--since", "330m", "--until", "2h30m", "--status", "failed"], "6"),
        (&["--since", "1s"], ""),
        (&["--until", "3days"], ""),
        (&["--since", "1000000years"], "9 8 7 6 5 4 3 2 1"),
    ] {
        assert_eq!(listed(&desk, filter), ids, "{filter:?}");
    }
    database.execute(
        "update webhook_inbox set received_at = timestamptz '2026-03-01T00:00:00Z' + make_interval(hours => id::int)",
    );
    for (filter, ids) in [
        (&["--since", "2026-03-01T05:00:00Z", "--until", "2026-03-01T07:00:00Z"][..], "7 6 5"),
        (&["--until", "2026-03-01T00:59:59Z"], ""),
        (&["--since", "2026-03-01T09:00:00.5Z"], ""),
    ] {
        assert_eq!(listed(&desk, filter), ids, "{filter:?}");
    }
    for (filter, said) in [
        (&["--since", "yesterday"][..], "write an age such as 2h, or a time such as 2026-03-01T08:00:00Z"),
        (&["--status", "done"], "possible values: processed, ignored, failed, dead, discarded"),
        (&["--error-kind", "x"], "possible values: invoice_not_found, "),
    ] {
        let ran = desk.run(&[&["inbox", "list"], filter].concat());
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
        assert!(ran.err.contains(said), "{}", ran.err);
    }
}

#[test]
fn among_many_events_those_of_a_time_are_found() {
    let database = Database::new();
    // One every minute; id 1000 came now.
    database.execute(
        "insert into webhook_inbox (tenant_id, endpoint, provider, event_id, event_type, status, attempts, headers,
                                    body, received_at, settled_at)
         select tenant.id, 'stripe', 'stripe', 'evt_' || n, 'x.y', 'processed', 1, '{}', '{}',
                now() - make_interval(mins => 1000 - n), now()
         from tenant, generate_series(1, 1000) n order by n",
    );
    let desk = Desk::new(&database);
    let find = |filter: &[&str]| listed(&desk, &[filter, &["--limit", "3"]].concat());
    assert_eq!(find(&["--until", "100m30s"]), "899 898 897");
    assert_eq!(find(&["--since", "101m30s", "--until", "99m30s"]), "900 899");
    assert_eq!(find(&["--since", "1m30s"]), "1000 999");
    assert_eq!(find(&["--until", "998m30s"]), "1");
    let oldest = listed(&desk, &["--until", "1s", "--limit", "1000"]);
    assert_eq!((oldest.split(' ').count(), oldest.starts_with("999 998 ")), (999, true));
}

#[test]
fn the_list_is_a_table_that_is_turned_page_by_page() {
    let (_database, desk) = history();
    let ran = desk.run(&["inbox", "list", "--limit", "4", "--before", "9"]);
    assert_eq!((ran.code, ran.err.as_str()), (0, "there may be more: --before 5\n"));
    let page = "\
id  received              endpoint   type                      event id  status     attempts  why
8   TIME  stripe     payment_intent.succeeded  evt_8     dead       1         unreadable: payment_intent.succeeded: the amount at /data/object/amount_received is negative
7   TIME  shopify    orders/paid               w-1       processed  1
6   TIME  warehouse  receipt.announced         m-2       failed     1         sku_not_found: SKU NEW is not there
5   TIME  warehouse  receipt.announced         m-1       processed  1
";
    assert_eq!(without_times(&ran.out), page);
    assert_eq!(listed(&desk, &["--limit", "4", "--before", "5"]), "4 3 2 1");
    assert_eq!(listed(&desk, &["--limit", "2", "--before", "4", "--endpoint", "stripe"]), "3 2");
    assert_eq!(listed(&desk, &["--before", "1"]), "");
    let line = desk.out(&["inbox", "list", "--event-id", "evt_4", "--json"]);
    let mut object: Value = serde_json::from_str(&line).unwrap();
    for time in ["received_at", "next_attempt_at"] {
        let time = object.as_object_mut().unwrap().remove(time).unwrap();
        assert!(time.as_str().unwrap().ends_with('Z'), "{time}");
    }
    assert_eq!(
        object,
        json!({
            "id": 4, "endpoint": "stripe", "provider": "stripe", "event_id": "evt_4",
            "event_type": "payment_intent.succeeded", "status": "failed", "attempts": 1,
            "error_kind": "invoice_not_found", "error": "invoice INV-77 is not there", "ignored_because": null,
            "group": "7c1e5b9358", "occurred_at": "2025-12-01T12:00:00Z", "settled_at": null,
        })
    );
}

#[test]
fn what_went_wrong_is_grouped_with_the_command_that_runs_it_again() {
    let (database, desk) = history();
    assert_eq!(Desk::new(&Database::new()).out(&["inbox", "errors"]), "nothing is failed or dead\n");
    let gateway = Gateway::start_with(&database.url, "retries = false");
    assert_eq!(gateway.pay("evt_10", "pi_10", "INV-78", 500).said(), FAILED);
    let out = desk.out(&["inbox", "errors"]);
    let whole = "\
7c1e5b9358  2 events of stripe, payment_intent.succeeded; 0 dead
            invoice_not_found: invoice INV-78 is not there
            received TIME to TIME, the newest is 10
            wharf inbox reprocess --error 7c1e5b9358

31981bd58b  1 event of stripe, payment_intent.succeeded; 1 dead
            unreadable: payment_intent.succeeded: the amount at /data/object/amount_received is negative
            received TIME to TIME, the newest is 8
            wharf inbox reprocess --error 31981bd58b

c3e314c93b  1 event of warehouse, receipt.announced; 0 dead
            sku_not_found: SKU NEW is not there
            received TIME to TIME, the newest is 6
            wharf inbox reprocess --error c3e314c93b

fee4da3b80  1 event of stripe, payment_intent.succeeded; 1 dead
            currency_differs: invoice INV-2 is in USD, the event is in EUR
            received TIME to TIME, the newest is 3
            wharf inbox reprocess --error fee4da3b80

";
    assert_eq!(without_times(&out), whole);
    let out = desk.out(&["inbox", "errors", "--status", "failed", "--endpoint", "warehouse", "--json"]);
    let mut object: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(object["first_received_at"], object["last_received_at"]);
    for time in ["first_received_at", "last_received_at"] {
        object.as_object_mut().unwrap().remove(time).unwrap();
    }
    assert_eq!(
        object,
        json!({
            "group": "c3e314c93b", "endpoint": "warehouse", "event_type": "receipt.announced",
            "error_kind": "sku_not_found", "events": 1, "dead": 0, "sample_id": 6,
            "sample_error": "SKU NEW is not there", "reprocess": "wharf inbox reprocess --error c3e314c93b",
        })
    );
    let ran = desk.run(&["inbox", "errors", "--status", "processed"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    // The command that it names runs the group and nothing else.
    database.insert_invoice("INV-77", 500);
    database.insert_invoice("INV-78", 500);
    let group = database.rows("select fingerprint from webhook_inbox where id = 4");
    assert_eq!(desk.out(&["inbox", "reprocess", "--error", &group, "--yes"]), "2 applied\n");
    assert_eq!(listed(&desk, &["--status", "failed"]), "6");
}

#[test]
fn a_processed_event_is_shown_with_what_it_changed() {
    let (_database, desk) = history();
    let out = desk.out(&["inbox", "show", "evt_1"]);
    let whole = "\
event      evt_1, inbox id 1
endpoint   stripe (provider stripe)
type       payment_intent.succeeded
status     processed, 1 attempt

timeline
  TIME  happened, by the provider's clock
  TIME  received
  TIME  delivery -> processed

headers
  content-length: 224
  host: t

body (224 bytes)
  {
    \"id\": \"evt_1\",
    \"object\": \"event\",
    \"type\": \"payment_intent.succeeded\",
    \"created\": 1764590400,
    \"livemode\": true,
    \"data\": {
      \"object\": {
        \"id\": \"pi_1\",
        \"amount\": 10000,
        \"amount_received\": 10000,
        \"currency\": \"usd\",
        \"metadata\": {
          \"invoice_id\": \"INV-1\"
        }
      }
    }
  }

what it changed
  + invoice_entry  payment pi_1 on invoice INV-1 100.00 USD
  + outbox  invoice.paid version 1
";
    assert_eq!(without_times(&out), whole);
    let out = desk.out(&["inbox", "show", "m-1"]);
    let effects = out.split("\nwhat it changed\n").nth(1).unwrap();
    assert_eq!(
        effects,
        "  + stock_entry  A on_hand 0 on_order 5 (receipt.announced ASN-1)\n  + outbox  receipt.announced version 1\n"
    );
    let shown: Value = serde_json::from_str(&desk.out(&["inbox", "show", "7", "--json"])).unwrap();
    assert_eq!(shown["event"]["event_id"], "w-1");
    assert_eq!(shown["headers"]["x-shopify-topic"], "orders/paid");
    assert_eq!(shown["headers"]["x-shopify-hmac-sha256"], Value::Null);
    assert_eq!(shown["body"], ORDER);
    assert_eq!(shown["would_change"], Value::Null);
    let tables: Vec<&Value> = shown["changed"].as_array().unwrap().iter().map(|row| &row["table"]).collect();
    assert_eq!(tables, ["invoice_entry", "invoice_entry", "outbox", "outbox"]);
}

#[test]
fn a_dead_event_is_shown_with_its_history_and_what_it_would_change_now() {
    let (database, desk) = history();
    desk.out(&["inbox", "undiscard", "9", "--reason", "not a test", "--operator", "otto"]);
    let before = database.dump();
    let out = desk.out(&["inbox", "show", "evt_9"]);
    assert!(out.ends_with("\nwhat it changed\n  nothing\n\nwhat it would change now\n  would be a dead letter: invoice_not_found: invoice INV-77 is not there\n"), "{out}");
    assert_eq!(database.dump(), before, "showing changes nothing");
    database.insert_invoice("INV-77", 500);
    let out = desk.out(&["inbox", "show", "9"]);
    let (head, rest) = out.split_once("\nbody (").unwrap();
    let whole = "\
event      evt_9, inbox id 9
endpoint   stripe (provider stripe)
type       payment_intent.succeeded
status     dead, 1 attempt
error      invoice_not_found: invoice INV-77 is not there
way out    write the invoice, or find out under which number the ERP has it
group      7c1e5b9358: wharf inbox reprocess --error 7c1e5b9358

timeline
  TIME  happened, by the provider's clock
  TIME  received
  TIME  delivery -> failed: invoice_not_found: invoice INV-77 is not there
  TIME  discard by olga (a test) -> discarded
  TIME  undiscard by otto (not a test) -> dead

headers
  content-length: 221
  host: t
";
    assert_eq!(without_times(head), whole);
    assert_eq!(
        rest.split_once("\nwhat it changed").unwrap().1,
        "
  nothing

what it would change now
  would be processed
  invoice INV-77 status awaiting_payment -> paid
  invoice INV-77 amount_paid 0.00 USD -> 7.00 USD
  invoice INV-77 paid_at - -> 2025-12-01T12:00:00Z
  + invoice_entry  payment pi_9 7.00 USD
  + outbox  invoice.paid version 1
"
    );
    let shown: Value = serde_json::from_str(&desk.out(&["inbox", "show", "9", "--json"])).unwrap();
    assert_eq!(shown["changes"], json!(["invoice.paid"]));
    assert_eq!(shown["changed"], json!([]));
    assert_eq!(shown["would_change"]["outcome"], "processed");
    assert_eq!(shown["would_change"]["differences"].as_array().unwrap().len(), 5);
    assert_eq!(
        shown["attempts"].as_array().unwrap().iter().map(|attempt| &attempt["origin"]).collect::<Vec<_>>(),
        ["delivery", "discard", "undiscard"]
    );
    // Without a configuration, by the built-in provider.
    std::fs::remove_file(desk.folder().join("wharf.toml")).unwrap();
    assert_eq!(desk.out(&["inbox", "show", "9"]), out);
}

#[test]
fn the_raw_body_is_the_bytes_that_were_signed() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, "retries = false");
    let odd = b"\xff\x00\r\n{\"id\": \"evt_1\", \x1b[31m\t\xc3\x28";
    assert_eq!(gateway.stripe(odd).said(), DEAD);
    let desk = Desk::new(&database);
    let output = desk.command(&["inbox", "show", "1", "--raw"]).output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), &odd[..]));
    let out = desk.out(&["inbox", "show", "1"]);
    assert!(!out.contains(|c: char| c.is_control() && c != '\n'), "{out:?}");
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let output = desk.command(&["inbox", "show", "1", "--raw"]).stdout(full).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "a body that could not be written is not shown");
    assert!(String::from_utf8(output.stderr).unwrap().starts_with("wharf: No space left on device"));
}

#[test]
fn what_a_terminal_would_obey_is_written_out() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, "retries = false");
    let odd = payment_succeeded("evt_1", "pi_1", r"INV\u001b[2J\n7", 100);
    assert_eq!(gateway.stripe(odd.as_bytes()).said(), FAILED);
    let odd = payment_succeeded(r"evt\n2", "pi_2", "INV-1", 100)
        .replace("payment_intent.succeeded", r"x.\u001b[31my");
    assert_eq!(gateway.stripe(odd.as_bytes()).said(), IGNORED);
    let desk = Desk::new(&database);
    let out = desk.out(&["inbox", "list"]);
    assert_eq!(out.lines().count(), 3, "{out}");
    for arguments in [
        &["list"][..],
        &["errors"],
        &["show", "1"],
        &["show", "2"],
        &["reprocess", "1", "--dry-run"],
        &["reprocess", "--status", "ignored", "--dry-run"],
        &["reprocess", "1", "--yes"],
    ] {
        let ran = desk.run(&[&["inbox"], arguments].concat());
        assert!(ran.code != 2 && !ran.out.contains('\u{1b}'), "{arguments:?} {:?}", ran.out);
        assert!(ran.out.contains(r"\u{1b}["), "{arguments:?} {:?}", ran.out);
    }
    database.wait_for("it is seen", "select last_event_type ~ '^x' from endpoint_activity", "true");
    let status = desk.run(&["status"]).out;
    assert!(status.contains(r" x.\u{1b}[31my  "), "{status:?}");
}

#[test]
fn discarding_is_on_record_and_can_be_taken_back() {
    let (database, desk) = history();
    let gateway = Gateway::start_with(&database.url, "retries = false");
    let ran = desk.run(&["inbox", "discard", "evt_4", "1", "evt_3", "--reason", "of the agency"]);
    assert_eq!((ran.code, ran.err.as_str()), (1, ""));
    assert_eq!(ran.out, "4: discarded\n1: left as it is: it is neither failed nor dead\n3: discarded\n");
    assert_eq!(gateway.pay("evt_4", "pi_4", "INV-77", 500).said(), DUPLICATE);
    let ran = desk.run(&["inbox", "discard", "evt_4", "--reason", "again"]);
    assert_eq!((ran.code, ran.out.as_str()), (1, "4: left as it is: it is neither failed nor dead\n"));
    let ran = desk.run(&["inbox", "undiscard", "evt_4", "evt_8", "--operator", "otto"]);
    assert_eq!(ran.code, 1);
    assert_eq!(ran.out, "4: a dead letter again\n8: left as it is: it is not discarded\n");
    let columns =
        "select status, attempts, settled_at is null, dead_lettered_at is null, next_attempt_at is null";
    assert_eq!(
        database.rows(&format!("{columns} from webhook_inbox where id in (3, 4) order by id")),
        "discarded|1|false|true|true\ndead|1|false|false|true"
    );
    assert_eq!(
        database.rows(
            "select inbox_id, origin, operator, reason, outcome from webhook_attempt where inbox_id in (3, 4)
             order by at, inbox_id"
        ),
        "3|delivery|||dead\n4|delivery|||failed\n3|discard|olga|of the agency|discarded\n\
         4|discard|olga|of the agency|discarded\n4|undiscard|otto||dead"
    );
    for (arguments, code) in [
        (&["discard", "4711", "--reason", "x"][..], 3),
        (&["undiscard", "evt_4711"], 3),
        (&["discard", "4"], 2),
        (&["discard", "--reason", "x"], 2),
    ] {
        assert_eq!(desk.run(&[&["inbox"], arguments].concat()).code, code, "{arguments:?}");
    }
    database.insert_invoice("INV-77", 500);
    assert_eq!(desk.out(&["inbox", "reprocess", "4", "--yes"]), "1 applied\n");
    assert_eq!(database.invoice("INV-77"), "paid|500|0");
}

#[test]
fn an_id_that_came_in_at_two_endpoints_is_asked_about() {
    let database = Database::new();
    let gateway = Gateway::start_with(&database.url, "retries = false");
    assert_eq!(gateway.pay("same", "pi_1", "INV-1", 100).said(), PROCESSED);
    assert_eq!(gateway.warehouse("same", announced("ASN-1", "A").as_bytes()).said(), PROCESSED);
    let ran = Desk::new(&database).run(&["inbox", "show", "same"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_eq!(
        ran.err,
        "wharf: same came in at several endpoints; name one by its inbox id: 2 (warehouse), 1 (stripe)\n"
    );
}

#[test]
fn every_command_explains_itself_and_completes_itself() {
    let desk = Desk::with(&Database::new(), "");
    for command in ["list", "show", "errors", "reprocess", "discard", "undiscard"] {
        let help = desk.out(&["inbox", command, "--help"]);
        assert!(help.contains(&format!("Usage: wharf inbox {command}")), "{help}");
        assert!(help.contains("Exit codes: 0 "), "{help}");
    }
    for shell in ["bash", "zsh", "fish"] {
        assert!(desk.out(&["completions", shell]).contains("reprocess"), "{shell}");
    }
    assert_eq!(desk.run(&["completions", "csh"]).code, 2);
}

#[test]
fn a_reader_that_goes_away_is_no_failure() {
    let (_database, desk) = history();
    for arguments in [
        &["inbox", "list"][..],
        &["inbox", "list", "--json"],
        &["inbox", "errors"],
        &["inbox", "show", "1"],
        &["inbox", "show", "1", "--raw"],
        &["quarantine", "list"],
        &["status"],
        &["completions", "bash"],
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = desk.command(arguments).stdin(Stdio::null()).stdout(writer).output().unwrap();
        let err = String::from_utf8(output.stderr).unwrap();
        assert_eq!((output.status.code(), err.as_str()), (Some(0), ""), "{arguments:?}");
    }
}
