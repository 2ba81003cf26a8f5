//! usher, the admission gateway: rooms are listed in ARCHITECTURE.md.

pub mod identity;
