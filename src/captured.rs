//! A request as it came in, byte for byte, and the file that holds one.
//!
//! The file is what a request looks like on the wire: an optional request line, one header a line, an empty line,
//! and then the body, of which every byte counts. Lines end in LF or CR LF.

use crate::provider::Headers;

/// A request as it came in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Captured {
    /// The path of the request line, without what comes after `?`; `None` where the file has no request line.
    pub path: Option<String>,
    /// The header lines; names are lower-case.
    pub headers: Vec<(String, Vec<u8>)>,
    /// The exact bytes.
    pub body: Vec<u8>,
}

impl Captured {
    /// Reads a request from a file's bytes. The error says what is wrong with them.
    pub fn parse(file: &[u8]) -> Result<Self, String> {
        let mut rest = file;
        let mut headers = Vec::new();
        let mut path = None;
        for number in 1.. {
            let Some(end) = rest.iter().position(|byte| *byte == b'\n') else {
                return Err("no empty line ends the headers; the body comes after it".to_owned());
            };
            let line = rest[..end].strip_suffix(b"\r").unwrap_or(&rest[..end]);
            rest = &rest[end + 1..];
            if line.is_empty() {
                break;
            }
            if number == 1 {
                path = path_of_request_line(line);
                if path.is_some() {
                    continue;
                }
            }
            match line.iter().position(|byte| *byte == b':') {
                Some(colon) => {
                    let name = str::from_utf8(&line[..colon])
                        .map_err(|_| format!("line {number} is no header: its name is not text"))?;
                    headers
                        .push((name.trim().to_ascii_lowercase(), line[colon + 1..].trim_ascii().to_owned()));
                }
                // A request line in another form.
                None if number == 1 => {}
                None => return Err(format!("line {number} is no header; write `name: value`")),
            }
        }
        Ok(Self { path, headers, body: rest.to_owned() })
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

/// `POST /webhooks/stripe?x=1 HTTP/1.1`, or with the whole address in the middle.
fn path_of_request_line(line: &[u8]) -> Option<String> {
    let mut words = str::from_utf8(line).ok()?.split(' ');
    let (method, target, version) = (words.next()?, words.next()?, words.next()?);
    if method.contains(':') || !version.starts_with("HTTP/") || words.next().is_some() {
        return None;
    }
    let path = match target.split_once("://") {
        Some((_, address)) => &address[address.find('/').unwrap_or(address.len())..],
        None => target,
    };
    path.split('?').next().map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_to_the_byte_and_written_again() {
        let captured =
            Captured::parse(b"POST /webhooks/x HTTP/1.1\r\nX-Sign: a=b:c \r\n\r\n{\"a\":\r\n1}\n").unwrap();
        assert_eq!(captured.path.as_deref(), Some("/webhooks/x"));
        assert_eq!(captured.headers, [("x-sign".to_owned(), b"a=b:c".to_vec())]);
        assert_eq!(captured.body, b"{\"a\":\r\n1}\n");
        let again = [Captured::head(&captured.headers()), captured.body.clone()].concat();
        assert_eq!(Captured::parse(&again), Ok(Captured { path: None, ..captured }));
    }

    #[test]
    fn the_path_is_that_of_the_request_line() {
        let path = |line: &str| Captured::parse(format!("{line}\n\n").as_bytes()).unwrap().path;
        assert_eq!(path("POST /webhooks/x?at=10:30 HTTP/1.1").as_deref(), Some("/webhooks/x"));
        assert_eq!(path("POST https://a:8443/webhooks/x HTTP/2").as_deref(), Some("/webhooks/x"));
        assert_eq!(path("x-sign: POST /webhooks/x HTTP/1.1"), None);
    }

    #[test]
    fn what_is_no_request_is_said() {
        let of = |file: &[u8]| Captured::parse(file).unwrap_err();
        assert!(of(b"a: b\n{}").contains("no empty line"));
        assert!(of(b"a: b\nnonsense\n\n{}").contains("line 2"));
    }
}
