//! JSON written in another way: between the same values, without ever reading a number or losing an order.
//!
//! A signer's JSON and the JSON that came can be equal as values and differ in bytes. The functions here work on the
//! tokens as they are written, so that all that a rewriting leaves alone stays as it is.

use std::fmt::Write as _;
use std::iter::Peekable;

use serde::de::IgnoredAny;

/// Deeper than any delivery that is read; it bounds the recursion of [`sorted`].
const DEPTH_MAX: usize = 128;

/// A body that is JSON, as text.
pub(super) fn text(body: &[u8]) -> Option<&str> {
    let text = str::from_utf8(body).ok()?;
    serde_json::from_str::<IgnoredAny>(text).is_ok().then_some(text)
}

/// A JSON body laid out for people; `None` if it is not JSON.
pub fn pretty(body: &[u8]) -> Option<String> {
    Some(spaced(text(body)?, Spacing::indented("  ")))
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Token<'a> {
    /// One of `{}[],:`.
    Mark(char),
    /// A text with its quotes.
    Quoted(&'a str),
    /// A number, `true`, `false`, `null`.
    Word(&'a str),
    Blanks(&'a str),
}

struct Tokens<'a>(&'a str);

fn is_blank(byte: u8) -> bool {
    matches!(byte, b' ' | b'\t' | b'\n' | b'\r')
}

fn is_mark(byte: u8) -> bool {
    matches!(byte, b'{' | b'}' | b'[' | b']' | b',' | b':')
}

/// The length of a quoted text, both quotes included; all there is when the closing one is missing.
fn quoted_length(json: &[u8]) -> usize {
    let mut at = 1;
    while at < json.len() {
        match json[at] {
            b'"' => return at + 1,
            b'\\' => at += 2,
            _ => at += 1,
        }
    }
    json.len()
}

impl<'a> Iterator for Tokens<'a> {
    type Item = Token<'a>;

    fn next(&mut self) -> Option<Token<'a>> {
        let bytes = self.0.as_bytes();
        let first = *bytes.first()?;
        let run =
            |ends: &dyn Fn(u8) -> bool| bytes.iter().position(|byte| ends(*byte)).unwrap_or(bytes.len());
        let length = match first {
            b'"' => quoted_length(bytes),
            _ if is_mark(first) => 1,
            _ if is_blank(first) => run(&|byte| !is_blank(byte)),
            _ => run(&|byte| is_blank(byte) || is_mark(byte) || byte == b'"'),
        };
        let (token, rest) = self.0.split_at(length);
        self.0 = rest;
        Some(match first {
            b'"' => Token::Quoted(token),
            _ if is_mark(first) => Token::Mark(char::from(first)),
            _ if is_blank(first) => Token::Blanks(token),
            _ => Token::Word(token),
        })
    }
}

/// What stands between the parts of a JSON text.
#[derive(Clone, Copy)]
pub(super) struct Spacing {
    after_comma: &'static str,
    after_colon: &'static str,
    /// Every element on a line of its own, this far in.
    indent: Option<&'static str>,
}

impl Spacing {
    pub(super) const COMPACT: Self = Self { after_comma: "", after_colon: "", indent: None };
    /// As Python's `json.dumps` does unless told otherwise.
    pub(super) const SPACED: Self = Self { after_comma: " ", after_colon: " ", indent: None };

    pub(super) const fn indented(indent: &'static str) -> Self {
        Self { after_comma: "", after_colon: " ", indent: Some(indent) }
    }
}

/// The same JSON, spaced in another way.
pub(super) fn spaced(json: &str, spacing: Spacing) -> String {
    let mut out = String::with_capacity(json.len());
    let mut depth = 0_usize;
    let mut tokens = Tokens(json).filter(|token| !matches!(token, Token::Blanks(_))).peekable();
    while let Some(token) = tokens.next() {
        let next = tokens.peek().copied();
        match token {
            Token::Mark(open @ ('{' | '[')) => {
                out.push(open);
                depth += 1;
                if !matches!(next, Some(Token::Mark('}' | ']'))) {
                    break_line(&mut out, spacing, depth);
                }
            }
            Token::Mark(',') => {
                out.push(',');
                out.push_str(spacing.after_comma);
                break_line(&mut out, spacing, depth);
            }
            Token::Mark(':') => {
                out.push(':');
                out.push_str(spacing.after_colon);
            }
            Token::Mark(other) => out.push(other),
            Token::Quoted(text) | Token::Word(text) | Token::Blanks(text) => out.push_str(text),
        }
        // A container that is empty closes at once, and has broken no line.
        let closes = matches!(next, Some(Token::Mark('}' | ']')));
        if closes {
            depth = depth.saturating_sub(1);
            if !matches!(token, Token::Mark('{' | '[')) {
                break_line(&mut out, spacing, depth);
            }
        }
    }
    out
}

fn break_line(out: &mut String, spacing: Spacing, depth: usize) {
    if let Some(indent) = spacing.indent {
        out.push('\n');
        (0..depth).for_each(|_| out.push_str(indent));
    }
}

/// How a character that JSON lets one write in two ways is written.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// As it came.
    Kept,
    /// As itself.
    Literal,
    /// With a backslash; `\u` with lower-case digits.
    Escaped,
    /// With a backslash; `\u` with upper-case digits.
    EscapedUpper,
}

/// How the texts of a JSON text are spelled.
#[derive(Clone, Copy)]
pub(super) struct Spelling {
    /// What is outside ASCII.
    pub(super) non_ascii: Way,
    /// `/`, of which the escape is `\/`.
    pub(super) slash: Way,
    /// `<`, `>` and `&`, that some escape so that JSON can stand in HTML.
    pub(super) markup: Way,
}

impl Spelling {
    pub(super) const KEPT: Self = Self { non_ascii: Way::Kept, slash: Way::Kept, markup: Way::Kept };

    fn way_of(self, character: char) -> Way {
        match character {
            '/' => self.slash,
            '<' | '>' | '&' => self.markup,
            _ if !character.is_ascii() => self.non_ascii,
            _ => Way::Kept,
        }
    }

    /// Writes a character that was written as `written`.
    fn write(self, out: &mut String, character: char, written: &str) {
        match (self.way_of(character), character) {
            (Way::Kept, _) => out.push_str(written),
            (Way::Literal, _) => out.push(character),
            (_, '/') => out.push_str("\\/"),
            (way, _) => {
                for unit in character.encode_utf16(&mut [0; 2]) {
                    let written = match way {
                        Way::EscapedUpper => write!(out, "\\u{unit:04X}"),
                        _ => write!(out, "\\u{unit:04x}"),
                    };
                    written.expect("a String takes all that is written");
                }
            }
        }
    }
}

/// The same JSON, its texts spelled in another way.
pub(super) fn spelled(json: &str, spelling: Spelling) -> String {
    let mut out = String::with_capacity(json.len());
    for token in Tokens(json) {
        match token {
            Token::Mark(mark) => out.push(mark),
            Token::Word(text) | Token::Blanks(text) => out.push_str(text),
            Token::Quoted(text) => {
                let mut rest = text;
                while let Some((character, length)) = first_character(rest) {
                    spelling.write(&mut out, character, &rest[..length]);
                    rest = &rest[length..];
                }
            }
        }
    }
    out
}

/// The first character of a quoted text's content, and the length of how it is written. An escape that is no `\u` and
/// no `\/` is a character of its own only in JSON's grammar: it counts as a backslash, which is always kept.
fn first_character(text: &str) -> Option<(char, usize)> {
    let first = text.chars().next()?;
    if first != '\\' {
        return Some((first, first.len_utf8()));
    }
    Some(match text.as_bytes().get(1) {
        Some(b'/') => ('/', 2),
        Some(b'u') => unicode_escape(text).unwrap_or(('\\', 2)),
        Some(other) if other.is_ascii() => ('\\', 2),
        _ => ('\\', 1),
    })
}

/// Reads `\uXXXX`, or two of them that make one character.
fn unicode_escape(text: &str) -> Option<(char, usize)> {
    let unit = |from: usize| {
        let digits = text.get(from..from + 6)?.strip_prefix("\\u")?;
        u16::from_str_radix(digits, 16).ok()
    };
    let first = unit(0)?;
    if let Some(Ok(character)) = char::decode_utf16([first]).next() {
        return Some((character, 6));
    }
    let character = char::decode_utf16([first, unit(6)?]).next()?.ok()?;
    Some((character, 12))
}

/// The same JSON without blanks, the members of every object in the order of their names.
pub(super) fn sorted(json: &str) -> Option<String> {
    let mut tokens = Tokens(json).filter(|token| !matches!(token, Token::Blanks(_))).peekable();
    sorted_value(&mut tokens, 0)
}

fn sorted_value<'a>(tokens: &mut Peekable<impl Iterator<Item = Token<'a>>>, depth: usize) -> Option<String> {
    if depth > DEPTH_MAX {
        return None;
    }
    let (open, close) = match tokens.next()? {
        Token::Quoted(text) | Token::Word(text) => return Some(text.to_owned()),
        Token::Mark('{') => ('{', '}'),
        Token::Mark('[') => ('[', ']'),
        Token::Mark(_) | Token::Blanks(_) => return None,
    };
    let mut members: Vec<(&str, String)> = Vec::new();
    while tokens.peek() != Some(&Token::Mark(close)) {
        let name = match open {
            '{' => {
                let Token::Quoted(name) = tokens.next()? else { return None };
                tokens.next_if_eq(&Token::Mark(':'))?;
                name
            }
            _ => "",
        };
        members.push((name, sorted_value(tokens, depth + 1)?));
        if tokens.next_if_eq(&Token::Mark(',')).is_none() {
            break;
        }
    }
    tokens.next_if_eq(&Token::Mark(close))?;
    // Stable: the elements of an array have no names and stay in place.
    members.sort_by_key(|(name, _)| *name);
    let written: Vec<String> = members
        .into_iter()
        .map(|(name, value)| if open == '{' { format!("{name}:{value}") } else { value })
        .collect();
    Some(format!("{open}{}{close}", written.join(",")))
}

#[cfg(test)]
mod tests {
    use super::*;

    const JSON: &str =
        "{\"b\": [1.50, {}, [ ], -0e+1],\n \"a\":{\"x\" :\"a\\/b, [é]\\u00e9\\ud83d\\ude00<\\\\\"}}";

    #[test]
    fn spacing_changes_nothing_but_blanks() {
        let compact = spaced(JSON, Spacing::COMPACT);
        assert_eq!(
            compact,
            "{\"b\":[1.50,{},[],-0e+1],\"a\":{\"x\":\"a\\/b, [é]\\u00e9\\ud83d\\ude00<\\\\\"}}"
        );
        let indented = spaced("{\"b\":[1,{},{\"c\":[]}],\"a\":null}", Spacing::indented("  "));
        let expected =
            "{\n  \"b\": [\n    1,\n    {},\n    {\n      \"c\": []\n    }\n  ],\n  \"a\": null\n}";
        assert_eq!(indented, expected);
        assert_eq!(spaced(&spaced(JSON, Spacing::indented("\t")), Spacing::COMPACT), compact);
        assert_eq!(spaced("[1,{\"a\":2}]", Spacing::SPACED), "[1, {\"a\": 2}]");
    }

    #[test]
    fn spelling_changes_nothing_but_texts() {
        let literal = Spelling { non_ascii: Way::Literal, slash: Way::Literal, markup: Way::Literal };
        assert_eq!(spelled("\"a\\/é\\u00e9\\ud83d\\ude00\\n\\u003c\"", literal), "\"a/éé😀\\n<\"");
        let escaped = Spelling { non_ascii: Way::Escaped, slash: Way::Escaped, markup: Way::EscapedUpper };
        assert_eq!(spelled("[\"é/\\\\/😀<\"]", escaped), "[\"\\u00e9\\/\\\\\\/\\ud83d\\ude00\\u003C\"]");
        assert_eq!(spelled(JSON, Spelling::KEPT), JSON);
        // Half of a pair is no character: it stays.
        assert_eq!(spelled("\"\\ud83dx\"", literal), "\"\\ud83dx\"");
    }

    #[test]
    fn sorting_moves_members_and_leaves_arrays() {
        let json = sorted("{\"b\":[3,1],\"a\":{\"d\":1,\"c\":{}}}").unwrap();
        assert_eq!(json, "{\"a\":{\"c\":{},\"d\":1},\"b\":[3,1]}");
        assert_eq!(sorted(&"[".repeat(100_000)), None);
    }
}
