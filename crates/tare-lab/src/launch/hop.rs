//! Hops: processes that requests pass on their way to the server.

use std::net::SocketAddr;

use tare_model::layers::HopPosition;

use crate::executor::requests::Page;
use crate::lab::server::Server;
use crate::lab::site::Site;
use crate::launch::injected::Injected;
use crate::launch::spec::LaunchSpec;
use crate::network::intercept::Namespace;

/// A running process of a layer.
#[derive(Debug)]
pub struct Hop {
    pub name: String,
    pub place: String,
    /// How often its place was started, if it has one of its own.
    pub place_starts: u32,
    /// The index of its layer.
    pub layer: usize,
    pub stand: HopPosition,
    /// The network namespace of the client or server beside it.
    pub namespace: Option<Namespace>,
    /// Set if a cluster's mesh injected it.
    pub injected: Option<Injected>,
    /// Whether connections are redirected to it, so that clients only know the address behind it.
    pub intercepts: bool,
    /// The address that it forwards to.
    pub to: SocketAddr,
    /// Whether it uses TLS to `to`.
    pub makes_tls: bool,
    /// The certificate that its clients see.
    pub shows: Option<CertificateKind>,
    pub launch_spec: LaunchSpec,
    pub server: Server,
}

impl Hop {
    /// Returns where its statistics can be read.
    pub fn statistics(&self) -> Statistics {
        let address = self.launch_spec.pages.unwrap_or(self.launch_spec.address);
        Statistics { site: self.server.site().clone(), address }
    }
}

/// A source of a proxy's statistics: an address, and the site that can reach it.
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

/// The kind of certificate that a TLS endpoint shows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CertificateKind {
    /// A hop's, signed by the authority of all hops.
    Hop,
    /// A server's, self-signed.
    Server,
}

/// The target of a hop.
#[derive(Clone, Copy, Debug)]
pub struct Upstream {
    pub address: SocketAddr,
    /// The certificate that the target shows, if it only accepts TLS.
    pub shows: Option<CertificateKind>,
}
