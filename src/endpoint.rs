//! One registration at one provider: from a request to a delivery.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::{Map, Value};

use crate::inbox::{Delivery, Origin};
use crate::provider::{Definition, Headers, Key, Reader, Rejection, Verified};
use crate::timestamp::Timestamp;

/// One registration at one provider.
#[derive(Debug)]
pub struct Endpoint {
    /// What settling knows of it.
    pub origin: Arc<Origin>,
    /// How its deliveries are read.
    pub reader: Reader,
    /// The secrets, newest first.
    pub keys: Vec<Key>,
}

impl Endpoint {
    /// Verifies and reads a request. With the delivery comes which of the secrets fitted.
    pub fn accept(
        &self,
        headers: &Headers<'_>,
        body: &Bytes,
        now: Timestamp,
    ) -> Result<(Delivery, usize), Rejection> {
        let definition = &self.reader.definition;
        let (verified, signed) = Verified::check(definition, &self.keys, headers, body, now)?;
        let delivery = Delivery {
            origin: Arc::clone(&self.origin),
            event: self.reader.read(&verified),
            headers: headers_to_keep(headers, definition),
            body: body.clone(),
            received_at: now,
        };
        Ok((delivery, signed.secret))
    }
}

/// The headers that go into the inbox: all but credentials and signatures.
fn headers_to_keep(headers: &Headers<'_>, definition: &Definition) -> String {
    let mut kept = Map::new();
    for (name, value) in headers.without_credentials().iter() {
        if definition.signature.headers.iter().any(|header| header == name) {
            continue;
        }
        let value = String::from_utf8_lossy(value).into_owned();
        match kept.get_mut(name) {
            Some(Value::Array(values)) => values.push(value.into()),
            Some(first) => *first = Value::Array(vec![first.take(), value.into()]),
            None => {
                kept.insert(name.to_owned(), value.into());
            }
        }
    }
    Value::Object(kept).to_string()
}
