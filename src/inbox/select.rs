//! Finding events in the inbox, by whatever an operator knows of them: fast among millions, whatever the filter.
//!
//! `ways` has the statements.

use sqlx::postgres::PgRow;
use sqlx::types::time::OffsetDateTime;
use sqlx::{Executor as _, FromRow, PgConnection, QueryBuilder, Row as _};

use super::recorded::Candidate;
use super::ways::{Bounds, OF_GROUP, Order, Select, push_conditions, push_groups};
use crate::timestamp::Timestamp;

/// What an event in the inbox can be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names are the table's, and say it")]
pub enum Status {
    Processed,
    Ignored,
    Failed,
    Dead,
    Discarded,
}

impl Status {
    /// The name in the table.
    pub fn name(self) -> &'static str {
        match self {
            Self::Processed => "processed",
            Self::Ignored => "ignored",
            Self::Failed => "failed",
            Self::Dead => "dead",
            Self::Discarded => "discarded",
        }
    }
}

/// The statuses that somebody must look after.
pub(super) const TROUBLE: [Status; 2] = [Status::Failed, Status::Dead];

/// Which events. What is empty does not restrict; what is there must all hold.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Filter {
    /// Inbox ids.
    pub ids: Vec<i64>,
    /// Any of these statuses.
    pub statuses: Vec<Status>,
    /// Any of these endpoints.
    pub endpoints: Vec<String>,
    /// Any of these providers.
    pub providers: Vec<String>,
    /// Any of these event types.
    pub types: Vec<String>,
    /// Any of these kinds of error; of events that were not applied, if no status is named.
    pub error_kinds: Vec<String>,
    /// The group of one error.
    pub fingerprint: Option<String>,
    /// The provider's id.
    pub event_id: Option<String>,
    /// The number of an invoice or a receipt that the event changed, or wanted to.
    pub number: Option<String>,
    /// Received at this time or later.
    pub since: Option<Timestamp>,
    /// Received at this time or earlier.
    pub until: Option<Timestamp>,
}

/// An event as the inbox has it, without its body.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the columns of webhook_inbox")]
pub struct Entry {
    pub id: i64,
    pub endpoint: String,
    pub provider: String,
    pub event_id: String,
    pub event_type: String,
    pub status: String,
    pub attempts: i32,
    pub error_kind: Option<String>,
    pub last_error: Option<String>,
    pub ignored_because: Option<String>,
    pub fingerprint: Option<String>,
    pub occurred_at: Option<Timestamp>,
    pub received_at: Timestamp,
    pub settled_at: Option<Timestamp>,
    pub next_attempt_at: Option<Timestamp>,
}

const ENTRY: &str = "id, endpoint, provider, event_id, event_type, status, attempts, error_kind, last_error, \
    ignored_because, fingerprint, occurred_at, received_at, settled_at, next_attempt_at";

impl FromRow<'_, PgRow> for Entry {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let moment = |column| row.try_get::<Option<OffsetDateTime>, _>(column);
        Ok(Self {
            id: row.try_get("id")?,
            endpoint: row.try_get("endpoint")?,
            provider: row.try_get("provider")?,
            event_id: row.try_get("event_id")?,
            event_type: row.try_get("event_type")?,
            status: row.try_get("status")?,
            attempts: row.try_get("attempts")?,
            error_kind: row.try_get("error_kind")?,
            last_error: row.try_get("last_error")?,
            ignored_because: row.try_get("ignored_because")?,
            fingerprint: row.try_get("fingerprint")?,
            occurred_at: moment("occurred_at")?.map(Timestamp::from),
            received_at: row.try_get::<OffsetDateTime, _>("received_at")?.into(),
            settled_at: moment("settled_at")?.map(Timestamp::from),
            next_attempt_at: moment("next_attempt_at")?.map(Timestamp::from),
        })
    }
}

/// A page of events, newest first, of ids below `before`.
pub async fn page(
    connection: &mut PgConnection,
    filter: &Filter,
    before: Option<i64>,
    at_most: u32,
) -> Result<Vec<Entry>, sqlx::Error> {
    let filter = resolved(connection, filter).await?;
    by_index_alone(connection).await?;
    let select = Select {
        columns: ENTRY,
        filter: &filter,
        ids: bounds(connection, &filter, before).await?,
        order: Order::NewestFirst,
        at_most: Some(at_most),
    };
    select.query().build_query_as().fetch_all(connection).await
}

/// All events that fit, or the oldest so many of them, oldest first.
pub async fn candidates(
    connection: &mut PgConnection,
    filter: &Filter,
    at_most: Option<u32>,
) -> Result<Vec<Candidate>, sqlx::Error> {
    let filter = resolved(connection, filter).await?;
    by_index_alone(connection).await?;
    let select = Select {
        columns: "id, endpoint, octet_length(body) as bytes",
        filter: &filter,
        ids: bounds(connection, &filter, None).await?,
        order: Order::OldestFirst,
        at_most,
    };
    select.query().build_query_as().fetch_all(connection).await
}

/// Failed and dead events that went wrong in the same way.
#[derive(Debug, Clone, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub struct Group {
    pub fingerprint: String,
    pub endpoint: String,
    pub event_type: String,
    pub error_kind: String,
    pub events: i64,
    pub dead: i64,
    pub first_received_at: Timestamp,
    pub last_received_at: Timestamp,
    /// The newest of them.
    pub sample_id: i64,
    /// The error's text of that one.
    pub sample_error: String,
}

impl FromRow<'_, PgRow> for Group {
    fn from_row(row: &PgRow) -> Result<Self, sqlx::Error> {
        let moment = |column| row.try_get::<OffsetDateTime, _>(column).map(Timestamp::from);
        Ok(Self {
            fingerprint: row.try_get("fingerprint")?,
            endpoint: row.try_get("endpoint")?,
            event_type: row.try_get("event_type")?,
            error_kind: row.try_get("error_kind")?,
            events: row.try_get("events")?,
            dead: row.try_get("dead")?,
            first_received_at: moment("first_received_at")?,
            last_received_at: moment("last_received_at")?,
            sample_id: row.try_get("sample_id")?,
            sample_error: row.try_get("sample_error")?,
        })
    }
}

/// The groups of failed and dead events that fit, the largest first.
pub async fn groups(connection: &mut PgConnection, filter: &Filter) -> Result<Vec<Group>, sqlx::Error> {
    let mut filter = filter.clone();
    filter.statuses.retain(|status| TROUBLE.contains(status));
    if filter.statuses.is_empty() {
        filter.statuses = TROUBLE.to_vec();
    }
    let filter = resolved(connection, &filter).await?;
    by_index_alone(connection).await?;
    let ids = bounds(connection, &filter, None).await?;
    let mut query = QueryBuilder::new(
        "select groups.*, oldest.received_at as first_received_at, newest.received_at as last_received_at,
                newest.last_error as sample_error
         from (select of_endpoint as endpoint, of_event_type as event_type, of_error_kind as error_kind,
                      of_fingerprint as fingerprint, sum(events)::bigint as events,
                      coalesce(sum(events) filter (where of_status = 'dead'), 0)::bigint as dead,
                      min(oldest_id) as oldest_id, max(newest_id) as sample_id
               from (",
    );
    push_groups(&mut query, &filter);
    query.push(
        ") as kind cross join lateral (
           select count(*) as events, min(inbox.id) as oldest_id, max(inbox.id) as newest_id from webhook_inbox inbox
           where ",
    );
    query.push(OF_GROUP);
    push_conditions(&mut query, &filter, ids);
    query.push(
        ") as counted
         where events > 0
         group by of_endpoint, of_event_type, of_error_kind, of_fingerprint) as groups
         join webhook_inbox oldest on oldest.id = groups.oldest_id
         join webhook_inbox newest on newest.id = groups.sample_id
         order by groups.events desc, groups.sample_id desc",
    );
    query.build_query_as().fetch_all(connection).await
}

/// Every endpoint that the inbox knows, with the provider of one of its events.
pub async fn endpoints(connection: &mut PgConnection) -> Result<Vec<(String, String)>, sqlx::Error> {
    sqlx::query_as(
        "with recursive hop as (
           (select endpoint, provider from webhook_inbox order by endpoint, event_id limit 1)
           union all
           select next.endpoint, next.provider from hop cross join lateral (
             select endpoint, provider from webhook_inbox where endpoint > hop.endpoint
             order by endpoint, event_id limit 1) as next)
         select endpoint, provider from hop",
    )
    .fetch_all(connection)
    .await
}

/// Every search here has its index; reading all of the table, or of several indexes, is never the shorter way, whatever
/// the planner believes of values that are rare, or were frequent last month.
pub async fn by_index_alone(connection: &mut PgConnection) -> Result<(), sqlx::Error> {
    connection.execute("set enable_seqscan = off; set enable_bitmapscan = off; set jit = off").await?;
    Ok(())
}

/// The filter with what no index knows said in terms of what one does: endpoints for providers and for an id whose
/// endpoint is not named, inbox ids for an invoice's or a receipt's number.
async fn resolved(connection: &mut PgConnection, filter: &Filter) -> Result<Filter, sqlx::Error> {
    let mut filter = filter.clone();
    if filter.statuses.is_empty() && (!filter.error_kinds.is_empty() || filter.fingerprint.is_some()) {
        filter.statuses = vec![Status::Failed, Status::Dead, Status::Discarded];
    }
    if !filter.providers.is_empty() || (filter.event_id.is_some() && filter.endpoints.is_empty()) {
        let known = endpoints(connection).await?.into_iter().filter(|(endpoint, provider)| {
            (filter.providers.is_empty() || filter.providers.contains(provider))
                && (filter.endpoints.is_empty() || filter.endpoints.contains(endpoint))
        });
        filter.endpoints = known.map(|(endpoint, _)| endpoint).collect();
        // None: an empty list would not restrict.
        if filter.endpoints.is_empty() {
            filter.endpoints.push(String::new());
        }
    }
    if let Some(number) = &filter.number {
        let mut ids = ids_about(connection, number).await?;
        if !filter.ids.is_empty() {
            ids.retain(|id| filter.ids.contains(id));
        }
        // None: as above.
        filter.ids = if ids.is_empty() { vec![0] } else { ids };
    }
    Ok(filter)
}

/// Events that changed the invoice or receipt of a number, by the ledgers and the outbox, or that wanted to.
async fn ids_about(connection: &mut PgConnection, number: &str) -> Result<Vec<i64>, sqlx::Error> {
    // The index of an array's elements can be read in no other way.
    connection.execute("set enable_bitmapscan = on").await?;
    sqlx::query_scalar(
        "select entry.inbox_id from tenant
         join invoice on invoice.tenant_id = tenant.id and invoice.number = $1
         join invoice_entry entry on entry.invoice_id = invoice.id where entry.inbox_id is not null
         union
         select entry.inbox_id from tenant
         join receipt on receipt.tenant_id = tenant.id and receipt.number = $1
         join receipt_line line on line.receipt_id = receipt.id
         join receipt_entry entry on entry.receipt_line_id = line.id where entry.inbox_id is not null
         union
         select message.inbox_id from tenant
         cross join lateral (
           select id from invoice where invoice.tenant_id = tenant.id and invoice.number = $1
           union all
           select id from receipt where receipt.tenant_id = tenant.id and receipt.number = $1) as aggregate
         join outbox message on message.aggregate_id = aggregate.id where message.inbox_id is not null
         union
         select id from webhook_inbox
         where status in ('failed', 'dead', 'discarded') and about @> array[$1]",
    )
    .bind(number)
    .fetch_all(connection)
    .await
}

/// Events are recorded seconds after they are received at most; clocks of gateways may differ by more.
const CLOCKS_DIFFER_SECONDS: i64 = 600;

async fn bounds(
    connection: &mut PgConnection,
    filter: &Filter,
    before: Option<i64>,
) -> Result<Bounds, sqlx::Error> {
    let mut bounds = Bounds { from: None, below: before };
    if let Some(since) = filter.since {
        bounds.from = first_id(connection, "max", since.seconds() - CLOCKS_DIFFER_SECONDS).await?;
    }
    if let Some(until) = filter.until {
        let end = first_id(connection, "min", until.seconds() + CLOCKS_DIFFER_SECONDS).await?;
        bounds.below = [bounds.below, end].into_iter().flatten().min();
    }
    Ok(bounds)
}

/// The first id from which on the newest (`max`) or the oldest (`min`) of several events came at this time or later;
/// one above the last if there is none; `None`: the inbox is empty.
///
/// It is found by halving: ids follow the order of receipt, but for single events that were let in later, which the
/// look at several at a time evens out. (One that was let in after many that came later is missed by `until`.)
async fn first_id(
    connection: &mut PgConnection,
    which: &'static str,
    seconds: i64,
) -> Result<Option<i64>, sqlx::Error> {
    let at = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    let ends: (Option<i64>, Option<i64>) =
        sqlx::query_as("select min(id), max(id) from webhook_inbox").fetch_one(&mut *connection).await?;
    let (Some(mut low), Some(last)) = ends else { return Ok(None) };
    let mut high = last + 1;
    while low < high {
        let middle = low + (high - low) / 2;
        let mut query = QueryBuilder::new(format!("select {which}(received_at) from ("));
        query.push("select received_at from webhook_inbox where id >= ").push_bind(middle);
        query.push(" order by id limit 64) as several");
        let found: Option<OffsetDateTime> = query.build_query_scalar().fetch_one(&mut *connection).await?;
        match found {
            Some(found) if found < at => low = middle + 1,
            _ => high = middle,
        }
    }
    Ok(Some(low))
}
