//! Kinds of servers: how each is started. A new kind is a file here that implements [`ServerKind`]
//! for its settings (`tare_model::servers`), and a line in `kind`.

mod caddy;
mod command;
mod haproxy;
mod httpd;
mod net;
mod nginx;
mod target;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU16, Ordering};
use std::sync::{Mutex, OnceLock};

use tare_io::DurationNs;
use tare_model::filters::FilterSpec;
use tare_model::servers::ServerSpec;

use crate::error::LabError;
use crate::launch::{LaunchSpec, PlacedFile};

/// How one kind of server is started.
pub trait ServerKind {
    /// What it will start, in words; what this machine lacks for it is an error.
    fn describe(&self) -> Result<String, LabError>;

    /// The same for a place with programs of its own.
    fn describe_elsewhere(&self) -> String {
        String::new()
    }

    /// The programs and files that it needs where it runs, by their absolute paths.
    fn needs(&self) -> Result<Vec<PathBuf>, LabError>;

    /// What to start, made anew for each launch.
    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, LabError>;
}

/// The registry: a line for each kind that tare starts.
fn kind(spec: &ServerSpec) -> Option<&dyn ServerKind> {
    Some(match spec {
        ServerSpec::Up => return None,
        ServerSpec::Command(spec) => spec,
        ServerSpec::Nginx(spec) => spec,
        ServerSpec::Httpd(spec) => spec,
        ServerSpec::Caddy(spec) => spec,
        ServerSpec::Haproxy(spec) => spec,
        ServerSpec::Target(spec) => spec,
        ServerSpec::Net(spec) => spec,
    })
}

/// Checks what can be checked before anything starts; what it will create, in words.
pub fn describe(spec: &ServerSpec) -> Result<String, LabError> {
    spec.facts().check()?;
    kind(spec).map_or(Ok("already up".into()), ServerKind::describe)
}

/// What a place with programs of its own must have for it; an error where tare cannot tell.
pub fn describe_elsewhere(spec: &ServerSpec) -> Result<String, LabError> {
    spec.facts().check()?;
    spec.facts().can_start_elsewhere()?;
    Ok(kind(spec).map_or("already up".into(), ServerKind::describe_elsewhere))
}

/// The programs and files that it needs where it runs, by their absolute paths.
pub fn needs(spec: &ServerSpec) -> Result<Vec<PathBuf>, LabError> {
    kind(spec).map_or(Ok(Vec::new()), ServerKind::needs)
}

/// What to start, made anew for each launch.
pub fn launch_spec(spec: &ServerSpec, context: &LaunchContext<'_>) -> Result<LaunchSpec, LabError> {
    let up = || LabError::Usage("a server that is already up is not started".into());
    kind(spec).ok_or_else(up)?.launch_spec(context)
}

/// What a server's launch may know of the place it is made for.
#[derive(Debug)]
pub struct LaunchContext<'a> {
    /// The server's own, as it is called where it runs; empty at its first launch.
    pub folder: &'a Path,
    /// What it listens on.
    pub ip: IpAddr,
    /// Which ports are free there.
    pub ports: Ports,
    /// Whether this machine's programs are what runs there; else a place has its own.
    pub our_programs: bool,
    /// Whether it runs as root there.
    pub root: bool,
    /// Files of the launch so far.
    pub files: RefCell<Vec<PlacedFile>>,
    /// Connections that load will open.
    pub connections: u32,
    /// Where the URL says that it listens; `None` where tare chooses.
    pub fixed: Option<SocketAddr>,
    /// What nginx puts in the path of its requests.
    pub filter: Option<&'a FilterSpec>,
}

impl LaunchContext<'_> {
    fn address(&self) -> Result<SocketAddr, LabError> {
        match self.fixed {
            Some(fixed) => Ok(fixed),
            None => Ok(SocketAddr::new(self.ip, self.ports.next(self.ip)?)),
        }
    }

    /// For pages that only tare asks for.
    fn status_address(&self) -> Result<SocketAddr, LabError> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Ok(SocketAddr::new(ip, self.ports.next(ip)?))
    }

    fn write(&self, name: &str, text: &[u8]) -> PathBuf {
        let path = self.folder.join(name);
        self.files.borrow_mut().push(PlacedFile::new(path.clone(), text));
        path
    }

    /// A certificate for localhost and its key, the same for all servers of this process.
    fn certificate(&self) -> Result<(PathBuf, PathBuf), LabError> {
        let (cert, key) = certificate()?;
        let key = self.write_secret("key.pem", key.as_bytes());
        Ok((self.write("cert.pem", cert.as_bytes()), key))
    }

    /// The same in one file.
    fn certificate_with_key(&self) -> Result<PathBuf, LabError> {
        let (cert, key) = certificate()?;
        Ok(self.write_secret("both.pem", format!("{cert}{key}").as_bytes()))
    }

    fn write_secret(&self, name: &str, text: &[u8]) -> PathBuf {
        let path = self.folder.join(name);
        self.files.borrow_mut().push(PlacedFile::secret(path.clone(), text));
        path
    }

    /// What all launches have; the files are those written so far.
    fn launch_spec(
        &self,
        argv: Vec<String>,
        address: SocketAddr,
        ready_within: DurationNs,
    ) -> LaunchSpec {
        LaunchSpec {
            argv,
            env: Vec::new(),
            folder: self.folder.to_owned(),
            files: self.files.take(),
            address,
            tls: false,
            count: None,
            filter: None,
            companion: None,
            log_files: Vec::new(),
            ready_within_ms: ready_within.as_ns() / 1_000_000,
        }
    }
}

/// A certificate for localhost and its key.
fn certificate() -> Result<(&'static str, &'static str), LabError> {
    static MADE: OnceLock<Result<(String, String), String>> = OnceLock::new();
    let made = MADE.get_or_init(|| {
        let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
        let made = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
        Ok((made.cert.pem(), made.signing_key.serialize_pem()))
    });
    match made {
        Ok((cert, key)) => Ok((cert, key)),
        Err(why) => Err(LabError::Environment(format!("cannot make a certificate: {why}"))),
    }
}

/// How a place gives out ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// The kernel says which are free.
    Kernel,
    /// Nobody of this machine is there: numbers in turn, so that none is used again soon.
    InTurn,
}

/// Below those that clients get.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

impl Ports {
    fn next(self, ip: IpAddr) -> Result<u16, LabError> {
        // One row for all places: two may be on one machine elsewhere.
        static GIVEN: AtomicU16 = AtomicU16::new(0);
        match self {
            Self::Kernel => free_port(ip),
            Self::InTurn => {
                let n = u32::from(GIVEN.fetch_add(1, Ordering::Relaxed));
                // Runs of several tares may be there too.
                let spread = std::process::id().wrapping_mul(97);
                let count = u32::from(PORTS.end - PORTS.start);
                Ok(PORTS.start + (n.wrapping_add(spread) % count) as u16)
            }
        }
    }
}

/// A port that nobody has at the moment, and that was not given out a moment ago: its server may
/// not have taken it yet.
fn free_port(ip: IpAddr) -> Result<u16, LabError> {
    static GIVEN_OUT: Mutex<VecDeque<u16>> = Mutex::new(VecDeque::new());
    let mut given_out = GIVEN_OUT.lock().unwrap_or_else(|e| e.into_inner());
    for _ in 0..GIVEN_OUT_MAX {
        let address = TcpListener::bind((ip, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| LabError::Environment(format!("no free port: {error}")))?;
        if !given_out.contains(&address.port()) {
            given_out.push_back(address.port());
            if given_out.len() > GIVEN_OUT_MAX {
                given_out.pop_front();
            }
            return Ok(address.port());
        }
    }
    Err(LabError::Environment("no free port: all were given out a moment ago".into()))
}

/// More than one round of any experiment needs.
const GIVEN_OUT_MAX: usize = 100;

fn utf8(path: &Path) -> Result<&str, LabError> {
    path.to_str().ok_or_else(|| {
        LabError::Environment(format!("{} is not UTF-8, which servers need", path.display()))
    })
}

/// A static page of so many bytes.
fn page(bytes: u32) -> Vec<u8> {
    let line = b"tare weighs what a layer costs. ";
    line.iter().copied().cycle().take(bytes as usize).collect()
}
