//! libFuzzer's way into `tare_fuzz::replies`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_fuzz::replies::check(bytes));
