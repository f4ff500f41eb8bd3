-- An ERP as it was before anybody thought of webhooks: orders, invoices, payments, goods receipts, stock.
-- Run it as the role that is to own the ERP. Nothing in here knows Wharf, but for the one setting that says which
-- company's rows are visible.

create schema erp;
set search_path = erp;

-- Which company this session works for. The ERP's own programs set `erp.company`; Wharf sets `wharf.tenant` while a
-- function of ours runs. A setting that was made for one transaction is '' after it, not null.
create function current_company() returns text stable language sql
return coalesce(nullif(current_setting('wharf.tenant', true), ''), nullif(current_setting('erp.company', true), ''));

create table company (
    code text primary key check (code ~ '^[a-z0-9_-]+$'),
    name text not null
);
comment on column company.code is 'The name of the company everywhere; the tenant''s name in wharf.toml.';

create table currency (
    code     text primary key check (code ~ '^[A-Z]{3}$'),
    decimals int not null check (decimals between 0 and 4)
);
comment on table currency is 'The currencies that we deal in, with the decimals of their minor unit (ISO 4217).';

create table item (
    id          bigint generated always as identity primary key,
    company     text not null references company,
    sku         text not null,
    description text not null,
    on_hand     bigint not null default 0,
    on_order    bigint not null default 0 check (on_order >= 0),
    unique (company, sku)
);

create table customer_order (
    id         bigint generated always as identity primary key,
    company    text not null references company,
    number     text not null,
    channel    text not null default 'office',
    on_hold    boolean not null default false,
    ordered_at timestamptz not null default now(),
    unique (company, number)
);
comment on column customer_order.on_hold is 'Do not ship: a payment of its invoice is disputed, or was lost.';

-- Money is numeric(12,2), as it has been since the first day. A currency of three decimals does not always fit.
create table invoice (
    id                bigint generated always as identity primary key,
    company           text not null references company,
    customer_order_id bigint references customer_order,
    number            text not null,
    currency          text not null references currency,
    amount            numeric(12,2) not null check (amount >= 0),
    paid              numeric(12,2) not null default 0 check (paid >= 0),
    credited          numeric(12,2) not null default 0,
    state             text not null default 'open'
        check (state in ('open', 'part_paid', 'paid', 'credited', 'cancelled')),
    amount_told_at    timestamptz,
    cancelled_at      timestamptz,
    unique (company, number),
    constraint "no more is credited than was paid" check (credited between 0 and paid)
);
create index on invoice (customer_order_id);
create index on invoice (company, number) where state in ('open', 'part_paid');
comment on column invoice.amount_told_at is 'When a shop told this amount, by its clock; null: it was written here.';

create table payment (
    id              bigint generated always as identity primary key,
    company         text not null references company,
    invoice_id      bigint not null references invoice,
    provider        text not null,
    payment_id      text not null,
    amount          numeric(12,2) not null check (amount >= 0),
    refunded        numeric(12,2) not null default 0,
    refund_total    numeric(12,2),
    refund_total_at timestamptz,
    booked_at       timestamptz not null default now(),
    unique (company, provider, payment_id),
    constraint "a running total has a time" check ((refund_total is null) = (refund_total_at is null)),
    constraint "no more goes back than came in" check (refunded between 0 and amount)
);
create index on payment (invoice_id);
comment on column payment.refund_total is 'The latest running total that the provider told. Single refunds are in `refund`.';
comment on column payment.refunded is 'What went back, from both; credit notes add up to it.';

create table refund (
    id         bigint generated always as identity primary key,
    company    text not null references company,
    payment_id bigint not null references payment,
    refund_id  text not null,
    amount     numeric(12,2) not null check (amount >= 0),
    sent       boolean not null,
    failed_at  timestamptz,
    unique (payment_id, refund_id)
);
comment on column refund.sent is 'Somebody told of it as sent; false where only its failure was told.';

create table credit_note (
    id         bigint generated always as identity primary key,
    company    text not null references company,
    invoice_id bigint not null references invoice,
    payment_id bigint not null references payment,
    amount     numeric(12,2) not null check (amount <> 0),
    booked_at  timestamptz not null default now()
);
create index on credit_note (invoice_id);
create index on credit_note (payment_id);
comment on column credit_note.amount is 'Negative: the reversal of a credit whose money came back.';

create table payment_failure (
    id         bigint generated always as identity primary key,
    company    text not null references company,
    invoice_id bigint not null references invoice,
    provider   text not null,
    event_id   text not null,
    payment_id text not null,
    reason     text,
    failed_at  timestamptz not null,
    unique (company, provider, event_id, payment_id)
);
create index on payment_failure (invoice_id);

create table dispute (
    id         bigint generated always as identity primary key,
    company    text not null references company,
    payment_id bigint not null references payment,
    dispute_id text not null,
    amount     numeric(12,2) not null check (amount >= 0),
    stage      text not null check (stage in ('opened', 'won', 'lost')),
    told_at    timestamptz not null,
    unique (payment_id, dispute_id)
);

create table goods_receipt (
    id            bigint generated always as identity primary key,
    company       text not null references company,
    number        text not null,
    state         text not null default 'expected' check (state in
        ('expected', 'in_transit', 'arrived', 'receiving', 'received', 'closed', 'cancelled')),
    announced_at  timestamptz,
    in_transit_at timestamptz,
    arrived_at    timestamptz,
    closed_at     timestamptz,
    cancelled_at  timestamptz,
    unique (company, number)
);
comment on column goods_receipt.announced_at is 'The supplier''s time of what is expected; null: our own purchase order.';

create table goods_receipt_line (
    id               bigint generated always as identity primary key,
    company          text not null references company,
    goods_receipt_id bigint not null references goods_receipt,
    sku              text not null,
    expected         bigint not null default 0 check (expected >= 0),
    counted          bigint not null default 0,
    counted_rejected bigint not null default 0,
    counted_at       timestamptz,
    noted            bigint not null default 0,
    noted_rejected   bigint not null default 0,
    received         bigint generated always as (counted + noted) stored,
    rejected         bigint generated always as (counted_rejected + noted_rejected) stored,
    stock_on_hand    bigint not null default 0,
    stock_on_order   bigint not null default 0,
    unique (goods_receipt_id, sku),
    foreign key (company, sku) references item (company, sku),
    constraint "no more is rejected than received"
        check (counted_rejected <= counted and noted_rejected <= noted)
);
create index on goods_receipt_line (company, sku);
comment on column goods_receipt_line.counted is 'The latest running total of the warehouse''s counts.';
comment on column goods_receipt_line.noted is 'The sum of its goods received notes, which tell differences.';
comment on column goods_receipt_line.stock_on_hand is 'What this line has put into stock so far; the moves add up to it.';

create table goods_received_note (
    id                    bigint generated always as identity primary key,
    company               text not null references company,
    goods_receipt_line_id bigint not null references goods_receipt_line,
    notice                text not null,
    received              bigint not null,
    rejected              bigint not null,
    unique (goods_receipt_line_id, notice)
);

create table stock_move (
    id               bigint generated always as identity primary key,
    company          text not null references company,
    item_id          bigint not null references item,
    goods_receipt_id bigint references goods_receipt,
    on_hand          bigint not null,
    on_order         bigint not null,
    reason           text not null,
    moved_at         timestamptz not null default now(),
    constraint "a move moves something" check (on_hand <> 0 or on_order <> 0)
);
create index on stock_move (item_id);
create index on stock_move (goods_receipt_id);

-- Nobody sees another company's rows, not even the owner of the tables, which is what our functions run as.
alter table company enable row level security;
alter table company force row level security;
create policy own_company on company using (code = current_company());

do $$
declare name text;
begin
    foreach name in array array['item', 'customer_order', 'invoice', 'payment', 'refund', 'credit_note',
        'payment_failure', 'dispute', 'goods_receipt', 'goods_receipt_line', 'goods_received_note', 'stock_move'] loop
        execute format('alter table %I enable row level security', name);
        execute format('alter table %I force row level security', name);
        execute format('create policy own_company on %I using (company = current_company())', name);
    end loop;
end $$;
