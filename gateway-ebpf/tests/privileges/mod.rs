//! Whether kernel programs may be loaded here.

use std::fmt::Display;

/// What a test does that cannot be tried: it tells so, and fails where `CI` is set.
pub(crate) fn not_tried(reason: impl Display) {
    assert!(std::env::var_os("CI").is_none(), "CI must run this test as root: {reason}");
    println!("NOT TRIED: kernel programs may not be loaded here: {reason}");
}

/// The reason why not, if so: the capability that loading needs is the one that counting needs.
pub(crate) fn missing() -> Option<std::io::Error> {
    aya::sys::enable_stats(aya::sys::Stats::RunTime).err().map(|error| error.io_error)
}
