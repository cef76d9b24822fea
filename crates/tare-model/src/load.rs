//! What load to make, as the user asked for it.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, ReactorKind, SocketOptions};

use crate::net::{CallName, NetTest, Protocol};
use crate::status::{STATUS_ALLOWED, StatusSet};
use crate::{Invalid, text};

/// A load as it is asked for: each field is a key of `[load]`, and most are flags.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadSpec {
    /// What is asked for, where a variant's URL does not say it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Requested in turn instead of the path of the URL.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    /// In random order instead.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub random_order: bool,
    /// A test of the network to an endpoint of `net` instead of HTTP.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<NetTest>,
    /// Bytes of its messages (default 1) and of their replies (default as many).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_bytes: Option<u32>,
    /// TCP_NODELAY; default on for exchanges, off for streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelay: Option<bool>,
    /// Bytes of the client's socket buffers.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_buffer: Option<u32>,
    /// When a datagram that is not back counts as lost; default is the timeout.
    #[serde(skip)]
    pub lost_after: Option<DurationNs>,
    /// A call into the kernel where the endpoint runs, instead of load.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallName>,
    /// Connections kept open; with `new_connections`, concurrent requests.
    pub connections: u32,
    /// Resolved by whoever makes a plan; default one for each of `cpus`, else one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    /// Open loop: requests per second.
    #[serde(deserialize_with = "text::optional_rate::deserialize")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    /// Open loop: Poisson arrivals; else evenly spaced.
    pub poisson: bool,
    /// Open loop: the most connections when all are busy; default `connections`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    /// A new connection for each request; latency then includes connecting.
    pub new_connections: bool,
    /// Of a request.
    #[serde(with = "text::duration")]
    pub timeout: DurationNs,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    /// As `Name: value`.
    pub headers: Vec<String>,
    /// The default method is POST with a body.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_file: Option<PathBuf>,
    /// Statuses that count as good: 200, 2xx, 200-399, or a list of these
    #[serde(deserialize_with = "text::checked_status")]
    pub expect_status: String,

    /// Source addresses, used in turn.
    pub bind: Vec<IpAddr>,
    /// Only addresses of this family.
    pub ipv4: bool,
    pub ipv6: bool,

    /// TLS: accept any certificate.
    pub insecure: bool,
    /// TLS: CA certificates instead of the system's; then the client's own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    /// TLS: the server's name, where it is not the URL's host
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    /// TLS: only this version, 1.2 or 1.3
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<String>,
    /// TLS: only these cipher suites, by IANA name, separated by commas
    pub ciphers: Vec<String>,
    /// TLS: resume sessions on new connections; full handshakes otherwise
    pub tls_resume: bool,

    /// Open loop: polls instead of sleeping when the next request is due within this; default 1ms.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub spin: Option<DurationNs>,
    /// Closed loop on io_uring: replies may wait this long for others, so that one system call
    /// takes several; none wait by default. A client that is the limit gets further by it, at the
    /// price of a pause between reply and request that the server sees.
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub linger: Option<DurationNs>,
    /// What threads do while they wait; by default they poll where they have CPUs of their own.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    /// CPUs for the threads, in turn: 0,2-3
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<std::vec::Vec<usize>>,
    /// Default is the first that works.
    #[serde(with = "text::reactor", skip_serializing_if = "Option::is_none")]
    pub reactor: Option<ReactorKind>,
}

/// What the load's threads do while there is nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
    /// Nobody has to wake them; a CPU of their own is always busy.
    Poll,
    /// A server on the same machine pays for waking them.
    Sleep,
}

impl Idle {
    pub fn parse(text: &str) -> Result<Self, String> {
        match text {
            "poll" => Ok(Self::Poll),
            "sleep" => Ok(Self::Sleep),
            _ => Err("write poll or sleep".into()),
        }
    }
}

impl Default for LoadSpec {
    fn default() -> Self {
        Self {
            path: None,
            paths: Vec::new(),
            random_order: false,
            test: None,
            message_bytes: None,
            reply_bytes: None,
            nodelay: None,
            socket_buffer: None,
            lost_after: None,
            call: None,
            connections: CONNECTIONS,
            threads: None,
            rate: None,
            poisson: false,
            max_connections: None,
            new_connections: false,
            timeout: TIMEOUT,
            method: None,
            headers: Vec::new(),
            body: None,
            body_file: None,
            expect_status: EXPECT_STATUS.to_owned(),
            bind: Vec::new(),
            ipv4: false,
            ipv6: false,
            insecure: false,
            cacert: None,
            cert: None,
            key: None,
            sni: None,
            tls_version: None,
            ciphers: Vec::new(),
            tls_resume: false,
            spin: None,
            linger: None,
            idle: None,
            cpus: None,
            reactor: None,
        }
    }
}

pub const CONNECTIONS: u32 = 10;
pub const TIMEOUT: DurationNs = DurationNs::from_secs(10);
pub const EXPECT_STATUS: &str = "2xx";

/// Requests are made anew for each launch, and kept until the end.
pub const PATHS_MAX: usize = 200;
const BODIES_MAX_BYTES: usize = 1 << 20;

/// Which addresses of a name to use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    Any,
    V4,
    V6,
}

impl LoadSpec {
    pub fn message_bytes(&self) -> u32 {
        self.message_bytes.unwrap_or(1)
    }

    pub fn reply_bytes(&self) -> u32 {
        self.reply_bytes.unwrap_or(self.message_bytes())
    }

    pub fn protocol(&self) -> Protocol {
        match (self.test, self.call) {
            (Some(test), _) => test.protocol(self.message_bytes(), self.reply_bytes()),
            (None, Some(call)) => Protocol::Calls { call },
            (None, None) => Protocol::Http,
        }
    }

    pub fn sockets(&self) -> SocketOptions {
        let own = self.test.is_none_or(NetTest::nodelay);
        SocketOptions { nodelay: self.nodelay.unwrap_or(own), buffer_bytes: self.socket_buffer }
    }

    /// What does not go together.
    pub fn check_test(&self) -> Result<(), Invalid> {
        let usage = |text: String| Err(Invalid(text));
        let of_tests = [
            ("message_bytes", self.message_bytes.is_some()),
            ("reply_bytes", self.reply_bytes.is_some()),
            ("nodelay", self.nodelay.is_some()),
            ("socket_buffer", self.socket_buffer.is_some()),
        ];
        let Some(test) = self.test else {
            return match of_tests.iter().find(|(_, given)| *given) {
                Some((key, _)) => usage(format!("{key} goes with a test of the network")),
                None => Ok(()),
            };
        };
        let (name, most) = (test.name(), test.message_bytes_max());
        for bytes in [self.message_bytes(), self.reply_bytes()] {
            if !(1..=most).contains(&bytes) {
                return usage(format!(
                    "{name}: messages of {bytes} bytes: 1 to {most} are allowed"
                ));
            }
        }
        if self.reply_bytes.is_some_and(|reply| reply != self.message_bytes()) {
            if test.is_udp() {
                return usage(format!(
                    "{name}: datagrams come back as they are: leave out the reply"
                ));
            }
            if test.is_stream() {
                return usage(format!("{name}: a stream has no replies: leave out their size"));
            }
        }
        if test == NetTest::TcpStreamReverse && self.rate.is_some() {
            return usage(format!("{name}: the endpoint sends as fast as it can: leave out rate"));
        }
        if self.call.is_some() {
            return usage(format!("{name} and a call: choose one"));
        }
        if self.new_connections {
            return usage(format!("{name}: for new connections there is tcp_crr"));
        }
        Ok(())
    }

    /// What is wrong with the paths that are requested.
    pub fn check_paths(&self) -> Result<(), Invalid> {
        let usage = |text: String| Err(Invalid(text));
        if self.path.is_some() && !self.paths.is_empty() {
            return usage("path and paths: choose one".into());
        }
        if self.random_order && self.paths.is_empty() {
            return usage("random_order goes with paths".into());
        }
        let of_http = [
            ("path", self.path.is_some()),
            ("paths", !self.paths.is_empty()),
            ("method", self.method.is_some()),
            ("headers", !self.headers.is_empty()),
            ("body", self.body.is_some()),
            ("body_file", self.body_file.is_some()),
            ("expect_status", self.expect_status != EXPECT_STATUS),
        ];
        let given = of_http.iter().find(|(_, given)| *given);
        if let (Some((key, _)), true) = (given, !self.protocol().is_served()) {
            return usage(format!("{key} goes with HTTP, not with load.test and load.call"));
        }
        if self.paths.len() > PATHS_MAX {
            return usage(format!("{} paths; {PATHS_MAX} are allowed", self.paths.len()));
        }
        if !self.paths.is_empty() && self.body_file.is_some() {
            return usage(
                "paths: every request would have the body again: leave out body_file".into(),
            );
        }
        let bodies = self.paths.len() * self.body.as_ref().map_or(0, String::len);
        if bodies > BODIES_MAX_BYTES {
            return usage(format!(
                "paths: their bodies are {bodies} bytes together; {BODIES_MAX_BYTES} are allowed"
            ));
        }
        let is_path = |path: &&String| {
            path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic() && c != '#')
        };
        match self.paths.iter().find(|path| !is_path(path)) {
            Some(path) => usage(format!(
                "paths: '{}': write a slash first, and printable ASCII without spaces and #",
                path.escape_debug()
            )),
            None => Ok(()),
        }
    }

    /// What only loads over TLS can have, where nothing is asked over TLS.
    pub fn check_plain(&self) -> Result<(), Invalid> {
        let of_tls = [
            ("sni", self.sni.is_some()),
            ("tls_version", self.tls_version.is_some()),
            ("ciphers", !self.ciphers.is_empty()),
            ("tls_resume", self.tls_resume),
        ];
        match of_tls.iter().find(|(_, given)| *given) {
            Some((key, _)) => {
                Err(Invalid(format!("{key} goes with TLS: no URL begins with https")))
            }
            None => Ok(()),
        }
    }

    /// An open loop is asked for by `flags`.
    pub fn check_open_loop(&self, open: bool, flags: &str) -> Result<(), Invalid> {
        if !open && (self.poisson || self.max_connections.is_some()) {
            let flag = if self.poisson { "--poisson" } else { "--max-connections" };
            return Err(Invalid(format!("{flag} needs an open loop: give {flags}")));
        }
        if self.spin.is_some() && !open {
            return Err(Invalid(format!("--spin needs an open loop: give {flags}")));
        }
        if self.linger.is_some() && open {
            return Err("--linger goes with a closed loop: at a rate nothing waits".into());
        }
        if self.linger.is_some() && self.idle == Some(Idle::Poll) {
            return Err(
                "--linger goes with --idle sleep: who polls takes each reply at once".into()
            );
        }
        if self.linger.is_some() && self.reactor == Some(ReactorKind::Epoll) {
            return Err("--linger goes with io_uring: epoll tells at once what is there".into());
        }
        Ok(())
    }

    /// Each thread has a CPU that was set apart for it.
    pub fn has_own_cpus(&self) -> bool {
        self.cpus.as_ref().is_some_and(|cpus| self.workers() as usize <= cpus.len())
    }

    pub fn is_open(&self) -> bool {
        self.rate.is_some()
    }

    /// Connections that there may be at a time.
    pub fn most_connections(&self) -> u32 {
        self.max_connections.unwrap_or(self.connections)
    }

    /// Requests that may be under way at a time.
    pub fn most_in_flight(&self) -> u32 {
        self.most_connections()
    }

    /// At most as many as there are connections: others would have nothing to do.
    pub fn workers(&self) -> u32 {
        let wanted = self.threads.or(self.cpus.as_ref().map(|cpus| cpus.len() as u32));
        wanted.unwrap_or(1).clamp(1, self.connections.max(1))
    }

    pub fn expected(&self) -> Result<StatusSet, Invalid> {
        StatusSet::parse(&self.expect_status).ok_or_else(|| {
            Invalid(format!("--expect-status {}: {STATUS_ALLOWED}", self.expect_status))
        })
    }

    /// Files that it names, whole: a stored plan is read in other folders too.
    pub fn absolute(mut self, folder: &Path) -> Self {
        let files = [&mut self.body_file, &mut self.cacert, &mut self.cert, &mut self.key];
        for file in files.into_iter().flatten() {
            let path = folder.join(&*file);
            *file = std::path::absolute(&path).unwrap_or(path);
        }
        self
    }

    pub fn method(&self) -> String {
        let has_body = self.body.is_some() || self.body_file.is_some();
        self.method.clone().unwrap_or_else(|| if has_body { "POST" } else { "GET" }.to_owned())
    }

    pub fn family(&self) -> Family {
        match (self.ipv4, self.ipv6) {
            (true, _) => Family::V4,
            (_, true) => Family::V6,
            _ => Family::Any,
        }
    }
}
