//! The steering program in the kernel: real listeners and clients of many addresses, in network namespaces of the test's own.
//!
//! Every test counts the program's tallies, so that the kernel's own hash cannot pass for it; where it helps, the same
//! is done without the program, to see what the test can see.
//!
//! Needs root (or CAP_SYS_ADMIN, CAP_NET_ADMIN, CAP_BPF) and iproute2. Fails without where `CI` is set.
#![cfg(feature = "user")]

mod budget;
mod clients;
mod drain;
mod group;
mod network;
#[path = "../privileges/mod.rs"]
mod privileges;
mod spreading;
