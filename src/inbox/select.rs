//! Finding events in the inbox, by whatever an operator knows of them: fast among millions, whatever the filter.
//!
//! Three ways in, each by an index in the order of ids: what was not applied, by status; an endpoint's or a type's
//! events, where the few types there are are found by hopping from one to the next; and all, from the newest on.

use sqlx::postgres::PgRow;
use sqlx::types::time::OffsetDateTime;
use sqlx::{FromRow, PgConnection, Postgres, QueryBuilder, Row as _};

use super::recorded::Candidate;
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

    fn is_trouble(self) -> bool {
        matches!(self, Self::Failed | Self::Dead)
    }
}

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
    /// Any of these kinds of error.
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
    let select = Select {
        columns: ENTRY,
        filter: &resolved(connection, filter).await?,
        ids: bounds(connection, filter, before).await?,
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
    let select = Select {
        columns: "id, endpoint, octet_length(body) as bytes",
        filter: &resolved(connection, filter).await?,
        ids: bounds(connection, filter, None).await?,
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
    let filter = Filter {
        statuses: match filter.statuses.as_slice() {
            [] => vec![Status::Failed, Status::Dead],
            given => given.to_vec(),
        },
        ..filter.clone()
    };
    let select = Select {
        columns: "endpoint, event_type, error_kind, fingerprint, status, id",
        filter: &resolved(connection, &filter).await?,
        ids: bounds(connection, &filter, None).await?,
        order: Order::None,
        at_most: None,
    };
    let mut query = QueryBuilder::new(
        "select groups.*, oldest.received_at as first_received_at, newest.received_at as last_received_at,
                newest.last_error as sample_error
         from (select endpoint, event_type, error_kind, fingerprint, count(*) as events,
                      count(*) filter (where status = 'dead') as dead, min(id) as oldest_id, max(id) as sample_id
               from (",
    );
    select.push(&mut query);
    query.push(
        ") as trouble
               group by endpoint, event_type, error_kind, fingerprint) as groups
         join webhook_inbox oldest on oldest.id = groups.oldest_id
         join webhook_inbox newest on newest.id = groups.sample_id
         order by events desc, sample_id desc",
    );
    query.build_query_as().fetch_all(connection).await
}

/// Every endpoint that the inbox knows, with the provider of its oldest event of the first type.
pub async fn endpoints(connection: &mut PgConnection) -> Result<Vec<(String, String)>, sqlx::Error> {
    sqlx::query_as(
        "with recursive hop as (
           (select endpoint, provider from webhook_inbox order by endpoint, event_type, id limit 1)
           union all
           select next.endpoint, next.provider from hop cross join lateral (
             select endpoint, provider from webhook_inbox where endpoint > hop.endpoint
             order by endpoint, event_type, id limit 1) as next)
         select endpoint, provider from hop",
    )
    .fetch_all(connection)
    .await
}

/// The filter with what no index knows said in terms of what one does: endpoints for providers and for an id whose
/// endpoint is not named, inbox ids for an invoice's or a receipt's number.
async fn resolved(connection: &mut PgConnection, filter: &Filter) -> Result<Filter, sqlx::Error> {
    let mut filter = filter.clone();
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
         select id from webhook_inbox where status in ('failed', 'dead') and about @> array[$1]
         union
         select id from webhook_inbox
         where status = 'discarded' and status <> 'processed' and about @> array[$1]",
    )
    .bind(number)
    .fetch_all(connection)
    .await
}

/// Ids that bound a time of receipt, so that a search among millions begins and ends near it.
#[derive(Debug, Clone, Copy, Default)]
struct Bounds {
    from: Option<i64>,
    below: Option<i64>,
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

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    None,
    NewestFirst,
    OldestFirst,
}

/// A search: the filter resolved, with the ids that bound it.
struct Select<'a> {
    columns: &'a str,
    filter: &'a Filter,
    ids: Bounds,
    order: Order,
    at_most: Option<u32>,
}

impl Select<'_> {
    fn query(&self) -> QueryBuilder<Postgres> {
        let mut query = QueryBuilder::new("");
        self.push(&mut query);
        query
    }

    fn push(&self, query: &mut QueryBuilder<Postgres>) {
        let Filter { ids, statuses, endpoints, types, event_id, .. } = self.filter;
        let names_type = !endpoints.is_empty() || !types.is_empty();
        let only_trouble = !statuses.is_empty() && statuses.iter().all(|status| status.is_trouble());
        if !ids.is_empty() || event_id.is_some() {
            self.push_plain(query, "true");
        } else if names_type && only_trouble {
            self.push_plain(query, "status in ('failed', 'dead')");
        } else if names_type {
            self.push_by_type(query);
        } else if !statuses.is_empty() && !statuses.contains(&Status::Processed) {
            self.push_by_status(query);
        } else {
            self.push_plain(query, "true");
        }
    }

    fn push_plain(&self, query: &mut QueryBuilder<Postgres>, condition: &str) {
        query.push(format_args!("select {} from webhook_inbox inbox where {condition}", self.columns));
        self.push_conditions(query);
        self.push_end(query);
    }

    /// What was not applied, status by status.
    fn push_by_status(&self, query: &mut QueryBuilder<Postgres>) {
        query.push(format_args!("select {} from unnest(", self.columns));
        query.push_bind(self.filter.statuses.iter().map(|status| status.name()).collect::<Vec<_>>());
        query.push(
            "::text[]) as wanted (wanted_status) cross join lateral (select * from webhook_inbox inbox
             where inbox.status = wanted.wanted_status and inbox.status <> 'processed'",
        );
        self.push_conditions(query);
        self.push_end(query);
        query.push(") as inbox");
        self.push_end(query);
    }

    /// Type by type, each in the order of ids.
    fn push_by_type(&self, query: &mut QueryBuilder<Postgres>) {
        query.push(format_args!(
            "select {} from (
               with recursive hop as (
                 (select endpoint as of_endpoint, event_type as of_type from webhook_inbox
                  order by endpoint, event_type limit 1)
                 union all
                 select next.endpoint, next.event_type from hop cross join lateral (
                   select endpoint, event_type from webhook_inbox
                   where (endpoint, event_type) > (hop.of_endpoint, hop.of_type)
                   order by endpoint, event_type limit 1) as next)
               select * from hop where true",
            self.columns
        ));
        push_any(query, "of_endpoint", &self.filter.endpoints);
        push_any(query, "of_type", &self.filter.types);
        query.push(
            ") as kind cross join lateral (select * from webhook_inbox inbox
             where inbox.endpoint = kind.of_endpoint and inbox.event_type = kind.of_type",
        );
        self.push_conditions(query);
        self.push_end(query);
        query.push(") as inbox");
        self.push_end(query);
    }

    fn push_conditions(&self, query: &mut QueryBuilder<Postgres>) {
        let filter = self.filter;
        if !filter.ids.is_empty() {
            query.push(" and inbox.id = any(").push_bind(filter.ids.clone()).push(")");
        }
        let statuses: Vec<String> = filter.statuses.iter().map(|status| status.name().to_owned()).collect();
        push_any(query, "inbox.status", &statuses);
        push_any(query, "inbox.endpoint", &filter.endpoints);
        push_any(query, "inbox.provider", &filter.providers);
        push_any(query, "inbox.event_type", &filter.types);
        push_any(query, "inbox.error_kind", &filter.error_kinds);
        push_any(query, "inbox.fingerprint", filter.fingerprint.as_slice());
        push_any(query, "inbox.event_id", filter.event_id.as_slice());
        if let Some(since) = filter.since {
            query.push(" and inbox.received_at >= ").push_bind(OffsetDateTime::from(since));
        }
        if let Some(until) = filter.until {
            query.push(" and inbox.received_at <= ").push_bind(OffsetDateTime::from(until));
        }
        if let Some(from) = self.ids.from {
            query.push(" and inbox.id >= ").push_bind(from);
        }
        if let Some(below) = self.ids.below {
            query.push(" and inbox.id < ").push_bind(below);
        }
    }

    fn push_end(&self, query: &mut QueryBuilder<Postgres>) {
        match self.order {
            Order::None => {}
            Order::NewestFirst => {
                query.push(" order by inbox.id desc");
            }
            Order::OldestFirst => {
                query.push(" order by inbox.id");
            }
        }
        if let Some(at_most) = self.at_most {
            query.push(" limit ").push_bind(i64::from(at_most));
        }
    }
}

fn push_any(query: &mut QueryBuilder<Postgres>, column: &str, values: &[String]) {
    if !values.is_empty() {
        query.push(format_args!(" and {column} = any(")).push_bind(values.to_vec()).push(")");
    }
}
