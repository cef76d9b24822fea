//! A named network namespace.

use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::journal::prefix::is_ours;
use crate::journal::removal::{Removal, Removed, TIMEOUT, removed};
use crate::machine::commands::run;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkNamespace(pub String);

impl Removal for NetworkNamespace {
    fn remove(&self) -> Removed {
        let name = &self.0;
        if !is_ours(name) || !Path::new("/run/netns").join(name).exists() {
            return Ok(None);
        }
        removed(run(&["ip", "netns", "delete", name], TIMEOUT), format!("network namespace {name}"))
    }

    fn ends_with_the_boot(&self) -> bool {
        true
    }
}
