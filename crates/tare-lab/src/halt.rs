//! Ends everything under way: at the deadline, when a server ended, or when the user asks. Load
//! workers, commands and agent streams all check one flag, so that no wait can outlast the time
//! limit of the run.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tare_io::Instant;
use tare_io::time::monotonic_now;

use tare_model::Failure;

/// Why everything under way ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HaltReason {
    /// The deadline passed.
    TimeOver,
    /// A server, or its place, ended although tare had not stopped it.
    ServerEnded,
    Interrupted,
}

/// A run's deadline and its stop flag, shared by all clones.
#[derive(Clone, Debug)]
pub struct Halt {
    signal: Arc<Signal>,
    deadline: Instant,
    /// Ends the timer thread when the last clone is dropped.
    _timer: Option<Sender<()>>,
}

#[derive(Debug, Default)]
struct Signal {
    flag: Arc<AtomicBool>,
    /// The first reason; later ones are ignored. `None` with the flag set means that the user
    /// stopped the run.
    reason: Mutex<Option<HaltReason>>,
    ignores_ends: AtomicBool,
    /// The name of the server or place that ended by itself.
    ended: Mutex<Option<String>>,
    /// Returns whether the user asked tare to stop, even if something else set the flag too.
    by_user: Option<fn() -> bool>,
}

impl Signal {
    fn raise(&self, why: HaltReason) {
        let mut reason = self.reason.lock().unwrap_or_else(PoisonError::into_inner);
        if reason.is_none() && !self.flag.load(Ordering::Relaxed) {
            *reason = Some(why);
            self.flag.store(true, Ordering::Release);
        }
    }
}

/// Called with the name of what ended by itself.
pub type OnEnd = Arc<dyn Fn(&str) + Send + Sync>;

impl Halt {
    /// Raises `flag` at the deadline. A signal handler may raise it earlier; `by_user` returns
    /// whether it did.
    pub fn at(
        deadline: Instant,
        flag: Arc<AtomicBool>,
        by_user: fn() -> bool,
    ) -> Result<Self, Failure> {
        let signal = Signal { flag, by_user: Some(by_user), ..Signal::default() };
        let halt = Self { signal: Arc::new(signal), ..Self::default() };
        let halt = Self { deadline, ..halt };
        let (timer, dropped) = channel();
        let signal = halt.signal.clone();
        let wait = move || {
            loop {
                let left = deadline.since(monotonic_now());
                match dropped.recv_timeout(Duration::from(left).min(LONGEST_WAIT)) {
                    Err(RecvTimeoutError::Timeout) if monotonic_now() < deadline => {}
                    Err(RecvTimeoutError::Timeout) => return signal.raise(HaltReason::TimeOver),
                    _ => return,
                }
            }
        };
        let thread = std::thread::Builder::new().name("deadline".into()).spawn(wait);
        thread.map_err(|e| Failure::environment(format!("cannot start a thread: {e}")))?;
        Ok(Self { _timer: Some(timer), ..halt })
    }

    /// Makes a halt without a timer: the caller checks the deadline by its own clock.
    pub fn without_timer(deadline: Instant, flag: Arc<AtomicBool>) -> Self {
        let signal = Arc::new(Signal { flag, ..Signal::default() });
        Self { signal, deadline, _timer: None }
    }

    /// Sets whether a server that ends no longer halts the run, which then only loses that round.
    pub fn ignore_ends(&self, ignore: bool) {
        self.signal.ignores_ends.store(ignore, Ordering::Release);
    }

    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    pub fn flag(&self) -> &Arc<AtomicBool> {
        &self.signal.flag
    }

    pub fn is_raised(&self) -> bool {
        self.signal.flag.load(Ordering::Acquire)
    }

    /// Returns why the flag was raised, even after [`Halt::lift`].
    pub fn reason(&self) -> Option<HaltReason> {
        let known = *self.signal.reason.lock().unwrap_or_else(PoisonError::into_inner);
        known.or_else(|| self.is_raised().then_some(HaltReason::Interrupted))
    }

    /// Returns the callback for a server or place that ended by itself.
    pub fn on_end(&self) -> OnEnd {
        let signal = self.signal.clone();
        Arc::new(move |name| {
            if !signal.ignores_ends.load(Ordering::Acquire) {
                let mut ended = signal.ended.lock().unwrap_or_else(PoisonError::into_inner);
                ended.get_or_insert_with(|| name.to_owned());
                drop(ended);
                signal.raise(HaltReason::ServerEnded);
            }
        })
    }

    /// Returns the name of the server or place that raised the flag by ending, if one did.
    pub fn ended(&self) -> Option<String> {
        self.signal.ended.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Lowers the flag once everything under way has ended. What follows (proofs, removal) has its
    /// ordinary time limits again, and neither the deadline nor a server that ends raises the flag
    /// any more. A stop by the user stays in force.
    pub fn lift(&self) {
        let mut reason = self.signal.reason.lock().unwrap_or_else(PoisonError::into_inner);
        let is_users = reason.is_none() && self.is_raised();
        if is_users || self.signal.by_user.is_some_and(|by_user| by_user()) {
            return;
        }
        reason.get_or_insert(HaltReason::TimeOver);
        self.signal.flag.store(false, Ordering::Release);
    }
}

/// Has no deadline.
impl Default for Halt {
    fn default() -> Self {
        Self::without_timer(Instant::FAR, Arc::default())
    }
}

/// The longest wait of the timer thread: a deadline may be centuries ahead.
const LONGEST_WAIT: Duration = Duration::from_secs(3600);

#[cfg(test)]
mod tests {
    use tare_io::DurationNs;

    use super::*;

    #[test]
    fn the_first_reason_counts_and_outlives_the_flag() {
        let halt = Halt::default();
        assert_eq!((halt.reason(), halt.is_raised()), (None, false));
        halt.on_end()("b");
        halt.signal.raise(HaltReason::TimeOver);
        assert_eq!((halt.reason(), halt.is_raised()), (Some(HaltReason::ServerEnded), true));
        halt.lift();
        assert_eq!((halt.reason(), halt.is_raised()), (Some(HaltReason::ServerEnded), false));
        assert_eq!(halt.ended().as_deref(), Some("b"));
    }

    #[test]
    fn a_flag_raised_by_nobody_else_is_the_users_and_is_not_lifted() {
        let halt = Halt::default();
        halt.flag().store(true, Ordering::Relaxed);
        halt.on_end()("b");
        assert_eq!(halt.reason(), Some(HaltReason::Interrupted));
        halt.lift();
        assert!(halt.is_raised());
        // The user may stop the run after another reason was recorded.
        let deadline = monotonic_now();
        let late = Halt::at(deadline, Arc::default(), || true).unwrap();
        late.signal.raise(HaltReason::TimeOver);
        late.lift();
        assert!(late.is_raised());
    }

    #[test]
    fn a_deadline_after_the_run_has_ended_raises_nothing() {
        let halt = Halt::default();
        halt.lift();
        halt.signal.raise(HaltReason::TimeOver);
        halt.on_end()("b");
        assert!(!halt.is_raised(), "the next run shares the flag");
    }

    #[test]
    fn ends_that_a_run_may_lose_a_round_for_do_not_halt_it() {
        let halt = Halt::default();
        halt.ignore_ends(true);
        halt.on_end()("b");
        assert_eq!(halt.reason(), None);
    }

    #[test]
    fn the_timer_raises_the_flag_at_the_deadline_and_not_before() {
        let deadline = monotonic_now() + DurationNs::from_ms(30);
        let halt = Halt::at(deadline, Arc::default(), || false).unwrap();
        let limit = deadline + DurationNs::from_secs(30);
        while !halt.is_raised() && monotonic_now() < limit {
            std::thread::park_timeout(Duration::from_millis(1));
        }
        assert!(monotonic_now() >= deadline);
        assert_eq!(halt.reason(), Some(HaltReason::TimeOver));
    }
}
