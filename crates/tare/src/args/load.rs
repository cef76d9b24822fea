//! Load flags, shared by `load` and `compare`.

use std::net::IpAddr;
use std::path::PathBuf;

use clap::Args;
use tare_io::{DurationNs, ReactorKind};
use tare_model::layers::TlsVersion;
use tare_model::load::{
    CONNECTIONS, EXPECT_STATUS, HTTP_1, HTTP_2, Idle, LoadSpec, STREAMS_MAX, TIMEOUT,
};
use tare_model::status::StatusSet;
use tare_model::text::{parse_reactor, si_number};

use super::words::{cpu_list, duration, positive_duration};

/// Each flag is a field of [`LoadSpec`].
#[derive(Args, Clone, Debug)]
pub struct LoadArgs {
    /// Connections to keep open; with --new-connections, concurrent requests
    #[arg(short, long, value_name = "N", default_value_t = CONNECTIONS,
          value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    connections: u32,
    /// Threads; default: one per CPU in --cpus, else half of all CPUs, leaving the rest to the
    /// server
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Option<u32>,
    /// Open loop: requests per second, evenly spaced
    #[arg(long, value_name = "PER_SECOND", value_parser = si_number, allow_negative_numbers = true)]
    rate: Option<f64>,
    /// Open loop: Poisson arrivals, as from independent users
    #[arg(long)]
    poisson: bool,
    /// Open loop: open up to this many connections when all are busy; default: -c
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    max_connections: Option<u32>,
    /// Open a new connection for each request; latency then includes connecting
    #[arg(long)]
    new_connections: bool,
    /// Request timeout
    #[arg(long, value_name = "DURATION", default_value_t = TIMEOUT, value_parser = positive_duration)]
    timeout: DurationNs,

    /// Use HTTP/2: negotiated with ALPN over https://, with prior knowledge over http://
    #[arg(long, conflicts_with = "http1_1")]
    http2: bool,
    /// Use HTTP/1.1 (the default)
    #[arg(long = "http1.1")]
    http1_1: bool,
    /// HTTP/2: concurrent streams on each connection, or fewer if the server's limit is lower;
    /// default: 1
    #[arg(long, value_name = "N", requires = "http2",
          value_parser = clap::value_parser!(u32).range(1..=i64::from(STREAMS_MAX)))]
    streams: Option<u32>,
    /// HTTP/2: do not use HPACK's dynamic table: each request carries all of its headers
    #[arg(long, requires = "http2")]
    no_hpack_table: bool,

    /// Request method
    #[arg(short = 'X', long, value_name = "NAME")]
    method: Option<String>,
    /// Request header, 'Name: value'; repeatable
    #[arg(short = 'H', long = "header", value_name = "HEADER")]
    headers: Vec<String>,
    /// Request body; makes POST the default method
    #[arg(short, long, value_name = "TEXT", conflicts_with = "body_file")]
    body: Option<String>,
    /// Request body from a file
    #[arg(long, value_name = "FILE")]
    body_file: Option<PathBuf>,
    /// Statuses that count as good: 200, 2xx, 200-399, or a list of these
    #[arg(long, value_name = "STATUS", default_value = EXPECT_STATUS, value_parser = StatusSet::parse)]
    expect_status: StatusSet,

    /// Source address; repeatable, used in turn
    #[arg(long, value_name = "IP")]
    bind: Vec<IpAddr>,
    /// Only IPv4 addresses of the host
    #[arg(short = '4', long, conflicts_with = "ipv6")]
    ipv4: bool,
    /// Only IPv6 addresses of the host
    #[arg(short = '6', long)]
    ipv6: bool,

    /// TLS: accept any certificate
    #[arg(short = 'k', long)]
    insecure: bool,
    /// TLS: trust the CA certificates in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,
    /// TLS: client certificate (PEM)
    #[arg(long, value_name = "FILE")]
    cert: Option<PathBuf>,
    /// TLS: client private key (PEM)
    #[arg(long, value_name = "FILE")]
    key: Option<PathBuf>,
    /// TLS: server name to request and verify; default: the host of the URL
    #[arg(long, value_name = "NAME")]
    sni: Option<String>,
    /// TLS: only this version, 1.2 or 1.3
    #[arg(long, value_name = "VERSION", value_parser = TlsVersion::parse)]
    tls_version: Option<TlsVersion>,
    /// TLS: only these cipher suites, by IANA name, separated by commas
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    ciphers: Vec<String>,
    /// TLS: resume sessions on new connections; default: full handshakes
    #[arg(long)]
    tls_resume: bool,

    /// Open loop: poll instead of sleeping when the next request is due within this time; precise,
    /// but above 1,000 requests/s per thread it keeps a CPU busy; default: 1ms
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    spin: Option<DurationNs>,
    /// Closed loop on io_uring: wait up to this long to read several replies at once; saves client
    /// CPU time, but the server sees a pause; default: no wait
    #[arg(long, value_name = "DURATION", value_parser = duration)]
    linger: Option<DurationNs>,
    /// How threads wait for replies: poll or sleep. Polling keeps a CPU busy. A server on the same
    /// machine pays for waking threads that sleep, and a slow server pays more often. Default: poll
    /// if the load has CPUs that servers do not use, else sleep
    #[arg(long, value_name = "HOW", value_parser = Idle::parse)]
    idle: Option<Idle>,
    /// CPUs to pin the threads to: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<std::vec::Vec<usize>>,
    /// Kernel interface: io_uring or epoll; default: the first that works
    #[arg(long, value_name = "NAME", value_parser = parse_reactor)]
    reactor: Option<ReactorKind>,
}

impl LoadArgs {
    /// Flags have the names of keys of `[load]`. A flag that is missing below has no effect.
    pub fn spec(&self) -> LoadSpec {
        let http = match (self.http2, self.http1_1) {
            (true, _) => Some(HTTP_2.to_owned()),
            (false, true) => Some(HTTP_1.to_owned()),
            (false, false) => None,
        };
        macro_rules! spec {
            ($($key:ident)*) => {
                LoadSpec { http, $($key: self.$key.clone().into(),)* ..LoadSpec::default() }
            };
        }
        spec! {
            streams no_hpack_table connections threads rate poisson max_connections new_connections timeout method
            headers body body_file expect_status bind ipv4 ipv6 insecure cacert cert key sni
            tls_version ciphers tls_resume spin linger idle cpus reactor
        }
    }

    /// Like [`Self::spec`], with `threads` threads unless threads or CPUs are given.
    pub fn spec_on(&self, threads: u32) -> LoadSpec {
        let spec = self.spec();
        let threads = spec.threads.or_else(|| spec.cpus.is_none().then_some(threads));
        LoadSpec { threads, ..spec }
    }
}

/// Half of the allowed CPUs, so that the server has the others; at least 1.
pub fn default_threads() -> u32 {
    (tare_io::system::allowed_cpus().len() as u32 / 2).max(1)
}
