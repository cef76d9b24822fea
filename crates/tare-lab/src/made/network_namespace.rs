//! A network namespace that has a name.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::thing::{PATIENCE, Removed, Thing, removed};
use crate::commands::run;
use crate::ours::is_ours;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NetworkNamespace(pub String);

impl Thing for NetworkNamespace {
    fn remove(&self) -> Removed {
        let name = &self.0;
        if !is_ours(name) || !Path::new("/run/netns").join(name).exists() {
            return Ok(None);
        }
        removed(
            run(&["ip", "netns", "delete", name], PATIENCE),
            format!("network namespace {name}"),
        )
    }

    fn ends_with_the_boot(&self) -> bool {
        true
    }
}
