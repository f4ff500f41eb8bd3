//! What stands in for personal values: the same for the same value, all over a run.

use std::collections::BTreeMap;

use super::Kind;

/// The stand-ins that a run has given out.
#[derive(Debug, Default)]
pub struct StandIns {
    /// By what is replaced, and whether it is written as a number.
    given: BTreeMap<(String, bool), String>,
    counts: BTreeMap<Kind, u32>,
    /// Values that are replaced also where they stand inside other texts.
    pub(super) telling: Telling,
}

impl StandIns {
    /// What stands in for a text.
    pub(super) fn text(&mut self, kind: Kind, value: &str) -> String {
        if is_telling(kind, value) {
            self.telling.learn(kind, value);
            for other in other_spellings(kind, value) {
                self.telling.learn(kind, &other);
            }
        }
        self.give(kind, value, false)
    }

    /// What stands in for a number: digits.
    pub(super) fn number(&mut self, kind: Kind, value: &str) -> String {
        self.give(kind, value, true)
    }

    fn give(&mut self, kind: Kind, value: &str, is_number: bool) -> String {
        let key = (identity(kind, value), is_number);
        if let Some(given) = self.given.get(&key) {
            return given.clone();
        }
        let count = self.counts.entry(kind).or_default();
        *count += 1;
        let stand_in = if is_number { digits(kind, *count) } else { words(kind, *count, value) };
        self.given.insert(key, stand_in.clone());
        stand_in
    }
}

/// Whether a value tells who it is also where it stands inside another text. A word such as `paid`, or a number of few
/// digits, would be found in places where it means something else.
fn is_telling(kind: Kind, value: &str) -> bool {
    let is_a_name = value.chars().any(|c| c.is_uppercase() || !c.is_ascii() || c == ' ')
        && value.chars().any(char::is_alphabetic);
    match kind {
        Kind::Email | Kind::Phone | Kind::Ip | Kind::Card | Kind::Account | Kind::Token | Kind::Url => {
            value.len() >= 7
        }
        Kind::Person | Kind::Company | Kind::Street | Kind::City => value.chars().count() >= 3 && is_a_name,
        Kind::Text => value.contains(' ') && is_a_name,
        Kind::Region | Kind::PostalCode | Kind::Coordinate | Kind::CardEnd | Kind::Date => false,
    }
}

/// Values that are replaced wherever they stand, by their first word, so that a text is gone through once.
#[derive(Debug, Default)]
pub(super) struct Telling(BTreeMap<String, Vec<Known>>);

#[derive(Debug)]
pub(super) struct Known {
    pub(super) value: String,
    /// Where its first word begins.
    pub(super) word_at: usize,
    pub(super) kind: Kind,
}

impl Telling {
    /// The values that begin with a word.
    pub(super) fn by_first_word(&self, word: &str) -> &[Known] {
        self.0.get(word).map_or(&[], Vec::as_slice)
    }

    fn learn(&mut self, kind: Kind, value: &str) {
        let Some(word_at) = value.find(char::is_alphanumeric) else { return };
        let rest = &value[word_at..];
        let word = &rest[..rest.find(|c: char| !c.is_alphanumeric()).unwrap_or(rest.len())];
        let known = self.0.entry(word.to_owned()).or_default();
        if known.iter().all(|known| known.value != value) {
            known.push(Known { value: value.to_owned(), word_at, kind });
        }
    }
}

/// How a name stands in other texts: in capitals, or by one of its words alone.
fn other_spellings(kind: Kind, value: &str) -> Vec<String> {
    let is_long = |word: &str| word.chars().count() >= 4;
    let mut spellings = Vec::new();
    if kind == Kind::Person {
        let words = value.split(|c: char| !c.is_alphanumeric()).filter(|word| is_long(word));
        let names = words.filter(|word| word.chars().next().is_some_and(char::is_uppercase));
        spellings.extend(names.flat_map(|name| [name.to_owned(), name.to_uppercase()]));
    }
    if matches!(kind, Kind::Person | Kind::Company | Kind::Street | Kind::City) && is_long(value) {
        spellings.push(value.to_uppercase());
    }
    spellings
}

/// One address in two spellings is one person, and one name too.
fn identity(kind: Kind, value: &str) -> String {
    match kind {
        Kind::Email => value.replace("%40", "@").to_lowercase(),
        Kind::Person | Kind::Company | Kind::Street | Kind::City => value.to_lowercase(),
        Kind::Phone | Kind::Card => value.chars().filter(char::is_ascii_digit).collect(),
        _ => value.to_owned(),
    }
}

fn words(kind: Kind, count: u32, value: &str) -> String {
    match kind {
        Kind::Email => format!("person-{count}@example.com"),
        Kind::Phone => format!("+1{}", phone(count)),
        Kind::Person => format!("Person {count}"),
        Kind::Company => format!("Company {count}"),
        Kind::Street => format!("{count} Example Street"),
        Kind::City => format!("City {count}"),
        Kind::Region => format!("Region {count}"),
        Kind::Ip if value.contains(':') => format!("2001:db8::{count:x}"),
        // The three networks that are set aside for examples.
        Kind::Ip => match (count / 256) % 3 {
            0 => format!("192.0.2.{}", count % 256),
            1 => format!("198.51.100.{}", count % 256),
            _ => format!("203.0.113.{}", count % 256),
        },
        Kind::Account => account(count),
        Kind::Token => format!("redacted-token-{count}"),
        Kind::Url => format!("https://example.com/redacted-{count}"),
        Kind::Date => "1970-01-01".to_owned(),
        Kind::Text => format!("Redacted text {count}"),
        Kind::PostalCode | Kind::Card | Kind::CardEnd | Kind::Coordinate => digits(kind, count),
    }
}

fn digits(kind: Kind, count: u32) -> String {
    match kind {
        Kind::Phone => format!("1{}", phone(count)),
        Kind::PostalCode => (10_000 + count).to_string(),
        Kind::Card => card(count),
        Kind::CardEnd => "4242".to_owned(),
        _ => count.to_string(),
    }
}

/// Numbers of the exchange that is set aside for fiction.
fn phone(count: u32) -> String {
    format!("555010{count:04}")
}

/// The test card that everyone knows, then others that pass the check digit.
fn card(count: u32) -> String {
    if count == 1 {
        return "4242424242424242".to_owned();
    }
    let front = format!("42424242{:07}", u64::from(count) % 10_000_000);
    let check = (0..10).map(|digit| format!("{front}{digit}")).find(|card| super::detect::passes_luhn(card));
    check.unwrap_or(front)
}

/// An account number whose check digits fit, of a bank that does not exist.
fn account(count: u32) -> String {
    let account = format!("00000000{count:010}");
    // `DE00` moved to the end, as digits.
    let rest = format!("{account}131400").parse::<u128>().map_or(0, |number| number % 97);
    format!("DE{:02}{account}", 98 - rest)
}
