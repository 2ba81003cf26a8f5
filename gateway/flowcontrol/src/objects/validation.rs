//! Every field error, with its path.
