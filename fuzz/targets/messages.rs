//! libFuzzer's way into `tare_fuzz::messages`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_fuzz::messages::check(bytes));
