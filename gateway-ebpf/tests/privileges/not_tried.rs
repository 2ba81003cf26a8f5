//! Tests that cannot be tried everywhere say so; where `CI` is set they fail. Of the gateway's tests, too, by its path.

use std::fmt::Display;

/// What a test does that cannot be tried: it tells so, and fails where `CI` is set.
pub(crate) fn not_tried(reason: impl Display) {
    assert!(std::env::var_os("CI").is_none(), "CI must run this test as root: {reason}");
    println!("NOT TRIED: kernel programs may not be loaded here: {reason}");
}
