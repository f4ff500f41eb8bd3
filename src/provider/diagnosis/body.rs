//! What can happen to a body between the signer and us, undone: each edit makes of the body that came the body that
//! may have been signed.

use super::Cause;
use crate::provider::json::{self, Spacing, Spelling, Way};

/// One way in which a body is changed on its way.
pub(super) struct Edit {
    name: &'static str,
    what: &'static str,
    /// Undoes the change; `None` where it cannot have happened.
    undo: fn(&[u8]) -> Option<Vec<u8>>,
}

impl Edit {
    pub(super) fn cause(&self) -> Cause {
        Cause::new(self.name, self.what, WAY_OUT)
    }

    /// The body as it may have been signed, unless that is the body itself.
    pub(super) fn undo(&self, body: &[u8]) -> Option<Vec<u8>> {
        (self.undo)(body).filter(|undone| undone != body)
    }
}

const WAY_OUT: &str = "find what between the sender and Wharf reads and rewrites bodies (a proxy, a function, a \
    framework) and let it pass the bytes on untouched; or let the sender sign the bytes that it sends";

const SIGNED_EMPTY: Edit = Edit {
    name: "body-signed-empty",
    what: "an empty body was signed: the sender signs before it has the body, or signs another text",
    undo: |_| Some(Vec::new()),
};

/// The cause where a request has no body, and rightly signs none.
pub(super) fn signed_empty() -> Cause {
    SIGNED_EMPTY.cause()
}

/// The edits, the likeliest first.
pub(super) const EDITS: &[Edit] = &[
    Edit {
        name: "body-line-end-added",
        what: "the body was signed without the line end that it came with",
        undo: |body| body.strip_suffix(b"\r\n").or(body.strip_suffix(b"\n")).map(<[u8]>::to_vec),
    },
    Edit {
        name: "body-line-end-removed",
        what: "the body was signed with a line end (LF) at its end that it came without",
        undo: |body| Some([body, b"\n"].concat()),
    },
    Edit {
        name: "body-line-end-removed",
        what: "the body was signed with a line end (CR LF) at its end that it came without",
        undo: |body| Some([body, b"\r\n"].concat()),
    },
    Edit {
        name: "body-blanks-added",
        what: "the body was signed without the white space around it that it came with",
        undo: |body| Some(body.trim_ascii().to_vec()),
    },
    Edit {
        name: "body-line-ends-changed",
        what: "the body was signed with LF where it came with CR LF",
        undo: |body| Some(with_lf(body)),
    },
    Edit {
        name: "body-line-ends-changed",
        what: "the body was signed with CR LF where it came with LF",
        undo: |body| Some(with_crlf(body)),
    },
    Edit {
        name: "body-mark-removed",
        what: "the body was signed with a byte order mark before it that it came without",
        undo: |body| Some([BYTE_ORDER_MARK, body].concat()),
    },
    Edit {
        name: "body-mark-added",
        what: "the body was signed without the byte order mark that it came with",
        undo: |body| body.strip_prefix(BYTE_ORDER_MARK).map(<[u8]>::to_vec),
    },
    Edit {
        name: "body-encoded-twice",
        what: "the body was read as Latin-1 and written as UTF-8 on the way, which encodes it twice",
        undo: undo_latin1_to_utf8,
    },
    Edit {
        name: "body-decoded-as-latin-1",
        what: "the body was signed in UTF-8 and came in Latin-1",
        undo: |body| Some(body.iter().copied().map(char::from).collect::<String>().into_bytes()),
    },
    Edit {
        name: "body-json-in-a-text",
        what: "the JSON that was signed came as a text inside of JSON",
        undo: |body| serde_json::from_slice::<String>(body).ok().map(String::into_bytes),
    },
    Edit {
        name: "body-in-a-form",
        what: "the JSON that was signed came as a field of a form",
        undo: undo_form,
    },
    SIGNED_EMPTY,
    Edit {
        name: "body-json-respaced",
        what: "the JSON was signed without any blanks between its parts, and came with some",
        undo: |body| spaced(body, Spacing::COMPACT),
    },
    Edit {
        name: "body-json-respaced",
        what: "the JSON was signed with one blank after every `,` and `:`, and came spaced otherwise",
        undo: |body| spaced(body, Spacing::SPACED),
    },
    Edit {
        name: "body-json-respaced",
        what: "the JSON was signed indented by 2 blanks, and came spaced otherwise",
        undo: |body| spaced(body, Spacing::indented("  ")),
    },
    Edit {
        name: "body-json-respaced",
        what: "the JSON was signed indented by 4 blanks, and came spaced otherwise",
        undo: |body| spaced(body, Spacing::indented("    ")),
    },
    Edit {
        name: "body-json-respaced",
        what: "the JSON was signed indented by tabs, and came spaced otherwise",
        undo: |body| spaced(body, Spacing::indented("\t")),
    },
    Edit {
        name: "body-json-respelled",
        what: "the JSON was signed with what is not ASCII written as \\uXXXX, and came with the characters",
        undo: |body| spelled(body, Spelling { non_ascii: Way::Escaped, ..Spelling::KEPT }),
    },
    Edit {
        name: "body-json-respelled",
        what: "the JSON was signed with what is not ASCII written as \\uXXXX in upper case, and came otherwise",
        undo: |body| spelled(body, Spelling { non_ascii: Way::EscapedUpper, ..Spelling::KEPT }),
    },
    Edit {
        name: "body-json-respelled",
        what: "the JSON was signed with what is not ASCII as characters, and came with them written as \\uXXXX",
        undo: |body| spelled(body, Spelling { non_ascii: Way::Literal, ..Spelling::KEPT }),
    },
    Edit {
        name: "body-json-respelled",
        what: "the JSON was signed with `/` written as `\\/`, and came with `/`",
        undo: |body| spelled(body, Spelling { slash: Way::Escaped, ..Spelling::KEPT }),
    },
    Edit {
        name: "body-json-respelled",
        what: "the JSON was signed with `/`, and came with it written as `\\/`",
        undo: |body| spelled(body, Spelling { slash: Way::Literal, ..Spelling::KEPT }),
    },
    Edit {
        name: "body-json-respelled",
        what: "the JSON was signed with `<`, `>` and `&` written as \\u003c and so on, and came with the characters",
        undo: |body| spelled(body, Spelling { markup: Way::Escaped, ..Spelling::KEPT }),
    },
    Edit {
        name: "body-json-respelled",
        what: "the JSON was signed with `<`, `>` and `&`, and came with them written as \\u003c and so on",
        undo: |body| spelled(body, Spelling { markup: Way::Literal, ..Spelling::KEPT }),
    },
    Edit {
        name: "body-json-sorted",
        what: "the JSON was signed with its members in the order of their names, and came in another order",
        undo: |body| json::sorted(json::text(body)?).map(String::into_bytes),
    },
    Edit {
        name: "body-json-rewritten",
        what: "the JSON was signed as JavaScript's JSON.stringify writes it, and came otherwise",
        undo: |body| rewritten(body, Way::Literal, Way::Literal, Spacing::COMPACT),
    },
    Edit {
        name: "body-json-rewritten",
        what: "the JSON was signed as PHP's json_encode writes it, and came otherwise",
        undo: |body| rewritten(body, Way::Escaped, Way::Escaped, Spacing::COMPACT),
    },
    Edit {
        name: "body-json-rewritten",
        what: "the JSON was signed as Python's json.dumps writes it, and came otherwise",
        undo: |body| rewritten(body, Way::Escaped, Way::Literal, Spacing::SPACED),
    },
];

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

fn with_lf(body: &[u8]) -> Vec<u8> {
    let kept = |(index, byte): (usize, &u8)| {
        let before_lf = *byte == b'\r' && body.get(index + 1) == Some(&b'\n');
        (!before_lf).then_some(*byte)
    };
    body.iter().enumerate().filter_map(kept).collect()
}

fn with_crlf(body: &[u8]) -> Vec<u8> {
    let lines = with_lf(body);
    lines.split(|byte| *byte == b'\n').collect::<Vec<_>>().join(&b"\r\n"[..])
}

fn undo_latin1_to_utf8(body: &[u8]) -> Option<Vec<u8>> {
    str::from_utf8(body).ok()?.chars().map(|character| u8::try_from(u32::from(character)).ok()).collect()
}

/// `payload={…}`: what stands after the first `=`, with blanks and escapes undone.
fn undo_form(body: &[u8]) -> Option<Vec<u8>> {
    let equals = body.iter().take(64).position(|byte| *byte == b'=')?;
    let value = body[equals + 1..].split(|byte| *byte == b'&').next()?;
    let blanks: Vec<u8> = value.iter().map(|byte| if *byte == b'+' { b' ' } else { *byte }).collect();
    Some(percent_decoded(&blanks))
}

/// Undoes URL encoding; what is no escape stays.
pub(super) fn percent_decoded(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text;
    while let Some((first, after)) = rest.split_first() {
        let mut byte = [0];
        match after.get(..2).filter(|_| *first == b'%').map(|digits| hex::decode_to_slice(digits, &mut byte))
        {
            Some(Ok(())) => {
                out.push(byte[0]);
                rest = &after[2..];
            }
            _ => {
                out.push(*first);
                rest = after;
            }
        }
    }
    out
}

fn spaced(body: &[u8], spacing: Spacing) -> Option<Vec<u8>> {
    json::text(body).map(|text| json::spaced(text, spacing).into_bytes())
}

fn spelled(body: &[u8], spelling: Spelling) -> Option<Vec<u8>> {
    json::text(body).map(|text| json::spelled(text, spelling).into_bytes())
}

/// As one language's own library writes it, with what it does by default.
fn rewritten(body: &[u8], non_ascii: Way, slash: Way, spacing: Spacing) -> Option<Vec<u8>> {
    let spelled = spelled(body, Spelling { non_ascii, slash, markup: Way::Literal })?;
    spaced(&spelled, spacing)
}
