//! Ends processes that servers left behind and this process adopted.

use tare_io::DurationNs;
use tare_io::process::{PidFd, reap};

use crate::machine::processes;

/// Ends all children of this process, which must have none but servers.
pub fn end_children() {
    // This process adopts the children of those that end.
    for _ in 0..GENERATIONS {
        let children = processes::children(std::process::id());
        if children.is_empty() {
            return;
        }
        for pid in children {
            if let Ok(watched) = PidFd::new(pid) {
                let _ = watched.signal(libc::SIGKILL);
                watched.wait_timeout(KILLED_WITHIN);
            }
            reap(pid);
        }
    }
}

const GENERATIONS: u32 = 50;

const KILLED_WITHIN: DurationNs = DurationNs::from_secs(1);
