//! I5: the same set of events ends in the same books, whatever their order, repetition and batching. Without a
//! database: the books are reloaded between batches from what was recorded, as the shell does it.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use sqlx::types::Uuid;
use wharf::books::{
    Books, BooksEvent, Change, CountedLine, Counting, DisputeStage, Effects, ExpectedLine, Heals, Invoice,
    InvoiceChange, InvoiceEntryKind, InvoiceFact, InvoiceRecord, InvoiceStatus, Money, PaymentKey, Position,
    Receipt, ReceiptChange, ReceiptFact, ReceiptStatus, Refusal, Told,
};
use wharf::inbox::ErrorKind;
use wharf::timestamp::Timestamp;

const TENANT: Uuid = Uuid::from_u128(1);
const INVOICE: Uuid = Uuid::from_u128(2);
const RECEIPT: Uuid = Uuid::from_u128(3);
const OTHER_INVOICE: Uuid = Uuid::from_u128(4);

/// What the ERP itself says is due.
const DUE: i64 = 100;

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
    for (number, id) in [("I", INVOICE), ("J", OTHER_INVOICE)] {
        let invoice = Invoice {
            id,
            number: number.into(),
            currency: "USD".into(),
            amount_due: DUE,
            amount_paid: 0,
            amount_refunded: 0,
            status: InvoiceStatus::AwaitingPayment,
            paid_at: None,
            last_payment_at: None,
            issued_at: None,
            voided_at: None,
            version: 0,
        };
        books.invoices.insert(key(number), invoice);
    }
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
    let mut invoices = ["I", "J"].map(|number| books.invoices[&key(number)].clone());
    invoices.iter_mut().for_each(|invoice| invoice.version = 0);
    let mut receipt = books.receipts[&key("R")].clone();
    receipt.version = 0;
    // Which notices are loaded depends on the batch; which are counted shows in the quantities.
    receipt.lines.values_mut().for_each(|line| line.notices.clear());
    let positions: BTreeMap<_, _> = books.positions.iter().collect();
    format!("{invoices:#?}\n{receipt:#?}\n{positions:#?}")
}

/// Applies facts in the order of `order`, reloading the books from the ledger before every position in `reloads`.
/// What is refused for now is told again at the end, until nothing more is taken.
fn run(facts: &[Fact], order: &[usize], reloads: &[usize]) -> (String, Effects) {
    let (books, effects) = run_books(facts, order, reloads);
    (state(&books), effects)
}

fn run_books(facts: &[Fact], order: &[usize], reloads: &[usize]) -> (Books, Effects) {
    let mut books = fresh_books();
    let mut effects = Effects::default();
    let mut refused = Vec::new();
    for (position, index) in order.iter().enumerate() {
        if reloads.contains(&position) {
            reload(&mut books, &effects);
        }
        if !tell(&mut books, &mut effects, facts, *index) {
            refused.push(*index);
        }
    }
    loop {
        let before = refused.len();
        refused.retain(|index| !tell(&mut books, &mut effects, facts, *index));
        if refused.len() == before {
            return (books, effects);
        }
    }
}

fn apply(books: &mut Books, event: &BooksEvent<'_>, effects: &mut Effects) -> Result<(), Refusal> {
    let drafted = books.draft(event)?;
    books.take(drafted, effects);
    Ok(())
}

/// `false`: it may be taken later. Nothing here is refused for good.
fn tell(books: &mut Books, effects: &mut Effects, facts: &[Fact], index: usize) -> bool {
    let (at, change) = &facts[index];
    let event_id = format!("evt_{index}");
    let told = Told {
        at: at.map(|seconds| Timestamp::from_seconds(seconds).unwrap()),
        received_at: Timestamp::from_seconds(1_000_000).unwrap(),
        provider: "p",
        endpoint: "e",
        event_id: &event_id,
    };
    let changes = std::slice::from_ref(change);
    let event = BooksEvent { tenant: TENANT, inbox_id: 1, told, changes };
    match apply(books, &event, effects) {
        Ok(()) => true,
        Err(refusal) => {
            assert_eq!(refusal.heals(), Heals::WithTime, "{refusal}");
            false
        }
    }
}

/// Forgets what memory knows of payments and notices, and reads it back from the entries.
fn reload(books: &mut Books, effects: &Effects) {
    books.payments.clear();
    books.paid_by.clear();
    for row in &effects.invoice_entries {
        if let Some(payment) = &row.entry.payment_ref {
            let payment_key =
                PaymentKey { tenant: TENANT, provider: row.provider.clone(), payment: payment.clone() };
            if row.entry.kind == InvoiceEntryKind::Payment {
                let number = if row.aggregate == INVOICE { "I" } else { "J" };
                books.paid_by.entry(payment_key.clone()).or_insert_with(|| key(number));
            }
            books.payments.entry((row.aggregate, payment_key)).or_default().remember(row.entry.clone());
        }
    }
    let receipt = books.receipts.get_mut(&key("R")).unwrap();
    for (sku, line) in &mut receipt.lines {
        let entries = effects.receipt_entries.iter().filter(|row| row.entry.sku == *sku);
        line.notices = entries.filter_map(|row| row.entry.notice.clone()).collect();
    }
}

/// Facts about an invoice with these two payments.
fn invoice_fact(payments: [&'static str; 2]) -> impl Strategy<Value = InvoiceFact> {
    let payment = move || prop_oneof![Just(payments[0].to_owned()), Just(payments[1].to_owned())];
    let amount = || prop_oneof![Just(0_i64), Just(40), Just(100), Just(130)].prop_map(money);
    let refund = || prop_oneof![Just("re_1".to_owned()), Just("re_2".to_owned())];
    let stage = prop_oneof![Just(DisputeStage::Opened), Just(DisputeStage::Won), Just(DisputeStage::Lost)];
    prop_oneof![
        amount().prop_map(|amount| InvoiceFact::Issued { amount }),
        (payment(), amount()).prop_map(|(payment, amount)| InvoiceFact::Paid { payment, amount }),
        payment().prop_map(|payment| InvoiceFact::PaymentFailed { payment, reason: None }),
        (payment(), amount()).prop_map(|(payment, total)| InvoiceFact::RefundTotal { payment, total }),
        // An id names one thing: a refund has one amount and one payment, and so has a dispute.
        (payment(), refund(), any::<bool>()).prop_map(|(payment, refund, failed)| {
            let amount = money(if refund == "re_1" { 30 } else { 70 });
            InvoiceFact::Refund { refund: format!("{refund} of {payment}"), payment, amount, failed }
        }),
        (payment(), stage).prop_map(|(payment, stage)| InvoiceFact::Disputed {
            dispute: format!("du_1 of {payment}"),
            payment,
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
    // A provider that says no time is taken to tell what is so now, which is later than all that has a time.
    let at = || prop_oneof![4 => (1..6_i64).prop_map(Some), 1 => Just(None)];
    let of_invoice = move |number: &'static str, payments| {
        (at(), invoice_fact(payments), any::<bool>()).prop_map(move |(at, fact, names)| {
            // A refund or a dispute need not name the invoice: it is the one that the payment paid.
            let may_leave_out = matches!(
                fact,
                InvoiceFact::RefundTotal { .. } | InvoiceFact::Refund { .. } | InvoiceFact::Disputed { .. }
            );
            let number = (names || !may_leave_out).then(|| number.to_owned());
            (at, Change::Invoice(InvoiceChange { number, fact }))
        })
    };
    let receipt = (at(), receipt_fact())
        .prop_map(|(at, fact)| (at, Change::Receipt(ReceiptChange { number: "R".into(), fact })));
    let invoice = of_invoice("I", ["pi_1", "pi_2"]);
    let other_invoice = of_invoice("J", ["pi_3", "pi_4"]);
    proptest::collection::vec(prop_oneof![3 => invoice, 1 => other_invoice, 4 => receipt], 1..16)
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
        let (books, effects) = run_books(&facts, &order, &reloads);
        prop_assert_eq!(&expected, &state(&books));
        entries_add_up(&books, &effects)?;
    }

    /// Failed refunds and running totals that each leave the other out: few facts, so that they meet often.
    #[test]
    fn tellers_of_one_refund_agree_in_any_order(
        (facts, order, reloads) in proptest::collection::vec(told_refund(), 2..8).prop_flat_map(|facts| {
            let length = facts.len();
            (Just(facts), shuffled(length), proptest::collection::vec(0..16_usize, 0..3))
        })
    ) {
        let straight: Vec<usize> = (0..facts.len()).collect();
        let (expected, _) = run(&facts, &straight, &[]);
        let (books, effects) = run_books(&facts, &order, &reloads);
        prop_assert_eq!(&expected, &state(&books));
        entries_add_up(&books, &effects)?;
    }
}

fn told_refund() -> impl Strategy<Value = Fact> {
    let fact = prop_oneof![
        any::<bool>().prop_map(|failed| InvoiceFact::Refund {
            payment: "pi_1".into(),
            refund: "re_1".into(),
            amount: money(30),
            failed
        }),
        prop_oneof![Just(30), Just(70), Just(100)]
            .prop_map(|total| InvoiceFact::RefundTotal { payment: "pi_1".into(), total: money(total) }),
    ];
    (1..5_i64, fact)
        .prop_map(|(at, fact)| (Some(at), Change::Invoice(InvoiceChange { number: Some("I".into()), fact })))
}

/// The entries are the record: every balance can be worked out from them alone, as the audit does.
fn entries_add_up(books: &Books, effects: &Effects) -> Result<(), TestCaseError> {
    for sku in ["A", "B"] {
        let moved = effects.stock_entries.iter().filter(|row| row.movement.sku == sku);
        let (on_hand, on_order) =
            moved.fold((5, 0), |sum, row| (sum.0 + row.movement.on_hand, sum.1 + row.movement.on_order));
        prop_assert_eq!(books.positions[&key(sku)], Position { on_hand, on_order, allocated: 0 });

        let counted = effects.receipt_entries.iter().filter(|row| row.entry.sku == sku);
        let accepted: i64 = counted.map(|row| row.entry.received_delta - row.entry.rejected_delta).sum();
        prop_assert_eq!(on_hand - 5, accepted);
    }
    let counted: Vec<_> = effects.receipt_entries.iter().map(|row| row.entry.clone()).collect();
    let receipt = &books.receipts[&key("R")];
    prop_assert_eq!(&receipt.recomputed(&counted).unwrap(), receipt);
    for (number, id) in [("I", INVOICE), ("J", OTHER_INVOICE)] {
        let entries = || effects.invoice_entries.iter().filter(|row| row.aggregate == id);
        let mut record = InvoiceRecord::default();
        entries().for_each(|row| record.remember(&row.provider, row.entry.clone()));
        let invoice = &books.invoices[&key(number)];
        prop_assert_eq!(&invoice.recomputed(&record).unwrap(), invoice);

        // What the database holds unique.
        let references: BTreeSet<_> =
            entries().map(|row| (row.entry.kind, &row.entry.provider_ref, &row.provider)).collect();
        prop_assert_eq!(references.len(), entries().count());
    }
    let mut versions: Vec<_> = effects.messages.iter().map(|row| (row.aggregate, row.version)).collect();
    versions.sort_unstable();
    let receipt = (RECEIPT, receipt.version);
    let invoices =
        [("I", INVOICE), ("J", OTHER_INVOICE)].map(|(n, id)| (id, books.invoices[&key(n)].version));
    let told = [invoices[0], receipt, invoices[1]];
    let without_a_gap: Vec<_> =
        told.iter().flat_map(|(id, version)| (1..=*version).map(|version| (*id, version))).collect();
    prop_assert_eq!(versions, without_a_gap);
    Ok(())
}

/// The invoice facts told in this order, each at its time.
fn invoice_facts(facts: Vec<(i64, InvoiceFact)>) -> Vec<Fact> {
    let told = facts
        .into_iter()
        .map(|(at, fact)| (Some(at), Change::Invoice(InvoiceChange { number: Some("I".into()), fact })));
    told.collect()
}

#[test]
fn a_refund_failed_when_the_earliest_teller_says_so() {
    let failed = InvoiceFact::Refund {
        payment: "pi_1".into(),
        refund: "re_1".into(),
        amount: money(30),
        failed: true,
    };
    let total = |minor| InvoiceFact::RefundTotal { payment: "pi_1".into(), total: money(minor) };
    // The failure of second 2 is told again in second 6; the total of second 4 knows of it.
    let facts = invoice_facts(vec![(1, total(100)), (2, failed.clone()), (4, total(70)), (6, failed)]);
    for order in [[0, 1, 2, 3], [3, 2, 1, 0], [0, 3, 2, 1], [2, 3, 1, 0]] {
        for reloads in [&[][..], &[1, 2, 3][..]] {
            let (books, _) = run_books(&facts, &order, reloads);
            assert_eq!(books.invoices[&key("I")].amount_refunded, 70, "{order:?}");
        }
    }
}

#[test]
fn a_payment_that_paid_two_invoices_belongs_to_the_first_also_after_a_reload() {
    let paid = |number: &str| {
        let fact = InvoiceFact::Paid { payment: "pi_1".into(), amount: money(100) };
        (Some(1), Change::Invoice(InvoiceChange { number: Some(number.into()), fact }))
    };
    let refund = InvoiceFact::RefundTotal { payment: "pi_1".into(), total: money(40) };
    let refund = (Some(2), Change::Invoice(InvoiceChange { number: None, fact: refund }));
    let facts = [paid("I"), paid("J"), refund];
    for reloads in [&[][..], &[2][..]] {
        let (books, _) = run_books(&facts, &[0, 1, 2], reloads);
        let refunded = ["I", "J"].map(|number| books.invoices[&key(number)].amount_refunded);
        assert_eq!(refunded, [40, 0], "{reloads:?}");
    }
}

#[test]
fn an_amount_that_fits_no_balance_is_refused_and_nothing_wraps_around() {
    let paid = |payment: &str| InvoiceFact::Paid { payment: payment.into(), amount: money(i64::MAX) };
    let refund = |refund: &str, failed| InvoiceFact::Refund {
        payment: "pi_1".into(),
        refund: refund.into(),
        amount: money(i64::MAX),
        failed,
    };
    for facts in [vec![paid("pi_1"), paid("pi_2")], vec![refund("re_1", false), refund("re_2", false)]] {
        let facts = invoice_facts(facts.into_iter().map(|fact| (1, fact)).collect());
        let (mut books, mut effects) = run_books(&facts, &[0], &[]);
        let (before, recorded) = (state(&books), effects.clone());
        let told = Told {
            at: None,
            received_at: Timestamp::from_seconds(1).unwrap(),
            provider: "p",
            endpoint: "e",
            event_id: "x",
        };
        let event =
            BooksEvent { tenant: TENANT, inbox_id: 1, told, changes: std::slice::from_ref(&facts[1].1) };
        let refusal = apply(&mut books, &event, &mut effects).unwrap_err();
        assert_eq!((ErrorKind::from(&refusal), refusal.heals()), (ErrorKind::OutOfRange, Heals::Never));
        assert_eq!((state(&books), effects), (before, recorded));
    }
    // More failed than was ever given back: nothing was given back.
    let total = InvoiceFact::RefundTotal { payment: "pi_1".into(), total: money(1) };
    let facts = invoice_facts(vec![(1, total), (2, refund("re_1", true)), (2, refund("re_2", true))]);
    let (books, _) = run_books(&facts, &[0, 1, 2], &[]);
    assert_eq!(books.invoices[&key("I")].amount_refunded, 0);
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
    assert_eq!(apply(&mut books, &event, &mut effects), Err(Refusal::SkuNotFound("UNKNOWN".into())));
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
    apply(&mut books, &event(&announced), &mut effects).unwrap();
    books.positions.get_mut(&key("A")).unwrap().allocated = 12;
    let cancelled = change(ReceiptFact::Cancelled);
    let refusal = apply(&mut books, &event(&cancelled), &mut effects).unwrap_err();
    assert_eq!(refusal.to_string(), "12 of SKU A are allocated, and only 5 would be on hand or on order");
    books.positions.get_mut(&key("A")).unwrap().allocated = 5;
    apply(&mut books, &event(&cancelled), &mut effects).unwrap();
}
