-- The day the ERP learns that dinars have three decimals: run it as the ERP's owner, and reprocess the dead letters
-- that say `has more than the 2 decimals that the books keep`.
begin;
set local search_path = erp;
alter table invoice alter amount type numeric(13,3), alter paid type numeric(13,3), alter credited type numeric(13,3);
alter table payment alter amount type numeric(13,3), alter refunded type numeric(13,3),
    alter refund_total type numeric(13,3);
alter table refund alter amount type numeric(13,3);
alter table credit_note alter amount type numeric(13,3);
alter table dispute alter amount type numeric(13,3);
create or replace function kept_decimals() returns int immutable language sql return 3;
commit;
