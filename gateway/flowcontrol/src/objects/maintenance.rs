//! What to write so that the mandatory and suggested objects exist.
