//! The request's headers as VERIFY and READ see them.

/// Header lines. Names are lower-case; values are the bytes on the wire.
#[derive(Debug, Clone, Default)]
pub struct Headers<'a>(Vec<(&'a str, &'a [u8])>);

/// The same header stood in the request more than once.
///
/// Libraries disagree on which line counts, so a header that decides anything must be single.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Repeated;

impl<'a> Headers<'a> {
    /// The value of a header that must not be repeated. `name` is lower-case.
    pub fn single(&self, name: &str) -> Result<Option<&'a [u8]>, Repeated> {
        let mut values = self.0.iter().filter(|(found, _)| *found == name).map(|(_, value)| *value);
        let first = values.next();
        if values.next().is_some() { Err(Repeated) } else { Ok(first) }
    }

    /// The first of several headers that is there, each of which must not be repeated.
    pub fn first_of(&self, names: &[String]) -> Result<Option<&'a [u8]>, Repeated> {
        let mut found = None;
        for name in names {
            let value = self.single(name)?;
            found = found.or(value);
        }
        Ok(found)
    }

    /// The lines that carry no credentials: those may be written down.
    #[must_use]
    pub fn without_credentials(&self) -> Self {
        const CREDENTIALS: [&str; 4] = ["authorization", "proxy-authorization", "cookie", "x-api-key"];
        self.iter().filter(|(name, _)| !CREDENTIALS.contains(name)).collect()
    }

    /// All lines.
    pub fn iter(&self) -> impl Iterator<Item = (&'a str, &'a [u8])> {
        self.0.iter().copied()
    }
}

impl<'a> FromIterator<(&'a str, &'a [u8])> for Headers<'a> {
    fn from_iter<I: IntoIterator<Item = (&'a str, &'a [u8])>>(lines: I) -> Self {
        Self(lines.into_iter().collect())
    }
}
