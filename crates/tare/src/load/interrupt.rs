//! Handles Ctrl-C: the first press stops the command and prints what was measured; a later one ends
//! tare at once.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant, system};

use tare_model::{Failure, Fault};

static STOP: OnceLock<Arc<AtomicBool>> = OnceLock::new();
static SIGNAL: AtomicI32 = AtomicI32::new(0);
static FIRST_NS: AtomicU64 = AtomicU64::new(0);

/// Signals within this time count as one: `timeout` sends two, impatient people more. Meanwhile
/// tare stops what it started.
const SIGNAL_GRACE: DurationNs = DurationNs::from_secs(2);

/// Signals that end a process, besides the real-time signals. tare must clean up after each.
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

/// Makes Ctrl-C end the program with its usual exit code before a command calls [`on_interrupt`]:
/// nothing needs to be stopped yet, but tare may be waiting for a file or a name server.
pub fn exit_on_early_interrupt() {
    // If this fails, the signal still ends the program.
    let _ = system::on_signals(&[libc::SIGINT], on_early_signal);
}

/// Runs in a signal handler.
extern "C" fn on_early_signal(_: i32) {
    system::exit_at_once(Fault::Interrupted.exit_code().into());
}

/// Sets `stop` on any signal that would end the process. A signal later than [`SIGNAL_GRACE`] after
/// the first ends the process at once.
pub fn on_interrupt(stop: Arc<AtomicBool>) -> Result<(), Failure> {
    if STOP.set(stop).is_err() {
        return Err(Failure::bug("interrupts are already taken"));
    }
    // Under nohup a run goes on when the terminal closes; otherwise it ends and cleans up. SIGINT
    // is caught even if ignored, as it is in a shell's background jobs.
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
        && now.since(Instant::from_ns(first)) > SIGNAL_GRACE
    {
        system::raise_with_default_action(signal);
    }
    if let Some(stop) = STOP.get() {
        stop.store(true, Ordering::Relaxed);
    }
}
