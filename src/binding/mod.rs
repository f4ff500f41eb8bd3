//! Where changes go: to the built-in books, to functions of the company's own, or to both, in one transaction.
//!
//! SETTLE hands claimed events to this seam and knows no table but the inbox's. docs/EFFECTS.md is the contract with
//! the functions; [`check`] asks the database whether they are there.

pub mod check;

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use sqlx::types::{Json, Uuid};
use sqlx::{AssertSqlSafe, PgConnection, Row as _};

use crate::books::{
    BooksEvent, Change, Counting, DisputeStage, InvoiceChange, InvoiceFact, Money, ReceiptChange,
    ReceiptFact, Told,
};
use crate::effect::{Effects, Mode};
use crate::ledger::{self, Applied, ForTheBooks, NotApplied, Show};

/// An event whose changes are to be applied.
#[derive(Debug, Clone, Copy)]
pub struct Bound<'a> {
    /// Whose it is.
    pub tenant: Uuid,
    /// The tenant's name.
    pub tenant_name: &'a str,
    /// Its inbox row.
    pub inbox_id: i64,
    /// Its place in time and origin.
    pub told: Told<'a>,
    /// The provider's word for it.
    pub event_type: &'a str,
    /// Its facts, in order.
    pub changes: &'a [Change],
    /// Which of them go to functions.
    pub effects: &'a Effects,
}

impl<'a> Bound<'a> {
    /// The changes that the books take.
    fn for_the_books(&self) -> Cow<'a, [Change]> {
        let take = |change: &&Change| self.effects.leave_to_the_books(change.name());
        match self.changes.iter().all(|change| take(&change)) {
            true => Cow::Borrowed(self.changes),
            false => Cow::Owned(self.changes.iter().filter(take).cloned().collect()),
        }
    }
}

/// Applies events in the caller's transaction: the books first, all at once, then the functions, one statement for each.
/// One result per event, in order.
///
/// An error is a failed statement, which may be a function's: the transaction, or the caller's savepoint, must be
/// rolled back.
pub async fn apply(
    connection: &mut PgConnection,
    events: &[Bound<'_>],
    show: Show,
) -> Result<Vec<Result<Applied, NotApplied>>, sqlx::Error> {
    let theirs: Vec<Cow<'_, [Change]>> = events.iter().map(Bound::for_the_books).collect();
    let mut for_the_books = Vec::with_capacity(events.len());
    for (bound, changes) in events.iter().zip(&theirs).filter(|(_, changes)| !changes.is_empty()) {
        let Bound { tenant, inbox_id, told, .. } = *bound;
        let event = BooksEvent { tenant, inbox_id, told, changes };
        for_the_books.push(ForTheBooks { event, wants_results: !bound.effects.is_empty() });
    }
    let mut applied = ledger::apply(connection, &for_the_books, show).await?.into_iter();
    let results: Vec<Result<Applied, NotApplied>> = theirs
        .iter()
        .map(|changes| match changes.is_empty() {
            true => Ok(Applied::default()),
            false => applied.next().expect("every event for the books has a result"),
        })
        .collect();
    call_functions(connection, events, &results).await?;
    Ok(results)
}

/// A call of a function for one change.
struct Call<'a> {
    event: &'a Bound<'a>,
    change: String,
}

/// The calls of one function for one tenant.
struct Calls<'a> {
    tenant_name: &'a str,
    function: String,
    /// The last place that one of its changes has in its event. What comes later in an event may need what comes before.
    place: usize,
    each: Vec<Call<'a>>,
}

async fn call_functions(
    connection: &mut PgConnection,
    events: &[Bound<'_>],
    results: &[Result<Applied, NotApplied>],
) -> Result<(), sqlx::Error> {
    let mut all: Vec<Calls<'_>> = Vec::new();
    for (event, result) in events.iter().zip(results) {
        let Ok(applied) = result else { continue };
        let mut results = applied.results.iter();
        for (place, change) in event.changes.iter().enumerate() {
            let effect = event.effects.of(change.name());
            // The books have a result for each change that they took, in order.
            let taken = effect.is_none_or(|effect| effect.mode == Mode::Also);
            let result = if taken { results.next().and_then(Option::as_ref) } else { None };
            let Some(effect) = effect else { continue };
            let function = effect.sql_name();
            let call = Call { event, change: described(event, change, result).to_string() };
            let known = all
                .iter_mut()
                .find(|calls| calls.function == function && calls.tenant_name == event.tenant_name);
            match known {
                Some(calls) => {
                    calls.place = calls.place.max(place);
                    calls.each.push(call);
                }
                None => {
                    let tenant_name = event.tenant_name;
                    all.push(Calls { tenant_name, function, place, each: vec![call] });
                }
            }
        }
    }
    all.sort_by_key(|calls| calls.place);
    for calls in &all {
        let messages = call(connection, calls).await?;
        write_messages(connection, &messages).await?;
    }
    Ok(())
}

/// Calls a function for all its changes, in the order of their events. What it answers.
async fn call<'a>(
    connection: &mut PgConnection,
    calls: &'a Calls<'a>,
) -> Result<Vec<(&'a Bound<'a>, Message)>, sqlx::Error> {
    // The settings that keep Wharf's own plans are not for other people's statements.
    sqlx::query(
        "select set_config('wharf.tenant', $1, true), set_config('plan_cache_mode', 'auto', true),
                set_config('enable_seqscan', 'on', true), set_config('enable_hashjoin', 'on', true),
                set_config('enable_mergejoin', 'on', true)",
    )
    .bind(calls.tenant_name)
    .execute(&mut *connection)
    .await?;
    let sql = format!(
        "select call.at, {}(call.change::jsonb) as message
         from unnest($1::text[]) with ordinality as call (change, at)",
        calls.function
    );
    let rows = sqlx::query(AssertSqlSafe(sql))
        .bind(calls.each.iter().map(|call| call.change.as_str()).collect::<Vec<_>>())
        .fetch_all(&mut *connection)
        .await?;
    sqlx::query(
        "select set_config('plan_cache_mode', 'force_generic_plan', true), set_config('enable_seqscan', 'off', true),
                set_config('enable_hashjoin', 'off', true), set_config('enable_mergejoin', 'off', true)",
    )
    .execute(connection)
    .await?;
    let mut messages = Vec::new();
    for row in &rows {
        // A function that returns void has no messages.
        let answer = row.try_get::<Option<Json<Box<RawValue>>>, _>("message").ok().flatten();
        let at = usize::try_from(row.try_get::<i64, _>("at")? - 1).unwrap_or_default();
        if let (Some(Json(answer)), Some(call)) = (answer, calls.each.get(at)) {
            let answered = read_messages(&answer).map_err(|reason| {
                sqlx::Error::Decode(
                    format!("{} returned what is no message: {reason}", calls.function).into(),
                )
            })?;
            messages.extend(answered.into_iter().map(|message| (call.event, message)));
        }
    }
    Ok(messages)
}

/// A message that a function wants to be told.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    aggregate_type: String,
    aggregate: String,
    event_type: String,
    version: Option<i32>,
    payload: Box<RawValue>,
}

fn read_messages(answer: &RawValue) -> Result<Vec<Message>, String> {
    let messages: Result<Vec<Message>, _> = match answer.get().trim_start().as_bytes().first() {
        Some(b'n') => Ok(Vec::new()),
        Some(b'[') => serde_json::from_str(answer.get()),
        _ => serde_json::from_str(answer.get()).map(|message| vec![message]),
    };
    let messages = messages.map_err(|error| error.to_string())?;
    // Whoever reads the outbox must be able to tell whose row a message is about.
    match messages.iter().find(|message| ["invoice", "receipt"].contains(&message.aggregate_type.as_str())) {
        Some(theirs) => {
            Err(format!("aggregate_type `{}` is that of Wharf's own books", theirs.aggregate_type))
        }
        None => Ok(messages),
    }
}

async fn write_messages(
    connection: &mut PgConnection,
    messages: &[(&Bound<'_>, Message)],
) -> Result<(), sqlx::Error> {
    if messages.is_empty() {
        return Ok(());
    }
    let all = || messages.iter();
    sqlx::query(
        "insert into outbox
           (tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, inbox_id, payload)
         select tenant_id, aggregate_type, aggregate_id,
                coalesce(version, row_number() over (partition by aggregate_id order by at)
                  + coalesce((select max(aggregate_version) from outbox known
                              where known.aggregate_id = named.aggregate_id), 0)),
                event_type, inbox_id, payload::jsonb
         from (
           select told.*,
                  -- The outbox knows aggregates by uuid: their own, or one that follows from what they are called.
                  case when aggregate ~ '^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$' then aggregate::uuid
                       else md5(concat_ws(chr(10), tenant_id, aggregate_type, aggregate))::uuid end as aggregate_id
           from unnest($1::uuid[], $2::text[], $3::text[], $4::int[], $5::text[], $6::bigint[], $7::text[])
             with ordinality
             as told (tenant_id, aggregate_type, aggregate, version, event_type, inbox_id, payload, at)) as named
         order by at",
    )
    .bind(all().map(|(event, _)| event.tenant).collect::<Vec<_>>())
    .bind(all().map(|(_, message)| message.aggregate_type.as_str()).collect::<Vec<_>>())
    .bind(all().map(|(_, message)| message.aggregate.as_str()).collect::<Vec<_>>())
    .bind(all().map(|(_, message)| message.version).collect::<Vec<_>>())
    .bind(all().map(|(_, message)| message.event_type.as_str()).collect::<Vec<_>>())
    .bind(all().map(|(event, _)| event.inbox_id).collect::<Vec<_>>())
    .bind(all().map(|(_, message)| message.payload.get()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// A change as a function is given it: version 1 of docs/EFFECTS.md.
fn described(event: &Bound<'_>, change: &Change, result: Option<&Value>) -> Value {
    let told = &event.told;
    let mut described = json!({
        "version": 1,
        "change": change.name(),
        "tenant": event.tenant_name,
        "endpoint": told.endpoint,
        "provider": told.provider,
        "event_id": told.event_id,
        "event_type": event.event_type,
        "inbox_id": event.inbox_id,
        "occurred_at": told.at.map(|at| at.to_string()),
        "received_at": told.received_at.to_string(),
        "result": result,
    });
    for key in [
        "invoice", "payment", "amount", "currency", "refund", "failed", "dispute", "stage", "reason",
        "receipt", "lines", "counting", "notice", "fields", "fields",
    ] {
        described[key] = Value::Null;
    }
    match change {
        Change::Invoice(change) => describe_invoice(&mut described, change),
        Change::Receipt(change) => describe_receipt(&mut described, change),
        Change::Own(change) => described["fields"] = json!(change.fields),
    }
    described
}

fn describe_invoice(described: &mut Value, change: &InvoiceChange) {
    let mut amount = |money: &Money| {
        described["amount"] = money.minor.into();
        described["currency"] = money.currency.as_str().into();
    };
    match &change.fact {
        InvoiceFact::Issued { amount: money } | InvoiceFact::Paid { amount: money, .. } => amount(money),
        InvoiceFact::RefundTotal { total, .. } => amount(total),
        InvoiceFact::Refund { refund, amount: money, failed, .. } => {
            amount(money);
            described["refund"] = refund.as_str().into();
            described["failed"] = (*failed).into();
        }
        InvoiceFact::Disputed { dispute, amount: money, stage, .. } => {
            amount(money);
            described["dispute"] = dispute.as_str().into();
            described["stage"] = match stage {
                DisputeStage::Opened => "opened",
                DisputeStage::Won => "won",
                DisputeStage::Lost => "lost",
            }
            .into();
        }
        InvoiceFact::PaymentFailed { reason, .. } | InvoiceFact::Voided { reason } => {
            described["reason"] = reason.as_deref().into();
        }
    }
    described["invoice"] = change.number.as_deref().into();
    described["payment"] = change.fact.payment().into();
}

fn describe_receipt(described: &mut Value, change: &ReceiptChange) {
    described["receipt"] = change.number.as_str().into();
    match &change.fact {
        ReceiptFact::Announced { lines } => {
            let lines = lines.iter().map(|line| json!({ "sku": line.sku, "expected": line.expected }));
            described["lines"] = lines.collect();
        }
        ReceiptFact::Received { counting, lines } => {
            let lines = lines
                .iter()
                .map(|line| json!({ "sku": line.sku, "received": line.received, "rejected": line.rejected }));
            described["lines"] = lines.collect();
            match counting {
                Counting::Totals => described["counting"] = "totals".into(),
                Counting::Deltas { notice } => {
                    described["counting"] = "deltas".into();
                    described["notice"] = notice.as_str().into();
                }
            }
        }
        ReceiptFact::InTransit | ReceiptFact::Arrived | ReceiptFact::Closed | ReceiptFact::Cancelled => {}
    }
}
