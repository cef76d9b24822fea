//! Describes how to start a process. The description is made for each launch, and sent to the
//! site that starts the process.

use std::fs::{OpenOptions, Permissions, set_permissions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use tare_model::Failure;

/// Stands for the program that starts the server: the agent, in a place without another program of
/// ours.
pub const OWN_PROGRAM: &str = "{own program}";

/// Everything needed to start a server; made for each launch and sent to where it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    /// The server's own folder.
    pub folder: PathBuf,
    /// Files that are written before the server starts.
    pub files: Vec<PlacedFile>,
    /// The address that it will listen on.
    pub address: SocketAddr,
    pub tls: bool,
    /// How to read the number of requests that it served.
    pub count: Option<CountSource>,
    /// The address of pages that only tare requests.
    pub pages: Option<SocketAddr>,
    /// A process that must run before it.
    pub companion: Option<CompanionSpec>,
    /// Log files that it writes beside its standard streams; those in its folder start empty.
    pub log_files: Vec<PathBuf>,
    pub ready_within_ms: u64,
    /// The server is already running: `argv` is a command that restarts it.
    pub stands: bool,
    /// The server may listen on another port than that of `address`, which is then its only one.
    pub chooses_port: bool,
}

/// A file that a launch needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedFile {
    pub path: PathBuf,
    /// Its bytes, in base64.
    pub base64: String,
    /// Whether only the file's owner may read it, because it is a key.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub secret: bool,
}

impl PlacedFile {
    pub fn new(path: PathBuf, bytes: &[u8]) -> Self {
        Self { path, base64: STANDARD.encode(bytes), secret: false }
    }

    pub fn secret(path: PathBuf, bytes: &[u8]) -> Self {
        Self { secret: true, ..Self::new(path, bytes) }
    }

    /// Writes the file, regardless of the umask: a secret is readable only by its owner, any other
    /// file also by servers that give up root.
    fn write(&self) -> Result<(), Failure> {
        let bytes = STANDARD.decode(&self.base64).map_err(|error| {
            Failure::usage(format!("{} is not base64: {error}", self.path.display()))
        })?;
        let missing: Vec<&Path> =
            self.path.ancestors().skip(1).take_while(|f| !f.is_dir()).collect();
        for folder in missing.into_iter().rev() {
            let made = std::fs::create_dir(folder);
            let opened = made.and_then(|()| set_permissions(folder, Permissions::from_mode(0o755)));
            opened.map_err(|e| Failure::file("make", folder, e))?;
        }
        let mode = if self.secret { 0o600 } else { 0o644 };
        let write = || {
            let flags = libc::O_NOFOLLOW;
            let mut open = OpenOptions::new();
            open.write(true).create(true).truncate(true).mode(mode).custom_flags(flags);
            let mut file = open.open(&self.path)?;
            file.set_permissions(Permissions::from_mode(mode))?;
            file.write_all(&bytes)
        };
        write().map_err(|e| Failure::file("write", &self.path, e))
    }
}

impl LaunchSpec {
    pub fn ready_within(&self) -> DurationNs {
        DurationNs::from_ms(self.ready_within_ms)
    }

    pub(crate) fn write_files(&self) -> Result<(), Failure> {
        for file in &self.files {
            file.write()?;
        }
        // Log files outside the folder are not tare's to remove.
        for path in self.log_files.iter().filter(|path| path.starts_with(&self.folder)) {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// A process that a server needs beside it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CompanionSpec {
    pub argv: Vec<String>,
    /// A file that the companion makes when it is ready, and removes when it ends.
    pub ready: PathBuf,
}

/// How to read the number of requests that a server served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountSource {
    /// A page on a plain HTTP port.
    Page { address: SocketAddr, path: String, page: CountPage },
    /// A file with a line for each request.
    AccessLog(PathBuf),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CountPage {
    /// nginx's stub_status, which counts tare's own requests too.
    NginxStub,
    /// Apache's server-status?auto, which counts tare's own requests too.
    ApacheAuto,
    /// HAProxy's statistics of the frontend `web`, without tare's own requests.
    HaproxyCsv,
    /// tare target's /stats, without tare's own requests.
    TareTarget,
}
