//! `wasm`: the rule compiled to WebAssembly, run by wasmtime. The module ($WASM_MODULE_PATH, or
//! rule.wasm beside this library) is compiled to machine code before the first request; one instance
//! from a pool serves a process, and URLs are copied into its memory.

mod machine;

use std::ffi::{CStr, c_int};

use machine::Machine;
use tare_filter_plugin::{Files, Filter, export_filter};

export_filter!(Machine);

impl Filter for Machine {
    fn start(prefix: &[u8], files: &Files) -> Result<Self, String> {
        Self::load(&files.path("WASM_MODULE_PATH", "rule.wasm"), prefix)
    }

    fn answer(&mut self, url: &CStr) -> c_int {
        self.filter(url.to_bytes()).map_or(-1, |answer| answer as c_int)
    }

    fn counters(&mut self) -> (u64, u64) {
        self.counts()
    }
}
