//! All that is known of one event, and setting events aside.

use serde_json::Value;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use sqlx::types::time::OffsetDateTime;

use crate::books::Change;

/// An attempt at an event that left a record: one that failed, or one that was not a delivery.
#[derive(Debug, Clone, PartialEq, Eq, sqlx::FromRow)]
#[allow(missing_docs, reason = "the columns of webhook_attempt")]
pub struct Attempt {
    pub at: OffsetDateTime,
    pub origin: String,
    pub operator: Option<String>,
    pub reason: Option<String>,
    pub outcome: String,
    pub error_kind: Option<String>,
    pub error: Option<String>,
}

/// The attempts at an event, in order.
pub async fn attempts(connection: &mut PgConnection, inbox_id: i64) -> Result<Vec<Attempt>, sqlx::Error> {
    sqlx::query_as(
        "select at, origin, operator, reason, outcome, error_kind, error
         from webhook_attempt where inbox_id = $1 order by at",
    )
    .bind(inbox_id)
    .fetch_all(connection)
    .await
}

/// An event's request, as far as it is kept.
#[derive(Debug, Clone, sqlx::FromRow)]
pub struct Request {
    /// Whose it is.
    pub tenant_id: Uuid,
    /// The headers as a JSON object, without credentials and signatures.
    pub headers: String,
    /// The exact bytes that were signed.
    pub body: Vec<u8>,
}

/// An event's request.
pub async fn request(connection: &mut PgConnection, inbox_id: i64) -> Result<Request, sqlx::Error> {
    sqlx::query_as("select tenant_id, headers::text as headers, body from webhook_inbox where id = $1")
        .bind(inbox_id)
        .fetch_one(connection)
        .await
}

/// A row that an event wrote.
#[derive(Debug, Clone, PartialEq, sqlx::FromRow)]
pub struct Effect {
    /// Its table.
    pub table: String,
    /// For people.
    pub text: String,
    /// For machines: a JSON object.
    #[sqlx(try_from = "String")]
    pub row: JsonText,
}

/// JSON that the database wrote.
#[derive(Debug, Clone, PartialEq)]
pub struct JsonText(pub Value);

impl From<String> for JsonText {
    fn from(text: String) -> Self {
        Self(serde_json::from_str(&text).unwrap_or(Value::Null))
    }
}

/// The rows that an event wrote, found through the invoices and receipts that its changes name: the ledgers are not
/// indexed by event, which every delivery would pay for.
pub async fn effects(
    connection: &mut PgConnection,
    inbox_id: i64,
    tenant: Uuid,
    changes: &[Change],
) -> Result<Vec<Effect>, sqlx::Error> {
    let numbers: Vec<&str> = changes.iter().filter_map(Change::number).collect();
    let payments: Vec<&str> = changes
        .iter()
        .filter_map(|change| match change {
            Change::Invoice(change) => change.fact.payment(),
            Change::Receipt(_) | Change::Own(_) => None,
        })
        .collect();
    sqlx::query_as(
        "with invoices as (
             select id from invoice where tenant_id = $2 and number = any($3)
             union
             select invoice.id from invoice_entry entry join invoice on invoice.id = entry.invoice_id
             where entry.payment_ref = any($4) and invoice.tenant_id = $2),
           receipts as (select id, number from receipt where tenant_id = $2 and number = any($3)),
           lines as (
             select line.id, line.sku, receipts.number
             from receipts join receipt_line line on line.receipt_id = receipts.id)
           select effect.table, effect.text, effect.row::text from (
             select 1 as part, entry.id, 'invoice_entry' as table,
                    format('%s %s on invoice %s', entry.kind, entry.provider_ref, invoice.number) as text,
                    json_build_object('id', entry.id, 'invoice', invoice.number, 'kind', entry.kind,
                                      'provider_ref', entry.provider_ref, 'amount', entry.amount,
                                      'currency', entry.currency) as row
             from invoices join invoice_entry entry on entry.invoice_id = invoices.id
             join invoice on invoice.id = entry.invoice_id
             where entry.inbox_id = $1
             union all
             select 2, entry.id, 'receipt_entry',
                    format('%s received %s rejected %s on receipt %s', lines.sku,
                           entry.quantity_received_delta, entry.quantity_rejected_delta, lines.number),
                    json_build_object('id', entry.id, 'receipt', lines.number, 'sku', lines.sku,
                                      'quantity_received_delta', entry.quantity_received_delta,
                                      'quantity_rejected_delta', entry.quantity_rejected_delta)
             from lines join receipt_entry entry on entry.receipt_line_id = lines.id
             where entry.inbox_id = $1
             union all
             select 3, entry.id, 'stock_entry',
                    format('%s on_hand %s on_order %s (%s)', entry.sku, entry.on_hand_delta,
                           entry.on_order_delta, entry.reason),
                    json_build_object('id', entry.id, 'sku', entry.sku, 'on_hand_delta', entry.on_hand_delta,
                                      'on_order_delta', entry.on_order_delta, 'reason', entry.reason)
             from stock_entry entry
             where entry.tenant_id = $2 and entry.sku = any(select sku from lines) and entry.inbox_id = $1
             union all
             select 4, message.id, 'outbox',
                    format('%s version %s', message.event_type, message.aggregate_version),
                    json_build_object('id', message.id, 'event_type', message.event_type,
                                      'aggregate_version', message.aggregate_version,
                                      'payload', message.payload)
             from outbox message
             where message.aggregate_id in (select id from invoices union all select id from receipts)
               and message.inbox_id = $1) as effect
           order by effect.part, effect.id",
    )
    .bind(inbox_id)
    .bind(tenant)
    .bind(numbers)
    .bind(payments)
    .fetch_all(connection)
    .await
}

/// Sets failed and dead events aside for good, until somebody takes that back. Which of them were.
pub async fn discard(
    connection: &mut PgConnection,
    ids: &[i64],
    operator: &str,
    reason: &str,
) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "with discarded as (
           update webhook_inbox
           set status = 'discarded', settled_at = now(), dead_lettered_at = null, next_attempt_at = null
           where id = any($1) and status in ('failed', 'dead')
           returning id)
         insert into webhook_attempt (inbox_id, origin, operator, reason, outcome)
         select id, 'discard', $2, $3, 'discarded' from discarded
         returning inbox_id",
    )
    .bind(ids)
    .bind(operator)
    .bind(reason)
    .fetch_all(connection)
    .await
}

/// Takes a discarding back: the events are dead letters again. Which of them were.
pub async fn undiscard(
    connection: &mut PgConnection,
    ids: &[i64],
    operator: &str,
    reason: Option<&str>,
) -> Result<Vec<i64>, sqlx::Error> {
    sqlx::query_scalar(
        "with revived as (
           update webhook_inbox set status = 'dead', dead_lettered_at = now()
           where id = any($1) and status = 'discarded'
           returning id)
         insert into webhook_attempt (inbox_id, origin, operator, reason, outcome)
         select id, 'undiscard', $2, $3, 'dead' from revived
         returning inbox_id",
    )
    .bind(ids)
    .bind(operator)
    .bind(reason)
    .fetch_all(connection)
    .await
}
