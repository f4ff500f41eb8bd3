//! Finding events in the inbox, by whatever an operator knows of them: fast among millions, whatever the filter.
//!
//! Every way in is by an index in the order of ids: what was not applied, by status; the groups of failed and dead
//! events; the types of endpoints; and all, from the newest on. Groups and types are few, and are found by hopping
//! through their index from one to the next.

use sqlx::postgres::PgRow;
use sqlx::types::time::OffsetDateTime;
use sqlx::{Executor as _, FromRow, PgConnection, Postgres, QueryBuilder, Row as _};

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
}

/// The statuses that somebody must look after.
const TROUBLE: [Status; 2] = [Status::Failed, Status::Dead];

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

/// A way to the ids of events that fit.
#[derive(Debug, Clone, Copy)]
enum Way {
    /// From one end of all events to the other.
    All,
    /// Status by status, of those that were not applied.
    ByStatus,
    /// Group by group of failed and dead events.
    ByGroup,
    /// Type by type of endpoints.
    ByType,
}

/// A part of an index: its leading columns, the last of them apart, and what makes the index usable.
struct Stretch<'a> {
    leading: &'a [&'a str],
    last: &'a str,
    condition: &'a str,
}

impl Select<'_> {
    /// The ways to take, each with its statuses; no statuses: any.
    fn ways(&self) -> Vec<(Way, Vec<Status>)> {
        let Filter { ids, statuses, endpoints, types, error_kinds, fingerprint, event_id, .. } = self.filter;
        let of_types = !endpoints.is_empty() || !types.is_empty();
        if !ids.is_empty() || event_id.is_some() || (statuses.is_empty() && !of_types) {
            return vec![(Way::All, statuses.clone())];
        }
        if statuses.is_empty() {
            return vec![(Way::ByType, Vec::new())];
        }
        let of_groups = of_types || !error_kinds.is_empty() || fingerprint.is_some();
        let some = |wanted: &[Status]| -> Vec<Status> {
            statuses.iter().copied().filter(|status| wanted.contains(status)).collect()
        };
        let settled = match (of_types, statuses.contains(&Status::Processed)) {
            (true, _) => Way::ByType,
            (false, true) => Way::All,
            (false, false) => Way::ByStatus,
        };
        let trouble = if of_groups { Way::ByGroup } else { Way::ByStatus };
        let mut ways = vec![
            (trouble, some(&TROUBLE)),
            (Way::ByStatus, some(&[Status::Discarded])),
            (settled, some(&[Status::Processed, Status::Ignored])),
        ];
        ways.retain(|(_, statuses)| !statuses.is_empty());
        ways
    }

    fn query(&self) -> QueryBuilder<Postgres> {
        let mut query = QueryBuilder::new(format!("select {} from (select id from (", self.columns));
        for (at, (way, statuses)) in self.ways().into_iter().enumerate() {
            query.push(if at == 0 { "(" } else { " union all (" });
            self.push_way(&mut query, way, &statuses);
            query.push(")");
        }
        query.push(") as inbox");
        self.push_end(&mut query);
        query.push(") as found join webhook_inbox inbox using (id) order by id");
        query.push(if self.order == Order::NewestFirst { " desc" } else { "" });
        query
    }

    fn push_way(&self, query: &mut QueryBuilder<Postgres>, way: Way, statuses: &[Status]) {
        let names: Vec<String> = statuses.iter().map(|status| status.name().to_owned()).collect();
        let filter = self.filter;
        match way {
            Way::All => {
                query.push("select id from webhook_inbox inbox where true");
                push_any(query, "inbox.status", &names);
                push_kinds(query, filter);
                push_conditions(query, filter, self.ids);
                self.push_end(query);
            }
            Way::ByStatus => {
                query.push("select inbox.id from (select unnest(").push_bind(names);
                query.push("::text[]) as of_status) as kind");
                let condition = "inbox.status <> 'processed'";
                self.push_stretch(query, &Stretch { leading: &[], last: "status", condition });
            }
            Way::ByGroup => {
                query.push("select inbox.id from (");
                push_groups(query, &Filter { statuses: statuses.to_vec(), ..filter.clone() });
                query.push(") as kind");
                let leading = &["endpoint", "event_type", "error_kind", "fingerprint"];
                let condition = "inbox.status in ('failed', 'dead')";
                self.push_stretch(query, &Stretch { leading, last: "status", condition });
            }
            Way::ByType => {
                query.push("select inbox.id from (");
                push_types(query, filter);
                query.push(") as kind");
                // A literal list: these are names of ours.
                let condition = match names.as_slice() {
                    [] => "true".to_owned(),
                    names => format!("inbox.status in ('{}')", names.join("', '")),
                };
                let stretch = Stretch { leading: &["event_type"], last: "endpoint", condition: &condition };
                self.push_stretch(query, &stretch);
            }
        }
    }

    /// The newest or oldest ids of a stretch of an index, which its leading columns' values name.
    ///
    /// The last of the columns and the id are compared as a row, in the index's own order: then no other index will do,
    /// whatever the planner believes of how soon another one would find enough.
    fn push_stretch(&self, query: &mut QueryBuilder<Postgres>, stretch: &Stretch<'_>) {
        let Stretch { leading, last, condition } = stretch;
        query.push(format_args!(
            " cross join lateral (select inbox.id from webhook_inbox inbox where {condition}"
        ));
        for column in *leading {
            query.push(format_args!(" and inbox.{column} = kind.of_{column}"));
        }
        query.push(format_args!(" and (inbox.{last}, inbox.id) >= (kind.of_{last}, "));
        query.push_bind(self.ids.from.unwrap_or(0));
        query.push(format_args!("::bigint) and (inbox.{last}, inbox.id) < (kind.of_{last}, "));
        query.push_bind(self.ids.below.unwrap_or(i64::MAX)).push("::bigint)");
        push_kinds(query, self.filter);
        push_conditions(query, self.filter, Bounds::default());
        let direction = if self.order == Order::NewestFirst { "desc" } else { "asc" };
        query.push(format_args!(" order by inbox.{last} {direction}, inbox.id {direction}"));
        self.push_limit(query);
        query.push(") as inbox");
        self.push_end(query);
    }

    fn push_end(&self, query: &mut QueryBuilder<Postgres>) {
        query.push(match self.order {
            Order::NewestFirst => " order by inbox.id desc",
            Order::OldestFirst => " order by inbox.id",
        });
        self.push_limit(query);
    }

    fn push_limit(&self, query: &mut QueryBuilder<Postgres>) {
        if let Some(at_most) = self.at_most {
            query.push(" limit ").push_bind(i64::from(at_most));
        }
    }
}

/// An event of the group that is hopped to.
const OF_GROUP: &str = "inbox.status in ('failed', 'dead') and inbox.endpoint = kind.of_endpoint
    and inbox.event_type = kind.of_event_type and inbox.error_kind = kind.of_error_kind
    and inbox.fingerprint = kind.of_fingerprint and inbox.status = kind.of_status";

/// The groups of failed and dead events that fit, each with its status.
fn push_groups(query: &mut QueryBuilder<Postgres>, filter: &Filter) {
    query.push(
        "with recursive hop as (
           (select endpoint as of_endpoint, event_type as of_event_type, error_kind as of_error_kind,
                   fingerprint as of_fingerprint, status as of_status
            from webhook_inbox where status in ('failed', 'dead')
            order by endpoint, event_type, error_kind, fingerprint, status limit 1)
           union all
           select next.* from hop cross join lateral (
             select endpoint, event_type, error_kind, fingerprint, status
             from webhook_inbox
             where status in ('failed', 'dead') and (endpoint, event_type, error_kind, fingerprint, status)
                 > (hop.of_endpoint, hop.of_event_type, hop.of_error_kind, hop.of_fingerprint, hop.of_status)
             order by endpoint, event_type, error_kind, fingerprint, status limit 1) as next)
         select * from hop where true",
    );
    let statuses: Vec<String> = filter.statuses.iter().map(|status| status.name().to_owned()).collect();
    push_any(query, "of_status", &statuses);
    push_any(query, "of_endpoint", &filter.endpoints);
    push_any(query, "of_event_type", &filter.types);
    push_any(query, "of_error_kind", &filter.error_kinds);
    push_any(query, "of_fingerprint", filter.fingerprint.as_slice());
}

/// The types of endpoints that fit.
fn push_types(query: &mut QueryBuilder<Postgres>, filter: &Filter) {
    query.push(
        "with recursive hop as (
           (select event_type as of_event_type, endpoint as of_endpoint from webhook_inbox
            order by event_type, endpoint limit 1)
           union all
           select next.event_type, next.endpoint from hop cross join lateral (
             select event_type, endpoint from webhook_inbox
             where (event_type, endpoint) > (hop.of_event_type, hop.of_endpoint)
             order by event_type, endpoint limit 1) as next)
         select * from hop where true",
    );
    push_any(query, "of_endpoint", &filter.endpoints);
    push_any(query, "of_event_type", &filter.types);
}

fn push_kinds(query: &mut QueryBuilder<Postgres>, filter: &Filter) {
    push_any(query, "inbox.endpoint", &filter.endpoints);
    push_any(query, "inbox.event_type", &filter.types);
    push_any(query, "inbox.error_kind", &filter.error_kinds);
    push_any(query, "inbox.fingerprint", filter.fingerprint.as_slice());
}

/// What neither status nor group nor type says.
fn push_conditions(query: &mut QueryBuilder<Postgres>, filter: &Filter, bounds: Bounds) {
    if !filter.ids.is_empty() {
        query.push(" and inbox.id = any(").push_bind(filter.ids.clone()).push(")");
    }
    push_any(query, "inbox.provider", &filter.providers);
    push_any(query, "inbox.event_id", filter.event_id.as_slice());
    if let Some(since) = filter.since {
        query.push(" and inbox.received_at >= ").push_bind(OffsetDateTime::from(since));
    }
    if let Some(until) = filter.until {
        query.push(" and inbox.received_at <= ").push_bind(OffsetDateTime::from(until));
    }
    if let Some(from) = bounds.from {
        query.push(" and inbox.id >= ").push_bind(from);
    }
    if let Some(below) = bounds.below {
        query.push(" and inbox.id < ").push_bind(below);
    }
}

fn push_any(query: &mut QueryBuilder<Postgres>, column: &str, values: &[String]) {
    if !values.is_empty() {
        query.push(format_args!(" and {column} = any(")).push_bind(values.to_vec()).push(")");
    }
}
