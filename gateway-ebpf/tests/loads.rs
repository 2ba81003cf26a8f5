//! The committed objects pass this kernel's verifier. Needs the capabilities to load programs.
#![cfg(feature = "user")]

mod privileges;

use aya::programs::{SkLookup, SkReuseport};
use aya::{Ebpf, EbpfLoader, include_bytes_aligned};
use usher_ebpf::{steer, takeover};

#[test]
fn the_committed_objects_load() {
    if let Some(reason) = privileges::missing() {
        return privileges::not_tried(reason);
    }
    for events in [0_u8, 4] {
        let mut steering = EbpfLoader::new()
            .override_global(steer::EVENTS, &events, true)
            .load(include_bytes_aligned!("../object/steer.o"))
            .unwrap();
        let program: &mut SkReuseport = steering.program_mut(steer::PROGRAM).unwrap().try_into().unwrap();
        program.load().unwrap();
        let info = program.info().unwrap();
        println!(
            "steer, events {events}: {:?} bytes translated, {:?} instructions verified",
            info.size_translated(),
            info.verified_instruction_count()
        );
        // Older verifiers see fewer states as alike: far from the limit of a million.
        assert!(info.verified_instruction_count().is_none_or(|count| count < 250_000));
    }
    let mut taking = Ebpf::load(include_bytes_aligned!("../object/takeover.o")).unwrap();
    let program: &mut SkLookup = taking.program_mut(takeover::PROGRAM).unwrap().try_into().unwrap();
    program.load().unwrap();
}
