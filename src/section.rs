//! Reading TOML so that *every* mistake is reported at once.
//!
//! A derived `Deserialize` stops at the first mistake. People who write a provider file want the whole
//! list: each problem names the file, the key and the way out. A [`Section`] is one table of a file; keys
//! are taken out of it one by one, and what nobody took is an unknown key.

use std::cell::RefCell;
use std::fmt;

use toml::{Table, Value};

/// One mistake in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// The file, as the user named it.
    pub file: String,
    /// The key's path in the file, such as `signature.key.decode`; empty when the file as a whole is meant.
    pub key: String,
    /// What is wrong and what to do about it, in one sentence.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.key.is_empty() {
            write!(f, "{}: {}", self.file, self.text)
        } else {
            write!(f, "{}: {}: {}", self.file, self.key, self.text)
        }
    }
}

/// The list that the sections of one file write their mistakes to.
#[derive(Debug, Default)]
pub struct Problems {
    file: String,
    found: RefCell<Vec<Problem>>,
}

impl Problems {
    /// An empty list for a file.
    pub fn of(file: impl Into<String>) -> Self {
        Self { file: file.into(), found: RefCell::default() }
    }

    /// Notes a mistake.
    pub fn add(&self, key: impl Into<String>, text: impl Into<String>) {
        self.found.borrow_mut().push(Problem { file: self.file.clone(), key: key.into(), text: text.into() });
    }

    /// How many there are by now.
    pub fn count(&self) -> usize {
        self.found.borrow().len()
    }

    /// The mistakes found, in the order in which the file was read.
    pub fn into_inner(self) -> Vec<Problem> {
        self.found.into_inner()
    }

    /// Parses a file's text; a syntax error is the one problem that hides the others.
    pub fn parse(&self, text: &str) -> Option<Table> {
        match text.parse::<Table>() {
            Ok(table) => Some(table),
            Err(error) => {
                let line = error
                    .span()
                    .map_or(1, |span| text[..span.start.min(text.len())].matches('\n').count() + 1);
                self.add("", format!("line {line} is not TOML: {}", error.message()));
                None
            }
        }
    }
}

/// A table that is being read.
pub struct Section<'a> {
    table: Table,
    path: String,
    problems: &'a Problems,
    known: RefCell<Vec<&'static str>>,
}

impl<'a> Section<'a> {
    /// The root table of a file.
    pub fn root(table: Table, problems: &'a Problems) -> Self {
        Self::at(String::new(), table, problems)
    }

    /// A table at a path.
    pub fn at(path: String, table: Table, problems: &'a Problems) -> Self {
        Self { table, path, problems, known: RefCell::default() }
    }

    /// The full path of a key of this table.
    pub fn path(&self, key: &str) -> String {
        if self.path.is_empty() { key.to_owned() } else { format!("{}.{key}", self.path) }
    }

    /// The list of problems that this section writes to.
    pub fn problems(&self) -> &'a Problems {
        self.problems
    }

    /// Notes a mistake at a key of this table.
    pub fn problem(&self, key: &str, text: impl Into<String>) {
        self.problems.add(self.path(key), text);
    }

    /// Notes a mistake of the table as a whole.
    pub fn problem_here(&self, text: impl Into<String>) {
        self.problems.add(self.path.clone(), text);
    }

    /// Whether the key is written in the file.
    pub fn has(&self, key: &str) -> bool {
        self.table.contains_key(key)
    }

    /// A text that is left in the table for somebody else to take.
    pub fn peek(&self, key: &str) -> Option<&str> {
        self.table.get(key).and_then(Value::as_str)
    }

    /// Takes a value of any type.
    pub fn take(&mut self, key: &'static str) -> Option<Value> {
        self.known.borrow_mut().push(key);
        self.table.remove(key)
    }

    /// Takes a text.
    pub fn text(&mut self, key: &'static str) -> Option<String> {
        match self.take(key)? {
            Value::String(text) if text.is_empty() => {
                self.problem(key, "is empty; write a value or leave the key out");
                None
            }
            Value::String(text) => Some(text),
            other => {
                self.wrong_type(key, &other, "a text in quotes");
                None
            }
        }
    }

    /// Takes a text that must be there.
    pub fn required_text(&mut self, key: &'static str, example: &str) -> Option<String> {
        self.require(key, example).then(|| self.text(key)).flatten()
    }

    /// Takes a whole number within bounds.
    pub fn integer(&mut self, key: &'static str, bounds: std::ops::RangeInclusive<i64>) -> Option<i64> {
        match self.take(key)? {
            Value::Integer(number) if bounds.contains(&number) => Some(number),
            Value::Integer(number) => {
                let (low, high) = (bounds.start(), bounds.end());
                self.problem(key, format!("is {number}; write a number from {low} to {high}"));
                None
            }
            other => {
                self.wrong_type(key, &other, "a whole number");
                None
            }
        }
    }

    /// Takes `true` or `false`.
    pub fn boolean(&mut self, key: &'static str) -> Option<bool> {
        match self.take(key)? {
            Value::Boolean(value) => Some(value),
            other => {
                self.wrong_type(key, &other, "true or false");
                None
            }
        }
    }

    /// Takes a list of texts; a single text is a list of one.
    pub fn texts(&mut self, key: &'static str) -> Option<Vec<String>> {
        let items = match self.take(key)? {
            Value::Array(items) => items,
            single => vec![single],
        };
        let mut texts = Vec::new();
        for item in items {
            match item {
                Value::String(text) if text.is_empty() => {
                    self.problem(key, "holds an empty text; remove it");
                }
                Value::String(text) => texts.push(text),
                other => self.wrong_type(key, &other, "a text in quotes, or a list of them"),
            }
        }
        Some(texts)
    }

    /// Takes a sub-table.
    pub fn section(&mut self, key: &'static str) -> Option<Section<'a>> {
        match self.take(key)? {
            Value::Table(table) => Some(Section::at(self.path(key), table, self.problems)),
            other => {
                self.wrong_type(key, &other, "a table");
                None
            }
        }
    }

    /// Takes a list of tables; a single table is a list of one.
    pub fn sections(&mut self, key: &'static str) -> Vec<Section<'a>> {
        let items = match self.take(key) {
            None => return Vec::new(),
            Some(Value::Array(items)) => items,
            Some(single) => vec![single],
        };
        let mut sections = Vec::new();
        for (index, item) in items.into_iter().enumerate() {
            match item {
                Value::Table(table) => {
                    let path = format!("{}[{index}]", self.path(key));
                    sections.push(Section::at(path, table, self.problems));
                }
                other => self.wrong_type(key, &other, "a list of tables"),
            }
        }
        sections
    }

    /// Notes a missing key; `true` if it is there.
    pub fn require(&mut self, key: &'static str, example: &str) -> bool {
        self.known.borrow_mut().push(key);
        let there = self.has(key);
        if !there {
            self.problem(key, format!("is missing; write for example `{key} = {example}`"));
        }
        there
    }

    /// The keys that are left, for tables whose keys are data (header names, words of a value map).
    pub fn into_entries(self) -> impl Iterator<Item = (String, Value)> {
        self.table.into_iter()
    }

    /// Ends the reading early: what is left in the table cannot be judged.
    pub fn leave_the_rest(&mut self) {
        self.table.clear();
    }

    /// Ends the reading: what is left in the table is unknown.
    pub fn finish(self) {
        let mut known = self.known.borrow().clone();
        known.sort_unstable();
        known.dedup();
        for key in self.table.keys() {
            let near = known.iter().find(|candidate| one_edit_apart(candidate, key));
            let way_out = near.map_or_else(
                || format!("remove it, or use one of: {}", known.join(", ")),
                |near| format!("did you mean `{near}`?"),
            );
            self.problem(key, format!("is not a key of this table; {way_out}"));
        }
    }

    /// Notes that a value has the wrong type.
    pub fn wrong_type(&self, key: &str, value: &Value, wanted: &str) {
        self.problem(key, format!("is {}; write {wanted}", kind_of(value)));
    }
}

fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::String(_) => "a text",
        Value::Integer(_) => "a whole number",
        Value::Float(_) => "a fractional number",
        Value::Boolean(_) => "true or false",
        Value::Datetime(_) => "a date",
        Value::Array(_) => "a list",
        Value::Table(_) => "a table",
    }
}

/// Whether a single insertion, removal, replacement or swap of neighbours turns one word into the other.
fn one_edit_apart(a: &str, b: &str) -> bool {
    let (a, b): (Vec<char>, Vec<char>) = (a.chars().collect(), b.chars().collect());
    if a.len().abs_diff(b.len()) > 1 {
        return false;
    }
    let front = a.iter().zip(&b).take_while(|(x, y)| x == y).count();
    let back = a.iter().rev().zip(b.iter().rev()).take_while(|(x, y)| x == y).count();
    let (rest_a, rest_b) = (a.len().saturating_sub(front + back), b.len().saturating_sub(front + back));
    let swapped = rest_a == 2 && rest_b == 2 && a[front] == b[front + 1] && a[front + 1] == b[front];
    rest_a.max(rest_b) <= 1 || swapped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_mistake_of_a_table_is_reported() {
        let problems = Problems::of("a.toml");
        let table = problems.parse("algorithn = \"x\"\nlimit = \"ten\"\nname = \"\"").unwrap();
        let mut section = Section::root(table, &problems);
        section.text("algorithm");
        section.integer("limit", 1..=9);
        section.text("name");
        section.require("header", "\"x\"");
        section.finish();
        let found: Vec<String> = problems.into_inner().iter().map(ToString::to_string).collect();
        assert_eq!(
            found,
            [
                "a.toml: limit: is a text; write a whole number",
                "a.toml: name: is empty; write a value or leave the key out",
                "a.toml: header: is missing; write for example `header = \"x\"`",
                "a.toml: algorithn: is not a key of this table; did you mean `algorithm`?",
            ]
        );
    }

    #[test]
    fn a_syntax_error_names_its_line() {
        let problems = Problems::of("a.toml");
        assert!(problems.parse("a = 1\nb = = 2\n").is_none());
        assert!(problems.into_inner()[0].text.starts_with("line 2 is not TOML"));
    }
}
