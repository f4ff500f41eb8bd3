//! Stock: what is on hand, on order and allocated, per SKU.

use super::refusal::Refusal;

/// A SKU's position.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Units in the warehouse.
    pub on_hand: i64,
    /// Units that are to come.
    pub on_order: i64,
    /// Units that are promised. The ERP's own; Wharf never moves it.
    pub allocated: i64,
}

/// A difference of a position.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Movement {
    /// The SKU.
    pub sku: String,
    /// Units more or fewer on hand.
    pub on_hand: i64,
    /// Units more or fewer on order.
    pub on_order: i64,
}

impl Position {
    /// Moves stock. No more may be allocated than is on hand or on order.
    pub fn apply(&mut self, movement: &Movement) -> Result<(), Refusal> {
        let moved = (|| {
            let on_hand = self.on_hand.checked_add(movement.on_hand)?;
            let on_order = self.on_order.checked_add(movement.on_order)?;
            on_hand.checked_add(on_order).map(|available| (on_hand, on_order, available))
        })();
        let (on_hand, on_order, available) = moved.ok_or(Refusal::OutOfRange("quantity"))?;
        if self.allocated > available {
            let (sku, allocated) = (movement.sku.clone(), self.allocated);
            return Err(Refusal::StockAllocated { sku, allocated, available });
        }
        (self.on_hand, self.on_order) = (on_hand, on_order);
        Ok(())
    }
}
