//! usher, the admission gateway: rooms are listed in ARCHITECTURE.md.

pub mod cli;
pub mod config;
pub mod identity;
pub mod reload;
pub mod tls;
