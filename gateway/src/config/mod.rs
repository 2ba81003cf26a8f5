//! What the operator decided: the program's options, and the flow-control objects.
//!
//! [`options`] reads flags, environment and file into one checked value; [`objects`] reads and follows the
//! folder of flow-control objects.

pub mod objects;
pub mod options;
