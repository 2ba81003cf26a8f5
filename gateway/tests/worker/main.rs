//! A worker from outside: real sockets on loopback, an apiserver that the test plays itself.
//!
//! Every test ends with [`World::done`]: no seat is occupied, nobody waits.

mod admission;
mod bytes;
#[cfg(debug_assertions)]
mod counts;
#[cfg(debug_assertions)]
mod crew;
mod drain;
mod failures;
mod goaway;
mod histograms;
#[cfg(debug_assertions)]
#[path = "../../../gateway-ebpf/tests/privileges/not_tried.rs"]
mod not_tried;
mod readers;
mod relay;
#[cfg(debug_assertions)]
mod retire;
#[cfg(debug_assertions)]
mod shut;
#[cfg(debug_assertions)]
mod steered;
mod storm;
mod stub;
mod upgrade;
mod upstreams;
mod world;
