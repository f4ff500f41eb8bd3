//! Wharf: webhook ingestion for an ERP in Postgres.
pub mod books;
pub mod provider;
pub mod section;
pub mod timestamp;
