//! Latencies for capacity planning: HDR histograms of every worker, by priority level and outcome.
//!
//! | metric | from … to … | of which requests |
//! |---|---|---|
//! | `dispatch` | attributes parsed and user known … the level's verdict | one in two, by chance |
//! | `wait` | arrival at the level … seats, or giving up | all |
//! | `execution` | seats taken … seats given back; lingering excluded, of a watch only its beginning | those that ran |
//! | `added` | head complete … head handed to the upstream room, less `wait`; plus answer's head there … answer handed to the client's connection. For those turned away: head complete … answer, less `wait` | one in two, by chance |
//! | `seats` | seats that the request takes | all |
//!
//! "Complete" and "there" are the beginning of the turn that finds them so: waiting for one's turn counts as added.
//! What the kernel, TLS and the making of a new connection to the apiserver take does not. Requests that no level
//! seats (exec, proxy …) and those of a usher without flow control are not recorded.
//!
//! [`recorder`] is what workers write, [`keys`] how it is named.

pub mod keys;
pub mod recorder;

pub use keys::{Key, Metric, Outcome};
pub use recorder::{Feed, Filled, Measured, Recorder, Set, feed};
