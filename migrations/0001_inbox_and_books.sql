-- Everything stands in the schema that the connection's search_path names (`wharf` by default), so
-- that Wharf can share the ERP's database without touching a name of the ERP's.
--
-- Names of constraints are sentences: they are what an operator reads when one is broken.
-- Amounts are integers in the currency's minor unit; quantities are integers in single units.

create table tenant (
    id   uuid primary key default gen_random_uuid(),
    name text not null unique,
    constraint "a tenant has a name" check (name <> '')
);

-- One row per event that a provider told of, whatever became of it. The row is the state machine:
--
--   (new) ─▶ processed | ignored                      settled, never runs again
--   (new) ─▶ failed ─▶ processed | ignored | dead     runs again at the next delivery
--   (new) ─▶ dead   ─▶ processed | discarded          only an operator moves it
create table webhook_inbox (
    id               bigint generated always as identity primary key,
    -- No foreign key: every insert would lock the one tenant row that all deliveries share.
    -- The id comes from `tenant` when the gateway starts, and tenants are not deleted.
    tenant_id        uuid not null,
    endpoint         text not null,
    provider         text not null,
    event_id         text not null,
    event_type       text not null,
    status           text not null,
    attempts         int not null,
    last_error       text,
    error_kind       text,
    ignored_because  text,
    -- The request's headers without signature and authorization values. Not the truth: a help for people.
    headers          jsonb not null,
    -- The exact bytes that were signed.
    body             bytea not null,
    occurred_at      timestamptz,
    received_at      timestamptz not null,
    settled_at       timestamptz,
    dead_lettered_at timestamptz,
    next_attempt_at  timestamptz,
    constraint "an event is told once per endpoint"
        unique (endpoint, event_id),
    constraint "an event id has 1 to 255 characters"
        check (char_length(event_id) between 1 and 255),
    constraint "the status is one of the five"
        check (status in ('processed', 'ignored', 'failed', 'dead', 'discarded')),
    constraint "only a failed event is not settled"
        check ((status = 'failed') = (settled_at is null)),
    constraint "only a dead letter says when it died"
        check ((status = 'dead') = (dead_lettered_at is not null)),
    constraint "only a failed event says when it is tried next"
        check ((status = 'failed') = (next_attempt_at is not null)),
    constraint "a failed or dead event says why"
        check (status not in ('failed', 'dead') or (error_kind is not null and last_error is not null)),
    constraint "attempts are counted from zero"
        check (attempts >= 0)
);
-- JSON of a few KiB stays in the row, uncompressed: compressing it costs more time than all the rest of the insert.
alter table webhook_inbox alter column body set storage external;
alter table webhook_inbox set (toast_tuple_target = 8160);
create index webhook_inbox_failed on webhook_inbox (next_attempt_at) where status = 'failed';
create index webhook_inbox_dead on webhook_inbox (dead_lettered_at) where status = 'dead';

-- Append-only: one row per failed attempt and per reprocessing.
create table webhook_attempt (
    inbox_id bigint not null references webhook_inbox (id),
    at       timestamptz not null default now(),
    origin   text not null,
    operator text,
    outcome  text not null,
    error    text,
    constraint "an attempt comes from a delivery, a retry or an operator"
        check (origin in ('delivery', 'retry', 'reprocess')),
    constraint "the outcome is a status"
        check (outcome in ('processed', 'ignored', 'failed', 'dead', 'discarded'))
);
create index webhook_attempt_of_event on webhook_attempt (inbox_id, at);

create table invoice (
    id              uuid primary key default gen_random_uuid(),
    tenant_id       uuid not null references tenant (id),
    number          text not null,
    currency        text not null,
    amount_due      bigint not null default 0,
    amount_paid     bigint not null default 0,
    amount_refunded bigint not null default 0,
    status          text not null default 'awaiting_payment',
    paid_at         timestamptz,
    -- When a payment of this invoice was last told of; `paid_at` is this moment once the invoice is paid.
    last_payment_at timestamptz,
    -- The provider's time of the amount in `amount_due`; null while the amount is the ERP's own.
    issued_at       timestamptz,
    voided_at       timestamptz,
    version         int not null default 0,
    constraint "an invoice number is given once per tenant"
        unique (tenant_id, number),
    constraint "an invoice number is not empty"
        check (number <> ''),
    constraint "a currency is three capital letters"
        check (currency ~ '^[A-Z]{3}$'),
    constraint "amounts of an invoice are not negative"
        check (amount_due >= 0 and amount_paid >= 0 and amount_refunded >= 0),
    constraint "the status of an invoice is one of the six"
        check (status in ('awaiting_payment', 'partially_paid', 'paid', 'partially_refunded', 'refunded', 'void'))
);

-- Append-only: what providers said about an invoice, each fact once. The invoice's amounts follow from
-- these rows and from nothing else (an ERP's own `amount_due` apart).
create table invoice_entry (
    id           bigint generated always as identity primary key,
    invoice_id   uuid not null references invoice (id),
    -- The inbox row that told it. No foreign key: inbox rows are pruned, the ledger is not.
    inbox_id     bigint,
    kind         text not null,
    provider     text not null,
    provider_ref text not null,
    -- The payment that this entry is about; null for what concerns the invoice as a whole.
    payment_ref  text,
    amount       bigint not null,
    currency     text not null,
    occurred_at  timestamptz,
    recorded_at  timestamptz not null default now(),
    constraint "a fact about an invoice is recorded once"
        unique (invoice_id, kind, provider_ref, provider),
    constraint "the kind of an invoice entry is known"
        check (kind in ('issued', 'payment', 'payment_failed', 'refund_total', 'refund', 'refund_failed',
                        'dispute_opened', 'dispute_won', 'dispute_lost', 'voided')),
    constraint "an amount told is not negative"
        check (amount >= 0)
);
-- Finds a payment's facts, and the invoice of a refund that names only its payment.
create index invoice_entry_of_payment on invoice_entry (payment_ref, invoice_id) where payment_ref is not null;

create table receipt (
    id            uuid primary key default gen_random_uuid(),
    tenant_id     uuid not null references tenant (id),
    number        text not null,
    status        text not null default 'expected',
    announced_at  timestamptz,
    in_transit_at timestamptz,
    arrived_at    timestamptz,
    closed_at     timestamptz,
    cancelled_at  timestamptz,
    version       int not null default 0,
    constraint "a receipt number is given once per tenant"
        unique (tenant_id, number),
    constraint "a receipt number is not empty"
        check (number <> ''),
    constraint "the status of a receipt is one of the seven"
        check (status in ('expected', 'in_transit', 'arrived', 'receiving', 'received', 'closed', 'cancelled'))
);

create table receipt_line (
    id                bigint generated always as identity primary key,
    receipt_id        uuid not null references receipt (id),
    sku               text not null,
    quantity_expected bigint not null default 0,
    -- All that was counted in, rejected units included: accepted = received - rejected.
    quantity_received bigint not null default 0,
    quantity_rejected bigint not null default 0,
    -- The part of the two quantities that came as a running total, and the provider's time of that total.
    counted_received  bigint not null default 0,
    counted_rejected  bigint not null default 0,
    counted_at        timestamptz,
    constraint "a sku stands once on a receipt"
        unique (receipt_id, sku),
    constraint "quantities of a receipt are not negative"
        check (quantity_expected >= 0 and quantity_received >= 0 and quantity_rejected >= 0),
    constraint "no more is rejected than was received"
        check (quantity_rejected <= quantity_received)
);

-- Append-only: the line's quantities are the sums of these.
create table receipt_entry (
    id                      bigint generated always as identity primary key,
    receipt_line_id         bigint not null references receipt_line (id),
    inbox_id                bigint,
    -- The provider's id of a notice that tells a difference: the same notice under another event id counts once.
    notice                  text,
    quantity_received_delta bigint not null,
    quantity_rejected_delta bigint not null,
    occurred_at             timestamptz,
    recorded_at             timestamptz not null default now(),
    constraint "a notice counts once per line"
        unique (receipt_line_id, notice)
);

create table sku_position (
    tenant_id uuid not null references tenant (id),
    sku       text not null,
    on_hand   bigint not null default 0,
    on_order  bigint not null default 0,
    allocated bigint not null default 0,
    primary key (tenant_id, sku),
    constraint "no more is allocated than is on hand or on order"
        check (allocated <= on_hand + on_order),
    constraint "a sku is not empty"
        check (sku <> '')
);

-- Append-only: a position's quantities are the sums of these.
create table stock_entry (
    id              bigint generated always as identity primary key,
    tenant_id       uuid not null,
    sku             text not null,
    inbox_id        bigint,
    on_hand_delta   bigint not null default 0,
    on_order_delta  bigint not null default 0,
    allocated_delta bigint not null default 0,
    reason          text not null,
    recorded_at     timestamptz not null default now(),
    constraint "a stock entry moves a known sku"
        foreign key (tenant_id, sku) references sku_position (tenant_id, sku)
);
create index stock_entry_of_sku on stock_entry (tenant_id, sku);

-- What others must hear, written in the same transaction as what happened. `aggregate_version` lets a
-- consumer drop a message that is older than what it knows.
create table outbox (
    id                bigint generated always as identity primary key,
    tenant_id         uuid not null,
    aggregate_type    text not null,
    aggregate_id      uuid not null,
    aggregate_version int not null,
    event_type        text not null,
    payload           jsonb not null,
    created_at        timestamptz not null default now(),
    attempts          int not null default 0,
    next_attempt_at   timestamptz not null default now(),
    processed_at      timestamptz,
    dead_lettered_at  timestamptz,
    last_error        text,
    constraint "a message is delivered or dead, not both"
        check (processed_at is null or dead_lettered_at is null),
    constraint "a dead message says why"
        check (dead_lettered_at is null or last_error is not null)
);
create unique index "a version of an aggregate is told once" on outbox (aggregate_id, aggregate_version);
create index outbox_pending on outbox (id) where processed_at is null and dead_lettered_at is null;
