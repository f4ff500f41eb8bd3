-- What each change means in this ERP: one function per change, called by Wharf as docs/EFFECTS.md says.
-- Run it as the ERP's owner: the functions are `security definer`, so Wharf's role needs to execute them and no more.
--
-- Helpers stand before the functions that need them. All of them lock in one order: the invoice, then what belongs to it; the goods receipt, then
-- the items by SKU. They name the company in every condition, and do not lean on row-level security for it: a
-- superuser's functions would see all rows.
set search_path = erp;

-- How many decimals our money columns keep.
create or replace function kept_decimals() returns int immutable language sql return 2;

-- An amount of minor units as money: 12900 USD is 129.00, 5000 JPY is 5000, 1250 KWD is 1.250. Never rounds.
create or replace function from_minor(minor bigint, currency_code text) returns numeric
language plpgsql stable set search_path = erp, pg_temp as $$
declare
    decimals int := (select currency.decimals from currency where code = currency_code);
    amount numeric;
begin
    if decimals is null then
        raise exception 'currency % is not set up', currency_code using errcode = 'WH002';
    end if;
    amount := round(minor / power(10::numeric, decimals), decimals);
    if amount <> round(amount, kept_decimals()) then
        raise exception '% % has more than the % decimals that the books keep', amount, currency_code, kept_decimals()
            using errcode = 'WH002';
    end if;
    if abs(amount) >= 1e10 then
        raise exception '% % is more than the books can hold', amount, currency_code using errcode = 'WH002';
    end if;
    return amount;
end $$;

create or replace function amount_of(change jsonb) returns numeric
language sql stable set search_path = erp, pg_temp
return from_minor((change->>'amount')::bigint, change->>'currency');

-- When it happened: by the provider's clock, or by ours if it tells no time.
create or replace function told_at(change jsonb) returns timestamptz
language sql stable
return coalesce((change->>'occurred_at')::timestamptz, (change->>'received_at')::timestamptz);

-- The invoice that a change is about, locked. A change that names only a payment means the invoice it was booked on.
create or replace function locked_invoice(change jsonb) returns invoice
language plpgsql set search_path = erp, pg_temp as $$
declare
    found_id bigint;
    result invoice;
begin
    if change->>'invoice' is not null then
        select id into found_id from invoice
        where company = change->>'tenant' and number = change->>'invoice';
        if not found then
            raise exception 'invoice % is not there', change->>'invoice' using errcode = 'WH001';
        end if;
    else
        select invoice_id into found_id from payment
        where company = change->>'tenant' and provider = change->>'provider' and payment_id = change->>'payment';
        if not found then
            raise exception 'payment % is not booked yet', change->>'payment' using errcode = 'WH001';
        end if;
    end if;
    select * into strict result from invoice where id = found_id for no key update;
    if change->>'currency' <> result.currency then
        raise exception 'invoice % is in %, the event is in %', result.number, result.currency, change->>'currency'
            using errcode = 'WH002';
    end if;
    return result;
end $$;

-- The payment that a change is about; its invoice is locked already.
create or replace function booked_payment(of_invoice invoice, change jsonb) returns payment
language plpgsql set search_path = erp, pg_temp as $$
declare
    result payment;
begin
    select * into result from payment
    where company = change->>'tenant' and provider = change->>'provider' and payment_id = change->>'payment';
    if not found then
        raise exception 'payment % is not booked yet', change->>'payment' using errcode = 'WH001';
    end if;
    if result.invoice_id <> of_invoice.id then
        raise exception 'payment % is booked on another invoice than %', change->>'payment', of_invoice.number
            using errcode = 'WH002';
    end if;
    return result;
end $$;

-- Works out where an invoice stands from its payments, and says so if that is news.
create or replace function settle_invoice(settled bigint, change jsonb) returns jsonb
language plpgsql set search_path = erp, pg_temp as $$
declare
    was invoice;
    is_now invoice;
begin
    select * into strict was from invoice where id = settled;
    update invoice set
        paid = sums.paid,
        credited = sums.credited,
        state = case
            when sums.paid > 0 and sums.credited >= sums.paid then 'credited'
            when sums.paid = 0 and cancelled_at is not null then 'cancelled'
            when sums.paid >= amount then 'paid'
            when sums.paid > 0 then 'part_paid'
            else 'open' end
    from (select coalesce(sum(payment.amount), 0) as paid, coalesce(sum(payment.refunded), 0) as credited
          from payment where invoice_id = settled) as sums
    where id = settled
    returning invoice.* into is_now;
    if (was.paid, was.credited, was.state) = (is_now.paid, is_now.credited, is_now.state) then
        return null;
    end if;
    return jsonb_build_object(
        'aggregate_type', 'erp_invoice', 'aggregate', is_now.id::text, 'event_type', change->>'change',
        'payload', jsonb_build_object('number', is_now.number, 'state', is_now.state, 'was', was.state,
            'currency', is_now.currency, 'amount', is_now.amount, 'paid', is_now.paid, 'credited', is_now.credited));
end $$;

-- An amount is due. An order of a shop makes its order and its invoice here; of several amounts the latest counts.
create or replace function invoice_issued(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    due numeric := amount_of(change);
    order_id bigint;
    known invoice;
begin
    if not exists (select from company where code = change->>'tenant') then
        raise exception 'company % is not set up', change->>'tenant' using errcode = 'WH001';
    end if;
    if not exists (select from invoice where company = change->>'tenant' and number = change->>'invoice') then
        insert into customer_order (company, number, channel, ordered_at)
        values (change->>'tenant', change->>'invoice', change->>'provider', told_at(change))
        on conflict (company, number) do nothing;
        select id into order_id from customer_order
        where company = change->>'tenant' and number = change->>'invoice';
        insert into invoice (company, customer_order_id, number, currency, amount)
        values (change->>'tenant', order_id, change->>'invoice', change->>'currency', due)
        on conflict (company, number) do nothing;
    end if;
    known := locked_invoice(change);
    update invoice set amount = due, amount_told_at = told_at(change)
    where id = known.id and (amount_told_at is null or (amount_told_at, amount) < (told_at(change), due));
    return settle_invoice(known.id, change);
end $$;

-- Money came in. Several events tell of one payment: it is booked once, with the largest amount told.
create or replace function invoice_paid(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known invoice := locked_invoice(change);
begin
    insert into payment as booked (company, invoice_id, provider, payment_id, amount)
    values (known.company, known.id, change->>'provider', change->>'payment', amount_of(change))
    on conflict (company, provider, payment_id) do update set amount = excluded.amount
    where booked.amount < excluded.amount and booked.invoice_id = excluded.invoice_id;
    perform booked_payment(known, change);
    return settle_invoice(known.id, change);
end $$;

-- A payment was tried in vain. It is noted, per event, and moves nothing.
create or replace function invoice_payment_failed(change jsonb) returns void
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known invoice := locked_invoice(change);
begin
    if known.state = 'cancelled' then
        raise exception 'invoice % is cancelled: nobody waits for its payment', known.number using errcode = 'WH003';
    end if;
    insert into payment_failure (company, invoice_id, provider, event_id, payment_id, reason, failed_at)
    values (known.company, known.id, change->>'provider', change->>'event_id', change->>'payment',
        change->>'reason', told_at(change))
    on conflict (company, provider, event_id, payment_id) do nothing;
end $$;

-- Money went back, told as the payment's running total or as a single refund, or as both. Either may be missing
-- some: the larger has it all. What changed is booked as a credit note.
create or replace function invoice_refunded(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known invoice := locked_invoice(change);
    paid payment := booked_payment(known, change);
    told numeric := amount_of(change);
    failed boolean := coalesce((change->>'failed')::boolean, false);
    back numeric;
begin
    if change->>'refund' is null then
        update payment set refund_total = told, refund_total_at = told_at(change)
        where id = paid.id
            and (refund_total is null or (refund_total_at, refund_total) < (told_at(change), told))
        returning * into paid;
        if not found then
            return null;
        end if;
    else
        insert into refund as known_refund (company, payment_id, refund_id, amount, sent, failed_at)
        values (known.company, paid.id, change->>'refund', told, not failed, case when failed then told_at(change) end)
        on conflict (payment_id, refund_id) do update set
            amount = greatest(known_refund.amount, excluded.amount),
            sent = known_refund.sent or excluded.sent,
            failed_at = least(known_refund.failed_at, excluded.failed_at);
    end if;
    -- A total that was told before a refund failed still has it in.
    select greatest(0,
        coalesce(paid.refund_total - coalesce(sum(amount) filter (where failed_at > paid.refund_total_at), 0), 0),
        coalesce(sum(amount) filter (where sent and failed_at is null), 0)) into back
    from refund where payment_id = paid.id;
    if back > paid.amount then
        raise exception '% % of payment % went back, and only % came in so far',
            back, known.currency, paid.payment_id, paid.amount using errcode = 'WH001';
    end if;
    if back <> paid.refunded then
        insert into credit_note (company, invoice_id, payment_id, amount)
        values (known.company, known.id, paid.id, back - paid.refunded);
        update payment set refunded = back where id = paid.id;
    end if;
    return settle_invoice(known.id, change);
end $$;

-- The payer's bank contests a payment. No money moves here; what is not shipped yet waits until it is won.
create or replace function invoice_disputed(change jsonb) returns void
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known invoice := locked_invoice(change);
    paid payment := booked_payment(known, change);
begin
    insert into dispute as stood (company, payment_id, dispute_id, amount, stage, told_at)
    values (known.company, paid.id, change->>'dispute', amount_of(change), change->>'stage', told_at(change))
    on conflict (payment_id, dispute_id) do update
        set stage = excluded.stage, amount = excluded.amount, told_at = excluded.told_at
        -- An opening that comes late opens nothing again.
        where (stood.stage <> 'opened', stood.told_at, stood.stage)
            < (excluded.stage <> 'opened', excluded.told_at, excluded.stage);
    update customer_order set on_hold = contested.is_so
    from (select coalesce(bool_or(dispute.stage <> 'won'), false) as is_so
          from dispute join payment on payment.id = dispute.payment_id
          where payment.invoice_id = known.id) as contested
    where id = known.customer_order_id and on_hold <> contested.is_so;
end $$;

-- The shop cancelled the order. An invoice that was paid stays so until its money goes back.
create or replace function invoice_voided(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known invoice := locked_invoice(change);
begin
    update invoice set cancelled_at = least(cancelled_at, told_at(change)) where id = known.id;
    return settle_invoice(known.id, change);
end $$;

-- The goods receipt that a change is about, locked, and after it the items of its lines and of the change.
create or replace function locked_receipt(change jsonb) returns goods_receipt
language plpgsql set search_path = erp, pg_temp as $$
declare
    result goods_receipt;
    missing text;
begin
    select * into result from goods_receipt
    where company = change->>'tenant' and number = change->>'receipt'
    for no key update;
    if not found then
        raise exception 'goods receipt % is not there', change->>'receipt' using errcode = 'WH001';
    end if;
    select string_agg(told.sku, ', ' order by told.sku) into missing
    from jsonb_to_recordset(coalesce(nullif(change->'lines', 'null'), '[]')) as told (sku text)
    where not exists (select from item where item.company = change->>'tenant' and item.sku = told.sku);
    if missing is not null then
        raise exception 'no item has the SKU %', missing using errcode = 'WH001';
    end if;
    insert into goods_receipt_line (company, goods_receipt_id, sku)
    select result.company, result.id, told.sku
    from jsonb_to_recordset(coalesce(nullif(change->'lines', 'null'), '[]')) as told (sku text)
    on conflict (goods_receipt_id, sku) do nothing;
    perform from item
    where company = result.company
        and sku in (select line.sku from goods_receipt_line line where line.goods_receipt_id = result.id)
    order by sku for no key update;
    return result;
end $$;

-- Works out where a receipt stands, moves the stock by what changed, and says so if that is news.
create or replace function settle_receipt(settled bigint, change jsonb) returns jsonb
language plpgsql set search_path = erp, pg_temp as $$
declare
    was goods_receipt;
    is_now goods_receipt;
    moves int;
begin
    select * into strict was from goods_receipt where id = settled;
    update goods_receipt set state = case
            when cancelled_at is not null then 'cancelled'
            when closed_at is not null then 'closed'
            when lines.came and lines.complete then 'received'
            when lines.came then 'receiving'
            when arrived_at is not null then 'arrived'
            when in_transit_at is not null then 'in_transit'
            else 'expected' end
    from (select coalesce(bool_or(received > 0), false) as came,
                 bool_or(expected > 0) and bool_and(received >= expected) as complete
          from goods_receipt_line where goods_receipt_id = settled) as lines
    where id = settled
    returning goods_receipt.* into is_now;

    -- Accepted units are on hand; what is expected and did not come is on order while it may still come.
    with stands as (
        select id, company, sku, received - rejected as on_hand,
            case when is_now.closed_at is null and is_now.cancelled_at is null
                then greatest(expected - (received - rejected), 0) else 0 end as on_order,
            stock_on_hand, stock_on_order
        from goods_receipt_line where goods_receipt_id = settled
    ), moved as (
        update goods_receipt_line line
        set stock_on_hand = stands.on_hand, stock_on_order = stands.on_order
        from stands
        where line.id = stands.id
            and (stands.on_hand, stands.on_order) <> (stands.stock_on_hand, stands.stock_on_order)
        returning line.company, line.sku, stands.on_hand - stands.stock_on_hand as on_hand,
            stands.on_order - stands.stock_on_order as on_order
    ), stocked as (
        update item set on_hand = item.on_hand + moved.on_hand, on_order = item.on_order + moved.on_order
        from moved where item.company = moved.company and item.sku = moved.sku
        returning item.id, moved.on_hand, moved.on_order
    )
    insert into stock_move (company, item_id, goods_receipt_id, on_hand, on_order, reason)
    select was.company, stocked.id, settled, stocked.on_hand, stocked.on_order, change->>'change' from stocked;
    get diagnostics moves = row_count;

    if was.state = is_now.state and moves = 0 then
        return null;
    end if;
    return jsonb_build_object(
        'aggregate_type', 'erp_goods_receipt', 'aggregate', is_now.id::text, 'event_type', change->>'change',
        'payload', jsonb_build_object('number', is_now.number, 'state', is_now.state, 'was', was.state,
            'lines', (select jsonb_agg(jsonb_build_object('sku', sku, 'expected', expected, 'received', received,
                'rejected', rejected) order by sku) from goods_receipt_line where goods_receipt_id = settled)));
end $$;

-- Goods are coming. The latest announcement counts, whole; it makes the receipt if need be.
create or replace function receipt_announced(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known goods_receipt;
    told jsonb := (select coalesce(jsonb_object_agg(sku, expected) filter (where expected > 0), '{}')
        from jsonb_to_recordset(change->'lines') as line (sku text, expected bigint));
    stands jsonb;
begin
    if not exists (select from company where code = change->>'tenant') then
        raise exception 'company % is not set up', change->>'tenant' using errcode = 'WH001';
    end if;
    insert into goods_receipt (company, number) values (change->>'tenant', change->>'receipt')
    on conflict (company, number) do nothing;
    known := locked_receipt(change);
    select coalesce(jsonb_object_agg(sku, expected) filter (where expected > 0), '{}') into stands
    from goods_receipt_line where goods_receipt_id = known.id;
    -- Of two at one instant any may count, as long as it is always the same.
    if known.announced_at is null or (known.announced_at, stands) < (told_at(change), told) then
        update goods_receipt set announced_at = told_at(change) where id = known.id;
        update goods_receipt_line set expected = coalesce((told->>sku)::bigint, 0)
        where goods_receipt_id = known.id and expected <> coalesce((told->>sku)::bigint, 0);
    end if;
    return settle_receipt(known.id, change);
end $$;

-- They are on the way.
create or replace function receipt_in_transit(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known goods_receipt := locked_receipt(change);
begin
    update goods_receipt set in_transit_at = least(in_transit_at, told_at(change)) where id = known.id;
    return settle_receipt(known.id, change);
end $$;

-- They are at the dock, not counted yet.
create or replace function receipt_arrived(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known goods_receipt := locked_receipt(change);
begin
    update goods_receipt set arrived_at = least(arrived_at, told_at(change)) where id = known.id;
    return settle_receipt(known.id, change);
end $$;

-- They were counted. Of running totals the latest counts, and the largest where no time is told; a note that tells a
-- difference counts once, whatever event tells of it.
create or replace function receipt_received(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known goods_receipt := locked_receipt(change);
    wrong record;
begin
    select * into wrong from jsonb_to_recordset(change->'lines') as line (sku text, received bigint, rejected bigint)
    where line.rejected > line.received limit 1;
    if found then
        raise exception 'goods receipt %: % of % were rejected, and only % received',
            known.number, wrong.rejected, wrong.sku, wrong.received using errcode = 'WH002';
    end if;
    if change->>'counting' = 'totals' then
        update goods_receipt_line line
        set counted = told.received, counted_rejected = told.rejected, counted_at = (change->>'occurred_at')::timestamptz
        from jsonb_to_recordset(change->'lines') as told (sku text, received bigint, rejected bigint)
        where line.goods_receipt_id = known.id and line.sku = told.sku
            and (coalesce(line.counted_at, '-infinity'), line.counted, line.counted_rejected)
                < (coalesce((change->>'occurred_at')::timestamptz, '-infinity'), told.received, told.rejected);
    else
        with noted as (
            insert into goods_received_note (company, goods_receipt_line_id, notice, received, rejected)
            select known.company, line.id, change->>'notice', told.received, told.rejected
            from jsonb_to_recordset(change->'lines') as told (sku text, received bigint, rejected bigint)
            join goods_receipt_line line on line.goods_receipt_id = known.id and line.sku = told.sku
            on conflict (goods_receipt_line_id, notice) do nothing
            returning goods_receipt_line_id, received, rejected
        )
        update goods_receipt_line line
        set noted = line.noted + noted.received, noted_rejected = line.noted_rejected + noted.rejected
        from noted where line.id = noted.goods_receipt_line_id;
    end if;
    return settle_receipt(known.id, change);
end $$;

-- The warehouse is done with it: what did not come will not come.
create or replace function receipt_closed(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known goods_receipt := locked_receipt(change);
begin
    update goods_receipt set closed_at = least(closed_at, told_at(change)) where id = known.id;
    return settle_receipt(known.id, change);
end $$;

-- It will not come.
create or replace function receipt_cancelled(change jsonb) returns jsonb
language plpgsql security definer set search_path = erp, pg_temp as $$
declare
    known goods_receipt := locked_receipt(change);
begin
    update goods_receipt set cancelled_at = least(cancelled_at, told_at(change)) where id = known.id;
    return settle_receipt(known.id, change);
end $$;
