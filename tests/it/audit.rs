//! `wharf audit`: clean after whatever a gateway did, and one break for one thing that is wrong.

use std::fs;

use wharf::audit::Check;

use crate::support::*;

fn audit(database: &Database, more: &[&str]) -> Ran {
    let folder = tempfile::tempdir().unwrap();
    let arguments = [&["audit"], more].concat();
    wharf(folder.path(), &[("DATABASE_URL", &database.url)], &arguments)
}

/// What Stripe says about a refund: a running total, a single one, or one that failed.
fn refunded(event: &str, kind: &str, payment: &str, object: &str, at: u64) -> String {
    format!(
        r#"{{"id":"{event}","type":"{kind}","created":{at},"livemode":true,"data":{{"object":{{"payment_intent":"{payment}","currency":"usd",{object}}}}}}}"#
    )
}

fn order(name: &str, status: &str, total: &str, cancelled: &str) -> String {
    format!(
        r##"{{"id":8209829{name},"name":"#{name}","currency":"USD","total_price":"{total}","current_total_price":"{total}","financial_status":"{status}","cancelled_at":{cancelled},"updated_at":"2026-01-01T00:00:00Z"}}"##
    )
}

fn receipt(kind: &str, number: &str, day: u64, more: &str) -> String {
    format!(
        r#"{{"type":"receipt.{kind}","timestamp":"2026-01-{day:02}T00:00:00Z","data":{{"receipt":"{number}"{more}}}}}"#
    )
}

/// Numbers that look random and are the same in every run.
struct Dice(u64);

impl Dice {
    fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % limit
    }
}

fn tell_something(gateway: &Gateway, dice: &mut Dice, event: &str) -> Reply {
    let invoice = 1 + dice.below(9);
    let payment = format!("pi_{invoice}_{}", dice.below(2));
    let at = 1_764_590_400 + dice.below(50);
    let amount = [0, 2_500, 10_000, 13_000][dice.below(4) as usize];
    let asn = format!("ASN-{}", dice.below(4));
    let (day, units) = (1 + dice.below(28), dice.below(20));
    let stripe = |body: String| gateway.stripe(body.as_bytes());
    let warehouse = |kind, more: &str| gateway.warehouse(event, receipt(kind, &asn, day, more).as_bytes());
    match dice.below(14) {
        0..=2 => stripe(
            payment_succeeded(event, &payment, &format!("INV-{invoice}"), amount as i64)
                .replace("1764590400", &at.to_string()),
        ),
        3 => {
            let object = format!(r#""amount_refunded":{amount},"metadata":{{"invoice_id":"INV-{invoice}"}}"#);
            stripe(refunded(event, "charge.refunded", &payment, &object, at))
        }
        kind @ (4 | 5) => {
            let (kind, status) =
                if kind == 4 { ("refund.created", "succeeded") } else { ("refund.failed", "failed") };
            let object = format!(r#""id":"re_{payment}","amount":2500,"status":"{status}""#);
            stripe(refunded(event, kind, &payment, &object, at))
        }
        kind @ (6 | 7) => {
            let (topic, status, cancelled) = match kind {
                6 => ("orders/paid", "paid", "null"),
                _ => ("orders/cancelled", "voided", "\"2026-01-02T00:00:00Z\""),
            };
            let body = order(&units.to_string(), status, "10.10", cancelled);
            gateway.shopify(event, topic, body.as_bytes())
        }
        8 | 9 => warehouse(
            "announced",
            &format!(r#","lines":[{{"sku":"A","expected":{units}}},{{"sku":"B","expected":7}}]"#),
        ),
        10 => warehouse(
            "received",
            &format!(
                r#","counting":"totals","lines":[{{"sku":"A","accepted":{units},"rejected":{}}}]"#,
                units / 4
            ),
        ),
        11 => warehouse(
            "received",
            &format!(
                r#","counting":"deltas","notice":"N{units}","lines":[{{"sku":"B","accepted":2}},{{"sku":"A","accepted":1,"rejected":1}}]"#
            ),
        ),
        12 => warehouse(["in_transit", "arrived"][dice.below(2) as usize], ""),
        _ => warehouse(["closed", "cancelled", "arrived", "arrived"][dice.below(4) as usize], ""),
    }
}

#[test]
fn a_long_history_in_any_order_leaves_books_that_add_up() {
    let database = Database::new();
    let gateways = [Gateway::start(&database), Gateway::start(&database)];
    std::thread::scope(|scope| {
        for worker in 0..6 {
            let gateway = &gateways[worker % 2];
            scope.spawn(move || {
                let mut dice = Dice(worker as u64);
                for round in 0..100 {
                    let reply = tell_something(gateway, &mut dice, &format!("evt_{worker}_{round}"));
                    assert!([200, 500].contains(&reply.status), "{reply:?}");
                }
            });
        }
    });
    for kind in ["payment", "refund_total", "refund", "refund_failed", "issued", "voided"] {
        let told = database.rows(&format!("select count(*) > 3 from invoice_entry where kind = '{kind}'"));
        assert_eq!(told, "true", "{kind}");
    }
    let counted = "select count(*) filter (where notice is null) > 3, count(notice) > 3 from receipt_entry";
    assert_eq!(database.rows(counted), "true|true");
    let ran = audit(&database, &[]);
    assert!(ran.out.ends_with("\nno breaks, no warnings\n"), "{}", ran.out);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

#[test]
fn the_fixtures_of_all_providers_leave_books_that_add_up() {
    let database = Database::new();
    database.execute(&fs::read_to_string(repository().join("fixtures/setup.sql")).unwrap());
    let fixtures = repository().join("fixtures").display().to_string();
    let folder = tempfile::tempdir().unwrap();
    let config = fs::read_to_string(format!("{fixtures}/wharf.toml")).unwrap();
    let config = config.replace("file:", &format!("file:{fixtures}/"));
    let listen = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\n";
    fs::write(folder.path().join("wharf.toml"), format!("{listen}{config}")).unwrap();
    let gateway = Gateway::start_configured(&database.url, &folder.path().join("wharf.toml"));
    let url = format!("http://{}", gateway.address);
    let replayed = wharf(folder.path(), &[], &["fixtures", "replay", &fixtures, "--url", &url]);
    assert_eq!(replayed.code, 0, "{}", replayed.out);
    let ran = audit(&database, &["--tenant", "acme"]);
    assert!(ran.out.ends_with("\nno breaks, no warnings\n"), "{}", ran.out);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""));
}

/// Two invoices paid and one of them refunded, an order issued, paid, and one cancelled, a receipt announced and
/// counted both ways, and an event whose invoice is not there.
fn told() -> Database {
    let database = Database::new();
    let gateway = Gateway::start(&database);
    let charge = r#""amount_refunded":2500,"metadata":{"invoice_id":"INV-1"}"#;
    let refund = refunded("evt_3", "charge.refunded", "pi_1", charge, 1_764_590_500);
    let announced = r#","lines":[{"sku":"A","expected":10},{"sku":"B","expected":5}]"#;
    let totals = r#","counting":"totals","lines":[{"sku":"A","accepted":4,"rejected":1}]"#;
    let deltas = r#","counting":"deltas","notice":"N1","lines":[{"sku":"A","accepted":3}]"#;
    let cancelled = order("2", "voided", "5.00", "\"2026-01-02T00:00:00Z\"");
    let replies = [
        gateway.pay("evt_1", "pi_1", "INV-1", 10_000),
        gateway.pay("evt_2", "pi_2", "INV-2", 4_000),
        gateway.stripe(refund.as_bytes()),
        gateway.shopify("w-1", "orders/create", order("1", "pending", "10.10", "null").as_bytes()),
        gateway.shopify("w-2", "orders/paid", order("1", "paid", "10.10", "null").as_bytes()),
        gateway.shopify("w-3", "orders/create", order("2", "pending", "5.00", "null").as_bytes()),
        gateway.shopify("w-4", "orders/cancelled", cancelled.as_bytes()),
        gateway.warehouse("m-1", receipt("announced", "ASN-1", 1, announced).as_bytes()),
        gateway.warehouse("m-2", receipt("received", "ASN-1", 2, totals).as_bytes()),
        gateway.warehouse("m-3", receipt("received", "ASN-1", 3, deltas).as_bytes()),
    ];
    for reply in replies {
        assert_eq!(reply.said(), PROCESSED);
    }
    assert_eq!(gateway.pay("evt_9", "pi_9", "INV-77", 500).said(), FAILED);
    database
        .execute(&format!("create schema saved; {}", each_table("create table saved.T as table wharf.T")));
    database
}

/// One statement for every table, in an order that foreign keys allow.
fn each_table(statement: &str) -> String {
    let tables = [
        "webhook_inbox",
        "invoice",
        "invoice_entry",
        "receipt",
        "receipt_line",
        "receipt_entry",
        "sku_position",
        "stock_entry",
        "outbox",
    ];
    tables.map(|table| statement.replace('T', table)).join("; ")
}

fn restore(database: &Database) {
    let tables = each_table("insert into T overriding system value select * from saved.T");
    database.execute(&format!(
        "truncate webhook_inbox, webhook_attempt, invoice, invoice_entry, receipt, receipt_line, receipt_entry, \
         sku_position, stock_entry, outbox; {tables}"
    ));
}

/// What is examined after [`told`].
const EXAMINED: [u64; 9] = [11, 7, 1, 2, 2, 2, 5, 13, 1];

/// The check, what it is about, the field, what is stored and what should be.
type Found<'a> = (Check, &'a str, &'a str, &'a str, &'a str);

/// The whole output, given how many more or fewer each check examines than after [`told`], and what is found.
fn output(more: &[(Check, i64)], found: &[Found<'_>]) -> String {
    let mut out = String::new();
    for (check, examined) in Check::ALL.into_iter().zip(EXAMINED) {
        let more = more.iter().find(|(of, _)| *of == check).map_or(0, |(_, more)| *more);
        let word = if check == Check::Retries { "warning" } else { "break" };
        let verdict = match found.iter().filter(|(by, ..)| *by == check).count() {
            0 => "clean".to_owned(),
            1 => format!("1 {word}"),
            count => format!("{count} {word}s"),
        };
        let examined = examined as i64 + more;
        out += &format!("{:<15}  {examined:>9} examined, {verdict}\n", check.name());
    }
    for (check, what, field, stored, recomputed) in found {
        let word = if *check == Check::Retries { "warning" } else { "break" };
        let space = " ".repeat(field.len());
        out += &format!("\n{word} in {}: {what}\n", check.name());
        out += &format!("  {field} is        {stored}\n  {space} should be {recomputed}\n");
        out += &format!("  {}\n", check.way_out());
    }
    let warnings = found.iter().filter(|(check, ..)| *check == Check::Retries).count();
    let counted = |count: usize, word: &str| match count {
        0 => format!("no {word}s"),
        1 => format!("1 {word}"),
        _ => format!("{count} {word}s"),
    };
    out + &format!("\n{}, {}\n", counted(found.len() - warnings, "break"), counted(warnings, "warning"))
}

/// Breaks something, sees exactly that, and mends it.
fn broken(database: &Database, sql: &str, more: &[(Check, i64)], found: &[Found<'_>]) {
    database.execute(sql);
    let ran = audit(database, &[]);
    assert_eq!(ran.out, output(more, found), "{sql}");
    let breaks = found.iter().any(|(check, ..)| *check != Check::Retries);
    assert_eq!((ran.code, ran.err.as_str()), (i32::from(breaks), ""), "{sql}");
    restore(database);
}

#[test]
fn whatever_is_wrong_with_an_invoice_is_reported() {
    use Check::{InvoiceEntries, Invoices, Outbox};
    let database = told();
    broken(&database, "select", &[], &[]);
    let one = "invoice INV-1 of acme";
    let paid_at = "2025-12-01T12:00:00Z";
    let case = |sql: &str, more: &[(Check, i64)], found: &[Found<'_>]| broken(&database, sql, more, found);
    let invoice = |number: &str, set: &str| format!("update invoice set {set} where number = '{number}'");

    case(
        &invoice("INV-1", "amount_paid = 10001"),
        &[],
        &[(Invoices, one, "amount_paid", "100.01 USD", "100.00 USD")],
    );
    case(
        &invoice("INV-1", "amount_refunded = 0"),
        &[],
        &[(Invoices, one, "amount_refunded", "0.00 USD", "25.00 USD")],
    );
    case(
        &invoice("INV-1", "status = 'paid'"),
        &[],
        &[(Invoices, one, "status", "paid", "partially_refunded")],
    );
    case(&invoice("INV-1", "paid_at = null"), &[], &[(Invoices, one, "paid_at", "none", paid_at)]);
    case(
        &invoice("INV-1", "last_payment_at = '2025-11-01Z', paid_at = '2025-11-01Z'"),
        &[],
        &[
            (Invoices, one, "paid_at", "2025-11-01T00:00:00Z", paid_at),
            (Invoices, one, "last_payment_at", "2025-11-01T00:00:00Z", paid_at),
        ],
    );
    // The ERP's own amount is the ERP's own; a provider's is what the provider issued.
    case(&invoice("INV-2", "amount_due = 20000"), &[], &[]);
    case(
        &invoice("#1", "amount_due = 1000"),
        &[],
        &[(Invoices, "invoice #1 of acme", "amount_due", "10.00 USD", "10.10 USD")],
    );
    case(
        &invoice("#1", "issued_at = null"),
        &[],
        &[(Invoices, "invoice #1 of acme", "issued_at", "none", "2026-01-01T00:00:00Z")],
    );
    // An invoice that nothing was told of has the status that the ERP gave it, and no payments.
    case(&invoice("INV-9", "status = 'void'"), &[], &[]);
    case(
        &invoice("INV-9", "amount_paid = 1"),
        &[],
        &[(Invoices, "invoice INV-9 of acme", "amount_paid", "0.01 USD", "0.00 USD")],
    );
    case(
        "delete from invoice_entry where kind = 'voided'",
        &[(InvoiceEntries, -1), (Check::Inbox, -1)],
        &[
            (Invoices, "invoice #2 of acme", "status", "void", "awaiting_payment"),
            (Invoices, "invoice #2 of acme", "voided_at", "2026-01-01T00:00:00Z", "none"),
        ],
    );
    case(
        "delete from invoice_entry where kind = 'refund_total'",
        &[(InvoiceEntries, -1), (Check::Inbox, -1)],
        &[
            (Invoices, one, "amount_refunded", "25.00 USD", "0.00 USD"),
            (Invoices, one, "status", "partially_refunded", "paid"),
        ],
    );
    case(
        "insert into invoice_entry (invoice_id, kind, provider, provider_ref, payment_ref, amount, currency, occurred_at)
         select id, 'payment', 'stripe', 'pi_2b', 'pi_2b', 100, 'USD', '2025-01-01Z' from invoice where number = 'INV-2'",
        &[(InvoiceEntries, 1)],
        &[(Invoices, "invoice INV-2 of acme", "amount_paid", "40.00 USD", "41.00 USD")],
    );
    case(
        "insert into invoice_entry (invoice_id, kind, provider, provider_ref, payment_ref, amount, currency)
         select id, 'payment', 'stripe', 'pi_max', 'pi_max', 9223372036854775807, 'USD' from invoice where number = 'INV-2'",
        &[(InvoiceEntries, 1)],
        &[(
            Invoices,
            "invoice INV-2 of acme",
            "sum",
            "entries that cannot be added up",
            "an amount is out of range",
        )],
    );
    let entry = database.rows("select id from invoice_entry where provider_ref = 'pi_1'");
    case(
        "update invoice_entry set currency = 'EUR' where provider_ref = 'pi_1'",
        &[],
        &[(InvoiceEntries, &format!("entry {entry} of {one}"), "currency", "EUR", "USD")],
    );
    case(
        &invoice("INV-1", "version = 3"),
        &[],
        &[(Outbox, one, "messages", "2 of versions 1 to 2", "3 of versions 1 to 3")],
    );
}

#[test]
fn whatever_is_wrong_with_a_receipt_or_the_stock_is_reported() {
    use Check::{GoodsIn, Inbox, Positions, ReceiptLines, Receipts};
    let database = told();
    let line = "SKU A on receipt ASN-1 of acme";
    let sku = "SKU A of acme";
    let case = |sql: &str, more: &[(Check, i64)], found: &[Found<'_>]| broken(&database, sql, more, found);
    case(
        "update receipt set status = 'closed'",
        &[],
        &[(Receipts, "receipt ASN-1 of acme", "status", "closed", "receiving")],
    );
    for (column, stored, recomputed) in [
        ("quantity_received", "9", "8"),
        ("quantity_rejected", "2", "1"),
        ("counted_received", "6", "5"),
        ("counted_rejected", "2", "1"),
    ] {
        case(
            &format!("update receipt_line set {column} = {column} + 1 where sku = 'A'"),
            &[],
            &[(ReceiptLines, line, column, stored, recomputed)],
        );
    }
    case(
        "delete from receipt_entry where notice = 'N1'",
        &[(Inbox, -1)],
        &[(ReceiptLines, line, "quantity_received", "8", "5"), (GoodsIn, sku, "moved on hand", "7", "4")],
    );
    case(
        "update sku_position set on_hand = 8 where sku = 'A'",
        &[],
        &[(Positions, sku, "on_hand", "8", "7")],
    );
    case(
        "update sku_position set on_order = 9 where sku = 'A'",
        &[],
        &[(Positions, sku, "on_order", "9", "3")],
    );
    // Stock from before Wharf: a break until its opening entry is there.
    let opened = "insert into sku_position (tenant_id, sku, on_hand) select id, 'OLD', 12 from tenant";
    case(opened, &[(Positions, 1)], &[(Positions, "SKU OLD of acme", "on_hand", "12", "0")]);
    case(&format!("{opened}; {}", opening_entries()), &[(Positions, 1)], &[]);
    case(
        "update stock_entry set inbox_id = null where on_hand_delta = 3",
        &[(Inbox, -1)],
        &[(GoodsIn, sku, "moved on hand", "4", "7")],
    );
}

/// The statement of the runbook.
fn opening_entries() -> String {
    let runbook = fs::read_to_string(repository().join("docs/OPERATIONS.md")).unwrap();
    let (_, from) = runbook.split_once("```sql\ninsert into stock_entry").expect("the runbook shows it");
    let (statement, _) = from.split_once("\n```").unwrap();
    format!("insert into stock_entry{statement}")
}

#[test]
fn gaps_in_the_outbox_and_contradictions_of_the_inbox_are_reported() {
    use Check::{Inbox, Outbox, Retries};
    let database = told();
    let case = |sql: &str, more: &[(Check, i64)], found: &[Found<'_>]| broken(&database, sql, more, found);
    let asn = "receipt ASN-1 of acme";
    let of_receipt = "delete from outbox where aggregate_type = 'receipt'";
    // The oldest messages, or all of them, may have been deleted.
    case(&format!("{of_receipt} and aggregate_version < 3"), &[], &[]);
    case("delete from outbox", &[(Outbox, -5)], &[]);
    for version in [2, 3] {
        let stored = if version == 2 { "2 of versions 1 to 3" } else { "2 of versions 1 to 2" };
        case(
            &format!("{of_receipt} and aggregate_version = {version}"),
            &[],
            &[(Outbox, asn, "messages", stored, "3 of versions 1 to 3")],
        );
    }
    case(
        "update receipt set version = 1",
        &[],
        &[(Outbox, asn, "messages", "3 of versions 1 to 3", "1 of versions 1 to 1")],
    );
    case(
        &format!("{of_receipt} and aggregate_version < 3; update receipt set version = 2"),
        &[],
        &[(Outbox, asn, "messages", "1 of versions 3 to 3", "none above version 2")],
    );
    let nobody = "00000000-0000-0000-0000-000000000009";
    case(
        &format!(
            "insert into outbox (tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, payload)
             select id, 'invoice', '{nobody}', 1, 'invoice.paid', '{{}}' from tenant"
        ),
        &[(Outbox, 1)],
        &[(Outbox, &format!("invoice {nobody} of acme"), "messages", "1 of versions 1 to 1", "no such invoice")],
    );

    let event = |id: &str, at: &str, entries: i32| format!("event {id} at {at} (entries: {entries})");
    case(
        "update webhook_inbox set status = 'dead', dead_lettered_at = now(), error_kind = 'x', fingerprint = 'x', last_error = 'x'
         where event_id = 'm-2'",
        &[],
        &[(Inbox, &event("m-2", "warehouse", 2), "status", "dead", "processed")],
    );
    case(
        "update webhook_inbox set status = 'ignored' where event_id = 'w-2'",
        &[],
        &[(Inbox, &event("w-2", "shopify", 1), "status", "ignored", "processed")],
    );
    case(
        "update webhook_inbox set tenant_id = '00000000-0000-0000-0000-000000000009' where event_id = 'm-3'",
        &[],
        &[(Inbox, &event("m-3", "warehouse", 2), "tenant", &format!("unknown tenant {nobody}"), "acme")],
    );
    // Inbox rows that are gone were pruned.
    case("delete from webhook_inbox where status = 'processed'", &[], &[]);
    case(
        "update webhook_inbox set next_attempt_at = '2025-01-01Z' where event_id = 'evt_9'",
        &[],
        &[(
            Retries,
            "event evt_9 at stripe of acme",
            "next_attempt_at",
            "2025-01-01T00:00:00Z",
            "tried again within a day",
        )],
    );
}

#[test]
fn the_report_is_for_people_or_for_machines_and_keeps_to_its_limit() {
    let database = told();
    database.execute("update invoice set amount_paid = 1 where number like 'INV-_'");
    let ran = audit(&database, &["--limit", "1"]);
    let expected = "\
invoices                11 examined, 9 breaks
invoice_entries          7 examined, clean
receipts                 1 examined, clean
receipt_lines            2 examined, clean
positions                2 examined, clean
goods_in                 2 examined, clean
outbox                   5 examined, clean
inbox                   13 examined, clean
retries                  1 examined, clean

break in invoices: invoice INV-1 of acme
  amount_paid is        0.01 USD
              should be 100.00 USD
  Something outside Wharf wrote the invoice or its entries. If the entries are right, set the column to what they give; if one is missing, insert it into invoice_entry.

9 breaks, no warnings; 8 more are not shown, see --limit
";
    assert_eq!((ran.out.as_str(), ran.code), (expected, 1));

    let ran = audit(&database, &["--json", "--limit", "1"]);
    let lines: Vec<serde_json::Value> =
        ran.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let expected = serde_json::json!({
        "finding": "break", "check": "invoices", "what": "invoice INV-1 of acme", "field": "amount_paid",
        "stored": "0.01 USD", "recomputed": "100.00 USD", "way_out": Check::Invoices.way_out(),
    });
    assert_eq!((lines.len(), &lines[0], ran.code), (2, &expected, 1));
    let summary = &lines[1]["summary"];
    assert_eq!([&summary["breaks"], &summary["warnings"], &summary["shown"]], [9, 0, 1]);
    assert_eq!(summary["checks"][0], serde_json::json!({"check": "invoices", "examined": 11, "found": 9}));

    // Another tenant's books are another matter.
    database.execute("insert into tenant (name) values ('zenith')");
    let ran = audit(&database, &["--tenant", "zenith"]);
    let nothing =
        Check::ALL.map(|check| format!("{:<15}          0 examined, clean\n", check.name())).concat();
    assert_eq!((ran.out, ran.code), (format!("{nothing}\nno breaks, no warnings\n"), 0));
    let ran = audit(&database, &["--tenant", "acne"]);
    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_eq!(ran.err, "wharf: tenant `acne` is not there; the tenants are: acme, zenith\n");
    assert_eq!(audit(&database, &["--limit", "some"]).code, 2);
}
