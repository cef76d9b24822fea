//! A hop: a process that requests pass on their way to the server, and what others know of it.

use std::net::SocketAddr;

use tare_model::layers::Stand;

use crate::executor::requests::Page;
use crate::lab::server::Server;
use crate::lab::site::Site;
use crate::launch::injected::Injected;
use crate::launch::spec::LaunchSpec;
use crate::network::intercept::Namespace;

/// A layer's process that runs.
#[derive(Debug)]
pub struct Hop {
    pub name: String,
    pub place: String,
    /// How often that was started, where it is its own.
    pub place_starts: u32,
    /// Its layer's place among the variant's.
    pub layer: usize,
    pub stand: Stand,
    /// Where it is, beside client or server.
    pub namespace: Option<Namespace>,
    /// What a cluster's mesh put there.
    pub injected: Option<Injected>,
    /// Clients are sent through it, and know only what is behind it.
    pub intercepts: bool,
    /// What it passes on to, and whether it speaks TLS with that.
    pub to: SocketAddr,
    pub makes_tls: bool,
    /// Whose certificate clients of it see.
    pub shows: Option<Shows>,
    pub launch_spec: LaunchSpec,
    pub server: Server,
}

impl Hop {
    /// Where it tells of itself.
    pub fn statistics(&self) -> Statistics {
        let address = self.launch_spec.pages.unwrap_or(self.launch_spec.address);
        Statistics { site: self.server.site().clone(), address }
    }
}

/// Where a proxy tells of itself: an address, and who can ask there.
#[derive(Clone, Debug)]
pub struct Statistics {
    pub site: Site,
    pub address: SocketAddr,
}

impl Statistics {
    pub fn page(&self, path: &str) -> Option<String> {
        self.site.ask(Page { address: self.address, path: path.to_owned() }).ok()?
    }
}

/// Whose certificate whoever takes encrypted connections shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Shows {
    /// A hop's, which the authority of all hops has signed.
    Hop,
    /// A server's, which it has signed itself.
    Server,
}

/// What a hop passes on to.
#[derive(Clone, Copy, Debug)]
pub struct Upstream {
    pub address: SocketAddr,
    /// It takes encrypted connections alone.
    pub shows: Option<Shows>,
}
