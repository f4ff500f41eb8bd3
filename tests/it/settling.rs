//! SETTLE in process, where a test decides what a batch is.

use std::sync::Arc;

use bytes::Bytes;
use sqlx::Executor as _;
use wharf::books::{Change, ExpectedLine, InvoiceChange, InvoiceFact, Money, ReceiptChange, ReceiptFact};
use wharf::inbox::settle::{Batch, settle};
use wharf::inbox::{Delivery, Origin, Settled, Verdict};
use wharf::provider::{Content, Event};
use wharf::timestamp::Timestamp;

use crate::support::Database;

fn now() -> Timestamp {
    std::time::SystemTime::now().into()
}

struct Bench {
    database: Database,
    runtime: tokio::runtime::Runtime,
    origin: Arc<Origin>,
}

impl Bench {
    fn new() -> Self {
        let database = Database::new();
        let tenant = database.rows("select id from tenant").parse().unwrap();
        let origin = Origin {
            endpoint: "e".into(),
            provider: "p".into(),
            tenant,
            tenant_name: "acme".into(),
            effects: Arc::default(),
            gives_up_after: None,
        };
        Self { database, runtime: tokio::runtime::Runtime::new().unwrap(), origin: Arc::new(origin) }
    }

    fn payment(&self, event: &str, payment: &str, invoice: &str, amount: i64) -> Delivery {
        let fact = InvoiceFact::Paid {
            payment: payment.into(),
            amount: Money { minor: amount, currency: "USD".into() },
        };
        let change = Change::Invoice(InvoiceChange { number: Some(invoice.into()), fact });
        Delivery {
            origin: Arc::clone(&self.origin),
            event: Event {
                id: event.into(),
                kind: "paid".into(),
                occurred_at: Timestamp::from_seconds(1_764_590_400),
                content: Content::Changes(vec![change]),
            },
            headers: "{}".into(),
            body: Bytes::from_static(b"{}"),
            received_at: now(),
        }
    }

    fn settle(&self, batch: &[Delivery]) -> Vec<Settled> {
        self.settle_at(batch, now())
    }

    fn settle_at(&self, batch: &[Delivery], now: Timestamp) -> Vec<Settled> {
        self.runtime.block_on(async {
            let mut connection = wharf::postgres::connect(&self.database.options).await.unwrap();
            settle(&mut connection, Batch::Delivered(&batch.iter().collect::<Vec<_>>()), now).await.unwrap()
        })
    }
}

fn names(settled: &[Settled]) -> Vec<&'static str> {
    settled.iter().map(|settled| settled.verdict.name()).collect()
}

#[test]
fn a_refused_event_in_a_batch_of_fifty_leaves_49_applied() {
    let bench = Bench::new();
    let batch: Vec<Delivery> = (0..50)
        .map(|n| {
            let invoice = if n == 25 { "UNKNOWN".to_owned() } else { format!("INV-{}", n % 9 + 1) };
            bench.payment(&format!("evt_{n}"), &format!("pi_{n}"), &invoice, 100)
        })
        .collect();
    let settled = bench.settle(&batch);
    assert_eq!(settled.iter().filter(|settled| settled.verdict == Verdict::Processed).count(), 49);
    assert_eq!(settled[25].verdict.name(), "failed");
    assert!(settled.iter().all(|settled| settled.batch == 50));
    assert_eq!(bench.database.rows("select sum(amount_paid) from invoice"), "4900");
    assert_eq!(
        bench.database.rows("select count(distinct xmin::text) from webhook_inbox"),
        "1",
        "one transaction"
    );
}

#[test]
fn an_event_whose_statement_fails_hurts_only_itself() {
    let bench = Bench::new();
    bench.database.execute(
        "create function poison() returns trigger language plpgsql as $$ begin
           if new.provider_ref = 'pi_25' then raise exception 'this payment is poison'; end if; return new; end $$;
         create trigger poison before insert on invoice_entry for each row execute function poison()",
    );
    let batch: Vec<Delivery> = (0..50)
        .map(|n| bench.payment(&format!("evt_{n}"), &format!("pi_{n}"), &format!("INV-{}", n % 9 + 1), 100))
        .collect();
    let settled = bench.settle(&batch);
    assert_eq!(settled.iter().filter(|settled| settled.verdict == Verdict::Processed).count(), 49);
    assert_eq!(bench.database.rows("select sum(amount_paid) from invoice"), "4900");
    assert_eq!(
        bench.database.rows("select event_id, status, attempts, error_kind, last_error from webhook_inbox where status <> 'processed'"),
        "evt_25|failed|1|database|this payment is poison"
    );
    assert_eq!(bench.database.rows("select count(*), min(outcome) from webhook_attempt"), "1|failed");
    bench.database.execute("drop trigger poison on invoice_entry");
    assert_eq!(names(&bench.settle(&batch[25..26])), ["processed"]);
    assert_eq!(names(&bench.settle(&batch[24..27])), ["duplicate"; 3]);
}

#[test]
fn a_failed_event_is_dead_when_it_is_both_tried_enough_and_old_enough() {
    let bench = Bench::new();
    let delivery = [bench.payment("evt_1", "pi_1", "UNKNOWN", 100)];
    let verdicts = |count: usize, at: Timestamp| -> Vec<&'static str> {
        (0..count).flat_map(|_| names(&bench.settle_at(&delivery, at))).collect()
    };
    assert_eq!(verdicts(6, now()), ["failed"; 6], "tried enough, but not old enough");
    assert_eq!(verdicts(2, now().plus_seconds(901)), ["dead", "duplicate"]);
    let young = [bench.payment("evt_2", "pi_2", "UNKNOWN", 100)];
    assert_eq!(names(&bench.settle_at(&young, now())), ["failed"]);
    assert_eq!(
        names(&bench.settle_at(&young, now().plus_seconds(901))),
        ["failed"],
        "old, but not tried enough"
    );
}

#[test]
fn every_change_of_status_that_the_flow_makes_is_allowed_and_no_other() {
    let bench = Bench::new();
    bench.settle(&[bench.payment("evt_1", "pi_1", "UNKNOWN", 100)]);
    let allowed = [
        "status = 'processed', settled_at = now(), next_attempt_at = null",
        "status = 'ignored'",
        "status = 'dead', dead_lettered_at = now()",
        "status = 'discarded', dead_lettered_at = null",
        "status = 'failed', settled_at = null, next_attempt_at = now()",
    ];
    for set in allowed {
        bench.database.execute(&format!("update webhook_inbox set {set}"));
    }
    let forbidden = [
        "status = 'processing'",
        "status = 'processed'",
        "settled_at = now()",
        "next_attempt_at = null",
        "error_kind = null",
        "dead_lettered_at = now()",
        "event_id = ''",
        "event_id = repeat('a', 256)",
        "attempts = -1",
    ];
    for set in forbidden {
        let refused = bench.runtime.block_on(async {
            let mut connection = wharf::postgres::connect(&bench.database.options).await.unwrap();
            connection.execute(sqlx::AssertSqlSafe(format!("update webhook_inbox set {set}"))).await.is_err()
        });
        assert!(refused, "{set}");
    }
}

/// The database half of convergence: orders, repetitions, batches, and a transaction that is cut before its commit.
#[test]
fn any_batching_of_a_history_ends_in_the_same_rows() {
    let state = "select number, status, amount_paid, amount_refunded, paid_at from invoice order by 1";
    let mut states = Vec::new();
    for seed in 0..6_usize {
        let bench = Bench::new();
        let refund = |event: &str, payment: &str, total: i64, at: i64| {
            let fact = InvoiceFact::RefundTotal {
                payment: payment.into(),
                total: Money { minor: total, currency: "USD".into() },
            };
            let change = Change::Invoice(InvoiceChange { number: Some("INV-1".into()), fact });
            let mut delivery = bench.payment(event, payment, "INV-1", 0);
            delivery.event.occurred_at = Timestamp::from_seconds(at);
            delivery.event.content = Content::Changes(vec![change]);
            delivery
        };
        let mut history: Vec<Delivery> = (0..12)
            .map(|n| bench.payment(&format!("evt_{n}"), &format!("pi_{}", n % 5), "INV-1", 1000 + n))
            .collect();
        history.push(refund("r_1", "pi_1", 300, 1_764_590_500));
        history.push(refund("r_2", "pi_1", 900, 1_764_590_600));
        history.push(refund("r_3", "pi_2", 50, 1_764_590_700));
        let length = history.len();
        // Steps that are coprime to the length visit everything in another order.
        let step = [1, 2, 4, 7, 8, 11][seed];
        let order: Vec<Delivery> =
            (0..length * 2).map(|n| history[(n * step + seed) % length].clone()).collect();
        for batch in order.chunks([1, 4, 15, 2, 7, 5][seed]) {
            // Keys of a batch are distinct; the queue sees to it.
            let mut distinct: Vec<Delivery> = Vec::new();
            for delivery in batch {
                if !distinct.iter().any(|known| known.key() == delivery.key()) {
                    distinct.push(delivery.clone());
                }
            }
            if seed % 2 == 1 {
                // The connection dies somewhere in the transaction.
                bench.runtime.block_on(async {
                    let mut connection = wharf::postgres::connect(&bench.database.options).await.unwrap();
                    let batch: Vec<&Delivery> = distinct.iter().collect();
                    let cut = std::time::Duration::from_micros(300 * (seed as u64 + batch.len() as u64));
                    let _ =
                        tokio::time::timeout(cut, settle(&mut connection, Batch::Delivered(&batch), now()))
                            .await;
                });
            }
            bench.settle(&distinct);
        }
        states.push(bench.database.rows(state));
    }
    for state in &states {
        assert_eq!(state, &states[0]);
    }
    assert!(states[0].contains("INV-1|partially_refunded|5045|950"), "{}", states[0]);
}

#[test]
fn an_event_does_not_find_what_only_a_refused_event_of_its_batch_would_have_created() {
    let bench = Bench::new();
    let receipt = |event: &str, fact: ReceiptFact| Delivery {
        event: Event {
            id: event.into(),
            kind: "receipt".into(),
            occurred_at: Timestamp::from_seconds(1_764_590_400),
            content: Content::Changes(vec![Change::Receipt(ReceiptChange { number: "R-1".into(), fact })]),
        },
        ..bench.payment(event, "", "", 0)
    };
    let announced =
        |sku: &str| ReceiptFact::Announced { lines: vec![ExpectedLine { sku: sku.into(), expected: 5 }] };
    let batch = [receipt("evt_1", announced("UNKNOWN")), receipt("evt_2", ReceiptFact::InTransit)];
    assert_eq!(names(&bench.settle(&batch)), ["failed", "failed"]);
    assert_eq!(
        bench.database.rows("select event_id, error_kind from webhook_inbox order by 1"),
        "evt_1|sku_not_found\nevt_2|receipt_not_found"
    );
    assert_eq!(bench.database.rows("select count(*) from receipt"), "0");
    let batch = [receipt("evt_3", announced("A")), receipt("evt_2", ReceiptFact::InTransit)];
    assert_eq!(names(&bench.settle(&batch)), ["processed", "processed"]);
    assert_eq!(bench.database.rows("select number, status, version from receipt"), "R-1|in_transit|2");
}

/// A plan that is made while the table is empty is kept. It must not be one that reads through an endpoint's events.
#[test]
fn from_an_empty_table_on_an_event_is_looked_for_by_its_key() {
    let bench = Bench::new();
    bench.runtime.block_on(async {
        let mut connection = wharf::postgres::connect(&bench.database.options).await.unwrap();
        for batch in 0..10 {
            let batch: Vec<Delivery> = (0..20)
                .map(|n| bench.payment(&format!("evt_{batch}_{n}"), &format!("pi_{batch}_{n}"), "INV-1", 1))
                .collect();
            let batch: Vec<&Delivery> = batch.iter().collect();
            settle(&mut connection, Batch::Delivered(&batch), now()).await.unwrap();
        }
        sqlx::Connection::close(connection).await.unwrap();
    });
    bench.database.wait_for(
        "the indexes of the inbox that were read",
        "select indexrelname from pg_stat_user_indexes where relname = 'webhook_inbox' and idx_scan > 0",
        "an event is told once per endpoint",
    );
}
