//! Stock against its entries, and against what was counted in. Sums are texts: one that no balance can hold is a
//! difference like any other.

use futures_util::TryStreamExt as _;
use sqlx::PgConnection;
use sqlx::types::Uuid;

use super::{Check, Report, Scope};

/// Every SKU with the sums of its entries.
const POSITIONS: &str =
    "select position.tenant_id, position.sku, position.on_hand::text, position.on_order::text,
            coalesce(moved.on_hand, 0)::text, coalesce(moved.on_order, 0)::text
     from sku_position position
     left join (select tenant_id, sku, sum(on_hand_delta) as on_hand, sum(on_order_delta) as on_order
                from stock_entry group by tenant_id, sku) moved
       on moved.tenant_id = position.tenant_id and moved.sku = position.sku
     where $1::uuid is null or position.tenant_id = $1
     order by position.tenant_id, position.sku";

/// Per SKU that a delivery moved or counted: the units moved on hand, and the units accepted. Entries of the ERP's own
/// have no inbox row: an opening balance, what was sold.
const GOODS_IN: &str = "with moved as (
       select tenant_id, sku, sum(on_hand_delta) as units
       from stock_entry where inbox_id is not null group by tenant_id, sku),
     accepted as (
       select receipt.tenant_id, line.sku,
              sum(entry.quantity_received_delta) - sum(entry.quantity_rejected_delta) as units
       from receipt_entry entry
       join receipt_line line on line.id = entry.receipt_line_id
       join receipt on receipt.id = line.receipt_id
       where entry.inbox_id is not null group by receipt.tenant_id, line.sku)
     select tenant_id, sku, coalesce(moved.units, 0)::text, coalesce(accepted.units, 0)::text
     from moved full join accepted using (tenant_id, sku)
     where $1::uuid is null or tenant_id = $1
     order by tenant_id, sku";

pub(super) async fn check_positions(
    connection: &mut PgConnection,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), sqlx::Error> {
    let check = Check::Positions;
    let mut stream = sqlx::query_as(POSITIONS).bind(scope.tenant).fetch(connection);
    while let Some(row) = stream.try_next().await? {
        let (tenant, sku, on_hand, on_order, moved_on_hand, moved_on_order): (Uuid, String, _, _, _, _) = row;
        report.examined(check);
        report.compare(
            check,
            &format!("SKU {sku} of {}", scope.name(tenant)),
            [("on_hand", on_hand), ("on_order", on_order)],
            [("on_hand", moved_on_hand), ("on_order", moved_on_order)],
        );
    }
    Ok(())
}

pub(super) async fn check_goods_in(
    connection: &mut PgConnection,
    scope: &Scope,
    report: &mut Report,
) -> Result<(), sqlx::Error> {
    let check = Check::GoodsIn;
    let mut stream = sqlx::query_as(GOODS_IN).bind(scope.tenant).fetch(connection);
    while let Some(row) = stream.try_next().await? {
        let (tenant, sku, moved, accepted): (Uuid, String, _, _) = row;
        report.examined(check);
        let what = format!("SKU {sku} of {}", scope.name(tenant));
        report.compare(check, &what, [("moved on hand", moved)], [("moved on hand", accepted)]);
    }
    Ok(())
}
