//! libFuzzer's way into `tare_fuzz::http2`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tare_fuzz::http2::check(bytes));
