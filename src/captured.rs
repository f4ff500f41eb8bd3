//! A request as it came in, byte for byte, and the file that holds one.
//!
//! The file is what a request looks like on the wire: an optional request line, one header a line, an empty line,
//! and then the body, of which every byte counts. Lines end in LF or CR LF.

use crate::provider::Headers;

/// A request as it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The header lines in the order received; names are lower-case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The exact bytes.
    pub body: Vec<u8>,
}

impl Captured {
    /// Reads a request from a file's bytes. The error says what is wrong with them.
    pub fn parse(file: &[u8]) -> Result<Self, String> {
        let mut rest = file;
        let mut headers = Vec::new();
        for number in 1.. {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                return Err("no empty line ends the headers; the body comes after it".to_owned());
            };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            rest = &rest[end + 1..];
            if line.is_empty() {
                break;
            }
            match line.iter().position(|byte| *byte == b':') {
                Some(colon) => {
                    let name = str::from_utf8(&line[..colon])
                        .map_err(|_| format!("line {number} is no header: its name is not text"))?;
                    headers
                        .push((name.trim().to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_owned()));
                }
                // `POST /webhooks/stripe HTTP/1.1`
                None if number == 1 => {}
                None => return Err(format!("line {number} is no header; write `name: value`")),
            }
        }
        Ok(Self { headers, body: rest.to_owned() })
    }

    /// The header lines as a file holds them, the empty line included.
    pub fn head(headers: &Headers<'_>) -> Vec<u8> {
        let mut head = Vec::new();
        for (name, value) in headers.iter() {
            head.extend_from_slice(name.as_bytes());
            head.extend_from_slice(b": ");
            head.extend_from_slice(value);
            head.push(b'\n');
        }
        head.push(b'\n');
        head
    }

    /// The headers, for VERIFY and READ.
    pub fn headers(&self) -> Headers<'_> {
        self.headers.iter().map(|(name, value)| (name.as_str(), value.as_slice())).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_the_byte_and_written_again() {
        let captured =
            Captured::parse(b"POST /webhooks/x HTTP/1.1\r\nX-Sign: a=b:c \r\n\r\n{\"a\":\r\n1}\n").unwrap();
        assert_eq!(captured.headers, [("x-sign".to_owned(), b"a=b:c".to_vec())]);
        assert_eq!(captured.body, b"{\"a\":\r\n1}\n");
        let again = [Captured::head(&captured.headers()), captured.body.clone()].concat();
        assert_eq!(Captured::parse(&again), Ok(captured));
    }

    #[test]
    fn what_is_no_request_is_said() {
        let of = |file: &[u8]| Captured::parse(file).unwrap_err();
        assert!(of(b"a: b\n{}").contains("no empty line"));
        assert!(of(b"a: b\nnonsense\n\n{}").contains("line 2"));
    }
}
