-- What Wharf's role may do in the ERP: execute these functions, and nothing else. Run it as the ERP's owner:
--   psql -v wharf_role=wharf -f grants.sql
-- Postgres lets everybody execute a new function, so that is taken back first. It reads and writes no table of ours.
revoke execute on function
    erp.kept_decimals(), erp.from_minor(bigint, text), erp.amount_of(jsonb), erp.told_at(jsonb),
    erp.locked_invoice(jsonb), erp.booked_payment(erp.invoice, jsonb), erp.settle_invoice(bigint, jsonb),
    erp.locked_receipt(jsonb), erp.settle_receipt(bigint, jsonb),
    erp.invoice_issued(jsonb), erp.invoice_paid(jsonb), erp.invoice_payment_failed(jsonb),
    erp.invoice_refunded(jsonb), erp.invoice_disputed(jsonb), erp.invoice_voided(jsonb),
    erp.receipt_announced(jsonb), erp.receipt_in_transit(jsonb), erp.receipt_arrived(jsonb),
    erp.receipt_received(jsonb), erp.receipt_closed(jsonb), erp.receipt_cancelled(jsonb)
from public;

grant usage on schema erp to :"wharf_role";

grant execute on function
    erp.invoice_issued(jsonb), erp.invoice_paid(jsonb), erp.invoice_payment_failed(jsonb),
    erp.invoice_refunded(jsonb), erp.invoice_disputed(jsonb), erp.invoice_voided(jsonb),
    erp.receipt_announced(jsonb), erp.receipt_in_transit(jsonb), erp.receipt_arrived(jsonb),
    erp.receipt_received(jsonb), erp.receipt_closed(jsonb), erp.receipt_cancelled(jsonb)
to :"wharf_role";
