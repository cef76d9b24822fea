//! A folder on another machine.

use std::path::Path;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_model::plain;

use crate::journal::prefix::is_ours;
use crate::journal::removal::{Removal, Removed, removed};
use crate::machine::commands::run;
use crate::places::ssh_command;

/// Enough time to connect, and for an agent to end what it started.
const REMOVED_WITHIN: DurationNs = DurationNs::from_secs(60);
/// Limit of the agent's list of ended processes, in one line.
const ENDED_CHARS_MAX: usize = 300;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SshFolder {
    pub host: String,
    pub options: Vec<String>,
    pub path: String,
}

impl SshFolder {
    /// Returns the path of the journal of an agent in such a folder.
    pub fn journal(path: &str) -> String {
        format!("{path}/journal")
    }

    /// Returns the script for that host: the agent ends what a killed agent has left, then the
    /// folder is removed. If another user created the folder, nothing in it is run.
    fn script(path: &str) -> String {
        let (agent, journal) = (format!("{path}/tare-agent"), Self::journal(path));
        // `sh -c`, as the login shell may not be POSIX; paths contain no quotes. An agent that
        // cannot run has started nothing.
        format!(
            "sh -c 'if [ ! -L {path} ] && [ -O {path} ] && [ -x {agent} ]; then {agent} clean \
             {journal}; [ $? -ne 3 ] || exit 3; fi; rm -rf {path}'"
        )
    }
}

impl Removal for SshFolder {
    fn remove(&self) -> Removed {
        let Self { host, options, path } = self;
        let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
        let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
        if !is_ours(&name) || !path.starts_with("/tmp/") || !path.chars().all(plain) {
            return Ok(None);
        }
        let argv = ssh_command::command_line(host, options, &Self::script(path));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let done = run(&argv, REMOVED_WITHIN);
        let ended: Vec<&str> = done.out.lines().collect();
        let ended = plain::short(&ended.join(", "), ENDED_CHARS_MAX);
        let with = match done.worked && !ended.is_empty() {
            true => format!(" with {ended}"),
            false => String::new(),
        };
        removed(done, format!("folder {path} on {host}{with}"))
    }

    fn ends_with_the_boot(&self) -> bool {
        false
    }
}
