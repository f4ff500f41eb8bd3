//! A company's own functions, in the transaction of the delivery. Black box, but for what a batch is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use wharf::books::{Change, InvoiceChange, InvoiceFact, Money};
use wharf::effect::{Effect, Mode};
use wharf::inbox::settle::{Batch, settle};
use wharf::inbox::{Delivery, Origin, Settled};
use wharf::provider::{Content, Event};
use wharf::timestamp::Timestamp;

use crate::support::{
    DEAD, DUPLICATE, Database, Desk, ENDPOINTS, FAILED, Gateway, IGNORED, PROCESSED, wharf,
};

/// A company's table, and a function that is bound to `invoice.paid`.
const ERP: &str = "
    create schema erp;
    create table erp.bill (number text primary key, state text not null default 'open', paid bigint not null default 0,
                           due bigint not null, check (paid >= 0));
    create table erp.payment (id text primary key, bill text not null references erp.bill, amount bigint not null,
                              company text, event text);
    insert into erp.bill (number, due) select 'INV-' || n, 10000 from generate_series(1, 9) n;
    create function erp.invoice_paid(change jsonb) returns jsonb language plpgsql
      set search_path = erp, pg_temp as $$
    begin
      if change->>'invoice' = 'NOT-OURS' then
        raise exception 'invoice % is another system''s', change->>'invoice' using errcode = 'WH003';
      end if;
      if change->>'currency' <> 'USD' then
        raise exception 'bills are in USD, not in %', change->>'currency' using errcode = 'WH002';
      end if;
      perform from bill where number = change->>'invoice' for no key update;
      if not found then
        raise exception 'bill % is not there', change->>'invoice' using errcode = 'WH001';
      end if;
      insert into payment values (change->>'payment', change->>'invoice', (change->>'amount')::bigint,
                                  current_setting('wharf.tenant'), change->>'event_id')
        on conflict (id) do nothing;
      if found then
        update bill set paid = paid + (change->>'amount')::bigint,
               state = case when paid + (change->>'amount')::bigint >= due then 'paid' else 'part' end
        where number = change->>'invoice';
        return jsonb_build_object('aggregate_type', 'bill', 'aggregate', change->>'invoice',
                                  'event_type', 'bill.paid', 'payload', change);
      end if;
      return null;
    end $$;";

const INSTEAD: &str =
    "\n[[effect]]\nchange = \"invoice.paid\"\ncall = \"erp.invoice_paid\"\nmode = \"instead\"\n";

/// A gateway with these effects, and an operator's folder with the same configuration.
fn serve(database: &Database, effects: &str) -> (Gateway, Desk) {
    let desk = desk(database, effects);
    (Gateway::start_configured(&database.url, &desk.folder().join("wharf.toml")), desk)
}

fn desk(database: &Database, effects: &str) -> Desk {
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nretries = false\n";
    Desk::with(database, &format!("{server}{ENDPOINTS}{effects}"))
}

#[test]
fn a_change_goes_to_the_function_instead_of_the_books() {
    let database = Database::new();
    database.execute(ERP);
    database.execute("delete from invoice");
    let (gateway, desk) = serve(&database, INSTEAD);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 4000).said(), PROCESSED);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 4000).said(), DUPLICATE);
    // Another event that tells of the same payment: the function counts it once.
    assert_eq!(gateway.pay("evt_2", "pi_1", "INV-1", 4000).said(), PROCESSED);
    assert_eq!(gateway.pay("evt_3", "pi_2", "INV-1", 6000).said(), PROCESSED);
    assert_eq!(database.rows("select number, state, paid from erp.bill where paid > 0"), "INV-1|paid|10000");
    assert_eq!(
        database.rows("select id, company, event from erp.payment order by id"),
        "pi_1|acme|evt_1\npi_2|acme|evt_3"
    );
    assert_eq!(database.rows("select count(*) from invoice"), "0");
    assert_eq!(database.rows("select count(*) from invoice_entry"), "0");
    assert_eq!(
        database.rows(
            "select event_type, aggregate_type, aggregate_version, payload->>'amount', payload->>'version', inbox_id is not null
             from outbox order by id"
        ),
        "bill.paid|bill|1|4000|1|true\nbill.paid|bill|2|6000|1|true"
    );
    let ran = desk.run(&["audit"]);
    assert_eq!(ran.code, 0, "{}", ran.out);
}

#[test]
fn a_function_speaks_the_language_of_refusals() {
    let database = Database::new();
    database.execute(ERP);
    let (gateway, desk) = serve(&database, INSTEAD);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-77", 100).said(), FAILED);
    assert_eq!(gateway.pay("evt_2", "pi_2", "NOT-OURS", 100).said(), IGNORED);
    let euros = crate::support::payment_succeeded("evt_3", "pi_3", "INV-1", 100).replace("usd", "eur");
    assert_eq!(gateway.stripe(euros.as_bytes()).said(), DEAD);
    database.execute("alter table erp.payment add constraint \"no payment of 666\" check (amount <> 666)");
    assert_eq!(gateway.pay("evt_4", "pi_4", "INV-1", 666).said(), FAILED);
    assert_eq!(
        database.rows(
            "select event_id, status, attempts, error_kind, coalesce(last_error, ignored_because) from webhook_inbox order by id"
        ),
        "evt_1|failed|1|effect_not_yet|bill INV-77 is not there\n\
         evt_2|ignored|1||invoice NOT-OURS is another system's\n\
         evt_3|dead|1|effect_refused|bills are in USD, not in EUR\n\
         evt_4|failed|1|database|new row for relation \"payment\" violates check constraint \"no payment of 666\""
    );
    assert_eq!(database.rows("select count(*) from erp.payment"), "0");
    // The cause is gone: a redelivery, and an operator, apply what is left.
    database.execute("insert into erp.bill (number, due) values ('INV-77', 100)");
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-77", 100).said(), PROCESSED);
    database.execute("alter table erp.payment drop constraint \"no payment of 666\"");
    let ran = desk.run(&["inbox", "reprocess", "--error-kind", "database", "--yes"]);
    assert_eq!((ran.code, ran.out.as_str()), (0, "1 applied\n"), "{}", ran.err);
    assert_eq!(
        database.rows("select number, paid from erp.bill where paid > 0 order by 1"),
        "INV-1|666\nINV-77|100"
    );
}

#[test]
fn a_change_goes_to_the_books_first_and_the_function_is_given_the_result() {
    let database = Database::new();
    database.execute(
        "create schema erp; create table erp.told (change jsonb);
         create function erp.told(change jsonb) returns void language sql
           begin atomic insert into erp.told values (change); end",
    );
    let also = "\n[[effect]]\nchange = \"invoice.paid\"\ncall = \"erp.told\"\nmode = \"also\"\nendpoint = \"stripe\"\n";
    let (gateway, _desk) = serve(&database, also);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 4000).said(), PROCESSED);
    assert_eq!(gateway.pay("evt_2", "pi_1", "INV-1", 4000).said(), PROCESSED);
    // Refused by the books: the function is not called.
    assert_eq!(gateway.pay("evt_3", "pi_2", "UNKNOWN", 1).said(), FAILED);
    assert_eq!(database.invoice("INV-1"), "partially_paid|4000|0");
    assert_eq!(
        database.rows(
            "select change->>'event_id', change->'amount', change->'result'->>'status',
                    change->'result'->>'version', change->>'invoice', change->>'lines'
             from erp.told order by 1"
        ),
        "evt_1|4000|partially_paid|1|INV-1|\nevt_2|4000|||INV-1|"
    );
    assert_eq!(database.rows("select count(*) from outbox"), "1");
}

/// Settles in process, where the test decides what a batch is.
fn settle_paid(database: &Database, origin: &Arc<Origin>, numbers: &[String]) -> Vec<Settled> {
    let now: Timestamp = std::time::SystemTime::now().into();
    let deliveries: Vec<Delivery> = numbers
        .iter()
        .enumerate()
        .map(|(n, number)| {
            let amount = Money { minor: 1, currency: "USD".into() };
            let fact = InvoiceFact::Paid { payment: format!("pi_{n}"), amount };
            Delivery {
                origin: Arc::clone(origin),
                event: Event {
                    id: format!("evt_{n:03}"),
                    kind: "paid".into(),
                    occurred_at: None,
                    content: Content::Changes(vec![Change::Invoice(InvoiceChange {
                        number: Some(number.clone()),
                        fact,
                    })]),
                },
                headers: "{}".into(),
                body: Bytes::from_static(b"{}"),
                received_at: now,
            }
        })
        .collect();
    let batch: Vec<&Delivery> = deliveries.iter().collect();
    tokio::runtime::Runtime::new().unwrap().block_on(async {
        let mut connection = wharf::postgres::connect(&database.options).await.unwrap();
        settle(&mut connection, Batch::Delivered(&batch), now).await.unwrap()
    })
}

fn origin(database: &Database) -> Arc<Origin> {
    let effect = Effect { call: ("erp".into(), "invoice_paid".into()), mode: Mode::Instead };
    Arc::new(Origin {
        endpoint: "e".into(),
        provider: "p".into(),
        tenant: database.rows("select id from tenant").parse().unwrap(),
        tenant_name: "acme".into(),
        effects: Arc::new([("invoice.paid".to_owned(), effect)].into_iter().collect()),
        gives_up_after: None,
    })
}

#[test]
fn a_function_that_raises_for_one_event_of_200_fails_that_one_alone() {
    let database = Database::new();
    database.execute(ERP);
    let numbers: Vec<String> =
        (0..200).map(|n| if n == 77 { "INV-404".into() } else { format!("INV-{}", n % 9 + 1) }).collect();
    let settled = settle_paid(&database, &origin(&database), &numbers);
    let names: Vec<&str> = settled.iter().map(|settled| settled.verdict.name()).collect();
    assert_eq!(names.iter().filter(|name| **name == "processed").count(), 199);
    assert_eq!(names[77], "failed");
    assert_eq!(
        database
            .rows("select event_id, error_kind, last_error from webhook_inbox where status <> 'processed'"),
        "evt_077|effect_not_yet|bill INV-404 is not there"
    );
    assert_eq!(database.rows("select count(*), sum(amount) from erp.payment"), "199|199");
    assert_eq!(database.rows("select sum(paid) from erp.bill"), "199");
}

#[test]
fn a_function_is_called_in_one_statement_for_the_batch_and_in_the_order_of_events() {
    let database = Database::new();
    database.execute(ERP);
    database.execute(
        "create table erp.seen (at bigint generated always as identity, event text, statement timestamptz);
         drop function erp.invoice_paid(jsonb);
         create function erp.invoice_paid(change jsonb) returns void language sql
           begin atomic
             insert into erp.seen (event, statement) values (change->>'event_id', statement_timestamp());
           end",
    );
    let numbers: Vec<String> = (0..100).map(|_| "INV-1".to_owned()).collect();
    settle_paid(&database, &origin(&database), &numbers);
    assert_eq!(database.rows("select count(*), count(distinct statement) from erp.seen"), "100|1");
    assert_eq!(
        database.rows("select bool_and(event = 'evt_' || lpad((at - 1)::text, 3, '0')) from erp.seen"),
        "true"
    );
}

#[test]
fn a_role_that_may_only_execute_is_enough() {
    let database = Database::new();
    database.execute(ERP);
    let role = format!("serving_{}", std::process::id());
    database.execute(&format!(
        "alter function erp.invoice_paid(jsonb) security definer;
         create role {role} login;
         grant usage on schema wharf, erp to {role};
         grant select, insert, update, delete on all tables in schema wharf to {role};
         revoke execute on function erp.invoice_paid(jsonb) from public;
         grant execute on function erp.invoice_paid(jsonb) to {role}"
    ));
    let url = database.url.replacen("wharf@", &format!("{role}@"), 1);
    assert_ne!(url, database.url);
    {
        let desk = desk(&database, INSTEAD);
        let gateway = Gateway::start_configured(&url, &desk.folder().join("wharf.toml"));
        assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 10_000).said(), PROCESSED);
    }
    assert_eq!(database.rows("select state, paid from erp.bill where number = 'INV-1'"), "paid|10000");
    database.execute(&format!("drop owned by {role}; drop role {role}"));
}

#[test]
fn a_function_that_cannot_be_called_is_named_with_its_way_out_before_anything_listens() {
    let database = Database::new();
    database.execute(
        "create schema erp;
         create function erp.takes_text(change text) returns void language sql as 'select';
         create function erp.returns_text(change jsonb) returns text language sql as 'select null::text';
         create function erp.returns_set(change jsonb) returns setof jsonb language sql as 'select null::jsonb';
         create procedure erp.commits(change jsonb) language plpgsql as 'begin commit; end';",
    );
    let effect = |change: &str, call: &str| {
        format!("\n[[effect]]\nchange = \"{change}\"\ncall = \"{call}\"\nmode = \"instead\"\n")
    };
    let effects = [
        effect("invoice.paid", "erp.missing"),
        effect("invoice.issued", "erp.takes_text"),
        effect("invoice.voided", "erp.returns_text"),
        effect("invoice.refunded", "erp.returns_set"),
        effect("invoice.disputed", "erp.commits"),
    ];
    let desk = desk(&database, &effects.concat());
    let ran = desk.run(&["serve"]);
    assert_eq!(ran.code, 1);
    assert!(
        ran.err.ends_with(
            "wharf: functions of [[effect]] cannot be called:\n  \
             erp.missing: there is no such function; create function erp.missing(change jsonb)\n  \
             erp.takes_text: it takes (change text); it must take one jsonb\n  \
             erp.returns_text: it returns text; it must return void or jsonb\n  \
             erp.returns_set: it returns SETOF jsonb; it must return void or jsonb\n  \
             erp.commits: it is no plain function; a procedure could commit, so write it as a function\n"
        ),
        "{}",
        ran.err
    );
}

#[test]
fn mistakes_in_an_effect_are_told_all_at_once() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(
        folder.path().join("wharf.toml"),
        format!(
            "{ENDPOINTS}\n[[effect]]\nchange = \"invoice.payed\"\ncall = \"paid\"\nmode = \"maybe\"\nendpoint = \"strype\"\n\
             tenant = \"nobody\"\n{INSTEAD}{INSTEAD}"
        ),
    )
    .unwrap();
    let secrets = [("STRIPE_SECRET", "a"), ("SHOPIFY_SECRET", "b"), ("WAREHOUSE_SECRET", "whsec_YWJj")];
    let ran = wharf(folder.path(), &secrets, &["serve"]);
    assert_eq!(ran.code, 2);
    for said in [
        "6 problems",
        "effect[0].change: `invoice.payed` is not a change",
        "effect[0].call: `paid` is not schema.function; write for example \"erp.invoice_paid\"",
        "effect[0].mode: is `maybe`; write \"instead\" or \"also\"",
        "effect[0].endpoint: `strype` is not one of the endpoints",
        "effect[0].tenant: no endpoint has the tenant `nobody`",
        "effect[2].change: `invoice.paid` is bound twice for the same events",
    ] {
        assert!(ran.err.contains(said), "{said} is not in\n{}", ran.err);
    }
}

#[test]
fn readiness_depends_on_the_functions() {
    let database = Database::new();
    database.execute(ERP);
    let (gateway, _desk) = serve(&database, INSTEAD);
    let ready =
        || crate::support::request(gateway.admin, b"GET /readyz HTTP/1.1\r\nhost: t\r\n\r\n").unwrap();
    assert_eq!(ready().said(), (200, r#"{"status":"ready"}"#));
    database.execute("alter function erp.invoice_paid(jsonb) rename to paid_invoice");
    let gone = "erp.invoice_paid: there is no such function; create function erp.invoice_paid(change jsonb)";
    assert_eq!(ready().status, 503);
    assert!(ready().body.contains(gone), "{}", ready().body);
}

fn fixture(desk: &Desk, name: &str, body: &str) {
    let folder = desk.folder().join("f/stripe");
    std::fs::create_dir_all(&folder).unwrap();
    let toml = "about = \"A payment.\"\norigin = \"synthetic\"\n[headers]\n[expect]\nstatus = 200\noutcome = \"processed\"\n";
    std::fs::write(folder.join(format!("{name}.toml")), toml).unwrap();
    std::fs::write(folder.join(format!("{name}.json")), body).unwrap();
}

#[test]
fn functions_are_tried_on_fixtures_without_changing_anything() {
    let database = Database::new();
    database.execute(ERP);
    let desk = desk(&database, INSTEAD);
    let paid = crate::support::payment_succeeded;
    fixture(&desk, "001-paid", &paid("evt_1", "pi_1", "INV-1", 100));
    fixture(&desk, "002-missing", &paid("evt_2", "pi_2", "INV-77", 100));
    let before = database.dump();
    let ran = desk.run(&["effects", "check", "--fixtures", "f"]);
    assert_eq!(
        (ran.code, ran.out.as_str(), ran.err.as_str()),
        (
            0,
            "erp.invoice_paid  can be called: for invoice.paid\n\
             f/stripe/001-paid  processed\n\
             f/stripe/002-missing  failed: effect_not_yet: bill INV-77 is not there\n",
            ""
        )
    );
    database.execute(
        "create or replace function erp.invoice_paid(change jsonb) returns jsonb language plpgsql as $$
           begin if change->>'invoice' = 'INV-1' then commit; end if; return (1 / 0)::text::jsonb; end $$",
    );
    let ran = desk.run(&["effects", "check", "--fixtures", "f"]);
    assert_eq!(
        (ran.code, ran.out.as_str()),
        (
            1,
            "erp.invoice_paid  can be called: for invoice.paid\n\
             f/stripe/001-paid  is a fault of the function: database: invalid transaction termination; a function must \
             leave commit and rollback to Wharf\n\
             f/stripe/002-missing  is a fault of the function: database: division by zero\n"
        )
    );
    assert_eq!(database.dump(), before);
    database.execute("drop function erp.invoice_paid(jsonb)");
    let ran = desk.run(&["effects", "check", "--json"]);
    assert_eq!(ran.code, 1);
    assert_eq!(
        ran.out,
        "{\"outcome\":\"cannot be called\",\"text\":\"there is no such function; create function erp.invoice_paid(change \
         jsonb)\",\"what\":\"erp.invoice_paid\"}\n"
    );
}

#[test]
fn a_scaffold_is_a_function_that_can_be_bound_at_once() {
    let database = Database::new();
    database.execute("create schema erp");
    let mut effects = String::new();
    for change in Change::NAMES {
        let plain = desk(&database, "");
        let sql = plain.out(&["effects", "scaffold", "--change", change]);
        database.execute(&sql);
        let call = change.replace('.', "_");
        effects.push_str(&format!(
            "\n[[effect]]\nchange = \"{change}\"\ncall = \"erp.{call}\"\nmode = \"instead\"\n"
        ));
    }
    let (gateway, _desk) = serve(&database, &effects);
    assert_eq!(gateway.pay("evt_1", "pi_1", "INV-1", 100).said(), PROCESSED);
    assert_eq!(database.invoice("INV-1"), "awaiting_payment|0|0");
}

/// The function counts nothing twice by itself: only the inbox stands between an event and its second application.
#[test]
fn killed_at_any_moment_the_companys_rows_and_the_inbox_agree() {
    const EVENTS: usize = 2000;
    const SENDS: usize = EVENTS * 13 / 10;
    let database = Database::new();
    database.execute(
        "create schema erp; create table erp.applied (event text, invoice text);
         create table erp.bill (number text primary key, paid bigint not null default 0);
         insert into erp.bill (number) select 'INV-' || n from generate_series(0, 49) n;
         create function erp.invoice_paid(change jsonb) returns void language sql begin atomic
           update erp.bill set paid = paid + (change->>'amount')::bigint where number = change->>'invoice';
           insert into erp.applied values (change->>'event_id', change->>'invoice');
         end",
    );
    let (gateway, desk) = serve(&database, INSTEAD);
    let config = desk.folder().join("wharf.toml");
    let address = std::sync::RwLock::new(gateway.address);
    let next = AtomicUsize::new(0);
    let send = |n: usize| {
        // Three in ten come a second time, most of them long after the first.
        let n = n * 7 % SENDS % EVENTS;
        let body = crate::support::payment_succeeded(
            &format!("evt_{n}"),
            &format!("pi_{n}"),
            &format!("INV-{}", n % 50),
            1,
        );
        let signature = crate::support::stripe_signature(body.as_bytes(), crate::support::now());
        let bytes = crate::support::post_bytes(
            "/webhooks/stripe",
            &[("stripe-signature", &signature)],
            body.as_bytes(),
        );
        loop {
            let to = *address.read().unwrap();
            match crate::support::request(to, &bytes) {
                Ok(reply) if reply.status == 200 => return,
                _ => std::thread::sleep(Duration::from_millis(3)),
            }
        }
    };
    let mut killed_amid = 0;
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                loop {
                    let n = next.fetch_add(1, Ordering::Relaxed);
                    if n >= SENDS {
                        return;
                    }
                    send(n);
                }
            });
        }
        let mut gateway = gateway;
        for round in 1..=6 {
            let until = SENDS * round / 8;
            while next.load(Ordering::Relaxed) < until {
                std::thread::sleep(Duration::from_millis(1));
            }
            gateway.kill_dash_9();
            killed_amid += usize::from(next.load(Ordering::Relaxed) < SENDS);
            gateway = Gateway::start_configured(&database.url, &config);
            *address.write().unwrap() = gateway.address;
        }
        while next.load(Ordering::Relaxed) < SENDS + 8 {
            std::thread::sleep(Duration::from_millis(5));
        }
    });
    assert_eq!(killed_amid, 6);
    assert_eq!(database.rows("select count(*), sum(paid) from erp.bill"), format!("50|{EVENTS}"));
    assert_eq!(
        database.rows("select count(*), count(distinct event) from erp.applied"),
        format!("{EVENTS}|{EVENTS}")
    );
    assert_eq!(
        database.rows(
            "select count(*) from webhook_inbox inbox full join erp.applied on applied.event = inbox.event_id
             where inbox.status is distinct from 'processed' or applied.event is null"
        ),
        "0"
    );
    assert_eq!(database.rows("select count(*) from invoice_entry"), "0");
}

/// The warehouse's provider file, with a change that only the company knows.
fn with_own_change(change: &str) -> String {
    let file =
        std::fs::read_to_string(crate::support::repository().join("providers/warehouse.toml")).unwrap();
    format!(
        "{file}\n[[on]]\ntype = \"parcel.lost\"\nchange = \"{change}\"\n\
         fields = {{ parcel = \"/data/parcel\", value = [\"/data/value\", \"/data/worth\"], carrier = \"/data/carrier\" }}\n"
    )
}

#[test]
fn a_change_of_the_companys_own_goes_to_its_function() {
    let database = Database::new();
    database.execute(
        "create schema erp; create table erp.lost (fields jsonb, change text);
         create function erp.parcel_lost(change jsonb) returns void language sql
           begin atomic insert into erp.lost values (change->'fields', change->>'change'); end",
    );
    let effect = "\n[[effect]]\nchange = \"x.parcel_lost\"\ncall = \"erp.parcel_lost\"\nmode = \"instead\"\n";
    let server = "[server]\nlisten = \"127.0.0.1:0\"\nadmin_listen = \"127.0.0.1:0\"\nproviders = \"own\"\n";
    let desk = Desk::with(&database, &format!("{server}{ENDPOINTS}{effect}"));
    std::fs::create_dir(desk.folder().join("own")).unwrap();
    std::fs::write(desk.folder().join("own/warehouse.toml"), with_own_change("x.parcel_lost")).unwrap();
    let gateway = Gateway::start_configured(&database.url, &desk.folder().join("wharf.toml"));
    let body = br#"{"type":"parcel.lost","timestamp":"2025-12-01T12:00:00Z","data":{"parcel":"P-1","worth":12345678901234567890.5}}"#;
    assert_eq!(gateway.warehouse("m-1", body).said(), PROCESSED);
    assert_eq!(gateway.warehouse("m-1", body).said(), DUPLICATE);
    // Numbers are the text that they are written with.
    assert_eq!(
        database.rows("select change, fields from erp.lost"),
        r#"x.parcel_lost|{"value": "12345678901234567890.5", "parcel": "P-1", "carrier": null}"#
    );
    drop(gateway);
    // Without its effect it has nowhere to go, and that is said at the start.
    let desk_without = Desk::with(&database, &format!("{server}{ENDPOINTS}"));
    std::fs::create_dir(desk_without.folder().join("own")).unwrap();
    std::fs::write(desk_without.folder().join("own/warehouse.toml"), with_own_change("x.parcel_lost"))
        .unwrap();
    let ran = desk_without.run(&["serve"]);
    let said =
        "endpoint warehouse maps `x.parcel_lost`, which is bound to no function; write an [[effect]] for it";
    assert!(ran.code == 2 && ran.err.contains(said), "{}", ran.err);
    std::fs::write(desk_without.folder().join("own/warehouse.toml"), with_own_change("x.Parcel lost"))
        .unwrap();
    let ran = desk_without.run(&["providers", "check", "own"]);
    assert!(
        ran.code != 0 && ran.out.contains("`x.Parcel lost` is `x.` and a name"),
        "{}{}",
        ran.out,
        ran.err
    );
}

#[test]
fn the_example_erp_takes_all_fixtures_into_its_own_tables() {
    let folder = tempfile::tempdir().unwrap();
    let here = |path: &str| crate::support::repository().join(path).display().to_string();
    let arguments = ["demo", "--erp", &here("examples/erp"), "--fixtures", &here("fixtures")];
    let ran = wharf(folder.path(), &[], &arguments);
    assert_eq!((ran.code, ran.err.as_str()), (0, ""), "{}", ran.out);
    for said in [
        "1. 74 fixtures are delivered: 73 answered as they are by Wharf's own books.\n",
        "   shopify, orders/paid: 12.345 KWD has more than the 2 decimals that the books keep\n",
        "   invoice  #1003     paid       of 12.345, paid 12.345, credited 0.000\n",
        "4. All are delivered again: 74 of 74 answered \"duplicate\".\n   Rows in Wharf's own books: 0\n",
        "All as it should be.\n",
    ] {
        assert!(ran.out.contains(said), "{said} is not in\n{}", ran.out);
    }
}
