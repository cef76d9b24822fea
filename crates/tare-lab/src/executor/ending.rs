//! Ends processes reliably, and only those that tare started.

use tare_io::DurationNs;
use tare_io::process::PidFd;

use crate::machine::processes::{self, ProcessIdentity, Stat};

/// Attempts to end processes that may start others meanwhile.
pub const ATTEMPTS: u32 = 50;
/// A killed process has ended within this time; a zombie counts as ended.
const KILLED_WITHIN: DurationNs = DurationNs::from_ms(200);

/// Kills a process if `is_ours` accepts its *current* state. A pidfd is opened first, so that the
/// PID cannot be reused in between.
pub fn kill(pid: u32, is_ours: impl Fn(&Stat) -> bool) {
    let Ok(watched) = PidFd::new(pid) else { return };
    if Stat::read(pid).is_some_and(|stat| is_ours(&stat)) {
        let _ = watched.signal(libc::SIGKILL);
        watched.wait_timeout(KILLED_WITHIN);
    }
}

/// Returns whether a process is a live member of the group. A group's number is not reused while it
/// has members; a later group with the same number differs in session or age.
fn is_member(leader: &ProcessIdentity, stat: &Stat) -> bool {
    stat.group == leader.pid
        && stat.session == leader.session
        && stat.started_ticks >= leader.started_ticks
        && !stat.zombie
}

/// Returns the live processes of the group that this process leads or led.
pub fn members(leader: &ProcessIdentity) -> Vec<u32> {
    if leader.pid < 2 || Stat::read(leader.pid).is_some_and(|stat| !leader.matches(&stat)) {
        return Vec::new();
    }
    let of_group = |pid: &u32| Stat::read(*pid).is_some_and(|stat| is_member(leader, &stat));
    processes::all().into_iter().filter(of_group).collect()
}

/// Ends the group that this process leads; returns how many processes it had.
pub fn end_group(leader: &ProcessIdentity) -> usize {
    let found = members(leader);
    let mut left = found.clone();
    for _ in 0..ATTEMPTS {
        if left.is_empty() {
            break;
        }
        // Signals the whole group at once: a listed process may start another meanwhile.
        if let Ok(watched) = PidFd::new(leader.pid)
            && Stat::read(leader.pid).is_some_and(|stat| leader.matches(&stat))
        {
            let _ = watched.signal_group(leader.pid, libc::SIGKILL);
        }
        left.iter().for_each(|pid| kill(*pid, |stat| is_member(leader, stat)));
        left = members(leader);
    }
    found.len()
}
