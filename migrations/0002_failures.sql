-- Failures that leave a record, and what people need to work them off.

-- Failed and dead events are grouped by what went wrong: endpoint, type, kind, and the error's text without what
-- differs from event to event. `about` holds the numbers of the invoices and receipts that the event names.
alter table webhook_inbox add column fingerprint text, add column about text[];
update webhook_inbox
set fingerprint = left(md5(concat_ws('|', endpoint, event_type, error_kind)), 10)
where status in ('failed', 'dead');
alter table webhook_inbox add constraint "a failed or dead event belongs to a group"
    check (status not in ('failed', 'dead') or fingerprint is not null);

-- Work lists. They hold the rows that were not applied: an event that is applied at once writes none of them.
drop index webhook_inbox_dead;
create index webhook_inbox_not_applied on webhook_inbox (status, id) where status <> 'processed';
create index webhook_inbox_trouble
    on webhook_inbox (endpoint, event_type, error_kind, fingerprint, status, id) where status in ('failed', 'dead');
create index webhook_inbox_about on webhook_inbox using gin (about)
    where status in ('failed', 'dead', 'discarded');
-- The only one that every event pays for: the newest events of a type or an endpoint, among millions of others. The type
-- comes first: with the endpoint first, a plan made while the table is empty would look for an event id in this index.
create index webhook_inbox_of_type on webhook_inbox (event_type, endpoint, id);

-- Who ran it again or set it aside, and why.
alter table webhook_attempt add column error_kind text, add column reason text;
alter table webhook_attempt drop constraint "an attempt comes from a delivery, a retry or an operator";
alter table webhook_attempt add constraint "an attempt comes from a delivery, a retry or an operator"
    check (origin in ('delivery', 'retry', 'reprocess', 'discard', 'undiscard'));
alter table webhook_attempt add constraint "what an operator does has a name to it"
    check (origin in ('delivery', 'retry') or operator is not null);

-- The inbox row that a message comes from, as the ledgers have it.
alter table outbox add column inbox_id bigint;
-- What one event moved, found without an index of its own.
drop index stock_entry_of_sku;
create index stock_entry_of_sku on stock_entry (tenant_id, sku, inbox_id);

-- What the gateways saw, added up every few seconds: for `wharf status`, not for the books.
create table endpoint_activity (
    endpoint         text primary key,
    provider         text not null,
    last_verified_at timestamptz,
    last_event_id    text,
    last_event_type  text,
    -- When an event was last applied. While none is, failures that are all alike do not become dead letters.
    last_applied_at  timestamptz,
    -- Answers given.
    processed        bigint not null default 0,
    ignored          bigint not null default 0,
    duplicate        bigint not null default 0,
    failed           bigint not null default 0,
    dead             bigint not null default 0,
    undecided        bigint not null default 0
);

-- Which secret fitted when, by the name that the configuration gives it. Never the secret.
create table endpoint_secret (
    endpoint        text not null,
    secret          text not null,
    matched         bigint not null default 0,
    last_matched_at timestamptz not null,
    primary key (endpoint, secret)
);

-- Deliveries that were refused for their signature: counted, not kept.
create table endpoint_refusal (
    endpoint   text not null,
    reason     text not null,
    refused    bigint not null default 0,
    first_at   timestamptz not null,
    last_at    timestamptz not null,
    -- The whole sentence of the last one.
    detail     text not null,
    primary key (endpoint, reason)
);

-- The last few refused deliveries of an endpoint, if the configuration asks for them. They are nobody's events:
-- no event id stands here, and nothing is applied from here without a good signature.
create table quarantine (
    id          bigint generated always as identity primary key,
    endpoint    text not null,
    provider    text not null,
    reason      text not null,
    detail      text not null,
    received_at timestamptz not null,
    -- Header lines as received, those with credentials of their own left out.
    head        bytea not null,
    body        bytea not null
);
create index quarantine_of_endpoint on quarantine (endpoint, id);
