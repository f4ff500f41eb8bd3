//! The ways to the events that fit a filter, as SQL: each by an index, in the order of ids.
//!
//! Groups of errors and types of endpoints are few, and are found by hopping through their index from one to the next;
//! of each, only the newest or oldest ids are read.

use sqlx::types::time::OffsetDateTime;
use sqlx::{Postgres, QueryBuilder};

use super::select::{Filter, Status, TROUBLE};

/// Ids that bound a time of receipt, so that a search among millions begins and ends near it.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Bounds {
    pub(super) from: Option<i64>,
    pub(super) below: Option<i64>,
}

/// In which order ids are wanted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    NewestFirst,
    OldestFirst,
}

/// A search: the filter resolved, with the ids that bound it.
pub(super) struct Select<'a> {
    pub(super) columns: &'a str,
    pub(super) filter: &'a Filter,
    pub(super) ids: Bounds,
    pub(super) order: Order,
    pub(super) at_most: Option<u32>,
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

    pub(super) fn query(&self) -> QueryBuilder<Postgres> {
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
pub(super) const OF_GROUP: &str = "inbox.status in ('failed', 'dead') and inbox.endpoint = kind.of_endpoint
    and inbox.event_type = kind.of_event_type and inbox.error_kind = kind.of_error_kind
    and inbox.fingerprint = kind.of_fingerprint and inbox.status = kind.of_status";

/// The groups of failed and dead events that fit, each with its status.
pub(super) fn push_groups(query: &mut QueryBuilder<Postgres>, filter: &Filter) {
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
pub(super) fn push_conditions(query: &mut QueryBuilder<Postgres>, filter: &Filter, bounds: Bounds) {
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
