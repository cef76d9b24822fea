//! Another user of this machine.

use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use tare_io::process::is_root;
use tare_tidy::skips::not_run;

use crate::util::{Folder, own};

pub const NOBODY: u32 = 65534;

/// Another user, with a home folder.
pub struct Attacker {
    _folder: Folder,
    pub home: PathBuf,
}

impl Attacker {
    /// Returns `None` if this is not root, as only root can act as two users.
    pub fn new(name: &str) -> Option<Self> {
        if !is_root() {
            not_run("a second user needs root");
            return None;
        }
        let folder = Folder::new(name);
        let home = folder.file("home");
        std::fs::create_dir(&home).unwrap();
        mode(&folder.0, 0o755);
        std::os::unix::fs::chown(&home, Some(NOBODY), Some(NOBODY)).unwrap();
        Some(Self { _folder: folder, home })
    }

    /// Runs a script as that user, in their home.
    #[track_caller]
    pub fn does(&self, script: &str) {
        let mut command = Command::new("sh");
        command.args(["-c", script]).current_dir(&self.home).uid(NOBODY).gid(NOBODY);
        assert!(command.status().unwrap().success(), "{script}");
    }

    /// Makes a program that leaves a trace if it runs.
    pub fn evil(&self, name: &str) -> PathBuf {
        self.does(&format!(
            "mkdir -p bin; printf '#!/bin/sh\\ntouch {}/pwned\\n' >bin/{name}; chmod 755 bin/{name}",
            self.home.display()
        ));
        self.home.join("bin").join(name)
    }

    #[track_caller]
    pub fn has_not_won(&self) {
        assert!(!self.home.join("pwned").exists(), "a planted program ran as root");
    }

    /// Returns tare as root, with this user's home.
    pub fn victim(&self, args: &[&str]) -> Command {
        let mut command = own();
        command.args(args).env("HOME", &self.home).env_remove("TARE_STORE");
        command.env_remove("XDG_DATA_HOME").env_remove("XDG_CACHE_HOME");
        command
    }
}

pub fn mode(path: &Path, bits: u32) {
    std::fs::set_permissions(path, PermissionsExt::from_mode(bits)).unwrap();
}
