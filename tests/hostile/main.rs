//! usher against bad input, slow peers and dying neighbours, from outside.
//!
//! Every test starts the real program on free loopback ports in front of an upstream that does what the
//! test says, byte for byte. Whatever happens, the last question is always the same: are all seats back?
//! A file a kind of trouble; what they share is in `usher`, `upstream`, `raw`, `h2`, `group` and `bystander`.

mod bystander;
mod group;
mod h2;
mod raw;
mod upstream;
mod usher;

mod chunks;
mod configuration;
mod exhaustion;
mod floods;
mod gone;
mod hpack;
mod identity;
mod memory;
mod records;
mod request_line;
mod slow;
mod smuggling;
mod tls;
mod trickles;
mod truncation;
mod upstream_faults;
