//! From a provider's event to business facts: the `[[on]]` tables of a provider file.
//!
//! The language is small on purpose: JSON pointers, headers, constants, guards, and lines. A pointer that
//! starts with `/` starts at the body; one that starts with `@/` starts at the item of `for_each` or `each`.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::currency;
use super::decimal::Decimal;
use super::headers::Headers;
use super::pointer::{Pointers, Slot, Unreadable, read_text, shape_of};
use crate::books::{
    Change, CountedLine, Counting, DisputeStage, ExpectedLine, InvoiceChange, InvoiceFact, Money, OwnChange,
    ReceiptChange, ReceiptFact,
};

/// One `[[on]]` table: an event type (or several) and the change it means.
#[derive(Debug, Clone)]
pub struct On {
    /// The event types it applies to.
    pub types: Vec<String>,
    /// What the signed body must say; otherwise the event is a dead letter. Where the type stands outside the
    /// signature, this is what confirms it.
    pub require: Vec<Condition>,
    /// When it applies; otherwise the event means nothing here.
    pub when: Vec<Condition>,
    /// One change per item of this list.
    pub for_each: Option<Slot>,
    /// The change and its fields.
    pub change: ChangeRule,
    pub(super) body: Pointers,
    pub(super) item: Pointers,
    pub(super) line: Pointers,
}

/// A guard.
#[derive(Debug, Clone)]
pub struct Condition {
    /// What is looked at.
    pub source: Vec<Source>,
    /// What must hold.
    pub test: Test,
}

/// What must hold of a guarded value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Test {
    /// It is one of these.
    OneOf(Vec<Constant>),
    /// It is there (`true`) or not (`false`). `null`, an empty text and an empty list are not there.
    Present(bool),
    /// It is a number above this.
    GreaterThan(i64),
}

/// A value written in a definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Constant {
    /// A text.
    Text(String),
    /// A whole number.
    Number(i64),
    /// `true` or `false`.
    Boolean(bool),
}

/// Where a value stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// In the body.
    Body(Slot),
    /// In the item of `for_each`, or in the line.
    Item(Slot),
    /// In a header, lower-case name.
    Header(String),
    /// In the definition itself.
    Constant(String),
}

/// Where a text stands: the first source that has one, with a fixed prefix before it.
#[derive(Debug, Clone, Default)]
pub struct Field {
    /// In order.
    pub sources: Vec<Source>,
    /// Put before the text.
    pub prefix: String,
}

/// An amount of money.
#[derive(Debug, Clone)]
pub struct Amount {
    /// Where the number stands.
    pub number: Field,
    /// `true`: in the currency's minor unit; `false`: in its major unit.
    pub minor: bool,
    /// Where the currency stands.
    pub currency: Field,
    /// Currencies whose minor unit this provider counts with other decimals than ISO 4217.
    pub decimals: BTreeMap<String, u32>,
}

/// A change and where its fields stand.
#[derive(Debug, Clone)]
pub enum ChangeRule {
    /// About an invoice.
    Invoice {
        /// The invoice's number, if the event has it.
        number: Option<Field>,
        /// The rest.
        fact: InvoiceRule,
    },
    /// About a receipt.
    Receipt {
        /// The receipt's number.
        number: Field,
        /// The rest.
        fact: ReceiptRule,
    },
    /// A fact of the company's own.
    Own {
        /// The change's name, `x.` and a word.
        name: String,
        /// Its fields, by the company's names.
        fields: BTreeMap<String, Field>,
    },
}

/// The fields of [`InvoiceFact`].
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each variant has the fields of the InvoiceFact of the same name")]
pub enum InvoiceRule {
    Issued { amount: Amount },
    Paid { payment: Field, amount: Amount },
    PaymentFailed { payment: Field, reason: Option<Field> },
    RefundTotal { payment: Field, amount: Amount },
    Refund { payment: Field, refund: Field, amount: Amount, failed: bool },
    Disputed { payment: Field, dispute: Field, amount: Amount, stage: DisputeStage },
    Voided { reason: Option<Field> },
}

/// The fields of [`ReceiptFact`].
#[derive(Debug, Clone)]
#[allow(missing_docs, reason = "each variant has the fields of the ReceiptFact of the same name")]
pub enum ReceiptRule {
    Announced { lines: Lines, expected: Field },
    InTransit,
    Arrived,
    Received { lines: Lines, counting: CountingRule, counted: Counted },
    Closed,
    Cancelled,
}

/// What the quantities mean, and where a notice's id stands.
#[derive(Debug, Clone)]
pub enum CountingRule {
    /// Running totals.
    Totals,
    /// Differences, each notice counted once.
    Deltas(Field),
}

/// Where the lines of a receipt stand.
#[derive(Debug, Clone)]
pub struct Lines {
    /// The list: the first of these that is there.
    pub each: Vec<Source>,
    /// The SKU of a line.
    pub sku: Field,
    /// How a line's unit is turned into single units.
    pub unit: Option<Unit>,
}

/// Units of quantity.
#[derive(Debug, Clone)]
pub struct Unit {
    /// The unit's word.
    pub word: Field,
    /// Words that mean single units.
    pub single: Vec<String>,
    /// Words that mean a pack.
    pub pack: Vec<String>,
    /// How many single units a pack holds.
    pub per_pack: Option<Field>,
}

/// The quantities of a count.
#[derive(Debug, Clone)]
pub struct Counted {
    /// The number counted.
    pub count: Field,
    /// `true`: `count` is what was accepted, rejected units come on top; `false`: it includes them.
    pub accepted: bool,
    /// The number not accepted.
    pub rejected: Option<Field>,
}

/// What an `[[on]]` table makes of an event.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Mapped {
    /// These facts.
    Changes(Vec<Change>),
    /// Its guards do not hold.
    DoesNotApply,
}

/// The places a value can come from, while one item is read.
pub(super) struct Scope<'s, 'a> {
    body: &'s [Option<&'a RawValue>],
    item: &'s [Option<&'a RawValue>],
    headers: &'s Headers<'a>,
    /// Whose slots `body` holds.
    body_pointers: &'s Pointers,
    /// Whose slots `item` holds: those of `for_each` or those of a line.
    item_pointers: &'s Pointers,
}

/// No identifier of a business object is longer; longer ones are not what they seem.
const TEXT_LENGTH_MAX: usize = 255;

impl On {
    /// Where the list of a receipt's lines may stand.
    pub(super) fn lists_of_lines(&self) -> &[Source] {
        match &self.change {
            ChangeRule::Receipt { fact: ReceiptRule::Announced { lines, .. }, .. }
            | ChangeRule::Receipt { fact: ReceiptRule::Received { lines, .. }, .. } => &lines.each,
            ChangeRule::Receipt { .. } | ChangeRule::Invoice { .. } | ChangeRule::Own { .. } => &[],
        }
    }

    /// Reads an event's facts.
    pub(super) fn map(&self, headers: &Headers<'_>, body: &str) -> Result<Mapped, Unreadable> {
        let found = self.body.extract_text(body)?;
        let whole =
            Scope { body: &found, item: &[], headers, body_pointers: &self.body, item_pointers: &self.item };
        for condition in &self.require {
            if !whole.holds(condition) {
                let what = whole.describe(&condition.source);
                return Err(Unreadable(format!("the signed body does not confirm the event type at {what}")));
            }
        }
        let Some(list) = self.for_each else {
            if !self.when.iter().all(|condition| whole.holds(condition)) {
                return Ok(Mapped::DoesNotApply);
            }
            return Ok(Mapped::Changes(vec![self.change(&whole)?]));
        };
        let mut changes = Vec::new();
        for item in list_items(found[list], self.body.text(list))? {
            let item = self.item.extract_part(item)?;
            let scope = Scope { item: &item, ..whole };
            if self.when.iter().all(|condition| scope.holds(condition)) {
                changes.push(self.change(&scope)?);
            }
        }
        Ok(if changes.is_empty() { Mapped::DoesNotApply } else { Mapped::Changes(changes) })
    }

    fn change(&self, scope: &Scope<'_, '_>) -> Result<Change, Unreadable> {
        Ok(match &self.change {
            ChangeRule::Invoice { number, fact } => Change::Invoice(InvoiceChange {
                number: number.as_ref().map(|field| scope.text("invoice", field)).transpose()?,
                fact: invoice_fact(fact, scope)?,
            }),
            ChangeRule::Receipt { number, fact } => Change::Receipt(ReceiptChange {
                number: scope.text("receipt", number)?,
                fact: receipt_fact(fact, &self.line, scope)?,
            }),
            ChangeRule::Own { name, fields } => {
                let mut told = BTreeMap::new();
                for (key, field) in fields {
                    told.insert(key.clone(), scope.optional_text(key, Some(field))?);
                }
                Change::Own(OwnChange { name: name.clone(), fields: told })
            }
        })
    }
}

fn invoice_fact(rule: &InvoiceRule, scope: &Scope<'_, '_>) -> Result<InvoiceFact, Unreadable> {
    Ok(match rule {
        InvoiceRule::Issued { amount } => InvoiceFact::Issued { amount: scope.money(amount)? },
        InvoiceRule::Paid { payment, amount } => {
            InvoiceFact::Paid { payment: scope.text("payment", payment)?, amount: scope.money(amount)? }
        }
        InvoiceRule::PaymentFailed { payment, reason } => InvoiceFact::PaymentFailed {
            payment: scope.text("payment", payment)?,
            reason: scope.optional_text("reason", reason.as_ref())?,
        },
        InvoiceRule::RefundTotal { payment, amount } => {
            InvoiceFact::RefundTotal { payment: scope.text("payment", payment)?, total: scope.money(amount)? }
        }
        InvoiceRule::Refund { payment, refund, amount, failed } => InvoiceFact::Refund {
            payment: scope.text("payment", payment)?,
            refund: scope.text("refund", refund)?,
            amount: scope.money(amount)?,
            failed: *failed,
        },
        InvoiceRule::Disputed { payment, dispute, amount, stage } => InvoiceFact::Disputed {
            payment: scope.text("payment", payment)?,
            dispute: scope.text("dispute", dispute)?,
            amount: scope.money(amount)?,
            stage: *stage,
        },
        InvoiceRule::Voided { reason } => {
            InvoiceFact::Voided { reason: scope.optional_text("reason", reason.as_ref())? }
        }
    })
}

fn receipt_fact(
    rule: &ReceiptRule,
    line_pointers: &Pointers,
    scope: &Scope<'_, '_>,
) -> Result<ReceiptFact, Unreadable> {
    Ok(match rule {
        ReceiptRule::InTransit => ReceiptFact::InTransit,
        ReceiptRule::Arrived => ReceiptFact::Arrived,
        ReceiptRule::Closed => ReceiptFact::Closed,
        ReceiptRule::Cancelled => ReceiptFact::Cancelled,
        ReceiptRule::Announced { lines, expected } => {
            let mut by_sku = BTreeMap::<String, i64>::new();
            scope.each_line(lines, line_pointers, |sku, units, line| {
                let more = units.single(line.quantity("expected", expected)?)?;
                add(by_sku.entry(sku).or_default(), more)
            })?;
            let lines = by_sku.into_iter().map(|(sku, expected)| ExpectedLine { sku, expected }).collect();
            ReceiptFact::Announced { lines }
        }
        ReceiptRule::Received { lines, counting, counted } => {
            let mut by_sku = BTreeMap::<String, (i64, i64)>::new();
            scope.each_line(lines, line_pointers, |sku, units, line| {
                let rejected = match &counted.rejected {
                    Some(field) => units.single(line.quantity("rejected", field)?)?,
                    None => 0,
                };
                let count = units.single(line.quantity("received", &counted.count)?)?;
                let sum = by_sku.entry(sku).or_default();
                add(&mut sum.0, count)?;
                add(&mut sum.0, if counted.accepted { rejected } else { 0 })?;
                add(&mut sum.1, rejected)
            })?;
            let counting = match counting {
                CountingRule::Totals => Counting::Totals,
                CountingRule::Deltas(notice) => Counting::Deltas { notice: scope.text("notice", notice)? },
            };
            let lines = by_sku
                .into_iter()
                .map(|(sku, (received, rejected))| CountedLine { sku, received, rejected })
                .collect();
            ReceiptFact::Received { counting, lines }
        }
    })
}

fn add(sum: &mut i64, more: i64) -> Result<(), Unreadable> {
    *sum = sum.checked_add(more).ok_or_else(|| Unreadable("a quantity is too large".to_owned()))?;
    Ok(())
}

/// How many single units one unit of a line is.
struct UnitsPer(i64);

impl UnitsPer {
    fn single(&self, quantity: i64) -> Result<i64, Unreadable> {
        quantity.checked_mul(self.0).ok_or_else(|| Unreadable("a quantity is too large".to_owned()))
    }
}

/// Some writers put blanks between the brackets.
fn is_empty_list(json: &str) -> bool {
    json.strip_prefix('[')
        .and_then(|rest| rest.strip_suffix(']'))
        .is_some_and(|inside| inside.trim().is_empty())
}

fn list_items<'a>(raw: Option<&'a RawValue>, pointer: &str) -> Result<Vec<&'a RawValue>, Unreadable> {
    let Some(raw) = raw.filter(|raw| raw.get() != "null") else {
        return Err(Unreadable(format!("there is no list at {pointer}")));
    };
    serde_json::from_str(raw.get())
        .map_err(|_| Unreadable(format!("at {pointer} there is {}, not a list", shape_of(raw.get()))))
}

impl<'s, 'a> Scope<'s, 'a> {
    /// The scope of an envelope, which has no items.
    pub(super) fn of_envelope(
        body: &'s [Option<&'a RawValue>],
        headers: &'s Headers<'a>,
        pointers: &'s Pointers,
    ) -> Self {
        Self { body, item: &[], headers, body_pointers: pointers, item_pointers: pointers }
    }

    fn raw(&self, source: &Source) -> Option<&'a RawValue> {
        let raw = match source {
            Source::Body(slot) => self.body.get(*slot).copied().flatten(),
            Source::Item(slot) => self.item.get(*slot).copied().flatten(),
            Source::Header(_) | Source::Constant(_) => None,
        };
        raw.filter(|raw| !matches!(raw.get(), "null" | "\"\""))
    }

    /// The first text among the sources; `Err` with a shape if there is something else instead.
    pub(super) fn find_text<'t>(&self, sources: &'t [Source]) -> Result<Option<Cow<'t, str>>, &'static str>
    where
        'a: 't,
    {
        let mut other_shape = None;
        for source in sources {
            match source {
                Source::Constant(text) => return Ok(Some(Cow::Borrowed(text))),
                Source::Header(name) => match self.headers.single(name) {
                    Err(_) => return Err("a header that stands there twice"),
                    Ok(Some(value)) if !value.is_empty() => {
                        return str::from_utf8(value)
                            .map(|text| Some(Cow::Borrowed(text)))
                            .map_err(|_| "not UTF-8");
                    }
                    Ok(_) => {}
                },
                Source::Body(_) | Source::Item(_) => match self.raw(source).map(read_text) {
                    Some(Ok(text)) => return Ok(Some(text)),
                    Some(Err(shape)) => other_shape = other_shape.or(Some(shape)),
                    None => {}
                },
            }
        }
        other_shape.map_or(Ok(None), Err)
    }

    pub(super) fn holds(&self, condition: &Condition) -> bool {
        let constant = |text: &str, is_text: bool, constant: &Constant| match constant {
            Constant::Text(wanted) => is_text && text == wanted,
            Constant::Number(wanted) => Decimal::parse(text).and_then(Decimal::whole) == Some(*wanted),
            Constant::Boolean(wanted) => !is_text && text == if *wanted { "true" } else { "false" },
        };
        // A boolean, list or object has no text; its JSON serves for `equals = true` and `present`.
        let (value, is_text) = match self.find_text(&condition.source) {
            Ok(Some(text)) => (Some(text), true),
            Ok(None) | Err(_) => {
                let raw = condition.source.iter().find_map(|source| self.raw(source));
                (raw.map(|raw| Cow::Borrowed(raw.get())), false)
            }
        };
        match (&condition.test, value) {
            (Test::Present(wanted), value) => {
                *wanted == value.is_some_and(|value| is_text || !is_empty_list(&value))
            }
            (_, None) => false,
            (Test::OneOf(constants), Some(value)) => {
                constants.iter().any(|wanted| constant(&value, is_text, wanted))
            }
            (Test::GreaterThan(limit), Some(value)) => {
                Decimal::parse(&value).and_then(Decimal::whole).is_some_and(|number| number > *limit)
            }
        }
    }

    /// The sources, for an error text.
    pub(super) fn describe(&self, sources: &[Source]) -> String {
        let places: Vec<String> = sources
            .iter()
            .map(|source| match source {
                Source::Body(slot) => self.body_pointers.text(*slot).to_owned(),
                Source::Item(slot) => format!("@{}", self.item_pointers.text(*slot)),
                Source::Header(name) => format!("header {name}"),
                Source::Constant(_) => "a constant".to_owned(),
            })
            .collect();
        places.join(" or ")
    }

    fn text(&self, name: &str, field: &Field) -> Result<String, Unreadable> {
        self.optional(name, field)?
            .ok_or_else(|| Unreadable(format!("there is no {name} at {}", self.describe(&field.sources))))
    }

    fn optional_text(&self, name: &str, field: Option<&Field>) -> Result<Option<String>, Unreadable> {
        field.map_or(Ok(None), |field| self.optional(name, field))
    }

    fn optional(&self, name: &str, field: &Field) -> Result<Option<String>, Unreadable> {
        let place = || self.describe(&field.sources);
        let found = self
            .find_text(&field.sources)
            .map_err(|shape| Unreadable(format!("the {name} at {} is {shape}", place())))?;
        let Some(text) = found else { return Ok(None) };
        let text = format!("{}{text}", field.prefix);
        if text.chars().count() > TEXT_LENGTH_MAX {
            return Err(Unreadable(format!("the {name} at {} is longer than {TEXT_LENGTH_MAX}", place())));
        }
        if text.contains('\0') {
            return Err(Unreadable(format!("the {name} at {} contains U+0000", place())));
        }
        Ok(Some(text))
    }

    fn number(&self, name: &str, field: &Field) -> Result<Decimal, Unreadable> {
        let text = self.text(name, field)?;
        Decimal::parse(text.trim()).ok_or_else(|| {
            Unreadable(format!("the {name} at {} is not a number", self.describe(&field.sources)))
        })
    }

    fn money(&self, amount: &Amount) -> Result<Money, Unreadable> {
        let number = self.number("amount", &amount.number)?;
        let currency = self.text("currency", &amount.currency)?.to_ascii_uppercase();
        let decimals = currency::decimals(&currency).ok_or_else(|| {
            let place = self.describe(&amount.currency.sources);
            Unreadable(format!("the currency at {place} is not in ISO 4217"))
        })?;
        let counted_in = match (amount.minor, amount.decimals.get(&currency)) {
            (true, Some(own)) => *own,
            (true, None) => decimals,
            (false, _) => 0,
        };
        let shift = decimals.cast_signed() - counted_in.cast_signed();
        let place = || self.describe(&amount.number.sources);
        let minor = number.shifted(shift).ok_or_else(|| {
            Unreadable(format!(
                "the amount at {} is not a whole number of minor units of {currency}",
                place()
            ))
        })?;
        if minor < 0 {
            return Err(Unreadable(format!("the amount at {} is negative", place())));
        }
        Ok(Money { minor, currency })
    }

    fn quantity(&self, name: &str, field: &Field) -> Result<i64, Unreadable> {
        let place = || self.describe(&field.sources);
        let quantity = self
            .number(name, field)?
            .whole()
            .ok_or_else(|| Unreadable(format!("the quantity {name} at {} is not a whole number", place())))?;
        if quantity < 0 {
            return Err(Unreadable(format!("the quantity {name} at {} is negative", place())));
        }
        Ok(quantity)
    }

    fn each_line(
        &self,
        lines: &Lines,
        line_pointers: &Pointers,
        mut line: impl FnMut(String, UnitsPer, &Scope<'_, '_>) -> Result<(), Unreadable>,
    ) -> Result<(), Unreadable> {
        let list = lines.each.iter().find_map(|source| self.raw(source));
        let place = self.describe(&lines.each);
        for item in list_items(list, &place)? {
            let item = line_pointers.extract_part(item)?;
            let scope = Scope { item: &item, item_pointers: line_pointers, ..*self };
            let sku = scope.text("sku", &lines.sku)?;
            let units = match &lines.unit {
                Some(unit) => scope.units_per(unit)?,
                None => UnitsPer(1),
            };
            line(sku, units, &scope)?;
        }
        Ok(())
    }

    fn units_per(&self, unit: &Unit) -> Result<UnitsPer, Unreadable> {
        let Some(word) = self.optional("unit", &unit.word)? else { return Ok(UnitsPer(1)) };
        if unit.single.contains(&word) {
            return Ok(UnitsPer(1));
        }
        match &unit.per_pack {
            Some(per_pack) if unit.pack.contains(&word) => match self.quantity("per_pack", per_pack)? {
                // A pack of nothing would count goods that came as none.
                0 => Err(Unreadable(format!(
                    "the quantity per_pack at {} is zero",
                    self.describe(&per_pack.sources)
                ))),
                units => Ok(UnitsPer(units)),
            },
            _ => Err(Unreadable(format!(
                "the unit at {} is none of those that the definition knows",
                self.describe(&unit.word.sources)
            ))),
        }
    }
}
