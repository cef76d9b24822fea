//! A process group, identified by its leader.

use serde::{Deserialize, Serialize};

use crate::executor::ending;
use crate::journal::removal::{Removal, Removed};
use crate::machine::processes::ProcessIdentity;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes(pub ProcessIdentity);

impl Removal for Processes {
    fn remove(&self) -> Removed {
        let leader = &self.0;
        let ended = ending::end_group(leader);
        Ok((ended > 0).then(|| format!("{ended} processes of group {}", leader.pid)))
    }

    fn ends_with_the_boot(&self) -> bool {
        true
    }
}
