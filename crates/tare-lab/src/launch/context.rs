//! The facts about a place that the launch of a server or layer may use, and helpers for all
//! launches: addresses, files, a certificate.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;
use std::sync::atomic::{AtomicU16, Ordering};

use tare_io::DurationNs;
use tare_model::layers::LayerSpec;

use crate::launch::certificates::{self, Certified};
use crate::launch::spec::{LaunchSpec, PlacedFile};
use tare_model::Failure;

/// The facts about its place that a server's launch may use.
#[derive(Debug)]
pub struct LaunchContext<'a> {
    /// The server's own folder, by its path where the server runs; empty at its first launch.
    pub folder: &'a Path,
    /// The IP address that it listens on.
    pub ip: IpAddr,
    /// How a free port is chosen there.
    pub ports: Ports,
    /// The port that it listens on, if the place fixes it.
    pub port: Option<u16>,
    /// Whether it runs this machine's programs; otherwise the place has its own.
    pub our_programs: bool,
    /// Whether it runs as root there.
    pub root: bool,
    /// Files of the launch so far.
    pub files: RefCell<Vec<PlacedFile>>,
    /// Connections that load will open.
    pub connections: u32,
    /// The address in the URL; `None` if tare chooses one.
    pub fixed: Option<SocketAddr>,
    /// Layers in the path of its requests.
    pub layers: &'a [LayerSpec],
    /// Whether the server has read `layers`.
    pub layers_taken: Cell<bool>,
}

impl LaunchContext<'_> {
    pub(crate) fn address(&self) -> Result<SocketAddr, Failure> {
        match self.fixed {
            Some(fixed) => Ok(fixed),
            None if self.port.is_some() => {
                Ok(SocketAddr::new(self.ip, self.port.unwrap_or_default()))
            }
            None => Ok(SocketAddr::new(self.ip, self.ports.next(self.ip)?)),
        }
    }

    /// Returns an address for pages about the server that only tare requests.
    pub(crate) fn status_address(&self) -> Result<SocketAddr, Failure> {
        let ip = IpAddr::V4(Ipv4Addr::LOCALHOST);
        Ok(SocketAddr::new(ip, self.ports.next(ip)?))
    }

    pub(crate) fn write(&self, name: &str, text: &[u8]) -> PathBuf {
        let path = self.folder.join(name);
        self.files.borrow_mut().push(PlacedFile::new(path.clone(), text));
        path
    }

    /// Writes a certificate for localhost and its key, the same for all servers of this process.
    pub(crate) fn certificate(&self) -> Result<(PathBuf, PathBuf), Failure> {
        let Certified { cert, key, .. } = certificates::server_certificate()?;
        let key = self.write_secret("key.pem", key.as_bytes());
        Ok((self.write("cert.pem", cert.as_bytes()), key))
    }

    /// Writes the certificate and its key into one file.
    pub(crate) fn certificate_with_key(&self) -> Result<PathBuf, Failure> {
        let Certified { cert, key, .. } = certificates::server_certificate()?;
        Ok(self.write_secret("both.pem", format!("{cert}{key}").as_bytes()))
    }

    pub(crate) fn write_secret(&self, name: &str, text: &[u8]) -> PathBuf {
        let path = self.folder.join(name);
        self.files.borrow_mut().push(PlacedFile::secret(path.clone(), text));
        path
    }

    /// Returns a spec with the defaults of all launches and the files written so far.
    pub(crate) fn launch_spec(
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
            pages: None,
            companion: None,
            log_files: Vec::new(),
            ready_within_ms: ready_within.as_ns() / 1_000_000,
            stands: false,
            chooses_port: false,
        }
    }
}

/// How a place gives out ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// The kernel picks a free one.
    Kernel,
    /// tare gives ports out in turn, so that none is reused soon. No other process of this machine
    /// is in the place.
    InTurn,
}

/// Ports that are given out in turn, below the ephemeral ports of clients.
const PORTS: std::ops::Range<u16> = 20_000..30_000;

impl Ports {
    pub(crate) fn next(self, ip: IpAddr) -> Result<u16, Failure> {
        // One sequence for all places: two of them may be on the same remote machine.
        static GIVEN: AtomicU16 = AtomicU16::new(0);
        match self {
            Self::Kernel => free_port(ip),
            Self::InTurn => {
                let n = u32::from(GIVEN.fetch_add(1, Ordering::Relaxed));
                // Other tare processes may use that machine too.
                let spread = std::process::id().wrapping_mul(97);
                let count = u32::from(PORTS.end - PORTS.start);
                Ok(PORTS.start + (n.wrapping_add(spread) % count) as u16)
            }
        }
    }
}

/// Returns a port that is free now and was not returned recently: its server may not have bound it
/// yet.
fn free_port(ip: IpAddr) -> Result<u16, Failure> {
    static GIVEN_OUT: Mutex<VecDeque<u16>> = Mutex::new(VecDeque::new());
    let mut given_out = GIVEN_OUT.lock().unwrap_or_else(|e| e.into_inner());
    for _ in 0..GIVEN_OUT_MAX {
        let address = TcpListener::bind((ip, 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| Failure::environment(format!("no free port: {error}")))?;
        if !given_out.contains(&address.port()) {
            given_out.push_back(address.port());
            if given_out.len() > GIVEN_OUT_MAX {
                given_out.pop_front();
            }
            return Ok(address.port());
        }
    }
    Err(Failure::environment("no free port: all were given out a moment ago"))
}

/// Number of recent ports to avoid: more than one round of any experiment needs.
const GIVEN_OUT_MAX: usize = 100;

pub(crate) fn utf8(path: &Path) -> Result<&str, Failure> {
    path.to_str().ok_or_else(|| {
        Failure::environment(format!("{} is not UTF-8, which servers need", path.display()))
    })
}

/// Returns a static page of `bytes` bytes.
pub(crate) fn page(bytes: u32) -> Vec<u8> {
    let line = b"tare weighs what a layer costs. ";
    line.iter().copied().cycle().take(bytes as usize).collect()
}

/// Formats a count, such as `1 thread` or `2 threads`.
pub(crate) fn counted(n: u32, one: &str) -> String {
    format!("{n} {one}{}", if n == 1 { "" } else { "s" })
}
