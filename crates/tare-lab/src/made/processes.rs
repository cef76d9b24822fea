//! The process group that this process leads.

use serde::{Deserialize, Serialize};

use super::thing::{Removed, Thing};
use crate::ending;
use crate::processes::Birth;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Processes(pub Birth);

impl Thing for Processes {
    fn remove(&self) -> Removed {
        let leader = &self.0;
        let ended = ending::end_group(leader);
        Ok((ended > 0).then(|| format!("{ended} processes of group {}", leader.pid)))
    }

    fn ends_with_the_boot(&self) -> bool {
        true
    }
}
