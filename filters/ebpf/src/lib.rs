//! `ebpf`: the rule as eBPF bytecode ($EBPF_MODULE_PATH, or rule.bpf.o beside this library), run in
//! user space: verified, tried in an interpreter that checks every access, then compiled to machine
//! code. Its maps lie in shared memory that `tare filter control` made; $TARE_FILTER_SHM names it.

mod program;
mod shared;

use std::ffi::{CStr, c_int};
use std::sync::atomic::Ordering;

use program::Program;
use shared::{PREFIX, SEAT, Shared};
use tare_filter_plugin::{Files, Filter, export_filter};

export_filter!(Ebpf);

/// Counters lie in shared memory: they are those of all processes.
#[unsafe(no_mangle)]
pub static module_counters_shared: c_int = 1;

struct Ebpf {
    shared: Shared,
    program: Program,
}

impl Filter for Ebpf {
    fn start(prefix: &[u8], files: &Files) -> Result<Self, String> {
        let shared = Shared::open(&std::env::var("TARE_FILTER_SHM").unwrap_or_default())?;
        let own = shared.prefix();
        if prefix != own {
            return Err(format!(
                "the prefix is '{}' here and '{}' at the controller",
                String::from_utf8_lossy(prefix),
                String::from_utf8_lossy(&own),
            ));
        }
        PREFIX.store(shared.prefix_address(), Ordering::Relaxed);
        let program = Program::load(&files.path("EBPF_MODULE_PATH", "rule.bpf.o"), &own)?;
        // SAFETY: the handler does one store, which may be done in a child at any time.
        if unsafe { libc::pthread_atfork(None, None, Some(leave_seat)) } != 0 {
            return Err("no memory".into());
        }
        Ok(Self { shared, program })
    }

    fn answer(&mut self, url: &CStr) -> c_int {
        if SEAT.load(Ordering::Relaxed) == 0 {
            match self.shared.sit() {
                Some(seat) => SEAT.store(seat, Ordering::Relaxed),
                None => return -1,
            }
        }
        match self.program.run(url) {
            answer @ (0 | 1) => answer as c_int,
            _ => -1,
        }
    }

    fn counters(&mut self) -> (u64, u64) {
        self.shared.totals()
    }
}

/// A child must not count in its parent's seat.
extern "C" fn leave_seat() {
    SEAT.store(0, Ordering::Relaxed);
}
