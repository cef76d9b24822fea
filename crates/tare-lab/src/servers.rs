//! Kinds of servers: each says how it is started. A new kind is a new file here and a line in
//! [`ServerSpec::recipe`].

mod command;
mod httpd;
mod nginx;
mod target;

use std::collections::VecDeque;
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};

use crate::error::LabError;
use crate::filters::FilterSpec;
use crate::launch::Recipe;

pub use command::CommandSpec;
pub use httpd::HttpdSpec;
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
    Target(TargetSpec),
}

/// What a recipe may know of the place it is made for.
#[derive(Debug)]
pub struct Kitchen<'a> {
    /// The server's own, empty at its first launch.
    pub folder: &'a Path,
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
        }
    }

    /// Checks what can be checked before anything starts; what it will create, in words.
    pub fn describe(&self) -> Result<String, LabError> {
        match self {
            Self::Up => Ok("already up".into()),
            Self::Command(spec) => Ok(format!("starts: {}", spec.command)),
            Self::Nginx(spec) => spec.describe(),
            Self::Httpd(spec) => spec.describe(),
            Self::Target(spec) => Ok(format!("starts: tare target {}", spec.flags().join(" "))),
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
        self.fixed.map_or_else(free_address, Ok)
    }

    fn write(&self, name: &str, text: &[u8]) -> Result<PathBuf, LabError> {
        let path = self.folder.join(name);
        if let Some(parent) = path.parent() {
            std::fs::create_dir_all(parent).map_err(|e| LabError::file("make", parent, e))?;
        }
        std::fs::write(&path, text).map_err(|e| LabError::file("write", &path, e))?;
        Ok(path)
    }

    /// A certificate for localhost and its key, made once.
    fn certificate(&self) -> Result<(PathBuf, PathBuf), LabError> {
        let (cert, key) = (self.folder.join("cert.pem"), self.folder.join("key.pem"));
        if !cert.exists() {
            let names = vec!["localhost".to_owned(), "127.0.0.1".to_owned()];
            let made = rcgen::generate_simple_self_signed(names)
                .map_err(|e| LabError::Environment(format!("cannot make a certificate: {e}")))?;
            self.write("cert.pem", made.cert.pem().as_bytes())?;
            self.write("key.pem", made.signing_key.serialize_pem().as_bytes())?;
        }
        Ok((cert, key))
    }
}

/// A port that nobody has at the moment, and that was not given out a moment ago: its server may
/// not have taken it yet.
fn free_address() -> Result<SocketAddr, LabError> {
    static GIVEN_OUT: Mutex<VecDeque<u16>> = Mutex::new(VecDeque::new());
    let mut given_out = GIVEN_OUT.lock().unwrap_or_else(|e| e.into_inner());
    for _ in 0..GIVEN_OUT_MAX {
        let address = TcpListener::bind(("127.0.0.1", 0))
            .and_then(|listener| listener.local_addr())
            .map_err(|error| LabError::Environment(format!("no free port: {error}")))?;
        if !given_out.contains(&address.port()) {
            given_out.push_back(address.port());
            if given_out.len() > GIVEN_OUT_MAX {
                given_out.pop_front();
            }
            return Ok(address);
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
