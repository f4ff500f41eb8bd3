//! Reading `[[on]]` tables of a provider file into [`On`].

use std::collections::BTreeMap;

use toml::Value;

use super::definition::{Signs, confirms, is_name, one_of};
use super::mapping::{
    Amount, ChangeRule, Condition, Constant, Counted, CountingRule, Field, InvoiceRule, Lines, On,
    ReceiptRule, Source, Test, Unit,
};
use super::pointer::Pointers;
use crate::books::{Change, DisputeStage};
use crate::section::Section;

/// Reads one `[[on]]` table.
pub(super) fn read_on(mut section: Section<'_>, signs: Option<&Signs<'_>>) -> Option<On> {
    let mut body = Pointers::default();
    let mut item = Pointers::default();
    let mut line = Pointers::default();
    let types = section.require("type", "\"order.paid\"").then(|| section.texts("type")).flatten();
    let for_each = section.text("for_each").and_then(|pointer| match body.add(&pointer) {
        Ok(slot) => Some(slot),
        Err(reason) => {
            section.problem("for_each", reason);
            None
        }
    });
    let mut places =
        Places { body: &mut body, item: for_each.is_some().then_some(&mut item), line: &mut line, signs };
    let require = read_conditions(&mut section, "require", places.body, None);
    let when = read_conditions(&mut section, "when", places.body, places.item.as_deref_mut());
    if signs.is_some_and(Signs::leaves_out_the_type) && !require.iter().any(confirms) {
        section.problem(
            "require",
            "is missing: the event type stands in a header that is not signed; name what the signed body says \
             when this is true, for example `require = { at = \"/financial_status\", equals = \"paid\" }`",
        );
    }
    for source in when.iter().flat_map(|condition| &condition.source) {
        if let Source::Header(name) = source
            && signs.is_some_and(|signs| !signs.covers(name))
        {
            let text = format!("reads the header `{name}`, which is not signed; name a place in the body");
            section.problem("when", text);
        }
    }
    let change = read_change(&mut section, &mut places);
    section.finish();
    Some(On { types: types?, require, when, for_each, change: change?, body, item, line })
}

/// The pointer sets of one `[[on]]` table, and what its fields may be read from.
struct Places<'p> {
    body: &'p mut Pointers,
    /// `Some` inside `for_each`.
    item: Option<&'p mut Pointers>,
    line: &'p mut Pointers,
    signs: Option<&'p Signs<'p>>,
}

impl Places<'_> {
    /// A field of the change; `@/` is the item of `for_each`.
    fn field(&mut self, section: &mut Section<'_>, key: &'static str) -> Option<Field> {
        let field = read_field(section, key, self.body, self.item.as_deref_mut())?;
        self.signed(section, key, field)
    }

    /// A field of a line; `@/` is the line.
    fn line_field(&mut self, section: &mut Section<'_>, key: &'static str) -> Option<Field> {
        let field = read_field(section, key, self.body, Some(self.line))?;
        self.signed(section, key, field)
    }

    fn required(&mut self, section: &mut Section<'_>, key: &'static str) -> Option<Field> {
        section.require(key, &format!("\"/{key}\"")).then(|| self.field(section, key)).flatten()
    }

    fn required_of_line(&mut self, section: &mut Section<'_>, key: &'static str) -> Option<Field> {
        section.require(key, &format!("\"@/{key}\"")).then(|| self.line_field(section, key)).flatten()
    }

    /// What changes the books must be signed: anyone can send another header.
    fn signed(&self, section: &Section<'_>, key: &str, field: Field) -> Option<Field> {
        let unsigned = field.sources.iter().find_map(|source| match source {
            Source::Header(name) if self.signs.is_some_and(|signs| !signs.covers(name)) => Some(name),
            _ => None,
        });
        if let Some(name) = unsigned {
            let text = format!("reads the header `{name}`, which is not signed; name a place in the body");
            section.problem(key, text);
            return None;
        }
        Some(field)
    }

    fn amount(&mut self, section: &mut Section<'_>) -> Option<Amount> {
        let currency = self.required(section, "currency");
        if !section.require("amount", "{ minor = \"/amount\" }, or { major = \"/total\" }") {
            return None;
        }
        let mut own = section.section("amount")?;
        let minor = own.has("minor");
        let number = match (minor, own.has("major")) {
            (true, false) => self.field(&mut own, "minor"),
            (false, true) => self.field(&mut own, "major"),
            _ => {
                own.problem_here(
                    "needs `minor = \"/…\"` (cents) or `major = \"/…\"` (whole units and decimals), one of them",
                );
                None
            }
        };
        let decimals = read_decimals(&mut own);
        own.take("minor");
        own.take("major");
        own.finish();
        Some(Amount { number: number?, minor, currency: currency?, decimals })
    }
}

fn read_decimals(section: &mut Section<'_>) -> BTreeMap<String, u32> {
    let Some(table) = section.section("decimals") else { return BTreeMap::new() };
    let mut decimals = BTreeMap::new();
    let problems = table.problems();
    let path = table.path("");
    for (currency, value) in table.into_entries() {
        match value {
            Value::Integer(count @ 0..=4) => {
                decimals.insert(currency, u32::try_from(count).unwrap_or_default());
            }
            _ => problems.add(format!("{path}{currency}"), "is not a number of decimals; write 0 to 4"),
        }
    }
    decimals
}

fn read_change(section: &mut Section<'_>, places: &mut Places<'_>) -> Option<ChangeRule> {
    if section.peek("change").is_some_and(|name| name.starts_with("x.")) {
        return read_own_change(section, places);
    }
    let names: Vec<(&'static str, &'static str)> = Change::NAMES.iter().map(|name| (*name, *name)).collect();
    let Some(name) = one_of(section, "change", &names) else {
        // Which other keys there may be depends on the change.
        section.leave_the_rest();
        return None;
    };
    if name.starts_with("receipt.") {
        let number = places.required(section, "receipt");
        let fact = read_receipt_fact(section, places, name);
        return Some(ChangeRule::Receipt { number: number?, fact: fact? });
    }
    // Refunds and disputes may name their payment only; its invoice is found through the payment.
    let number = match name {
        "invoice.refunded" | "invoice.disputed" => {
            if section.has("invoice") {
                places.field(section, "invoice").map(Some)
            } else {
                Some(None)
            }
        }
        _ => places.required(section, "invoice").map(Some),
    };
    section.take("invoice");
    let fact = read_invoice_fact(section, places, name);
    Some(ChangeRule::Invoice { number: number?, fact: fact? })
}

/// A change of the company's own: a name after `x.`, and fields by names of its own.
fn read_own_change(section: &mut Section<'_>, places: &mut Places<'_>) -> Option<ChangeRule> {
    let name = section.text("change")?;
    if !name.strip_prefix("x.").is_some_and(is_name) {
        section.problem(
            "change",
            format!("`{name}` is `x.` and a name; write the name with a-z, 0-9, `-` and `_`"),
        );
    }
    let mut fields = BTreeMap::new();
    if let Some(table) = section.section("fields") {
        let problems = table.problems();
        let here = Section::at(section.path("fields"), toml::Table::new(), problems);
        for (key, value) in table.into_entries() {
            let field = field_of(&here, &key, value, places.body, places.item.as_deref_mut());
            if let Some(field) = field.and_then(|field| places.signed(&here, &key, field)) {
                fields.insert(key, field);
            }
        }
    }
    Some(ChangeRule::Own { name, fields })
}

fn read_invoice_fact(section: &mut Section<'_>, places: &mut Places<'_>, name: &str) -> Option<InvoiceRule> {
    match name {
        "invoice.issued" => Some(InvoiceRule::Issued { amount: places.amount(section)? }),
        "invoice.voided" => Some(InvoiceRule::Voided { reason: places.field(section, "reason") }),
        "invoice.payment_failed" => {
            let reason = places.field(section, "reason");
            Some(InvoiceRule::PaymentFailed { payment: places.required(section, "payment")?, reason })
        }
        "invoice.paid" => {
            let payment = places.required(section, "payment");
            let amount = places.amount(section);
            Some(InvoiceRule::Paid { payment: payment?, amount: amount? })
        }
        "invoice.disputed" => {
            let payment = places.required(section, "payment");
            let dispute = places.required(section, "dispute");
            let amount = places.amount(section);
            let stage = one_of(
                section,
                "stage",
                &[("opened", DisputeStage::Opened), ("won", DisputeStage::Won), ("lost", DisputeStage::Lost)],
            );
            Some(InvoiceRule::Disputed {
                payment: payment?,
                dispute: dispute?,
                amount: amount?,
                stage: stage?,
            })
        }
        _ => read_refund(section, places),
    }
}

fn read_refund(section: &mut Section<'_>, places: &mut Places<'_>) -> Option<InvoiceRule> {
    let payment = places.required(section, "payment");
    let amount = places.amount(section);
    let total = one_of(section, "counting", &[("total", true), ("single", false)]);
    let Some(total) = total else {
        section.take("refund");
        section.take("state");
        return None;
    };
    if total {
        return Some(InvoiceRule::RefundTotal { payment: payment?, amount: amount? });
    }
    let refund = places.required(section, "refund");
    let failed = section.has("state")
        && one_of(section, "state", &[("succeeded", false), ("failed", true)]).unwrap_or(false);
    section.take("state");
    Some(InvoiceRule::Refund { payment: payment?, refund: refund?, amount: amount?, failed })
}

fn read_receipt_fact(section: &mut Section<'_>, places: &mut Places<'_>, name: &str) -> Option<ReceiptRule> {
    match name {
        "receipt.in_transit" => Some(ReceiptRule::InTransit),
        "receipt.arrived" => Some(ReceiptRule::Arrived),
        "receipt.closed" => Some(ReceiptRule::Closed),
        "receipt.cancelled" => Some(ReceiptRule::Cancelled),
        "receipt.announced" => {
            let (lines, expected) =
                read_lines(section, places, |section, places| places.required_of_line(section, "expected"))?;
            Some(ReceiptRule::Announced { lines, expected })
        }
        _ => {
            let totals = one_of(section, "counting", &[("totals", true), ("deltas", false)]);
            let counting = match totals {
                Some(true) => Some(CountingRule::Totals),
                Some(false) => places.required(section, "notice").map(CountingRule::Deltas),
                None => None,
            };
            section.take("notice");
            let (lines, counted) = read_lines(section, places, read_counted)?;
            Some(ReceiptRule::Received { lines, counting: counting?, counted })
        }
    }
}

fn read_counted(section: &mut Section<'_>, places: &mut Places<'_>) -> Option<Counted> {
    let rejected = places.line_field(section, "rejected");
    let accepted = section.has("accepted");
    let count = match (accepted, section.has("received")) {
        (true, false) => places.line_field(section, "accepted"),
        (false, true) => places.line_field(section, "received"),
        _ => {
            section.problem_here(
                "needs `received = \"@/…\"` (rejected units included) or `accepted = \"@/…\"`, one of them",
            );
            None
        }
    };
    section.take("accepted");
    section.take("received");
    Some(Counted { count: count?, accepted, rejected })
}

fn read_lines<T>(
    section: &mut Section<'_>,
    places: &mut Places<'_>,
    quantities: impl FnOnce(&mut Section<'_>, &mut Places<'_>) -> Option<T>,
) -> Option<(Lines, T)> {
    if !section.require("lines", "{ each = \"/lines\", sku = \"@/sku\", … }") {
        return None;
    }
    let mut own = section.section("lines")?;
    let each = places.required(&mut own, "each");
    let sku = places.required_of_line(&mut own, "sku");
    let unit = own.section("unit").and_then(|section| read_unit(section, places));
    let quantities = quantities(&mut own, places);
    own.finish();
    Some((Lines { each: each?.sources, sku: sku?, unit }, quantities?))
}

fn read_unit(mut section: Section<'_>, places: &mut Places<'_>) -> Option<Unit> {
    let word = places.required_of_line(&mut section, "word");
    let single = section.require("single", "[\"EA\"]").then(|| section.texts("single")).flatten();
    let pack = section.texts("pack").unwrap_or_default();
    let per_pack = places.line_field(&mut section, "per_pack");
    if !pack.is_empty() && per_pack.is_none() {
        section.problem("per_pack", "is missing; say where the number of units in a pack stands");
    }
    section.finish();
    Some(Unit { word: word?, single: single?, pack, per_pack })
}

/// Reads a field: `"/a"`, `["/a", "/b"]`, or a table of `at`, `header`, `value`, `prefix`.
fn read_field(
    section: &mut Section<'_>,
    key: &'static str,
    body: &mut Pointers,
    item: Option<&mut Pointers>,
) -> Option<Field> {
    let value = section.take(key)?;
    field_of(section, key, value, body, item)
}

fn field_of(
    section: &Section<'_>,
    key: &str,
    value: Value,
    body: &mut Pointers,
    item: Option<&mut Pointers>,
) -> Option<Field> {
    match value {
        Value::Table(table) => {
            let mut own = Section::at(section.path(key), table, section.problems());
            let prefix = own.text("prefix").unwrap_or_default();
            let sources = read_place(&mut own, body, item);
            own.finish();
            Some(Field { sources: sources?, prefix })
        }
        plain => {
            let sources = pointers_of(section, key, plain, body, item)?;
            Some(Field { sources, prefix: String::new() })
        }
    }
}

/// Reads the places of an envelope field.
pub(super) fn read_sources(
    section: &mut Section<'_>,
    key: &'static str,
    body: &mut Pointers,
) -> Option<Vec<Source>> {
    let field = read_field(section, key, body, None)?;
    if !field.prefix.is_empty() {
        section.problem(key, "takes no prefix here; remove it");
    }
    Some(field.sources)
}

/// Reads `at`, `header` and `value` of a table; pointers come first, then headers, then the constant.
pub(super) fn read_place(
    section: &mut Section<'_>,
    body: &mut Pointers,
    item: Option<&mut Pointers>,
) -> Option<Vec<Source>> {
    let mut sources = match section.take("at") {
        Some(value) => pointers_of(section, "at", value, body, item)?,
        None => Vec::new(),
    };
    let headers = section.texts("header").unwrap_or_default();
    sources.extend(headers.iter().map(|name| Source::Header(name.to_ascii_lowercase())));
    sources.extend(section.text("value").map(Source::Constant));
    if sources.is_empty() {
        section.problem_here("names no place; write `at = \"/…\"`, `header = \"…\"` or `value = \"…\"`");
        return None;
    }
    Some(sources)
}

fn pointers_of(
    section: &Section<'_>,
    key: &str,
    value: Value,
    body: &mut Pointers,
    mut item: Option<&mut Pointers>,
) -> Option<Vec<Source>> {
    let values = match value {
        Value::Array(values) => values,
        single => vec![single],
    };
    let mut sources = Vec::new();
    for value in values {
        let Value::String(text) = &value else {
            section.wrong_type(key, &value, "a JSON pointer in quotes, such as \"/data/id\"");
            continue;
        };
        let added = match (text.strip_prefix('@'), item.as_deref_mut()) {
            (None, _) => body.add(text).map(Source::Body),
            (Some(rest), Some(item)) => item.add(rest).map(Source::Item),
            (Some(_), None) => Err("`@` means the item of a list, and there is none here"),
        };
        match added {
            Ok(source) => sources.push(source),
            Err(reason) => {
                section.problem(key, format!("`{text}`: {reason}; write for example \"/data/id\""));
            }
        }
    }
    (!sources.is_empty()).then_some(sources)
}

/// Reads guards: a table, or a list of tables.
pub(super) fn read_conditions(
    section: &mut Section<'_>,
    key: &'static str,
    body: &mut Pointers,
    mut item: Option<&mut Pointers>,
) -> Vec<Condition> {
    let mut conditions = Vec::new();
    for mut own in section.sections(key) {
        let source = read_place(&mut own, body, item.as_deref_mut());
        let test = read_test(&mut own);
        own.finish();
        conditions.extend(source.zip(test).map(|(source, test)| Condition { source, test }));
    }
    conditions
}

fn read_test(section: &mut Section<'_>) -> Option<Test> {
    let equals = section.take("equals");
    let any_of = section.take("in");
    let present = section.boolean("present");
    let greater_than = section.integer("greater_than", i64::MIN..=i64::MAX);
    let constants = |values: Vec<Value>| {
        let read = values.into_iter().map(|value| match value {
            Value::String(text) => Some(Constant::Text(text)),
            Value::Integer(number) => Some(Constant::Number(number)),
            Value::Boolean(value) => Some(Constant::Boolean(value)),
            _ => None,
        });
        read.collect::<Option<Vec<_>>>().map(Test::OneOf)
    };
    let test = match (equals, any_of, present, greater_than) {
        (Some(value), None, None, None) => constants(vec![value]),
        (None, Some(Value::Array(values)), None, None) => constants(values),
        (None, None, Some(wanted), None) => Some(Test::Present(wanted)),
        (None, None, None, Some(limit)) => Some(Test::GreaterThan(limit)),
        _ => None,
    };
    if test.is_none() {
        section
            .problem_here("needs one test: `equals = …`, `in = […]`, `present = true` or `greater_than = 0`");
    }
    test
}
