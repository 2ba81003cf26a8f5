//! The `Dangling` condition.
