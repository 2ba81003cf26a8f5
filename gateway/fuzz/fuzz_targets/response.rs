#![no_main]

libfuzzer_sys::fuzz_target!(|input: &[u8]| usher_fuzz::response(input));
