//! Provider files: all mistakes at once, each with its key and a way out, and none that is not one.

use std::collections::BTreeSet;

use wharf::provider::{BUILT_IN, Catalogue, Definition};

/// A sound file, of which tests change a line.
const SOUND: &str = r#"
title = "Acme Logistics"
documentation = ["https://acme.example/webhooks"]

[signature]
header = "x-acme-signature"
format = { pairs = ",", signature = "v1", timestamp = "t" }
key = { decode = "utf8" }
signed = "{header:x-acme-delivery}.{timestamp}.{body}"
algorithm = "hmac-sha256"
encoding = "hex"
tolerance_seconds = { past = 300, future = 300 }

[event]
id = { header = "x-acme-delivery" }
type = "/event"

[answer]
success_status = 202

[redelivery]
gives_up_after = 6

[[on]]
type = "payment"
when = { at = "/invoice", present = true }
change = "invoice.paid"
invoice = "/invoice"
payment = "/payment"
amount = { minor = "/amount" }
currency = "/currency"

[[on]]
type = "refund"
change = "invoice.refunded"
counting = "single"
payment = "/payment"
refund = "/refund"
amount = { minor = "/amount" }
currency = "/currency"

[[on]]
type = "count"
change = "receipt.received"
receipt = "/receipt"
counting = "totals"
lines = { each = "/lines", sku = "@/sku", received = "@/received", unit = { word = "@/unit", single = ["EA"] } }
"#;

/// The problems of a file, as they are shown.
fn problems(text: &str) -> Vec<String> {
    match Definition::parse("acme.toml", text) {
        Ok(_) => Vec::new(),
        Err(problems) => problems.iter().map(ToString::to_string).collect(),
    }
}

/// The problems of the sound file after a change.
#[track_caller]
fn problems_with(from: &str, to: &str) -> Vec<String> {
    assert_eq!(SOUND.matches(from).count(), 1, "{from} stands there once");
    problems(&SOUND.replace(from, to))
}

#[test]
fn every_built_in_file_is_sound_and_says_where_its_facts_are_from() {
    let mut titles = BTreeSet::new();
    for (file, text) in BUILT_IN {
        let definition = Definition::parse(file, text).unwrap_or_else(|problems| panic!("{problems:#?}"));
        assert_eq!(format!("{}.toml", definition.name), file);
        assert!(titles.insert(definition.title), "{file} has a title of its own");
        assert!(!definition.documentation.is_empty(), "{file}");
        assert!(definition.documentation.iter().all(|page| page.starts_with("https://")), "{file}");
        assert!(!definition.on.is_empty(), "{file}");
    }
    assert_eq!(Catalogue::built_in().names(), "shipbob, shiphero, shopify, stripe, warehouse");
}

#[test]
fn a_sound_file_has_no_problems() {
    assert_eq!(problems(SOUND), [""; 0]);
}

#[test]
fn what_is_personal_is_named_by_pointers() {
    let with = |export: &str| problems_with("[redelivery]", &format!("[export]\n{export}\n[redelivery]"));
    assert_eq!(with("personal = [\"/buyer/*/name\", \"/a~1b\"]\nkeep = \"/buyer/0/name\""), [""; 0]);
    assert_eq!(
        with("personal = [\"buyer\", 7, \"/\"]\nkept = [\"/a\"]\nkeep = []"),
        [
            "acme.toml: export.personal: is a whole number; write a text in quotes, or a list of them",
            "acme.toml: export.personal: `buyer`: a JSON pointer starts with `/`; write for example \"/customer/*/phone\"",
            "acme.toml: export.personal: `/`: a JSON pointer names a key after the `/`; write for example \"/customer/*/phone\"",
            "acme.toml: export.kept: is not a key of this table; remove it, or use one of: keep, personal",
        ]
    );
}

#[test]
fn ten_mistakes_are_reported_at_once_each_with_its_key_and_a_way_out() {
    let mut text = SOUND.to_owned();
    let mut wanted = Vec::new();
    for (from, to, problem) in [
        (
            "title = \"Acme Logistics\"",
            "",
            "title: is missing; write for example `title = \"Acme Logistics\"`",
        ),
        (
            "{ decode = \"utf8\" }",
            "{ decode = \"rot13\" }",
            "signature.key.decode: is `rot13`; write one of: \"utf8\", \"base64\", \"hex\"",
        ),
        (
            ".{body}",
            "",
            "signature.signed: does not contain {body}; a signature that leaves the body out proves nothing",
        ),
        ("past = 300", "past = 0", "signature.tolerance_seconds.past: is 0; write a number from 1 to 86400"),
        (
            "type = \"/event\"",
            "type = \"event\"",
            "event.type: `event`: a JSON pointer starts with `/`; write for example \"/data/id\"",
        ),
        (
            "success_status = 202",
            "success_status = \"ok\"",
            "answer.success_status: is a text; write a whole number",
        ),
        (
            "gives_up_after",
            "give_up_after",
            "redelivery.give_up_after: is not a key of this table; did you mean `gives_up_after`?",
        ),
        (
            "present = true",
            "",
            "on[0].when[0]: needs one test: `equals = …`, `in = […]`, `present = true` or `greater_than = 0`",
        ),
        ("refund = \"/refund\"", "", "on[1].refund: is missing; write for example `refund = \"/refund\"`"),
        (
            "received = \"@/received\",",
            "",
            "on[2].lines: needs `received = \"@/…\"` (rejected units included) or `accepted = \"@/…\"`, one of them",
        ),
    ] {
        assert_eq!(text.matches(from).count(), 1, "{from} stands there once");
        text = text.replace(from, to);
        wanted.push(format!("acme.toml: {problem}"));
    }
    let mut found = problems(&text);
    wanted.sort();
    found.sort();
    assert_eq!(found, wanted);
}

#[test]
fn one_mistake_is_one_problem() {
    for (from, to, key) in [
        ("change = \"invoice.paid\"", "change = \"invoice.payed\"", "on[0].change"),
        ("change = \"invoice.paid\"", "", "on[0].change"),
        ("change = \"receipt.received\"", "change = \"receipt.counted\"", "on[2].change"),
        ("invoice = \"/invoice\"", "", "on[0].invoice"),
        ("invoice = \"/invoice\"", "invoice = \"invoice\"", "on[0].invoice"),
        (
            "payment = \"/payment\"\namount = { minor = \"/amount\" }\ncurrency = \"/currency\"\n\n[[on]]\ntype = \"refund\"",
            "amount = { minor = \"/amount\" }\ncurrency = \"/currency\"\n\n[[on]]\ntype = \"refund\"",
            "on[0].payment",
        ),
        ("counting = \"single\"", "", "on[1].counting"),
        ("counting = \"single\"", "counting = \"double\"", "on[1].counting"),
        ("counting = \"single\"", "counting = \"single\"\nstate = \"gone\"", "on[1].state"),
        ("counting = \"totals\"", "counting = \"sums\"", "on[2].counting"),
        ("counting = \"totals\"", "counting = \"deltas\"", "on[2].notice"),
        ("each = \"/lines\",", "", "on[2].lines.each"),
        ("sku = \"@/sku\",", "", "on[2].lines.sku"),
        ("single = [\"EA\"]", "single = [\"EA\"], pack = [\"CS\"]", "on[2].lines.unit.per_pack"),
        ("receipt = \"/receipt\"", "receipt = \"@/receipt\"", "on[2].receipt"),
        ("id = { header = \"x-acme-delivery\" }", "id = { }", "event.id"),
        ("tolerance_seconds = { past = 300, future = 300 }", "", "signature.tolerance_seconds"),
        ("{timestamp}", "{time}", "signature.signed"),
        ("algorithm = \"hmac-sha256\"", "algorithm = \"md5\"", "signature.algorithm"),
        ("pairs = \",\"", "pairs = \", \"", "signature.format.pairs"),
    ] {
        let found = problems_with(from, to);
        assert_eq!(found.len(), 1, "{to}: {found:#?}");
        assert!(found[0].starts_with(&format!("acme.toml: {key}: ")), "{found:?}");
    }
}

#[test]
fn a_wrong_key_is_refused_in_every_table_and_the_near_one_is_named() {
    for (from, to, shown) in [
        (
            "documentation",
            "documentaton",
            "documentaton: is not a key of this table; did you mean `documentation`?",
        ),
        (
            "tolerance_seconds",
            "tolerance_second",
            "signature.tolerance_second: is not a key of this table; did you mean `tolerance_seconds`?",
        ),
        (
            "decode = \"utf8\"",
            "decode = \"utf8\", strip_prefx = \"x\"",
            "signature.key.strip_prefx: is not a key of this table; did you mean `strip_prefix`?",
        ),
        (
            "future = 300",
            "fuutre = 300",
            "signature.tolerance_seconds.fuutre: is not a key of this table; did you mean `future`?",
        ),
        (
            "type = \"/event\"",
            "type = \"/event\"\nlvie = { at = \"/live\", equals = true }",
            "event.lvie: is not a key of this table; did you mean `live`?",
        ),
        ("when = {", "whem = {", "on[0].whem: is not a key of this table; did you mean `when`?"),
        (
            "single = [\"EA\"]",
            "single = [\"EA\"], packs = [\"CS\"]",
            "on[2].lines.unit.packs: is not a key of this table; did you mean `pack`?",
        ),
        (
            "gives_up_after = 6",
            "gives_up_after = 6\nretries = 3",
            "redelivery.retries: is not a key of this table; remove it, or use one of: gives_up_after",
        ),
    ] {
        let found = problems_with(from, to);
        assert!(found.contains(&format!("acme.toml: {shown}")), "{to}: {found:#?}");
    }
}

#[test]
fn a_type_that_is_not_signed_needs_a_body_that_confirms_it() {
    let unsigned = SOUND.replace("type = \"/event\"", "type = { header = \"x-acme-event\" }");
    let found = problems(&unsigned);
    for (index, problem) in found.iter().enumerate() {
        let start = format!("acme.toml: on[{index}].require: is missing: the event type stands in a header");
        assert!(problem.starts_with(&start), "{found:#?}");
    }
    assert_eq!(found.len(), 3);
    let with = |require: &str| {
        let required = unsigned.replace("change = ", &format!("require = {require}\nchange = "));
        problems(&required).len()
    };
    assert_eq!(with(r#"{ at = "/kind", equals = "payment" }"#), 0);
    assert_eq!(
        with(r#"[{ header = "x-acme-kind", equals = "payment" }, { at = "/kind", present = true }]"#),
        0
    );
    // None of these says anything about what the signed body holds.
    assert_eq!(with(r#"{ header = "x-acme-event", equals = "payment" }"#), 3);
    assert_eq!(with(r#"{ at = "/kind", header = "x-acme-event", equals = "payment" }"#), 3);
    assert_eq!(with(r#"{ at = "/kind", present = false }"#), 3);
    assert_eq!(with(r#"{ value = "payment", equals = "payment" }"#), 3);
    // A type that may come from the body or from a header may come from the header.
    let either = SOUND.replace("type = \"/event\"", "type = { at = \"/event\", header = \"x-acme-event\" }");
    assert_eq!(problems(&either).len(), 3);
    let signed = SOUND.replace("type = \"/event\"", "type = { header = \"X-Acme-Delivery\" }");
    assert_eq!(problems(&signed), [""; 0]);
}

#[test]
fn what_changes_the_books_is_never_read_from_a_header_that_is_not_signed() {
    for (from, to, key) in [
        ("invoice = \"/invoice\"", "invoice = { header = \"x-acme-note\" }", "on[0].invoice"),
        (
            "invoice = \"/invoice\"",
            "invoice = { at = \"/invoice\", header = \"x-acme-note\" }",
            "on[0].invoice",
        ),
        ("refund = \"/refund\"", "refund = { header = \"x-acme-note\", prefix = \"r:\" }", "on[1].refund"),
        ("receipt = \"/receipt\"", "receipt = { header = \"x-acme-note\" }", "on[2].receipt"),
        ("sku = \"@/sku\"", "sku = { header = \"x-acme-note\" }", "on[2].lines.sku"),
        ("received = \"@/received\"", "received = { header = \"x-acme-note\" }", "on[2].lines.received"),
        ("word = \"@/unit\"", "word = { header = \"x-acme-note\" }", "on[2].lines.unit.word"),
    ] {
        let shown = format!(
            "acme.toml: {key}: reads the header `x-acme-note`, which is not signed; name a place in the body"
        );
        assert_eq!(problems_with(from, to), [shown], "{to}");
        let signed = to.replace("x-acme-note", "X-Acme-Delivery");
        assert_eq!(problems_with(from, &signed), [""; 0], "{signed}");
    }
}

#[test]
fn a_file_that_is_not_toml_names_the_line() {
    let found = problems_with("[answer]", "[answer");
    assert_eq!(found.len(), 1);
    let line = SOUND.lines().position(|line| line == "[answer]").unwrap() + 1;
    assert!(found[0].starts_with(&format!("acme.toml: line {line} is not TOML: ")), "{found:?}");
}

#[test]
fn a_file_of_ones_own_adds_to_the_built_in_ones_or_replaces_one() {
    let mut catalogue = Catalogue::built_in();
    catalogue.add("somewhere/acme.toml", SOUND).unwrap();
    catalogue.add("somewhere/stripe.toml", SOUND).unwrap();
    assert_eq!(catalogue.names(), "acme, shipbob, shiphero, shopify, stripe, warehouse");
    assert_eq!(catalogue.get("stripe").unwrap().title, "Acme Logistics");
    for file in ["Acme.toml", "a b.toml", ".toml", "ä.toml"] {
        let problems = catalogue.add(file, SOUND).unwrap_err();
        assert!(problems[0].text.contains("cannot be a provider's name"), "{file}: {problems:?}");
    }
    assert!(catalogue.add("shopify.toml", "title = 1").is_err());
    assert_eq!(catalogue.get("shopify").unwrap().title, "Shopify", "a bad file replaces nothing");
}
