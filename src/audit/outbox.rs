//! The outbox: what was told of an invoice or a receipt, without a gap up to its version.

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use sqlx::types::Uuid;

use super::{Check, Finding, Report, Scope};

/// Per aggregate that has messages: the oldest and the newest version, their number, and the aggregate, if it is there.
const VERSIONS: &str = "select told.tenant_id, told.aggregate_type, told.aggregate_id, told.oldest, told.newest, told.messages,
            coalesce(invoice.number, receipt.number) as number, coalesce(invoice.version, receipt.version) as version
     from (select tenant_id, aggregate_type, aggregate_id, min(aggregate_version) as oldest,
                  max(aggregate_version) as newest, count(*) as messages
           -- Messages of other things are a company's own functions'.
           from outbox where aggregate_type in ('invoice', 'receipt') and ($1::uuid is null or tenant_id = $1)
           group by tenant_id, aggregate_type, aggregate_id) told
     left join invoice on told.aggregate_type = 'invoice' and invoice.id = told.aggregate_id
                      and invoice.tenant_id = told.tenant_id
     left join receipt on told.aggregate_type = 'receipt' and receipt.id = told.aggregate_id
                      and receipt.tenant_id = told.tenant_id
     order by told.tenant_id, told.aggregate_type, number, told.aggregate_id";

#[derive(sqlx::FromRow)]
struct Told {
    tenant_id: Uuid,
    aggregate_type: String,
    aggregate_id: Uuid,
    oldest: i32,
    newest: i32,
    messages: i64,
    number: Option<String>,
    version: Option<i32>,
}

pub(super) async fn check(
    connection: &mut PgConnection,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), sqlx::Error> {
    let mut stream = sqlx::query_as(VERSIONS).bind(scope.tenant).fetch(connection);
    while let Some(row) = stream.try_next().await? {
        compare(&row, scope, report);
    }
    Ok(())
}

fn compare(told: &Told, scope: &Scope, report: &mut Report) {
    let check = Check::Outbox;
    report.examined(check);
    let stored = versions(told.messages, told.oldest, told.newest);
    let recomputed = match told.version {
        None => format!("no such {}", told.aggregate_type),
        Some(version) if told.oldest > version => format!("none above version {version}"),
        Some(version) => {
            // The oldest messages may have been deleted: the count begins with the oldest that is there.
            let oldest = told.oldest.max(1);
            versions(i64::from(version) - i64::from(oldest) + 1, oldest, version)
        }
    };
    if stored != recomputed {
        let number = told.number.clone().unwrap_or_else(|| told.aggregate_id.to_string());
        let what = format!("{} {number} of {}", told.aggregate_type, scope.name(told.tenant_id));
        report.found(Finding { check, what, field: "messages", stored, recomputed });
    }
}

fn versions(messages: i64, oldest: i32, newest: i32) -> String {
    format!("{messages} of versions {oldest} to {newest}")
}
