//! I5: the same set of events ends in the same books, whatever their order, repetition and batching. Without a
//! database: the books are reloaded between batches from what was recorded, as the shell does it.

use std::collections::BTreeMap;

use proptest::prelude::*;
use sqlx::types::Uuid;
use wharf::books::{
    Books, BooksEvent, Change, CountedLine, Counting, DisputeStage, Effects, ExpectedLine, Invoice,
    InvoiceChange, InvoiceFact, InvoiceStatus, Money, Payment, PaymentKey, Position, Receipt, ReceiptChange,
    ReceiptFact, ReceiptStatus, Told,
};
use wharf::timestamp::Timestamp;

const TENANT: Uuid = Uuid::from_u128(1);
const INVOICE: Uuid = Uuid::from_u128(2);
const RECEIPT: Uuid = Uuid::from_u128(3);

/// A fact with its provider's time; the position in the history is the event's id.
type Fact = (Option<i64>, Change);

fn money(minor: i64) -> Money {
    Money { minor, currency: "USD".into() }
}

fn key(number: &str) -> (Uuid, String) {
    (TENANT, number.to_owned())
}

fn fresh_books() -> Books {
    let mut books = Books::default();
    books.invoices.insert(
        key("I"),
        Invoice {
            id: INVOICE,
            number: "I".into(),
            currency: "USD".into(),
            amount_due: 100,
            amount_paid: 0,
            amount_refunded: 0,
            status: InvoiceStatus::AwaitingPayment,
            paid_at: None,
            last_payment_at: None,
            issued_at: None,
            voided_at: None,
            version: 0,
        },
    );
    books.receipts.insert(
        key("R"),
        Receipt {
            id: RECEIPT,
            number: "R".into(),
            status: ReceiptStatus::Expected,
            announced_at: None,
            in_transit_at: None,
            arrived_at: None,
            closed_at: None,
            cancelled_at: None,
            version: 0,
            lines: BTreeMap::new(),
        },
    );
    for sku in ["A", "B"] {
        books.positions.insert(key(sku), Position { on_hand: 5, on_order: 0, allocated: 0 });
    }
    books
}

/// What must not depend on the order. Versions and messages tell what happened here, in the order in which it did.
fn state(books: &Books) -> String {
    let mut invoice = books.invoices[&key("I")].clone();
    let mut receipt = books.receipts[&key("R")].clone();
    (invoice.version, receipt.version) = (0, 0);
    // Which notices are loaded depends on the batch; which are counted shows in the quantities.
    receipt.lines.values_mut().for_each(|line| line.notices.clear());
    let positions: BTreeMap<_, _> = books.positions.iter().collect();
    format!("{invoice:#?}\n{receipt:#?}\n{positions:#?}")
}

/// Applies facts in the order of `order`, reloading the books from the ledger before every position in `reloads`.
fn run(facts: &[Fact], order: &[usize], reloads: &[usize]) -> (String, Effects) {
    let mut books = fresh_books();
    let mut effects = Effects::default();
    for (position, index) in order.iter().enumerate() {
        if reloads.contains(&position) {
            reload(&mut books, &effects);
        }
        let (at, change) = &facts[*index];
        let event_id = format!("evt_{index}");
        let told = Told {
            at: at.map(|seconds| Timestamp::from_seconds(seconds).unwrap()),
            received_at: Timestamp::from_seconds(1_000_000).unwrap(),
            provider: "p",
            endpoint: "e",
            event_id: &event_id,
        };
        let changes = std::slice::from_ref(change);
        books.apply(&BooksEvent { tenant: TENANT, inbox_id: 1, told, changes }, &mut effects).unwrap();
    }
    (state(&books), effects)
}

/// Forgets what memory knows of payments and notices, and reads it back from the entries.
fn reload(books: &mut Books, effects: &Effects) {
    books.payments.clear();
    for row in &effects.invoice_entries {
        if let Some(payment) = &row.entry.payment_ref {
            let payment_key =
                PaymentKey { tenant: TENANT, provider: row.provider.clone(), payment: payment.clone() };
            books.payments.entry((row.aggregate, payment_key)).or_default().remember(row.entry.clone());
        }
    }
    let receipt = books.receipts.get_mut(&key("R")).unwrap();
    for (sku, line) in &mut receipt.lines {
        let entries = effects.receipt_entries.iter().filter(|row| row.entry.sku == *sku);
        line.notices = entries.filter_map(|row| row.entry.notice.clone()).collect();
    }
}

fn invoice_fact() -> impl Strategy<Value = InvoiceFact> {
    let payment = || prop_oneof![Just("pi_1".to_owned()), Just("pi_2".to_owned())];
    let amount = || prop_oneof![Just(0_i64), Just(40), Just(100), Just(130)].prop_map(money);
    let refund = || prop_oneof![Just("re_1".to_owned()), Just("re_2".to_owned())];
    let stage = prop_oneof![Just(DisputeStage::Opened), Just(DisputeStage::Won), Just(DisputeStage::Lost)];
    prop_oneof![
        amount().prop_map(|amount| InvoiceFact::Issued { amount }),
        (payment(), amount()).prop_map(|(payment, amount)| InvoiceFact::Paid { payment, amount }),
        payment().prop_map(|payment| InvoiceFact::PaymentFailed { payment, reason: None }),
        (payment(), amount()).prop_map(|(payment, total)| InvoiceFact::RefundTotal { payment, total }),
        // A refund's amount is its own: one id, one amount.
        (payment(), refund(), any::<bool>()).prop_map(|(payment, refund, failed)| {
            let amount = money(if refund == "re_1" { 30 } else { 70 });
            InvoiceFact::Refund { payment, refund, amount, failed }
        }),
        (payment(), stage).prop_map(|(payment, stage)| InvoiceFact::Disputed {
            payment,
            dispute: "du_1".into(),
            amount: money(100),
            stage
        }),
        Just(InvoiceFact::Voided { reason: None }),
    ]
}

fn receipt_fact() -> impl Strategy<Value = ReceiptFact> {
    let sku = || prop_oneof![Just("A".to_owned()), Just("B".to_owned())];
    let notice = prop_oneof![Just("N1".to_owned()), Just("N2".to_owned()), Just("N3".to_owned())];
    let level = || prop_oneof![Just((0_i64, 0_i64)), Just((4, 1)), Just((10, 0)), Just((12, 2))];
    let counted =
        |sku: String, (received, rejected): (i64, i64)| vec![CountedLine { sku, received, rejected }];
    prop_oneof![
        proptest::collection::btree_map(sku(), 0..12_i64, 0..3).prop_map(|lines| ReceiptFact::Announced {
            lines: lines.into_iter().map(|(sku, expected)| ExpectedLine { sku, expected }).collect()
        }),
        Just(ReceiptFact::InTransit),
        Just(ReceiptFact::Arrived),
        Just(ReceiptFact::Closed),
        Just(ReceiptFact::Cancelled),
        (sku(), level()).prop_map(move |(sku, level)| ReceiptFact::Received {
            counting: Counting::Totals,
            lines: counted(sku, level)
        }),
        // A notice tells one thing: its line follows from its id.
        notice.prop_map(move |notice| {
            let (sku, received) = match notice.as_str() {
                "N1" => ("A", 3),
                "N2" => ("B", 5),
                _ => ("A", 7),
            };
            ReceiptFact::Received {
                counting: Counting::Deltas { notice },
                lines: counted(sku.into(), (received, 1)),
            }
        }),
    ]
}

fn history() -> impl Strategy<Value = Vec<Fact>> {
    let invoice = (1..6_i64, invoice_fact())
        .prop_map(|(at, fact)| (Some(at), Change::Invoice(InvoiceChange { number: Some("I".into()), fact })));
    let receipt = (1..6_i64, receipt_fact())
        .prop_map(|(at, fact)| (Some(at), Change::Receipt(ReceiptChange { number: "R".into(), fact })));
    proptest::collection::vec(prop_oneof![invoice, receipt], 1..14)
}

/// An order of the history with everything in it at least once and up to three times.
fn shuffled(length: usize) -> impl Strategy<Value = Vec<usize>> {
    let repeats = proptest::collection::vec(1..4_usize, length);
    repeats
        .prop_map(|repeats| {
            repeats
                .iter()
                .enumerate()
                .flat_map(|(index, times)| std::iter::repeat_n(index, *times))
                .collect::<Vec<_>>()
        })
        .prop_shuffle()
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2000, ..ProptestConfig::default() })]

    #[test]
    fn any_order_repetition_and_batching_ends_in_the_same_books(
        (facts, order, reloads) in history().prop_flat_map(|facts| {
            let length = facts.len();
            (Just(facts), shuffled(length), proptest::collection::vec(0..30_usize, 0..6))
        })
    ) {
        let straight: Vec<usize> = (0..facts.len()).collect();
        let (expected, _) = run(&facts, &straight, &[]);
        let (found, effects) = run(&facts, &order, &reloads);
        prop_assert_eq!(&expected, &found);

        // The entries are the record: they add up to the balances.
        for sku in ["A", "B"] {
            let moved = effects.stock_entries.iter().filter(|row| row.movement.sku == sku);
            let (on_hand, on_order) = moved.fold((5, 0), |sum, row| (sum.0 + row.movement.on_hand, sum.1 + row.movement.on_order));
            let position = Position { on_hand, on_order, allocated: 0 };
            let shown = format!("{:?}", position);
            let flat: String = found.split_whitespace().collect();
            let wanted: String = format!("\"{sku}\",):{position:#?}").split_whitespace().collect();
            prop_assert!(flat.contains(&wanted), "{shown} of {sku} is not in {found}");
        }
        let mut payments = BTreeMap::<&str, Payment>::new();
        for row in &effects.invoice_entries {
            if let Some(payment) = &row.entry.payment_ref {
                payments.entry(payment).or_default().remember(row.entry.clone());
            }
        }
        let paid: i64 = payments.values().filter_map(Payment::paid).sum();
        let refunded: i64 = payments.values().map(Payment::refunded).sum();
        prop_assert!(found.contains(&format!("amount_paid: {paid},\n    amount_refunded: {refunded},")), "{paid} {refunded} {found}");
    }
}

#[test]
fn a_late_failure_does_not_undo_a_payment() {
    let change = |fact| Change::Invoice(InvoiceChange { number: Some("I".into()), fact });
    let paid = (Some(2), change(InvoiceFact::Paid { payment: "pi_1".into(), amount: money(100) }));
    let failed = (Some(1), change(InvoiceFact::PaymentFailed { payment: "pi_1".into(), reason: None }));
    for order in [[0, 1], [1, 0]] {
        let (state, _) = run(&[paid.clone(), failed.clone()], &order, &[]);
        assert!(state.contains("status: Paid"), "{state}");
    }
}

#[test]
fn an_order_edited_after_payment_ends_with_its_credit() {
    let change = |fact| Change::Invoice(InvoiceChange { number: Some("I".into()), fact });
    let facts = [
        (Some(1), change(InvoiceFact::Issued { amount: money(100) })),
        (Some(1), change(InvoiceFact::Paid { payment: "order:1".into(), amount: money(100) })),
        (Some(2), change(InvoiceFact::Issued { amount: money(60) })),
        (
            Some(2),
            change(InvoiceFact::Refund {
                payment: "order:1".into(),
                refund: "r".into(),
                amount: money(40),
                failed: false,
            }),
        ),
    ];
    let (state, _) = run(&facts, &[3, 2, 1, 0, 3, 1], &[2]);
    for part in ["amount_due: 60", "amount_paid: 100", "amount_refunded: 40", "status: PartiallyRefunded"] {
        assert!(state.contains(part), "{part}: {state}");
    }
}

#[test]
fn a_refused_event_leaves_the_books_untouched() {
    let mut books = fresh_books();
    let before = state(&books);
    let mut effects = Effects::default();
    let told = Told {
        at: None,
        received_at: Timestamp::from_seconds(1).unwrap(),
        provider: "p",
        endpoint: "e",
        event_id: "x",
    };
    let changes = [
        Change::Invoice(InvoiceChange {
            number: Some("I".into()),
            fact: InvoiceFact::Paid { payment: "pi_1".into(), amount: money(100) },
        }),
        Change::Receipt(ReceiptChange {
            number: "R".into(),
            fact: ReceiptFact::Announced { lines: vec![ExpectedLine { sku: "UNKNOWN".into(), expected: 1 }] },
        }),
    ];
    let event = BooksEvent { tenant: TENANT, inbox_id: 1, told, changes: &changes };
    assert_eq!(books.apply(&event, &mut effects).unwrap_err().kind(), "sku_not_found");
    assert_eq!(state(&books), before);
    assert_eq!(effects, Effects::default());
}

#[test]
fn allocated_stock_is_not_taken_away() {
    let mut books = fresh_books();
    let mut effects = Effects::default();
    let told = |at| Told {
        at: Timestamp::from_seconds(at),
        received_at: Timestamp::from_seconds(1).unwrap(),
        provider: "p",
        endpoint: "e",
        event_id: "x",
    };
    let change = |fact| [Change::Receipt(ReceiptChange { number: "R".into(), fact })];
    let announced =
        change(ReceiptFact::Announced { lines: vec![ExpectedLine { sku: "A".into(), expected: 10 }] });
    let event = |changes| BooksEvent { tenant: TENANT, inbox_id: 1, told: told(1), changes };
    books.apply(&event(&announced), &mut effects).unwrap();
    books.positions.get_mut(&key("A")).unwrap().allocated = 12;
    let cancelled = change(ReceiptFact::Cancelled);
    let refusal = books.apply(&event(&cancelled), &mut effects).unwrap_err();
    assert_eq!(refusal.to_string(), "12 of SKU A are allocated, and only 5 would be on hand or on order");
    books.positions.get_mut(&key("A")).unwrap().allocated = 5;
    books.apply(&event(&cancelled), &mut effects).unwrap();
}
