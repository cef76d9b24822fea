//! A folder on another machine.

use std::path::Path;

use serde::{Deserialize, Serialize};

use super::removal::{Removal, Removed, TIMEOUT, removed};
use crate::commands::run;
use crate::ours::is_ours;
use crate::places::ssh_command;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshFolder {
    pub host: String,
    pub options: Vec<String>,
    pub path: String,
}

impl Removal for SshFolder {
    fn remove(&self) -> Removed {
        let Self { host, options, path } = self;
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        if !is_ours(&name) || !path.starts_with("/tmp/") || !path.chars().all(plain) {
            return Ok(None);
        }
        let argv = ssh_command::command_line(host, options, &format!("rm -rf {path}"));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        removed(run(&argv, TIMEOUT), format!("folder {path} on {host}"))
    }

    fn ends_with_the_boot(&self) -> bool {
        false
    }
}
