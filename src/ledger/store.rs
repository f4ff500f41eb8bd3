//! Writing what a batch changed: one statement per table, and none for a table that did not change.

use sqlx::PgConnection;
use sqlx::types::Uuid;
use sqlx::types::time::OffsetDateTime;

use crate::books::{Books, Effects, Invoice, Position, Receipt, ReceiptLine};
use crate::timestamp::Timestamp;

/// Writes the difference between the books as loaded and as they are now, and the effects of the events.
pub(super) async fn store(
    connection: &mut PgConnection,
    loaded: &Books,
    books: &Books,
    effects: &Effects,
) -> Result<(), sqlx::Error> {
    let invoices = changed(&loaded.invoices, &books.invoices);
    let receipts = changed(&loaded.receipts, &books.receipts);
    let positions = changed(&loaded.positions, &books.positions);
    store_invoices(connection, &invoices).await?;
    store_invoice_entries(connection, effects).await?;
    store_receipts(connection, &receipts).await?;
    store_lines(connection, loaded, &receipts).await?;
    store_receipt_entries(connection, effects).await?;
    store_positions(connection, &positions).await?;
    store_stock_entries(connection, effects).await?;
    store_messages(connection, effects).await?;
    drop_blank(connection, books).await
}

type Keyed<'a, T> = Vec<(&'a (Uuid, String), &'a T)>;

fn changed<'a, T: PartialEq>(
    before: &std::collections::HashMap<(Uuid, String), T>,
    after: &'a std::collections::HashMap<(Uuid, String), T>,
) -> Keyed<'a, T> {
    after.iter().filter(|(key, value)| before.get(*key) != Some(*value)).collect()
}

fn moments(times: impl Iterator<Item = Option<Timestamp>>) -> Vec<Option<OffsetDateTime>> {
    times.map(|time| time.map(OffsetDateTime::from)).collect()
}

async fn store_invoices(
    connection: &mut PgConnection,
    invoices: &Keyed<'_, Invoice>,
) -> Result<(), sqlx::Error> {
    if invoices.is_empty() {
        return Ok(());
    }
    let rows = || invoices.iter().map(|(_, invoice)| *invoice);
    sqlx::query(
        "update invoice
         set currency = new.currency, amount_due = new.amount_due, amount_paid = new.amount_paid,
             amount_refunded = new.amount_refunded, status = new.status, paid_at = new.paid_at,
             last_payment_at = new.last_payment_at, issued_at = new.issued_at, voided_at = new.voided_at,
             version = new.version
         from unnest($1::uuid[], $2::bigint[], $3::bigint[], $4::bigint[], $5::text[], $6::timestamptz[],
                     $7::timestamptz[], $8::timestamptz[], $9::timestamptz[], $10::int[], $11::text[])
           as new (id, amount_due, amount_paid, amount_refunded, status, paid_at, last_payment_at,
                   issued_at, voided_at, version, currency)
         where invoice.id = new.id",
    )
    .bind(rows().map(|row| row.id).collect::<Vec<_>>())
    .bind(rows().map(|row| row.amount_due).collect::<Vec<_>>())
    .bind(rows().map(|row| row.amount_paid).collect::<Vec<_>>())
    .bind(rows().map(|row| row.amount_refunded).collect::<Vec<_>>())
    .bind(rows().map(|row| row.status.name()).collect::<Vec<_>>())
    .bind(moments(rows().map(|row| row.paid_at)))
    .bind(moments(rows().map(|row| row.last_payment_at)))
    .bind(moments(rows().map(|row| row.issued_at)))
    .bind(moments(rows().map(|row| row.voided_at)))
    .bind(rows().map(|row| row.version).collect::<Vec<_>>())
    .bind(rows().map(|row| row.currency.as_str()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

async fn store_invoice_entries(connection: &mut PgConnection, effects: &Effects) -> Result<(), sqlx::Error> {
    let rows = || effects.invoice_entries.iter();
    if rows().next().is_none() {
        return Ok(());
    }
    sqlx::query(
        "insert into invoice_entry
           (invoice_id, inbox_id, kind, provider, provider_ref, payment_ref, amount, currency, occurred_at)
         select * from unnest($1::uuid[], $2::bigint[], $3::text[], $4::text[], $5::text[], $6::text[],
                              $7::bigint[], $8::text[], $9::timestamptz[])",
    )
    .bind(rows().map(|row| row.aggregate).collect::<Vec<_>>())
    .bind(rows().map(|row| row.inbox_id).collect::<Vec<_>>())
    .bind(rows().map(|row| row.entry.kind.name()).collect::<Vec<_>>())
    .bind(rows().map(|row| row.provider.as_str()).collect::<Vec<_>>())
    .bind(rows().map(|row| row.entry.provider_ref.as_str()).collect::<Vec<_>>())
    .bind(rows().map(|row| row.entry.payment_ref.as_deref()).collect::<Vec<_>>())
    .bind(rows().map(|row| row.entry.amount).collect::<Vec<_>>())
    .bind(rows().map(|row| row.currency.as_str()).collect::<Vec<_>>())
    .bind(moments(rows().map(|row| row.entry.occurred_at)))
    .execute(connection)
    .await?;
    Ok(())
}

async fn store_receipts(
    connection: &mut PgConnection,
    receipts: &Keyed<'_, Receipt>,
) -> Result<(), sqlx::Error> {
    if receipts.is_empty() {
        return Ok(());
    }
    let rows = || receipts.iter().map(|(_, receipt)| *receipt);
    sqlx::query(
        "update receipt
         set status = new.status, announced_at = new.announced_at, in_transit_at = new.in_transit_at,
             arrived_at = new.arrived_at, closed_at = new.closed_at, cancelled_at = new.cancelled_at,
             version = new.version
         from unnest($1::uuid[], $2::text[], $3::timestamptz[], $4::timestamptz[], $5::timestamptz[],
                     $6::timestamptz[], $7::timestamptz[], $8::int[])
           as new (id, status, announced_at, in_transit_at, arrived_at, closed_at, cancelled_at, version)
         where receipt.id = new.id",
    )
    .bind(rows().map(|row| row.id).collect::<Vec<_>>())
    .bind(rows().map(|row| row.status.name()).collect::<Vec<_>>())
    .bind(moments(rows().map(|row| row.announced_at)))
    .bind(moments(rows().map(|row| row.in_transit_at)))
    .bind(moments(rows().map(|row| row.arrived_at)))
    .bind(moments(rows().map(|row| row.closed_at)))
    .bind(moments(rows().map(|row| row.cancelled_at)))
    .bind(rows().map(|row| row.version).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

async fn store_lines(
    connection: &mut PgConnection,
    before: &Books,
    receipts: &Keyed<'_, Receipt>,
) -> Result<(), sqlx::Error> {
    let mut lines: Vec<(Uuid, &str, &ReceiptLine)> = Vec::new();
    for (key, receipt) in receipts {
        let known = before.receipts.get(*key).map(|receipt| &receipt.lines);
        let of_receipt = receipt.lines.iter();
        lines.extend(
            of_receipt
                .filter(|(sku, line)| known.and_then(|known| known.get(*sku)) != Some(*line))
                .map(|(sku, line)| (receipt.id, sku.as_str(), line)),
        );
    }
    if lines.is_empty() {
        return Ok(());
    }
    let rows = || lines.iter().map(|(_, _, line)| *line);
    sqlx::query(
        "insert into receipt_line
           (receipt_id, sku, quantity_expected, quantity_received, quantity_rejected, counted_received,
            counted_rejected, counted_at)
         select * from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[],
                              $6::bigint[], $7::bigint[], $8::timestamptz[])
         on conflict (receipt_id, sku) do update
           set quantity_expected = excluded.quantity_expected,
               quantity_received = excluded.quantity_received,
               quantity_rejected = excluded.quantity_rejected,
               counted_received = excluded.counted_received,
               counted_rejected = excluded.counted_rejected, counted_at = excluded.counted_at",
    )
    .bind(lines.iter().map(|(receipt, _, _)| *receipt).collect::<Vec<_>>())
    .bind(lines.iter().map(|(_, sku, _)| *sku).collect::<Vec<_>>())
    .bind(rows().map(|row| row.expected).collect::<Vec<_>>())
    .bind(rows().map(|row| row.received).collect::<Vec<_>>())
    .bind(rows().map(|row| row.rejected).collect::<Vec<_>>())
    .bind(rows().map(|row| row.counted_received).collect::<Vec<_>>())
    .bind(rows().map(|row| row.counted_rejected).collect::<Vec<_>>())
    .bind(moments(rows().map(|row| row.counted_at)))
    .execute(connection)
    .await?;
    Ok(())
}

async fn store_receipt_entries(connection: &mut PgConnection, effects: &Effects) -> Result<(), sqlx::Error> {
    let rows = || effects.receipt_entries.iter();
    if rows().next().is_none() {
        return Ok(());
    }
    sqlx::query(
        "insert into receipt_entry
           (receipt_line_id, inbox_id, notice, quantity_received_delta, quantity_rejected_delta, occurred_at)
         select line.id, new.inbox_id, new.notice, new.received, new.rejected, new.occurred_at
         from unnest($1::uuid[], $2::text[], $3::bigint[], $4::text[], $5::bigint[], $6::bigint[],
                     $7::timestamptz[])
           with ordinality as new (receipt_id, sku, inbox_id, notice, received, rejected, occurred_at, position)
         join receipt_line line on line.receipt_id = new.receipt_id and line.sku = new.sku
         order by new.position",
    )
    .bind(rows().map(|row| row.aggregate).collect::<Vec<_>>())
    .bind(rows().map(|row| row.entry.sku.as_str()).collect::<Vec<_>>())
    .bind(rows().map(|row| row.inbox_id).collect::<Vec<_>>())
    .bind(rows().map(|row| row.entry.notice.as_deref()).collect::<Vec<_>>())
    .bind(rows().map(|row| row.entry.received_delta).collect::<Vec<_>>())
    .bind(rows().map(|row| row.entry.rejected_delta).collect::<Vec<_>>())
    .bind(moments(rows().map(|row| row.entry.occurred_at)))
    .execute(connection)
    .await?;
    Ok(())
}

async fn store_positions(
    connection: &mut PgConnection,
    positions: &Keyed<'_, Position>,
) -> Result<(), sqlx::Error> {
    if positions.is_empty() {
        return Ok(());
    }
    sqlx::query(
        "update sku_position position
         set on_hand = new.on_hand, on_order = new.on_order
         from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[]) as new (tenant_id, sku, on_hand, on_order)
         where position.tenant_id = new.tenant_id and position.sku = new.sku",
    )
    .bind(positions.iter().map(|((tenant, _), _)| *tenant).collect::<Vec<_>>())
    .bind(positions.iter().map(|((_, sku), _)| sku.as_str()).collect::<Vec<_>>())
    .bind(positions.iter().map(|(_, position)| position.on_hand).collect::<Vec<_>>())
    .bind(positions.iter().map(|(_, position)| position.on_order).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

async fn store_stock_entries(connection: &mut PgConnection, effects: &Effects) -> Result<(), sqlx::Error> {
    let rows = || effects.stock_entries.iter();
    if rows().next().is_none() {
        return Ok(());
    }
    sqlx::query(
        "insert into stock_entry (tenant_id, sku, inbox_id, on_hand_delta, on_order_delta, reason)
         select * from unnest($1::uuid[], $2::text[], $3::bigint[], $4::bigint[], $5::bigint[], $6::text[])",
    )
    .bind(rows().map(|row| row.tenant).collect::<Vec<_>>())
    .bind(rows().map(|row| row.movement.sku.as_str()).collect::<Vec<_>>())
    .bind(rows().map(|row| row.inbox_id).collect::<Vec<_>>())
    .bind(rows().map(|row| row.movement.on_hand).collect::<Vec<_>>())
    .bind(rows().map(|row| row.movement.on_order).collect::<Vec<_>>())
    .bind(rows().map(|row| row.reason.as_str()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

async fn store_messages(connection: &mut PgConnection, effects: &Effects) -> Result<(), sqlx::Error> {
    let rows = || effects.messages.iter();
    if rows().next().is_none() {
        return Ok(());
    }
    sqlx::query(
        "insert into outbox
           (tenant_id, aggregate_type, aggregate_id, aggregate_version, event_type, inbox_id, payload)
         select tenant_id, aggregate_type, aggregate_id, version, event_type, inbox_id, payload::jsonb
         from unnest($1::uuid[], $2::text[], $3::uuid[], $4::int[], $5::text[], $6::bigint[], $7::text[])
           as new (tenant_id, aggregate_type, aggregate_id, version, event_type, inbox_id, payload)",
    )
    .bind(rows().map(|row| row.tenant).collect::<Vec<_>>())
    .bind(rows().map(|row| row.aggregate_type).collect::<Vec<_>>())
    .bind(rows().map(|row| row.aggregate).collect::<Vec<_>>())
    .bind(rows().map(|row| row.version).collect::<Vec<_>>())
    .bind(rows().map(|row| row.event_type).collect::<Vec<_>>())
    .bind(rows().map(|row| row.inbox_id).collect::<Vec<_>>())
    .bind(rows().map(|row| row.payload.as_str()).collect::<Vec<_>>())
    .execute(connection)
    .await?;
    Ok(())
}

/// Removes the rows that were written to be locked and that no event came to use, all of theirs being refused.
async fn drop_blank(connection: &mut PgConnection, books: &Books) -> Result<(), sqlx::Error> {
    if books.blank.is_empty() {
        return Ok(());
    }
    let blank: Vec<Uuid> = books.blank.iter().copied().collect();
    sqlx::query(
        "with invoices as (delete from invoice where id = any($1::uuid[]))
         delete from receipt where id = any($1::uuid[])",
    )
    .bind(blank)
    .execute(connection)
    .await?;
    Ok(())
}
