//! Reading the few fields that a definition names, in one pass over the body.
//!
//! The body stays the truth: a field is handed out as the bytes it is written with ([`RawValue`]), so that a
//! number never becomes a float and a text is decoded only when somebody asks for it. What nobody asked for
//! is skipped.

use std::borrow::Cow;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, Error as _, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// JSON nested deeper than this is refused. Providers' events go some ten levels deep.
pub const DEPTH_MAX: usize = 128;

/// The place of a pointer's value among the extracted ones.
pub type Slot = usize;

/// A set of JSON pointers (RFC 6901), ready to be found in a body.
#[derive(Debug, Clone, Default)]
pub struct Pointers {
    root: Node,
    texts: Vec<String>,
}

#[derive(Debug, Clone, Default)]
struct Node {
    slot: Option<Slot>,
    children: Vec<(String, Node)>,
}

/// Why a signed body cannot be read. It becomes a dead letter with this text.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Unreadable(pub String);

impl Unreadable {
    fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }
}

impl Pointers {
    /// Adds a pointer; the same pointer twice has one slot. The error says what is wrong with it.
    pub fn add(&mut self, pointer: &str) -> Result<Slot, &'static str> {
        let path = pointer.strip_prefix('/').ok_or("a JSON pointer starts with `/`")?;
        if path.is_empty() {
            return Err("a JSON pointer names a key after the `/`");
        }
        let mut node = &mut self.root;
        for token in path.split('/') {
            let token = token.replace("~1", "/").replace("~0", "~");
            let at = node.children.iter().position(|(key, _)| *key == token).unwrap_or_else(|| {
                node.children.push((token, Node::default()));
                node.children.len() - 1
            });
            node = &mut node.children[at].1;
        }
        Ok(*node.slot.get_or_insert_with(|| {
            self.texts.push(pointer.to_owned());
            self.texts.len() - 1
        }))
    }

    /// The pointer of a slot, as written in the definition.
    pub fn text(&self, slot: Slot) -> &str {
        &self.texts[slot]
    }

    /// All pointers, as written in the definition.
    pub fn texts(&self) -> impl Iterator<Item = &str> {
        self.texts.iter().map(String::as_str)
    }

    /// How many slots there are.
    pub fn len(&self) -> usize {
        self.texts.len()
    }

    /// Whether no pointer was added.
    pub fn is_empty(&self) -> bool {
        self.texts.is_empty()
    }

    /// Finds the pointers' values in a body that comes from outside. `null` and an absent key differ.
    ///
    /// The body must be one JSON object in well-formed UTF-8, not nested beyond [`DEPTH_MAX`], without half a
    /// surrogate pair, and no object that is read may repeat a key: with two answers to one question, there
    /// is none.
    pub fn extract<'a>(&self, body: &'a [u8]) -> Result<Vec<Option<&'a RawValue>>, Unreadable> {
        self.extract_text(object_text(body)?)
    }

    /// Finds the pointers' values in a part of a body that was extracted before, such as a line.
    pub fn extract_part<'a>(&self, part: &'a RawValue) -> Result<Vec<Option<&'a RawValue>>, Unreadable> {
        self.extract_text(part.get())
    }

    /// Finds the pointers' values in a text that [`object_text`] has checked.
    pub(super) fn extract_text<'a>(&self, text: &'a str) -> Result<Vec<Option<&'a RawValue>>, Unreadable> {
        let mut found = vec![None; self.texts.len()];
        let mut json = serde_json::Deserializer::from_str(text);
        Walk { node: &self.root, found: &mut found }
            .deserialize(&mut json)
            .and_then(|()| json.end())
            .map_err(|error| Unreadable::new(format!("the body is not JSON that can be read: {error}")))?;
        Ok(found)
    }
}

/// Walks one value, looking for what a node and its children name.
struct Walk<'n, 'a, 'f> {
    node: &'n Node,
    found: &'f mut Vec<Option<&'a RawValue>>,
}

impl<'a> DeserializeSeed<'a> for Walk<'_, 'a, '_> {
    type Value = ();

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<(), D::Error> {
        let Some(slot) = self.node.slot else { return deserializer.deserialize_any(self) };
        let raw: &'a RawValue = serde::Deserialize::deserialize(deserializer)?;
        self.found[slot] = Some(raw);
        if self.node.children.is_empty() {
            return Ok(());
        }
        serde_json::Deserializer::from_str(raw.get()).deserialize_any(self).map_err(D::Error::custom)
    }
}

impl<'a> Visitor<'a> for Walk<'_, 'a, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any JSON")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut map: A) -> Result<(), A::Error> {
        let mut seen = 0_u64;
        while let Some(child) = map.next_key_seed(Child(self.node))? {
            let Some(child) = child else {
                map.next_value::<IgnoredAny>()?;
                continue;
            };
            let (key, node) = &self.node.children[child];
            // More than 64 fields of one object are not tracked; a definition names a handful.
            let bit = 1_u64.checked_shl(u32::try_from(child).unwrap_or(u32::MAX)).unwrap_or(0);
            if seen & bit != 0 {
                return Err(A::Error::custom(format!("the key `{key}` stands twice in one object")));
            }
            seen |= bit;
            map.next_value_seed(Walk { node, found: &mut *self.found })?;
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'a>>(self, mut list: A) -> Result<(), A::Error> {
        let mut index = 0_usize;
        loop {
            let text = index.to_string();
            let child = self.node.children.iter().find(|(key, _)| *key == text);
            let more = match child {
                Some((_, node)) => list.next_element_seed(Walk { node, found: &mut *self.found })?.is_some(),
                None => list.next_element::<IgnoredAny>()?.is_some(),
            };
            if !more {
                return Ok(());
            }
            index += 1;
        }
    }

    // A scalar where the pointer goes deeper: the pointer's value is absent.
    fn visit_bool<E>(self, _: bool) -> Result<(), E> {
        Ok(())
    }
    fn visit_i64<E>(self, _: i64) -> Result<(), E> {
        Ok(())
    }
    fn visit_u64<E>(self, _: u64) -> Result<(), E> {
        Ok(())
    }
    fn visit_f64<E>(self, _: f64) -> Result<(), E> {
        Ok(())
    }
    fn visit_str<E>(self, _: &str) -> Result<(), E> {
        Ok(())
    }
    fn visit_unit<E>(self) -> Result<(), E> {
        Ok(())
    }
}

/// Reads an object's key and says which child it is, without keeping the key.
struct Child<'n>(&'n Node);

impl<'a> DeserializeSeed<'a> for Child<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'a>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_str(self)
    }
}

impl Visitor<'_> for Child<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.children.iter().position(|(child, _)| child == key))
    }
}

/// The body as text, if it is one JSON object as far as a look that parses nothing can tell. Once per body.
pub(super) fn object_text(body: &[u8]) -> Result<&str, Unreadable> {
    let text = well_formed(body)?;
    if !text.trim_start().starts_with('{') {
        return Err(Unreadable::new(format!("the body is {}, not an object", shape_of(text.trim_start()))));
    }
    Ok(text)
}

/// The body as text, checked for what a JSON parser that skips does not check.
fn well_formed(body: &[u8]) -> Result<&str, Unreadable> {
    if body.starts_with(b"\xef\xbb\xbf") {
        return Err(Unreadable::new("the body starts with a byte order mark, which JSON does not allow"));
    }
    let text = str::from_utf8(body).map_err(|error| {
        Unreadable::new(format!("the body is not UTF-8 after {} bytes", error.valid_up_to()))
    })?;
    let mut depth = 0_usize;
    let mut in_string = false;
    let mut at = 0;
    while at < body.len() {
        match body[at] {
            b'"' => in_string = !in_string,
            b'\\' if in_string => at += escape_length(body, at)? - 1,
            b'{' | b'[' if !in_string => {
                depth += 1;
                if depth > DEPTH_MAX {
                    return Err(Unreadable::new(format!(
                        "the body is nested deeper than {DEPTH_MAX} levels"
                    )));
                }
            }
            b'}' | b']' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        at += 1;
    }
    Ok(text)
}

/// The length of the escape at a backslash; a surrogate pair is one escape of twelve bytes.
fn escape_length(body: &[u8], at: usize) -> Result<usize, Unreadable> {
    let unit = |at: usize| {
        let digits = body.get(at..at + 6)?.strip_prefix(b"\\u")?;
        u16::from_str_radix(str::from_utf8(digits).ok()?, 16).ok()
    };
    match (unit(at), unit(at + 6)) {
        (Some(0xD800..=0xDBFF), Some(0xDC00..=0xDFFF)) => Ok(12),
        (Some(0xD800..=0xDFFF), _) => Err(Unreadable::new(format!("half a surrogate pair at byte {at}"))),
        _ => Ok(2),
    }
}

/// What a JSON value is, for errors that must not show the value itself.
pub fn shape_of(json: &str) -> &'static str {
    match json.bytes().next() {
        Some(b'{') => "an object",
        Some(b'[') => "a list",
        Some(b'"') => "a text",
        Some(b't' | b'f') => "true or false",
        Some(b'n') => "null",
        Some(b'-' | b'0'..=b'9') => "a number",
        Some(_) => "not JSON",
        None => "empty",
    }
}

/// A text, or a number as it is written. The error is the value's shape.
pub fn read_text(raw: &RawValue) -> Result<Cow<'_, str>, &'static str> {
    let json = raw.get();
    match json.as_bytes()[0] {
        // A text without escapes is borrowed; serde_json hands out `String` only where it must decode.
        b'"' => match json[1..json.len() - 1].contains('\\') {
            false => Ok(Cow::Borrowed(&json[1..json.len() - 1])),
            true => serde_json::from_str(json).map(Cow::Owned).map_err(|_| "a broken text"),
        },
        b'-' | b'0'..=b'9' => Ok(Cow::Borrowed(json)),
        _ => Err(shape_of(json)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn extract(pointers: &[&str], body: &[u8]) -> Result<Vec<Option<String>>, String> {
        let mut set = Pointers::default();
        for pointer in pointers {
            set.add(pointer).unwrap();
        }
        let found = set.extract(body).map_err(|error| error.0)?;
        Ok(found.into_iter().map(|raw| raw.map(|raw| raw.get().to_owned())).collect())
    }

    #[test]
    fn fields_come_out_as_they_are_written() {
        let body = br#"{"id":"evt_1","skip":{"id":[1,{"a":"]"}]},"data":{"amount":1099.0,"big":820982911946154508,"list":[{"x":1},{"x":null}]},"n":null}"#;
        let found = extract(
            &[
                "/id",
                "/data/amount",
                "/data/big",
                "/data/list/1/x",
                "/data/list",
                "/n",
                "/absent",
                "/id/deeper",
            ],
            body,
        );
        let texts: Vec<Option<String>> = found.unwrap();
        let texts: Vec<Option<&str>> = texts.iter().map(Option::as_deref).collect();
        assert_eq!(
            texts,
            [
                Some("\"evt_1\""),
                Some("1099.0"),
                Some("820982911946154508"),
                Some("null"),
                Some(r#"[{"x":1},{"x":null}]"#),
                Some("null"),
                None,
                None
            ]
        );
    }

    #[test]
    fn what_is_not_one_clear_object_is_unreadable() {
        let deep = format!(r#"{{"skip":{}{},"id":1}}"#, "[".repeat(128), "]".repeat(128));
        let cases: &[(&[u8], &str)] = &[
            (b"[]", "the body is a list, not an object"),
            (br#"["evt_1","invoice.paid",{}]"#, "the body is a list, not an object"),
            (b"\"x\"", "the body is a text, not an object"),
            (b"1", "the body is a number, not an object"),
            (b"null", "the body is null, not an object"),
            (b"", "the body is empty, not an object"),
            (b"\xef\xbb\xbf{}", "byte order mark"),
            (b"{\"a\":\"\xff\"}", "not UTF-8 after 6 bytes"),
            (br#"{"name":"\ud800","id":1}"#, "half a surrogate pair"),
            (br#"{"name":"\udc00","id":1}"#, "half a surrogate pair"),
            (br#"{"id":1,"id":2}"#, "the key `id` stands twice"),
            (br#"{"id":1} trailing"#, "not JSON"),
            (br#"{"id":1"#, "not JSON"),
            (br#"{"other":tru,"id":1}"#, "not JSON"),
            (deep.as_bytes(), "nested deeper than 128"),
        ];
        for (body, reason) in cases {
            let error = extract(&["/id"], body).unwrap_err();
            assert!(error.contains(reason), "{:?}: {error}", String::from_utf8_lossy(body));
        }
    }

    #[test]
    fn what_is_odd_but_clear_is_read() {
        for body in [
            r#"{"skip":"\ud83d\ude00 \u0000 \\ud800 \"[","id":1}"#.to_owned(),
            r#"{"emoji":"😀","id":1}"#.to_owned(),
            r#" {"skip":1,"skip":2,"id":1} "#.to_owned(),
            format!(r#"{{"skip":{}{},"id":1}}"#, "[".repeat(127), "]".repeat(127)),
        ] {
            assert_eq!(extract(&["/id"], body.as_bytes()).unwrap(), [Some("1".to_owned())], "{body}");
        }
    }

    #[test]
    fn a_repeated_key_counts_only_where_the_definition_looks() {
        assert!(extract(&["/a/b"], br#"{"a":{"b":1,"b":1}}"#).is_err());
        assert!(extract(&["/a"], br#"{"a":{"b":1,"b":1}}"#).is_ok());
    }
}
