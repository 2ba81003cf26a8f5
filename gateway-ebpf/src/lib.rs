//! What usher's two kernel programs and the gateway say to each other, and what the programs decide.
//!
//! - [`steer`]: which worker a new connection goes to (`SK_REUSEPORT`).
//! - [`takeover`]: whether a connection to an apiserver's own port is usher's (`SK_LOOKUP`).
//!
//! Words are `repr(C)`, of the same size and layout on both sides. Decisions are plain functions over a trait that the kernel
//! program implements with its maps and a test with a model of them. The programs themselves (`src/bin`) are thin: they
//! read the context, call the function, do what it says, count.
//!
//! No identity, no TLS, no HTTP here: the kernel sees addresses and ports.
#![no_std]
#![deny(unsafe_code)]

#[cfg(test)]
extern crate std;

pub mod steer;
pub mod takeover;
#[cfg(feature = "user")]
mod user;
