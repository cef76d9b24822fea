//! Waiting: the only file of these tests in which time is let pass.

use std::time::Duration;

use tare_io::DurationNs;
use tare_io::time::monotonic_now;

/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);
/// What is waited for comes much sooner, or never.
const LIMIT: DurationNs = DurationNs::from_secs(30);

/// What `look` finds in the end.
#[track_caller]
pub fn until_some<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let limit = monotonic_now() + LIMIT;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(monotonic_now() < limit, "not within {LIMIT}: {what}");
        std::thread::park_timeout(LOOK);
    }
}

#[track_caller]
pub fn until(what: &str, mut holds: impl FnMut() -> bool) {
    until_some(what, || holds().then_some(()));
}

/// Lets time pass, where it is itself what is planted: a server that is held up for so long, a kill
/// that comes so late. Never to wait for something: that is [`until`].
pub fn let_pass(time: Duration) {
    let end = monotonic_now() + DurationNs::from_ns(time.as_nanos() as u64);
    while monotonic_now() < end {
        // It may return sooner.
        std::thread::park_timeout(Duration::from_nanos(end.since(monotonic_now()).as_ns()));
    }
}

/// Waits until a program has a handler of its own for a signal, without which the signal would end it.
#[track_caller]
pub fn until_it_catches(pid: u32, signal: i32) {
    until("it catches the signal", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = caught.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
    });
}
