//! A load: which requests, at what pace, over how many connections, and by which client.

mod keys;
mod own;

use std::net::IpAddr;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, ReactorKind, SocketOptions};

pub use keys::{
    CONNECTIONS, EXPECT_STATUS, HTTP_1, HTTP_2, LoadSpec, PATHS_MAX, STREAMS_MAX, TIMEOUT,
    check_headers,
};

pub use own::OwnLoad;

use crate::Metric;
use crate::layers::TlsVersion;
use crate::net::{CallName, NetTest, Protocol};
use crate::status::StatusSet;

/// A consistent load. It is read and stored as [`LoadSpec`], the keys of `[load]`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "LoadSpec", into = "LoadSpec")]
pub struct Load {
    pub workload: Workload,
    pub pace: Pace,
    /// Number of kept connections; if each request opens its own, number of requests at a time.
    pub connections: u32,
    /// Longest wait for a complete reply.
    pub timeout: DurationNs,
    pub client: Client,
}

/// The kind of requests.
#[derive(Clone, Debug, PartialEq)]
#[expect(clippy::large_enum_variant, reason = "a plan has one")]
pub enum Workload {
    Http(Http),
    /// A network test against an endpoint of `tare net`.
    Net(Net),
    /// A system call, made where the endpoint runs.
    Calls(CallName),
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Http {
    pub version: Version,
    pub paths: Paths,
    /// Default: POST with a body, else GET.
    pub method: Option<String>,
    /// Each has the form `Name: value`.
    pub headers: Vec<String>,
    pub body: Body,
    pub expect: StatusSet,
    /// A new connection for each request; latency then includes connecting.
    pub new_connections: bool,
    pub tls: Tls,
}

/// An HTTP version and its options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Version {
    #[default]
    Http1,
    Http2 {
        /// Requests at a time on each connection.
        streams: u32,
        dynamic_table: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Paths {
    /// The path of each variant's URL.
    #[default]
    OfUrl,
    One(String),
    Several {
        paths: Vec<String>,
        at_random: bool,
    },
}

#[derive(Clone, Debug, Default, PartialEq)]
pub enum Body {
    #[default]
    None,
    Text(String),
    File(PathBuf),
}

/// TLS settings of the client.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Tls {
    pub insecure: bool,
    /// CA certificates instead of the system's.
    pub cacert: Option<PathBuf>,
    /// The client's own certificate.
    pub cert: Option<PathBuf>,
    /// The key of the client's certificate.
    pub key: Option<PathBuf>,
    /// The server's name; default: the URL's host.
    pub sni: Option<String>,
    /// The only version allowed.
    pub version: Option<TlsVersion>,
    pub ciphers: Vec<String>,
    pub resume: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Net {
    pub test: NetTest,
    pub message_bytes: u32,
    pub reply_bytes: u32,
    pub sockets: SocketOptions,
}

/// When the next request is due.
#[derive(Clone, Debug, PartialEq)]
pub enum Pace {
    /// When the last reply has arrived. On io_uring, replies may wait for `linger`, so that one
    /// system call takes several. A client that is the bottleneck then reaches a higher rate, but
    /// the server sees a pause between reply and request.
    Closed { linger: Option<DurationNs> },
    /// At `rate` requests per second, whether or not earlier ones have their replies.
    Open {
        rate: f64,
        spacing: Spacing,
        /// When all connections are busy, more are opened, up to this many.
        connections_max: Option<u32>,
        /// Polls instead of sleeping when the next request is due within this time.
        spin: Option<DurationNs>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Spacing {
    Even,
    Poisson,
}

/// Settings of the client that makes the load.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Client {
    pub threads: Option<u32>,
    /// CPUs for the threads, in turn.
    pub cpus: Option<Vec<usize>>,
    /// Default: threads poll where they have CPUs of their own.
    pub idle: Option<Idle>,
    /// Default: the first that works.
    pub reactor: Option<ReactorKind>,
    /// Source addresses, used in turn.
    pub bind: Vec<IpAddr>,
    pub family: Family,
}

/// Behaviour of load threads while they have nothing to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Idle {
    /// Threads need no wake-up, but keep their CPU busy all the time.
    Poll,
    /// Threads sleep; a server on the same machine spends CPU time on waking them.
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

/// Which addresses of a name to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Family {
    #[default]
    Any,
    V4,
    V6,
}

impl Default for Load {
    fn default() -> Self {
        Self {
            workload: Workload::Http(Http::default()),
            pace: Pace::Closed { linger: None },
            connections: CONNECTIONS,
            timeout: TIMEOUT,
            client: Client::default(),
        }
    }
}

impl Load {
    pub fn protocol(&self) -> Protocol {
        match &self.workload {
            Workload::Http(http) => match http.version {
                Version::Http1 => Protocol::Http,
                Version::Http2 { streams, dynamic_table } => {
                    Protocol::Http2 { streams, dynamic_table }
                }
            },
            Workload::Net(net) => net.test.protocol(net.message_bytes, net.reply_bytes),
            Workload::Calls(call) => Protocol::Calls { call: *call },
        }
    }

    pub fn http(&self) -> Option<&Http> {
        match &self.workload {
            Workload::Http(http) => Some(http),
            _ => None,
        }
    }

    pub fn http_mut(&mut self) -> Option<&mut Http> {
        match &mut self.workload {
            Workload::Http(http) => Some(http),
            _ => None,
        }
    }

    /// Whether each request has a connection of its own.
    pub fn has_new_connections(&self) -> bool {
        match &self.workload {
            Workload::Http(http) => http.new_connections,
            Workload::Net(net) => net.test == NetTest::TcpCrr,
            Workload::Calls(_) => false,
        }
    }

    /// Requests per second, in an open loop.
    pub fn rate(&self) -> Option<f64> {
        match self.pace {
            Pace::Open { rate, .. } => Some(rate),
            Pace::Closed { .. } => None,
        }
    }

    /// Turns it into an open loop at that rate.
    pub fn set_rate(&mut self, per_s: f64) {
        match &mut self.pace {
            Pace::Open { rate, .. } => *rate = per_s,
            pace @ Pace::Closed { .. } => {
                let (connections_max, spin) = (None, None);
                *pace = Pace::Open { rate: per_s, spacing: Spacing::Even, connections_max, spin };
            }
        }
    }

    pub fn is_open(&self) -> bool {
        self.rate().is_some()
    }

    pub fn is_poisson(&self) -> bool {
        matches!(self.pace, Pace::Open { spacing: Spacing::Poisson, .. })
    }

    /// The most connections open at a time.
    pub fn most_connections(&self) -> u32 {
        match self.pace {
            Pace::Open { connections_max: Some(most), .. } => most,
            _ => self.connections,
        }
    }

    /// The most requests in flight at a time.
    pub fn most_in_flight(&self) -> u32 {
        self.most_connections().saturating_mul(self.streams())
    }

    /// The most requests at a time on a connection.
    pub fn streams(&self) -> u32 {
        match self.protocol() {
            Protocol::Http2 { streams, .. } => streams,
            _ => 1,
        }
    }

    /// The number of workers, at most one per connection: more would have nothing to do.
    pub fn workers(&self) -> u32 {
        let Client { threads, cpus, .. } = &self.client;
        let wanted = threads.or(cpus.as_ref().map(|cpus| cpus.len() as u32));
        wanted.unwrap_or(1).clamp(1, self.connections.max(1))
    }

    /// Whether each thread has a CPU of its own.
    pub fn has_own_cpus(&self) -> bool {
        self.client.cpus.as_ref().is_some_and(|cpus| self.workers() as usize <= cpus.len())
    }

    /// The default metric: throughput in a closed loop, latency at a given rate and for messages,
    /// bandwidth for streams, and the time of one call for system calls.
    pub fn metric(&self) -> Metric {
        match self.protocol() {
            Protocol::Http | Protocol::Http2 { .. } if !self.is_open() => Metric::Throughput,
            Protocol::Http | Protocol::Http2 { .. } | Protocol::Messages { .. } => {
                Metric::LatencyP50
            }
            Protocol::Stream { .. } => Metric::Bandwidth,
            Protocol::Calls { .. } => Metric::SystemCall,
        }
    }
}

impl Http {
    pub fn method(&self) -> &str {
        let own = if self.body == Body::None { "GET" } else { "POST" };
        self.method.as_deref().unwrap_or(own)
    }
}

impl Paths {
    /// The paths if there are several, requested in turn or at random; else empty.
    pub fn several(&self) -> &[String] {
        match self {
            Self::Several { paths, .. } => paths,
            _ => &[],
        }
    }

    pub fn at_random(&self) -> bool {
        matches!(self, Self::Several { at_random: true, .. })
    }
}

impl Tls {
    /// The key of a setting that has no meaning without TLS.
    pub fn tls_only_key(&self) -> Option<&'static str> {
        let settings = [
            ("sni", self.sni.is_some()),
            ("tls_version", self.version.is_some()),
            ("ciphers", !self.ciphers.is_empty()),
            ("tls_resume", self.resume),
        ];
        settings.into_iter().find(|(_, given)| *given).map(|(key, _)| key)
    }
}
