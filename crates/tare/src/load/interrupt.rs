//! Ctrl-C: once, to stop and print what was measured; twice, to end at once.

use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::sync::{Arc, OnceLock};

use crate::failure::Failure;

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static SIGNAL: AtomicI32 = AtomicI32::new(0);

/// Sets `stop` on SIGINT, SIGTERM and SIGHUP. The second signal ends the process as it would have.
pub fn on_interrupt(stop: Arc<AtomicBool>) -> Result<(), Failure> {
    if STOP.set(stop).is_err() {
        return Err(Failure::Bug("interrupts are already taken".into()));
    }
    let mut signals = vec![libc::SIGINT, libc::SIGTERM];
    // Under nohup a run goes on when the terminal is gone; else that ends it, and it cleans up.
    if !tare_io::system::is_ignored(libc::SIGHUP) {
        signals.push(libc::SIGHUP);
    }
    tare_io::system::on_signals(&signals, on_signal)
        .map_err(|error| Failure::Environment(format!("cannot catch signals: {error}")))
}

/// Whether a signal came.
pub fn was_interrupted() -> bool {
    SIGNAL.load(Ordering::Relaxed) != 0
}

/// Runs in a signal handler: only loads and stores.
extern "C" fn on_signal(signal: i32) {
    SIGNAL.store(signal, Ordering::Relaxed);
    if let Some(stop) = STOP.get() {
        stop.store(true, Ordering::Relaxed);
    }
}
