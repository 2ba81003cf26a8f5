//! The mandatory and the suggested objects.
