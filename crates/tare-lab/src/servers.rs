//! Kinds of servers: each says how it is started. A new kind is a new file here and a line in
//! [`ServerSpec::recipe`].

mod command;
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

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use crate::error::LabError;
use crate::filters::FilterSpec;
use crate::launch::{PlacedFile, Recipe};
use crate::programs;

pub use command::CommandSpec;
pub use httpd::HttpdSpec;
pub use net::NetSpec;
pub use nginx::NginxSpec;
pub use target::TargetSpec;

/// The program that answers, as the plan keeps it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ServerSpec {
    /// It is up already; tare can neither start nor restart it.
    Up,
    Command(CommandSpec),
    Nginx(NginxSpec),
    Httpd(HttpdSpec),
    Target(Box<TargetSpec>),
    Net(NetSpec),
}

/// What a recipe may know of the place it is made for.
#[derive(Debug)]
pub struct Kitchen<'a> {
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
    /// Files of the recipe so far.
    pub files: RefCell<Vec<PlacedFile>>,
    /// Connections that load will open.
    pub connections: u32,
    /// Where the URL says that it listens; `None` where tare chooses.
    pub fixed: Option<SocketAddr>,
    /// What nginx puts in the path of its requests.
    pub filter: Option<&'a FilterSpec>,
}

impl ServerSpec {
    /// What to start, made anew for each launch.
    pub fn recipe(&self, kitchen: &Kitchen<'_>) -> Result<Recipe, LabError> {
        match self {
            Self::Up => Err(LabError::Usage("a server that is already up is not started".into())),
            Self::Command(spec) => spec.recipe(kitchen),
            Self::Nginx(spec) => spec.recipe(kitchen),
            Self::Httpd(spec) => spec.recipe(kitchen),
            Self::Target(spec) => spec.recipe(kitchen),
            Self::Net(spec) => spec.recipe(kitchen),
        }
    }

    /// What a place with programs of its own must have for it; an error where tare cannot tell.
    pub fn describe_elsewhere(&self) -> Result<String, LabError> {
        match self {
            Self::Up => Ok("already up".into()),
            Self::Command(spec) => Ok(format!("starts there: {}", spec.command)),
            Self::Nginx(spec) if spec.config.is_none() => Ok("starts the place's nginx".into()),
            Self::Nginx(_) => Err(LabError::Usage(
                "nginx's own config is a file of this machine; in a place with programs of its \
                 own, write a command"
                    .into(),
            )),
            Self::Net(spec) => spec.check().map(|()| "its agent is the endpoint".into()),
            Self::Httpd(_) | Self::Target(_) => Err(LabError::Usage(
                "a place with programs of its own (an image, another machine) runs nginx or a \
                 command"
                    .into(),
            )),
        }
    }

    /// Checks what can be checked before anything starts; what it will create, in words.
    pub fn describe(&self) -> Result<String, LabError> {
        match self {
            Self::Up => Ok("already up".into()),
            Self::Command(spec) => Ok(format!("starts: {}", spec.command)),
            Self::Nginx(spec) => spec.describe(),
            Self::Httpd(spec) => spec.describe(),
            Self::Target(spec) => {
                check_body(spec.body_bytes.unwrap_or(0))?;
                Ok(format!("starts: tare target {}", spec.flags().join(" ")))
            }
            Self::Net(spec) => {
                spec.check()?;
                Ok(format!("starts: tare net --serve {}", spec.flags().join(" ")))
            }
        }
    }

    /// The programs and files that it needs where it runs, by their absolute paths.
    pub fn needs(&self) -> Result<Vec<PathBuf>, LabError> {
        match self {
            Self::Up => Ok(Vec::new()),
            Self::Command(spec) => Ok(spec.needs()),
            Self::Nginx(spec) => spec.needs(),
            Self::Httpd(spec) => spec.needs(),
            Self::Target(_) => Ok(vec![programs::own()?]),
            // What `exec` executes.
            Self::Net(_) => Ok(vec![programs::own()?, "/bin/true".into()]),
        }
    }

    /// Whether a filter can be put in its path; else why not.
    pub fn takes_filters(&self) -> Result<(), String> {
        match self {
            Self::Nginx(spec) if spec.config.is_none() => Ok(()),
            Self::Nginx(_) => Err("a filter goes into a configuration made by tare, not into \
                                   one's own: leave out config"
                .into()),
            _ => Err("a filter needs a server of kind nginx".into()),
        }
    }

    pub fn tls(&self) -> bool {
        match self {
            Self::Nginx(spec) => spec.tls,
            Self::Target(spec) => spec.tls,
            _ => false,
        }
    }
}

impl Kitchen<'_> {
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
        static MADE: OnceLock<Result<(String, String), String>> = OnceLock::new();
        let made = MADE.get_or_init(|| {
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let made = rcgen::generate_simple_self_signed(names).map_err(|e| e.to_string())?;
            Ok((made.cert.pem(), made.signing_key.serialize_pem()))
        });
        let (cert, key) = made
            .as_ref()
            .map_err(|e| LabError::Environment(format!("cannot make a certificate: {e}")))?;
        let key_path = self.folder.join("key.pem");
        self.files.borrow_mut().push(PlacedFile::secret(key_path.clone(), key.as_bytes()));
        Ok((self.write("cert.pem", cert.as_bytes()), key_path))
    }

    /// A recipe with what all have; its files are those written so far.
    fn recipe(&self, argv: Vec<String>, address: SocketAddr, ready_within: DurationNs) -> Recipe {
        Recipe {
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

/// Pages are made in memory, here and in the server.
pub const BODY_BYTES_MAX: u32 = 64 << 20;

fn check_body(bytes: u32) -> Result<(), LabError> {
    match bytes <= BODY_BYTES_MAX {
        true => Ok(()),
        false => Err(LabError::Usage(format!(
            "body_bytes = {bytes}: at most {BODY_BYTES_MAX} (64 MiB) are supported"
        ))),
    }
}

/// A static page of so many bytes.
fn page(bytes: u32) -> Vec<u8> {
    let line = b"tare weighs what a layer costs. ";
    line.iter().copied().cycle().take(bytes as usize).collect()
}
