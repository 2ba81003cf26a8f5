//! What the API fills in.
