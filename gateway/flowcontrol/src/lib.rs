//! API Priority and Fairness (KEP-1040) as plain decisions.
//!
//! No clock, no I/O, no threads, no logging, no randomness without a seed: `now` is an argument and
//! every effect is a returned value. Rooms, and the sentence of the KEP each one stands for, are
//! listed in ARCHITECTURE.md. Departures from kube-apiserver are marked `parity:` where they happen.
#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

pub mod borrowing;
pub mod classify;
pub mod controller;
pub mod demand;
pub mod dump;
pub mod estimate;
pub mod flow;
pub mod level;
pub mod limits;
pub mod meters;
pub mod objects;
pub mod plan;
pub mod queueset;
pub mod reply;
pub mod request_info;
pub mod retry_after;
pub mod shuffle;
pub mod snapshot;
pub mod units;
pub mod wait_limit;
pub mod watches;
