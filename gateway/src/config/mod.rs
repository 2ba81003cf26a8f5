//! What the operator decided: the program's options, and the flow-control objects.
//!
//! [`options`] reads flags, environment and file into one checked value.

pub mod options;
