//! One launch of one server: what is started, and how it is spoken to wherever it runs.

use std::fmt::Debug;
use std::fs::{OpenOptions, Permissions, set_permissions};
use std::io::Write;
use std::net::SocketAddr;
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tare_io::time::{monotonic_now, wall_unix_ms};
use tare_io::{DurationNs, Instant};

use crate::companion::CompanionSpec;
use crate::count::CountSource;
use crate::error::LabError;
use crate::filters::status::FilterStatus;
use crate::meter::Meter;

/// The first word of a server that is the program itself which starts it: the agent, in a place
/// with no other program of ours.
pub const OWN_PROGRAM: &str = "{own program}";

/// Something that happened, for the run's log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Event {
    pub unix_ms: u64,
    /// A variant's name, or "tare".
    pub who: String,
    pub text: String,
}

/// Everything needed to start a server; made anew for each launch, and sent to where it starts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchSpec {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    /// The server's own.
    pub folder: PathBuf,
    /// Written before it starts.
    pub files: Vec<PlacedFile>,
    /// Where it will listen.
    pub address: SocketAddr,
    pub tls: bool,
    /// How it can be asked how many requests it served.
    pub count: Option<CountSource>,
    /// How nginx's filter module can be asked what it counted.
    pub filter: Option<FilterStatus>,
    /// What must run before it.
    pub companion: Option<CompanionSpec>,
    /// Log files that it writes beside its standard streams; those in its folder start empty.
    pub log_files: Vec<PathBuf>,
    pub ready_within_ms: u64,
}

/// A file that a launch needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlacedFile {
    pub path: PathBuf,
    /// Its bytes, in base64.
    pub base64: String,
    /// For the server's own user alone: a key.
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

    /// Whatever the umask, servers that give up root can read it; a secret only its owner.
    fn write(&self) -> Result<(), LabError> {
        let bytes = STANDARD.decode(&self.base64).map_err(|error| {
            LabError::Usage(format!("{} is not base64: {error}", self.path.display()))
        })?;
        let missing: Vec<&Path> =
            self.path.ancestors().skip(1).take_while(|f| !f.is_dir()).collect();
        for folder in missing.into_iter().rev() {
            let made = std::fs::create_dir(folder);
            let opened = made.and_then(|()| set_permissions(folder, Permissions::from_mode(0o755)));
            opened.map_err(|e| LabError::file("make", folder, e))?;
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
        write().map_err(|e| LabError::file("write", &self.path, e))
    }
}

impl LaunchSpec {
    pub fn ready_within(&self) -> DurationNs {
        DurationNs::from_ms(self.ready_within_ms)
    }

    pub(crate) fn write_files(&self) -> Result<(), LabError> {
        for file in &self.files {
            file.write()?;
        }
        // A log elsewhere is somebody's: it grows, and is read from where it was.
        for path in self.log_files.iter().filter(|path| path.starts_with(&self.folder)) {
            let _ = std::fs::remove_file(path);
        }
        Ok(())
    }
}

/// A server that runs, here or elsewhere.
pub trait Server: Debug + Send {
    /// Waits until something accepts connections at its address. Returns at once when `stop` is
    /// set.
    fn wait_until_listening(&mut self, stop: &AtomicBool) -> Result<(), LabError>;

    /// Waits a little for the server to become ready; an error once it is dead, or too late.
    fn not_yet(&mut self, limit: Instant) -> Result<(), LabError>;

    fn is_alive(&self) -> bool;

    /// Why the place it runs in is no more; `None` where it is.
    fn place_gone(&self) -> Option<LabError> {
        None
    }

    /// Made when the server has given a reply: its processes are then all there.
    fn meter(&self) -> Meter;

    /// Lines and bytes that it wrote: to its standard streams, and to its log files.
    fn logged(&self) -> (u64, u64);

    /// A page over plain HTTP, asked where the server runs.
    fn page(&self, address: SocketAddr, path: &str) -> Option<String>;

    /// Lines of a file, where the server runs.
    fn lines(&self, path: &Path) -> Option<u64>;

    /// Asks it to end; [`Server::stop`] then waits. Servers that are stopped together are asked
    /// together.
    fn ask_to_stop(&mut self);

    /// Ends it and all its processes.
    fn stop(&mut self);
}

/// When a count is believed to be the last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    AtLeast(u64),
    /// Twice the same.
    Quiet,
}

const SETTLED_WITHIN: DurationNs = DurationNs::from_ms(1000);
const SETTLED_CHECK: Duration = Duration::from_millis(10);

/// A launch: dropped, it ends.
#[derive(Debug)]
pub struct Launched {
    pub launch_spec: LaunchSpec,
    pub started_unix_ms: u64,
    started: Instant,
    /// How often its count was read.
    readings: AtomicU64,
    /// Carries all that it sends and receives.
    link: Option<String>,
    pub server: Box<dyn Server>,
}

impl Launched {
    pub fn begin(
        launch_spec: LaunchSpec,
        link: Option<String>,
        start: impl FnOnce(LaunchSpec) -> Result<Box<dyn Server>, LabError>,
    ) -> Result<Self, LabError> {
        let (started, started_unix_ms) = (monotonic_now(), wall_unix_ms());
        let server = start(launch_spec.clone())?;
        let readings = AtomicU64::new(0);
        Ok(Self { launch_spec, started_unix_ms, started, readings, link, server })
    }

    /// What it uses, with the packets of its place.
    pub fn meter(&self) -> Meter {
        self.server.meter().with_link(self.link.as_deref())
    }

    pub fn started(&self) -> Instant {
        self.started
    }

    /// When it counts as not having become ready.
    pub fn ready_limit(&self) -> Instant {
        self.started + self.launch_spec.ready_within()
    }

    /// Requests that it served so far, without those that asked for this; where it can be asked. A
    /// line of a log may come after the reply: then it is waited for until there are `expected`.
    pub fn served(&self, expected: Expected) -> Option<u64> {
        let source = self.launch_spec.count.as_ref()?;
        let limit = monotonic_now() + SETTLED_WITHIN;
        let mut before = None;
        loop {
            let now = source.read(self.server.as_ref())?;
            // What the asking itself adds is the same with each reading.
            let readings = self.readings.fetch_add(1, Ordering::Relaxed) + 1;
            let now = now.saturating_sub(readings * source.own_requests());
            let is_settled = match expected {
                Expected::AtLeast(n) => now >= n,
                Expected::Quiet => before == Some(now),
            };
            if is_settled || !source.is_late() || monotonic_now() > limit {
                return Some(now);
            }
            before = Some(now);
            std::thread::park_timeout(SETTLED_CHECK);
        }
    }
}
