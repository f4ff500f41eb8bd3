-- What the ERP knows before the first event comes, for the fixtures: a company, its invoices, the goods it expects,
-- its stock. Run it as the ERP's owner.
set search_path = erp;
select set_config('erp.company', 'acme', false);

insert into company values ('acme', 'Acme Ship Chandlers');
insert into currency values ('USD', 2), ('EUR', 2), ('JPY', 0), ('KWD', 3);

insert into customer_order (company, number)
select 'acme', 'SO-' || n from generate_series(1001, 1007) n;

insert into invoice (company, customer_order_id, number, currency, amount)
select 'acme', customer_order.id, new.number, new.currency, new.amount
from (values
    ('SO-1001', 'INV-1001', 'USD', 129.00),
    ('SO-1002', 'INV-1002', 'EUR', 240.00),
    ('SO-1003', 'INV-1003', 'JPY', 5000),
    ('SO-1004', 'INV-1004', 'KWD', 1.25),
    ('SO-1005', 'INV-1005', 'USD', 75.00),
    ('SO-1006', 'INV-1006', 'USD', 590.00),
    ('SO-1007', 'INV-1007', 'USD', 0)
) as new (customer_order, number, currency, amount)
join customer_order on customer_order.number = new.customer_order;

insert into item (company, sku, description, on_hand, on_order) values
    ('acme', 'ROPE-10M', 'Rope, 10 m', 20, 0),
    ('acme', 'LANTERN', 'Lantern', 5, 0),
    ('acme', 'TEA-TIN', 'Tea tin', 0, 12),
    ('acme', 'KETTLE', 'Kettle', 20, 48),
    ('acme', 'MUG', 'Mug', 7, 206),
    ('acme', 'CHAIR', 'Folding chair', 0, 0),
    ('acme', 'TABLE', 'Folding table', 0, 0);

insert into goods_receipt (company, number)
select 'acme', number from unnest(array['PO-8001', 'PO-8002', 'PO-9001', 'PO-9002']) number;

insert into goods_receipt_line (company, goods_receipt_id, sku, expected, stock_on_order)
select 'acme', goods_receipt.id, new.sku, new.expected, new.expected
from (values
    ('PO-8001', 'KETTLE', 48),
    ('PO-8001', 'MUG', 96),
    ('PO-8002', 'MUG', 10),
    ('PO-9001', 'MUG', 100),
    ('PO-9002', 'TEA-TIN', 12)
) as new (number, sku, expected)
join goods_receipt using (number);

insert into stock_move (company, item_id, on_hand, on_order, reason)
select 'acme', id, on_hand, on_order, 'opening' from item where on_hand <> 0 or on_order <> 0;
