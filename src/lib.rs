//! Wharf: webhook ingestion for an ERP in Postgres.
pub mod books;
pub mod cli;
pub mod config;
pub mod fixture;
pub mod gateway;
pub mod http;
pub mod inbox;
pub mod ledger;
pub mod postgres;
pub mod provider;
pub mod section;
pub mod timestamp;
