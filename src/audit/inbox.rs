//! The inbox against the entries, and failed events that nobody tries again.

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use sqlx::types::Uuid;
use sqlx::types::time::OffsetDateTime;

use super::{Check, Finding, Report, Scope};
use crate::timestamp::Timestamp;

/// Every entry that an event told, with its tenant.
macro_rules! entries {
    ($then:literal) => {
        concat!(
            "with entry as (
               select invoice_entry.inbox_id, invoice.tenant_id
               from invoice_entry join invoice on invoice.id = invoice_entry.invoice_id
               union all
               select receipt_entry.inbox_id, receipt.tenant_id
               from receipt_entry join receipt_line line on line.id = receipt_entry.receipt_line_id
               join receipt on receipt.id = line.receipt_id
               union all
               select inbox_id, tenant_id from stock_entry) ",
            $then
        )
    };
}

const ENTRIES: &str = entries!(
    "select count(*) from entry where inbox_id is not null and ($1::uuid is null or tenant_id = $1)"
);

/// Inbox rows that have entries and should have none. A row that is gone was pruned.
const APPLIED_AFTER_ALL: &str = entries!(
    "select inbox.endpoint, inbox.event_id, inbox.status, inbox.tenant_id, entry.tenant_id as entry_tenant,
            count(*) as entries
     from entry join webhook_inbox inbox on inbox.id = entry.inbox_id
     where (inbox.status <> 'processed' or inbox.tenant_id <> entry.tenant_id)
       and ($1::uuid is null or entry.tenant_id = $1)
     group by inbox.id, entry.tenant_id
     order by inbox.id, entry.tenant_id"
);

const FAILED: &str =
    "select endpoint, event_id, tenant_id, next_attempt_at, next_attempt_at < now() - interval '1 day' as late
     from webhook_inbox where status = 'failed' and ($1::uuid is null or tenant_id = $1)
     order by next_attempt_at, id";

#[derive(sqlx::FromRow)]
struct Applied {
    endpoint: String,
    event_id: String,
    status: String,
    tenant_id: Uuid,
    entry_tenant: Uuid,
    entries: i64,
}

pub(super) async fn check_entries(
    connection: &mut PgConnection,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), sqlx::Error> {
    let check = Check::Inbox;
    let examined: i64 = sqlx::query_scalar(ENTRIES).bind(scope.tenant).fetch_one(&mut *connection).await?;
    report.tally(check).examined = examined.unsigned_abs();
    let mut stream = sqlx::query_as(APPLIED_AFTER_ALL).bind(scope.tenant).fetch(connection);
    while let Some(row) = stream.try_next().await? {
        let Applied { endpoint, event_id, status, tenant_id, entry_tenant, entries } = row;
        let what = format!("event {event_id} at {endpoint} (entries: {entries})");
        report.compare(
            check,
            &what,
            [("status", status), ("tenant", scope.name(tenant_id))],
            [("status", "processed".to_owned()), ("tenant", scope.name(entry_tenant))],
        );
    }
    Ok(())
}

pub(super) async fn check_retries(
    connection: &mut PgConnection,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), sqlx::Error> {
    let check = Check::Retries;
    let mut stream = sqlx::query_as(FAILED).bind(scope.tenant).fetch(connection);
    while let Some(row) = stream.try_next().await? {
        let (endpoint, event_id, tenant, next, late): (String, String, Uuid, OffsetDateTime, bool) = row;
        report.examined(check);
        if late {
            report.found(Finding {
                check,
                what: format!("event {event_id} at {endpoint} of {}", scope.name(tenant)),
                field: "next_attempt_at",
                stored: Timestamp::from(next).to_string(),
                recomputed: "tried again within a day".to_owned(),
            });
        }
    }
    Ok(())
}
