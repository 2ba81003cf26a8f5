//! Words that the gateway puts into maps as they are.
#![expect(unsafe_code, reason = "aya asks for a promise about each word's bytes")]

use crate::steer::{Arrivals, Client, Load, Record, Rules};
use crate::takeover::{Place, Source, Switch};

// SAFETY: `repr(C)`, made of unsigned integers only, `Copy`; any bytes are a value; no padding.
unsafe impl aya::Pod for Client {}
// SAFETY: as above.
unsafe impl aya::Pod for Load {}
// SAFETY: as above.
unsafe impl aya::Pod for Rules {}
// SAFETY: as above.
unsafe impl aya::Pod for Arrivals {}
// SAFETY: as above.
unsafe impl aya::Pod for Record {}
// SAFETY: as above.
unsafe impl aya::Pod for Place {}
// SAFETY: as above.
unsafe impl aya::Pod for Source {}
// SAFETY: as above.
unsafe impl aya::Pod for Switch {}
