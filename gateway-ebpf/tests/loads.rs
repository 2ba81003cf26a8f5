//! The committed objects pass this kernel's verifier. Needs the capabilities to load programs.
#![cfg(feature = "user")]

use aya::programs::{SkLookup, SkReuseport};
use aya::{Ebpf, include_bytes_aligned};
use usher_ebpf::{steer, takeover};

#[test]
fn the_committed_objects_load() {
    let mut steering = Ebpf::load(include_bytes_aligned!("../object/steer.o")).unwrap();
    let program: &mut SkReuseport = steering.program_mut(steer::PROGRAM).unwrap().try_into().unwrap();
    program.load().unwrap();
    let mut taking = Ebpf::load(include_bytes_aligned!("../object/takeover.o")).unwrap();
    let program: &mut SkLookup = taking.program_mut(takeover::PROGRAM).unwrap().try_into().unwrap();
    program.load().unwrap();
}
