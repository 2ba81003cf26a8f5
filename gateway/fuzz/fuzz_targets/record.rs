#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher::tls::fuzzing::record(input));
