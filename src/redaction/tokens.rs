//! The tokens of a JSON text and the places where they stand, found without changing a byte.
//!
//! The walk takes any text and never fails: of one that is not JSON it finds what looks like tokens.

use std::ops::Range;

/// One step of a path: a member's name, or an item's index.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    pub(super) name: String,
    index: Option<usize>,
}

impl AsRef<str> for Step {
    fn as_ref(&self) -> &str {
        &self.name
    }
}

impl Step {
    fn item(index: usize) -> Self {
        Self { name: index.to_string(), index: Some(index) }
    }

    fn member() -> Self {
        Self { name: String::new(), index: None }
    }

    /// Whether it is a member's name.
    pub(super) fn is_member(&self) -> bool {
        self.index.is_none()
    }
}

/// What stands at a place.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token {
    /// A member's name; the path ends with it.
    Name,
    Text,
    Number,
}

/// Calls back for every name, text and number, with the path and the range of its bytes.
pub(super) fn walk(json: &str, mut found: impl FnMut(&[Step], Token, Range<usize>)) {
    let bytes = json.as_bytes();
    let mut path: Vec<Step> = Vec::new();
    let mut name_is_next = false;
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        at += 1;
        match bytes[start] {
            b'{' => {
                path.push(Step::member());
                name_is_next = true;
            }
            b'[' => {
                path.push(Step::item(0));
                name_is_next = false;
            }
            b'}' | b']' => {
                path.pop();
                name_is_next = false;
            }
            b':' => name_is_next = false,
            b',' => match path.last_mut() {
                Some(Step { index: Some(index), .. }) => {
                    let next = Step::item(*index + 1);
                    path.pop();
                    path.push(next);
                }
                Some(_) => name_is_next = true,
                None => {}
            },
            b'"' => {
                at = end_of_text(bytes, at);
                match path.last_mut() {
                    Some(step) if name_is_next => {
                        step.name = decode(&json[start..at]);
                        found(&path, Token::Name, start..at);
                    }
                    _ => found(&path, Token::Text, start..at),
                }
            }
            b'-' | b'0'..=b'9' => {
                while at < bytes.len() && matches!(bytes[at], b'0'..=b'9' | b'.' | b'e' | b'E' | b'+' | b'-')
                {
                    at += 1;
                }
                found(&path, Token::Number, start..at);
            }
            _ => {}
        }
    }
}

/// The place after the quote that ends a text, or the end of all.
fn end_of_text(bytes: &[u8], mut at: usize) -> usize {
    while at < bytes.len() {
        match bytes[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// What a text says. Unlike a parser's, this never fails: what is no escape stands for itself, and half a surrogate
/// pair becomes U+FFFD.
pub(super) fn decode(json: &str) -> String {
    let inside = json.strip_prefix('"').unwrap_or(json);
    let inside = inside.strip_suffix('"').unwrap_or(inside);
    if !inside.contains('\\') {
        return inside.to_owned();
    }
    let mut units: Vec<u16> = Vec::with_capacity(inside.len());
    let mut rest = inside;
    while let Some(first) = rest.chars().next() {
        let (unit, length) = if first == '\\' { escape(rest) } else { (None, first.len_utf8()) };
        match unit {
            Some(unit) => units.push(unit),
            None => units.extend(rest[..length].encode_utf16()),
        }
        rest = &rest[length..];
    }
    String::from_utf16_lossy(&units)
}

/// The unit that the escape at the start means, and the escape's length.
fn escape(text: &str) -> (Option<u16>, usize) {
    let unit = |character: char| (Some(character as u16), 2);
    match text.as_bytes().get(1) {
        Some(b'"') => unit('"'),
        Some(b'\\') => unit('\\'),
        Some(b'/') => unit('/'),
        Some(b'b') => unit('\u{8}'),
        Some(b'f') => unit('\u{c}'),
        Some(b'n') => unit('\n'),
        Some(b'r') => unit('\r'),
        Some(b't') => unit('\t'),
        Some(b'u') => {
            let digits = text.get(2..6).filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
            match digits.and_then(|digits| u16::from_str_radix(digits, 16).ok()) {
                Some(unit) => (Some(unit), 6),
                None => (None, 1),
            }
        }
        _ => (None, 1),
    }
}

/// The JSON pointer (RFC 6901) of the names on a path.
pub(super) fn pointer(names: impl Iterator<Item = impl AsRef<str>>) -> String {
    names.flat_map(|name| ["/".to_owned(), name.as_ref().replace('~', "~0").replace('/', "~1")]).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_token_is_found_at_its_place() {
        let json = r#"{"a":[1,{"b~/":"x"},[-2.5e3,true,null]],"\u0061":"\ud83d\ude00\"","a":{}}"#;
        let mut found = Vec::new();
        walk(json, |path, token, range| {
            found.push(format!("{} {token:?} {}", pointer(path.iter()), &json[range]));
        });
        assert_eq!(
            found,
            [
                r#"/a Name "a""#,
                "/a/0 Number 1",
                r#"/a/1/b~0~1 Name "b~/""#,
                r#"/a/1/b~0~1 Text "x""#,
                "/a/2/0 Number -2.5e3",
                r#"/a Name "\u0061""#,
                r#"/a Text "\ud83d\ude00\"""#,
                r#"/a Name "a""#,
            ]
        );
        assert_eq!(decode(r#""\ud83d\ude00 \u0040 \ud800 \q \u12""#), "😀 @ \u{fffd} \\q \\u12");
    }
}
