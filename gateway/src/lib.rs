//! usher, the admission gateway: rooms are listed in ARCHITECTURE.md.

pub mod identity;
pub mod reload;
pub mod tls;
