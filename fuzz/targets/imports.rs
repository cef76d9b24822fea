//! libFuzzer's way into `tare_fuzz::imports`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_fuzz::imports::check(bytes));
