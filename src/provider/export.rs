//! What of a body is personal, and what is not: the `[export]` table of a provider file, and the places that events
//! are read from.

use std::collections::BTreeSet;

use super::definition::Definition;
use super::mapping::{Condition, On, Source};
use super::signature::{Part, TimestampSource};
use crate::section::Section;

/// What a provider file says of its bodies to those who take a copy of one.
#[derive(Debug, Clone, Default)]
pub struct ExportRule {
    /// Values that are always replaced.
    pub personal: Vec<Pattern>,
    /// Values that are left as they are, whatever they look like.
    pub keep: Vec<Pattern>,
}

/// A JSON pointer of which a segment `*` is any item of a list, or any member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pattern(Vec<Segment>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Segment {
    Any,
    Named(String),
}

impl Pattern {
    /// Reads a pattern. The error says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let path = text.strip_prefix('/').ok_or("a JSON pointer starts with `/`")?;
        if path.is_empty() {
            return Err("a JSON pointer names a key after the `/`");
        }
        let segments = path.split('/').map(|segment| match segment {
            "*" => Segment::Any,
            named => Segment::Named(named.replace("~1", "/").replace("~0", "~")),
        });
        Ok(Self(segments.collect()))
    }

    /// Whether it names exactly this place.
    pub fn is(&self, mut path: impl ExactSizeIterator<Item = impl AsRef<str>>) -> bool {
        self.0.len() == path.len() && self.begins(&mut path)
    }

    /// Whether it names this place, or one above it.
    pub fn covers(&self, mut path: impl ExactSizeIterator<Item = impl AsRef<str>>) -> bool {
        self.0.len() <= path.len() && self.begins(&mut path)
    }

    /// Whether it names this place, or one below it.
    pub fn passes(&self, mut path: impl ExactSizeIterator<Item = impl AsRef<str>>) -> bool {
        self.0.len() >= path.len() && self.begins(&mut path)
    }

    fn begins(&self, path: &mut impl Iterator<Item = impl AsRef<str>>) -> bool {
        self.0.iter().zip(path).all(|(segment, name)| match segment {
            Segment::Any => true,
            Segment::Named(wanted) => wanted == name.as_ref(),
        })
    }
}

/// Where an event is read from.
#[derive(Debug, Clone, Default)]
pub struct Reads {
    /// In the body.
    pub body: Vec<Pattern>,
    /// Headers, signed ones included; lower-case.
    pub headers: BTreeSet<String>,
}

impl Definition {
    /// Where events of a type are read from.
    pub fn reads(&self, kind: &str) -> Reads {
        let mut reads = Reads::default();
        let event = &self.event;
        reads.add(event.body.texts());
        if let Some(TimestampSource::Body(pointers, _)) =
            self.signature.timestamp.as_ref().map(|rule| &rule.source)
        {
            reads.add(pointers.texts());
        }
        let time = event.occurred_at.iter().flat_map(|rule| &rule.source);
        let named = event.id.iter().chain(&event.kind).chain(&event.account).chain(&event.version);
        reads.headers.extend(named.chain(time).filter_map(header));
        reads.headers.extend(event.mode.iter().flat_map(|mode| guards(mode.conditions())));
        reads.headers.extend(self.signature.signed.iter().filter_map(|part| match part {
            Part::Header(name) => Some(name.clone()),
            _ => None,
        }));
        for on in self.on.iter().filter(|on| on.types.iter().any(|known| known == kind)) {
            reads.add_on(on);
        }
        reads
    }
}

impl Reads {
    fn add<'t>(&mut self, pointers: impl Iterator<Item = &'t str>) {
        self.body.extend(pointers.filter_map(|pointer| Pattern::parse(pointer).ok()));
    }

    /// Fields are read from signed headers only, which stand here already; guards may look at others.
    fn add_on(&mut self, on: &On) {
        self.headers.extend(guards(on.require.iter().chain(&on.when)));
        self.add(on.body.texts());
        let item = on.for_each.map(|list| format!("{}/*", on.body.text(list)));
        if let Some(item) = &item {
            for pointer in on.item.texts() {
                self.add([format!("{item}{pointer}")].iter().map(String::as_str));
            }
        }
        for list in on.lists_of_lines() {
            let list = match (list, &item) {
                (Source::Body(slot), _) => on.body.text(*slot).to_owned(),
                (Source::Item(slot), Some(item)) => format!("{item}{}", on.item.text(*slot)),
                _ => continue,
            };
            for pointer in on.line.texts() {
                self.add([format!("{list}/*{pointer}")].iter().map(String::as_str));
            }
        }
    }
}

fn header(source: &Source) -> Option<String> {
    match source {
        Source::Header(name) => Some(name.clone()),
        Source::Body(_) | Source::Item(_) | Source::Constant(_) => None,
    }
}

fn guards<'c>(conditions: impl IntoIterator<Item = &'c Condition>) -> impl Iterator<Item = String> {
    conditions.into_iter().flat_map(|condition| &condition.source).filter_map(header)
}

pub(super) fn read_export(section: Option<Section<'_>>) -> ExportRule {
    let Some(mut section) = section else { return ExportRule::default() };
    let rule =
        ExportRule { personal: patterns(&mut section, "personal"), keep: patterns(&mut section, "keep") };
    section.finish();
    rule
}

fn patterns(section: &mut Section<'_>, key: &'static str) -> Vec<Pattern> {
    let mut patterns = Vec::new();
    for text in section.texts(key).unwrap_or_default() {
        match Pattern::parse(&text) {
            Ok(pattern) => patterns.push(pattern),
            Err(reason) => {
                section.problem(key, format!("`{text}`: {reason}; write for example \"/customer/*/phone\""));
            }
        }
    }
    patterns
}
