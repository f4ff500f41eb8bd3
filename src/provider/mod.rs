//! Providers: how a delivery is verified and what it tells. Pure: bytes and a time go in, a verdict comes out.
//!
//! A provider is a file (`providers/<name>.toml`), not code. Reading order: [`definition`] (the file as types),
//! [`signature`] (VERIFY), [`event`] (READ), [`mapping`] (from a provider's fields to [`crate::books::Change`]).
//! Beside them stand [`diagnosis`] (why a delivery was refused) and [`export`] (what of a body is personal).
//!
//! Nothing in this folder knows a database, a socket, the environment or a clock; a test keeps it so.

pub mod currency;
pub mod decimal;
pub mod definition;
pub mod diagnosis;
pub mod event;
pub mod export;
pub mod headers;
pub mod json;
pub mod mapping;
mod mapping_file;
pub mod pointer;
pub mod signature;

use std::collections::BTreeMap;
use std::sync::Arc;

pub use definition::Definition;
pub use event::{Accepts, Content, Event, Reader, Verified, digest_id, read};
pub use headers::Headers;
pub use signature::{Key, Rejection};

use crate::section::Problem;

/// The provider files that are compiled in: name and text.
pub const BUILT_IN: [(&str, &str); 5] = [
    ("shipbob.toml", include_str!("../../providers/shipbob.toml")),
    ("shiphero.toml", include_str!("../../providers/shiphero.toml")),
    ("shopify.toml", include_str!("../../providers/shopify.toml")),
    ("stripe.toml", include_str!("../../providers/stripe.toml")),
    ("warehouse.toml", include_str!("../../providers/warehouse.toml")),
];

/// All providers that are known, by name.
#[derive(Debug, Clone)]
pub struct Catalogue(BTreeMap<String, Arc<Definition>>);

impl Catalogue {
    /// The built-in providers.
    pub fn built_in() -> Self {
        let definitions = BUILT_IN.iter().map(|(file, text)| {
            let definition = Definition::parse(file, text).expect("a test reads every built-in file");
            (definition.name.clone(), Arc::new(definition))
        });
        Self(definitions.collect())
    }

    /// Adds a provider file, or replaces the provider of the same name.
    pub fn add(&mut self, file: &str, text: &str) -> Result<(), Vec<Problem>> {
        let definition = Definition::parse(file, text)?;
        self.0.insert(definition.name.clone(), Arc::new(definition));
        Ok(())
    }

    /// A provider by its name.
    pub fn get(&self, name: &str) -> Option<&Arc<Definition>> {
        self.0.get(name)
    }

    /// All providers, by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Definition>> {
        self.0.values()
    }

    /// The names, for messages.
    pub fn names(&self) -> String {
        self.0.keys().map(String::as_str).collect::<Vec<_>>().join(", ")
    }
}
