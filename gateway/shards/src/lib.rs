//! One priority level on many workers, in one exact order, with no lock that anybody waits for.
//!
//! While nobody waits, a worker starts requests on seats of a shared pool, by one atomic operation, and
//! the level's queues are not touched. As soon as somebody waits, every decision is made by one exact
//! [`usher_flowcontrol::level::Level`] in shared memory, visited by whichever worker holds the level's
//! *role*. A worker that does not get the role leaves its operation in its own ring and goes on; the
//! holder, or the next visitor, takes all rings in one batch. So the order is one order, whatever the number
//! of workers and wherever a flow's connections landed.
//!
//! No clock, no I/O, no callbacks: `now` is an argument, and what must be done elsewhere ("wake worker 3")
//! is a value that the caller fetches. The races and their resolutions are in ARCHITECTURE.md, "Many
//! workers: races"; `cargo xtask loom` explores them.
//!
//! | module | idea |
//! |---|---|
//! | `level` | what the workers share; claims shards |
//! | `shard` | a worker's side: arrivals in, verdicts and events out |
//! | `bypass` | starting and finishing while nobody waits |
//! | `combine` | leaving operations, and visiting the sequencer |
//! | `sequencer` | the exact order, and what holders of the role do with it |
//! | `pool` | free seats and waiting requests in one word |
//! | `role`, `mail`, `ring` | who may visit, whom to visit, what they left |
//! | `coordinator` | what is decided about levels as a whole, and what workers are given |
//! | `lending` | what each worker may keep for its next requests |
//! | `part` | what a controller asks of a level: a worker's part, the coordinator's |
//! | `desk`, `table`, `slots` | what a worker shows to the others: its requests in a table that grows |
//! | `operation` | what can be left in a ring |
//! | `lengths`, `publication` | published queue lengths; publishing, at once or in a simulation later |
//! | `look` | what can be seen of a level |
//! | `sync` | the atomics, loom's in a model; the steps that a model can leave out |
#![forbid(unsafe_code)]

mod bypass;
mod combine;
mod coordinator;
mod desk;
mod lending;
mod lengths;
mod level;
mod look;
mod mail;
mod operation;
mod part;
mod pool;
mod publication;
mod ring;
mod role;
mod sequencer;
mod shard;
mod slots;
pub mod sync;
mod table;
mod wakes;

#[cfg(all(test, not(loom)))]
mod tests;

pub use coordinator::{Coordinator, Shared};
pub use level::{Level, Options};
pub use look::{Glance, Look, Sequenced, Starts};
pub use part::Part;
pub use shard::{Event, Shard};
