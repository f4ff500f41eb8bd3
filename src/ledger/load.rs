//! Locking and reading what a batch needs.

use std::collections::{BTreeSet, HashMap};

use sqlx::PgConnection;
use sqlx::Row as _;
use sqlx::types::Uuid;

use super::rows;
use crate::books::{Books, InvoiceEntryKind, Needs, PaymentKey, Position, Receipt, ReceiptLine};

/// Loads and locks, always in this order: invoices, receipts, SKUs, each by tenant and key.
///
/// Every lookup is a lateral subquery over the keys in their order: one index lookup per key, and locks in that
/// order, whatever the planner believes about the tables' sizes.
pub(super) async fn load(connection: &mut PgConnection, needs: &Needs) -> Result<Books, sqlx::Error> {
    let mut books = Books::default();
    if !needs.invoices.is_empty() || !needs.payments.is_empty() {
        create_invoices(connection, needs, &mut books).await?;
        lock_invoices(connection, needs, &mut books).await?;
        load_payments(connection, needs, &mut books).await?;
    }
    if !needs.receipts.is_empty() {
        create_receipts(connection, needs, &mut books).await?;
        lock_receipts(connection, needs, &mut books).await?;
        load_lines(connection, needs, &mut books).await?;
    }
    lock_positions(connection, needs, &mut books).await?;
    Ok(books)
}

fn columns<'a>(keys: impl IntoIterator<Item = &'a (Uuid, String)>) -> (Vec<Uuid>, Vec<&'a str>) {
    keys.into_iter().map(|(tenant, key)| (*tenant, key.as_str())).unzip()
}

async fn create_invoices(
    connection: &mut PgConnection,
    needs: &Needs,
    books: &mut Books,
) -> Result<(), sqlx::Error> {
    if needs.new_invoices.is_empty() {
        return Ok(());
    }
    let (tenants, numbers) = columns(needs.new_invoices.keys());
    let currencies: Vec<&str> = needs.new_invoices.values().map(String::as_str).collect();
    let created: Vec<Uuid> = sqlx::query_scalar(
        "insert into invoice (tenant_id, number, currency)
         select new.tenant_id, new.number, new.currency
         from unnest($1::uuid[], $2::text[], $3::text[]) as new (tenant_id, number, currency)
         where (select known.id from invoice known
                where known.tenant_id = new.tenant_id and known.number = new.number) is null
         order by new.tenant_id, new.number
         on conflict (tenant_id, number) do nothing
         returning id",
    )
    .bind(tenants)
    .bind(numbers)
    .bind(currencies)
    .fetch_all(connection)
    .await?;
    books.blank.extend(created);
    Ok(())
}

async fn lock_invoices(
    connection: &mut PgConnection,
    needs: &Needs,
    books: &mut Books,
) -> Result<(), sqlx::Error> {
    let mut keys = needs.invoices.clone();
    if !needs.unnumbered.is_empty() {
        keys.extend(invoices_of(connection, &needs.unnumbered).await?);
    }
    let (tenants, numbers) = columns(&keys);
    let rows = sqlx::query(
        "select invoice.*
         from unnest($1::uuid[], $2::text[]) as named (tenant_id, number)
         cross join lateral (
           select id, tenant_id, number, currency, amount_due, amount_paid, amount_refunded, status, paid_at,
                  last_payment_at, issued_at, voided_at, version
           from invoice
           where invoice.tenant_id = named.tenant_id and invoice.number = named.number
           for no key update) as invoice",
    )
    .bind(tenants)
    .bind(numbers)
    .fetch_all(connection)
    .await?;
    for row in rows {
        let invoice = rows::invoice(&row)?;
        books.invoices.insert((row.try_get("tenant_id")?, invoice.number.clone()), invoice);
    }
    Ok(())
}

/// The invoices that payments paid, for events that name no invoice.
async fn invoices_of(
    connection: &mut PgConnection,
    payments: &BTreeSet<PaymentKey>,
) -> Result<Vec<(Uuid, String)>, sqlx::Error> {
    let (tenants, providers, payments) = payment_columns(payments);
    sqlx::query_as(
        "select invoice.tenant_id, invoice.number
         from unnest($1::uuid[], $2::text[], $3::text[]) as told (tenant_id, provider, payment)
         cross join lateral (
           select entry.invoice_id from invoice_entry entry
           where entry.payment_ref = told.payment and entry.provider = told.provider and entry.kind = 'payment'
           offset 0) as paid
         cross join lateral (
           select invoice.tenant_id, invoice.number from invoice
           where invoice.id = paid.invoice_id and invoice.tenant_id = told.tenant_id
           offset 0) as invoice",
    )
    .bind(tenants)
    .bind(providers)
    .bind(payments)
    .fetch_all(connection)
    .await
}

fn payment_columns(keys: &BTreeSet<PaymentKey>) -> (Vec<Uuid>, Vec<&str>, Vec<&str>) {
    let (mut tenants, mut providers, mut payments) = (Vec::new(), Vec::new(), Vec::new());
    for key in keys {
        tenants.push(key.tenant);
        providers.push(key.provider.as_str());
        payments.push(key.payment.as_str());
    }
    (tenants, providers, payments)
}

/// Reads what the ledger knows of the batch's payments. After the locks: what another transaction committed while
/// we waited must be seen.
async fn load_payments(
    connection: &mut PgConnection,
    needs: &Needs,
    books: &mut Books,
) -> Result<(), sqlx::Error> {
    if needs.payments.is_empty() || books.invoices.is_empty() {
        return Ok(());
    }
    let by_id: HashMap<Uuid, (Uuid, String)> =
        books.invoices.iter().map(|(key, invoice)| (invoice.id, key.clone())).collect();
    let (_, providers, payments) = payment_columns(&needs.payments);
    let rows = sqlx::query(
        "select entry.*
         from unnest($1::text[], $2::text[]) as told (provider, payment)
         cross join lateral (
           select invoice_id, kind, provider, provider_ref, payment_ref, amount, occurred_at
           from invoice_entry
           where payment_ref = told.payment and provider = told.provider
           order by id) as entry",
    )
    .bind(providers)
    .bind(payments)
    .fetch_all(connection)
    .await?;
    for row in rows {
        let invoice_id: Uuid = row.try_get("invoice_id")?;
        // Another tenant's payment of the same id, or another invoice's that nobody here asked for.
        let Some(key) = by_id.get(&invoice_id) else { continue };
        let entry = rows::invoice_entry(&row)?;
        let payment = entry.payment_ref.clone().unwrap_or_default();
        let payment_key = PaymentKey { tenant: key.0, provider: row.try_get("provider")?, payment };
        if entry.kind == InvoiceEntryKind::Payment {
            books.paid_by.entry(payment_key.clone()).or_insert_with(|| key.clone());
        }
        books.payments.entry((invoice_id, payment_key)).or_default().remember(entry);
    }
    Ok(())
}

async fn create_receipts(
    connection: &mut PgConnection,
    needs: &Needs,
    books: &mut Books,
) -> Result<(), sqlx::Error> {
    if needs.new_receipts.is_empty() {
        return Ok(());
    }
    let (tenants, numbers) = columns(&needs.new_receipts);
    let created: Vec<Uuid> = sqlx::query_scalar(
        "insert into receipt (tenant_id, number)
         select new.tenant_id, new.number
         from unnest($1::uuid[], $2::text[]) as new (tenant_id, number)
         where (select known.id from receipt known
                where known.tenant_id = new.tenant_id and known.number = new.number) is null
         order by new.tenant_id, new.number
         on conflict (tenant_id, number) do nothing
         returning id",
    )
    .bind(tenants)
    .bind(numbers)
    .fetch_all(connection)
    .await?;
    books.blank.extend(created);
    Ok(())
}

async fn lock_receipts(
    connection: &mut PgConnection,
    needs: &Needs,
    books: &mut Books,
) -> Result<(), sqlx::Error> {
    let (tenants, numbers) = columns(&needs.receipts);
    let rows = sqlx::query(
        "select receipt.*
         from unnest($1::uuid[], $2::text[]) as named (tenant_id, number)
         cross join lateral (
           select id, tenant_id, number, status, announced_at, in_transit_at, arrived_at, closed_at,
                  cancelled_at, version
           from receipt
           where receipt.tenant_id = named.tenant_id and receipt.number = named.number
           for no key update) as receipt",
    )
    .bind(tenants)
    .bind(numbers)
    .fetch_all(connection)
    .await?;
    for row in rows {
        let receipt = rows::receipt(&row)?;
        books.receipts.insert((row.try_get("tenant_id")?, receipt.number.clone()), receipt);
    }
    Ok(())
}

/// Reads the lines of locked receipts, with the batch's notices as far as they are known.
async fn load_lines(
    connection: &mut PgConnection,
    needs: &Needs,
    books: &mut Books,
) -> Result<(), sqlx::Error> {
    let mut by_id: HashMap<Uuid, &mut Receipt> =
        books.receipts.values_mut().map(|receipt| (receipt.id, receipt)).collect();
    if by_id.is_empty() {
        return Ok(());
    }
    let rows = sqlx::query(
        "select line.id as line_id, line.receipt_id, line.sku, line.quantity_expected, line.quantity_received,
                line.quantity_rejected, line.counted_received, line.counted_rejected, line.counted_at,
                array(select entry.notice from receipt_entry entry
                      where entry.receipt_line_id = line.id and entry.notice = any($2::text[])) as notices
         from receipt_line line
         where line.receipt_id = any($1::uuid[])",
    )
    .bind(by_id.keys().copied().collect::<Vec<_>>())
    .bind(needs.notices.iter().map(String::as_str).collect::<Vec<_>>())
    .fetch_all(connection)
    .await?;
    for row in rows {
        let receipt_id: Uuid = row.try_get("receipt_id")?;
        let line = ReceiptLine {
            notices: row.try_get::<Vec<String>, _>("notices")?.into_iter().collect(),
            ..rows::receipt_line(&row)?
        };
        if let Some(receipt) = by_id.get_mut(&receipt_id) {
            receipt.lines.insert(row.try_get("sku")?, line);
        }
    }
    Ok(())
}

async fn lock_positions(
    connection: &mut PgConnection,
    needs: &Needs,
    books: &mut Books,
) -> Result<(), sqlx::Error> {
    // A receipt that is closed moves the stock of all its lines, whether the event names them or not.
    let mut skus = needs.skus.clone();
    for ((tenant, _), receipt) in &books.receipts {
        skus.extend(receipt.lines.keys().map(|sku| (*tenant, sku.clone())));
    }
    if skus.is_empty() {
        return Ok(());
    }
    let (tenants, skus) = columns(&skus);
    let rows: Vec<(Uuid, String, i64, i64, i64)> = sqlx::query_as(
        "select position.*
         from unnest($1::uuid[], $2::text[]) as named (tenant_id, sku)
         cross join lateral (
           select tenant_id, sku, on_hand, on_order, allocated
           from sku_position
           where sku_position.tenant_id = named.tenant_id and sku_position.sku = named.sku
           for no key update) as position",
    )
    .bind(tenants)
    .bind(skus)
    .fetch_all(connection)
    .await?;
    for (tenant, sku, on_hand, on_order, allocated) in rows {
        books.positions.insert((tenant, sku), Position { on_hand, on_order, allocated });
    }
    Ok(())
}
