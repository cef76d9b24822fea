//! The only file of these tests that lets time pass.

use std::time::Duration;

use tare_io::DurationNs;
use tare_io::time::monotonic_now;

/// Time between two checks.
const LOOK: Duration = Duration::from_millis(10);
/// Far longer than anything that is waited for takes.
const LIMIT: DurationNs = DurationNs::from_secs(30);

/// Repeats `look` until it returns something.
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

/// Lets time pass where the time itself is tested: a server that is held up, or a late kill. Use
/// [`until`] to wait for something.
pub fn let_pass(time: Duration) {
    let end = monotonic_now() + DurationNs::from_ns(time.as_nanos() as u64);
    while monotonic_now() < end {
        // The thread may wake up early.
        std::thread::park_timeout(Duration::from_nanos(end.since(monotonic_now()).as_ns()));
    }
}

/// Waits until a program handles a signal that would otherwise end it.
#[track_caller]
pub fn until_it_catches(pid: u32, signal: i32) {
    until("it catches the signal", || {
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
        let caught = status.lines().find_map(|line| line.strip_prefix("SigCgt:"));
        let mask = caught.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
        mask.is_some_and(|mask| mask & (1 << (signal - 1)) != 0)
    });
}
