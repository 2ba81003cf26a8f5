//! usher, the admission gateway: rooms are listed in ARCHITECTURE.md.

pub mod cli;
pub mod config;
pub mod control;
pub mod coordinator;
pub mod crew;
pub mod handover;
pub mod http1;
pub mod identity;
pub mod memory;
pub mod observe;
pub mod reload;
pub mod ring;
pub mod simulation;
pub mod steering;
pub mod takeover;
pub mod tls;
pub mod upstream;
pub mod wire;
pub mod worker;
