//! A network link.

use serde::{Deserialize, Serialize};

use crate::journal::prefix::is_ours;
use crate::journal::removal::{Removal, Removed, TIMEOUT, removed};
use crate::machine::commands::run;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Link {
    pub name: String,
    /// MAC address, which distinguishes it from another link of the same name.
    pub mac: String,
}

impl Removal for Link {
    fn remove(&self) -> Removed {
        let Self { name, mac } = self;
        let address = std::fs::read_to_string(format!("/sys/class/net/{name}/address"));
        if !is_ours(name) || !address.is_ok_and(|address| address.trim() == mac) {
            return Ok(None);
        }
        removed(run(&["ip", "link", "delete", name], TIMEOUT), format!("link {name}"))
    }

    fn ends_with_the_boot(&self) -> bool {
        true
    }
}
