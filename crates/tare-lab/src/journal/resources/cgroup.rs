//! A control group, with all processes in it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_io::owned;

use crate::executor::ending;
use crate::journal::prefix::has_our_name;
use crate::journal::removal::{Removal, Removed};
use crate::machine::processes;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cgroup(pub PathBuf);

impl Removal for Cgroup {
    fn remove(&self) -> Removed {
        let path = &self.0;
        if !path.exists() || !has_our_name(path) {
            return Ok(None);
        }
        if !owned::is_cgroup(path) {
            return Err(format!("{} is not a control group; it was left", path.display()));
        }
        let mut error = String::new();
        for _ in 0..ending::ATTEMPTS {
            for pid in processes::in_cgroup(path) {
                // The process may have left the group by now, and its pid may have been reused.
                ending::kill(pid, |_| processes::in_cgroup(path).contains(&pid));
            }
            match remove_groups(path) {
                Ok(()) => return Ok(Some(format!("control group {}", path.display()))),
                Err(found) => error = found.to_string(),
            }
        }
        Err(format!("cannot remove {}: {error}", path.display()))
    }

    fn ends_with_the_boot(&self) -> bool {
        true
    }
}

/// Removes nested groups first: container runtimes create some in ours.
fn remove_groups(path: &Path) -> std::io::Result<()> {
    for below in processes::groups_below(path) {
        remove_groups(&below)?;
    }
    std::fs::remove_dir(path)
}
