//! Ctrl-C: once, to stop and print what was measured; again, a while later, to end at once.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant, system};

use tare_model::{Failure, Fault};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static FIRST_NS: AtomicU64 = AtomicU64::new(0);

/// A second signal within this means the first: `timeout` sends two, impatient people more. What
/// was started is being stopped meanwhile.
const SAME_WISH: DurationNs = DurationNs::from_secs(2);

/// The signals by which people and systems end a process, beside those of real time: none of them may
/// leave behind what was made.
const ENDING: [i32; 14] = [
    libc::SIGINT,
    libc::SIGTERM,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGSTKFLT,
    libc::SIGXCPU,
    libc::SIGXFSZ,
];

/// From the start on, Ctrl-C ends the program with the code that it always has: before a command
/// takes interrupts there is nothing to stop or to print, but there may be a file or a name server
/// to wait for.
pub fn end_until_taken() {
    // Where it cannot be had, the signal ends the program all the same.
    let _ = system::on_signals(&[libc::SIGINT], on_early_signal);
}

/// Runs in a signal handler.
extern "C" fn on_early_signal(_: i32) {
    system::exit_at_once(Fault::Interrupted.exit_code().into());
}

/// Sets `stop` on any of these. A signal that comes when stopping has taken a while
/// ends the process as it would have.
pub fn on_interrupt(stop: Arc<AtomicBool>) -> Result<(), Failure> {
    if STOP.set(stop).is_err() {
        return Err(Failure::bug("interrupts are already taken"));
    }
    // Under nohup a run goes on when the terminal is gone; else that ends it, and it cleans up.
    // A shell's background jobs start with SIGINT ignored, and are still to heed it.
    let always = |signal: &i32| [libc::SIGINT, libc::SIGTERM].contains(signal);
    let all = ENDING.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    let signals: Vec<i32> = all.filter(|s| always(s) || !system::is_ignored(*s)).collect();
    system::on_signals(&signals, on_signal)
        .map_err(|error| Failure::environment(format!("cannot catch signals: {error}")))
}

/// Whether a signal came.
pub fn was_interrupted() -> bool {
    SIGNAL.load(Ordering::Relaxed) != 0
}

/// Runs in a signal handler.
extern "C" fn on_signal(signal: i32) {
    let now = monotonic_now();
    SIGNAL.store(signal, Ordering::Relaxed);
    let order = Ordering::Relaxed;
    if let Err(first) = FIRST_NS.compare_exchange(0, now.as_ns(), order, order)
        && now.since(Instant::from_ns(first)) > SAME_WISH
    {
        system::end_by(signal);
    }
    if let Some(stop) = STOP.get() {
        stop.store(true, Ordering::Relaxed);
    }
}
