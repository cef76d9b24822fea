//! The flat form of a load: the keys of `[load]` and of stored plans, named like the flags.

use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, ReactorKind, SocketOptions};

use super::{
    Body, Client, Family, Http, Idle, Load, Net, Pace, Paths, Spacing, Tls, Version, Workload,
};
use crate::invalid::check_range;
use crate::layers::TlsVersion;
use crate::net::{CallName, NetTest};
use crate::status::StatusSet;
use crate::{Invalid, text};

/// Missing keys have defaults; contradictory keys are an error in the conversion to [`Load`].
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LoadSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub paths: Vec<String>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub random_order: bool,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub test: Option<NetTest>,
    /// Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_bytes: Option<u32>,
    /// Default: the size of the message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reply_bytes: Option<u32>,
    /// Default: on for exchanges, off for streams.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nodelay: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub socket_buffer: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub call: Option<CallName>,

    /// Default: [`HTTP_1`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http: Option<String>,
    /// Default: 1.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub streams: Option<u32>,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub no_hpack_table: bool,

    /// Default: [`CONNECTIONS`].
    pub connections: Option<u32>,
    /// Default: one for each of `cpus`, else one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub threads: Option<u32>,
    #[serde(deserialize_with = "text::optional_rate::deserialize")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<f64>,
    pub poisson: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_connections: Option<u32>,
    pub new_connections: bool,
    /// Default: [`TIMEOUT`]; over UDP, which may lose a datagram, [`LOST_AFTER`].
    #[serde(with = "text::optional_duration")]
    pub timeout: Option<DurationNs>,

    #[serde(skip_serializing_if = "Option::is_none")]
    pub method: Option<String>,
    pub headers: Vec<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_file: Option<PathBuf>,
    /// Default: [`EXPECT_STATUS`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expect_status: Option<StatusSet>,

    pub bind: Vec<IpAddr>,
    pub ipv4: bool,
    pub ipv6: bool,

    pub insecure: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cacert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cert: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<PathBuf>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub sni: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tls_version: Option<TlsVersion>,
    pub ciphers: Vec<String>,
    pub tls_resume: bool,

    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub spin: Option<DurationNs>,
    #[serde(with = "text::optional_duration", skip_serializing_if = "Option::is_none")]
    pub linger: Option<DurationNs>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub idle: Option<Idle>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<Vec<usize>>,
    #[serde(with = "text::reactor", skip_serializing_if = "Option::is_none")]
    pub reactor: Option<ReactorKind>,
}

/// The versions of HTTP that `http` can name.
pub const HTTP_1: &str = "1.1";
pub const HTTP_2: &str = "2";
/// More requests on one connection than any server's usual limit.
pub const STREAMS_MAX: u32 = 10_000;
pub const CONNECTIONS: u32 = 10;
const CONNECTIONS_MAX: u32 = 1_000_000;
const THREADS_MAX: u32 = 1024;
/// Highest rate, in requests per second; even loopback carries no more.
const RATE_MAX: f64 = 1e7;
pub const TIMEOUT: DurationNs = DurationNs::from_secs(10);
const LOST_AFTER: DurationNs = DurationNs::from_secs(1);
pub const EXPECT_STATUS: &str = "2xx";
/// Most paths: each has a request that is built for each launch and kept in memory until its end.
pub const PATHS_MAX: usize = 200;
const BODIES_MAX_BYTES: usize = 1 << 20;

impl LoadSpec {
    /// Makes file paths absolute: a stored plan is read in other folders too.
    pub fn absolute(mut self, folder: &Path) -> Self {
        let files = [&mut self.body_file, &mut self.cacert, &mut self.cert, &mut self.key];
        for file in files.into_iter().flatten() {
            let path = folder.join(&*file);
            *file = std::path::absolute(&path).unwrap_or(path);
        }
        self
    }

    /// The first key given that belongs to this kind of workload only.
    fn given(&self, keys: KeysOf) -> Option<&'static str> {
        // Old plans store the default with every load.
        let has_expect_status =
            self.expect_status.as_ref().is_some_and(|set| *set != StatusSet::default());
        let all = [
            (KeysOf::Http, "http", self.http.is_some()),
            (KeysOf::Http, "streams", self.streams.is_some()),
            (KeysOf::Http, "no_hpack_table", self.no_hpack_table),
            (KeysOf::Http, "path", self.path.is_some()),
            (KeysOf::Http, "paths", !self.paths.is_empty()),
            (KeysOf::Http, "random_order", self.random_order),
            (KeysOf::Http, "method", self.method.is_some()),
            (KeysOf::Http, "headers", !self.headers.is_empty()),
            (KeysOf::Http, "body", self.body.is_some()),
            (KeysOf::Http, "body_file", self.body_file.is_some()),
            (KeysOf::Http, "expect_status", has_expect_status),
            (KeysOf::Http, "sni", self.sni.is_some()),
            (KeysOf::Http, "tls_version", self.tls_version.is_some()),
            (KeysOf::Http, "ciphers", !self.ciphers.is_empty()),
            (KeysOf::Http, "tls_resume", self.tls_resume),
            (KeysOf::Net, "message_bytes", self.message_bytes.is_some()),
            (KeysOf::Net, "reply_bytes", self.reply_bytes.is_some()),
            (KeysOf::Net, "nodelay", self.nodelay.is_some()),
            (KeysOf::Net, "socket_buffer", self.socket_buffer.is_some()),
        ];
        all.into_iter().find(|(of, _, given)| *of == keys && *given).map(|(_, key, _)| key)
    }

    fn workload(&self) -> Result<Workload, Invalid> {
        if let (Some(test), Some(_)) = (self.test, self.call) {
            return Err(Invalid(format!("{} and a call: choose one", test.name())));
        }
        if let (None, Some(key)) = (self.test, self.given(KeysOf::Net)) {
            return Err(Invalid(format!("{key} goes with a test of the network")));
        }
        let is_http = self.test.is_none() && self.call.is_none();
        if let (false, Some(key)) = (is_http, self.given(KeysOf::Http)) {
            return Err(Invalid(format!("{key} goes with HTTP, not with load.test and load.call")));
        }
        match (self.test, self.call) {
            (Some(test), _) => self.net(test).map_err(|why| why.named(test.name())),
            (None, Some(_)) if self.new_connections => {
                Err("new_connections goes with HTTP, not with load.call".into())
            }
            (None, Some(call)) => Ok(Workload::Calls(call)),
            (None, None) => self.http(),
        }
    }

    fn net(&self, test: NetTest) -> Result<Workload, Invalid> {
        let message_bytes = self.message_bytes.unwrap_or(1);
        let reply_bytes = self.reply_bytes.unwrap_or(message_bytes);
        let most = test.message_bytes_max();
        if let Some(bytes) =
            [message_bytes, reply_bytes].into_iter().find(|bytes| !(1..=most).contains(bytes))
        {
            return Err(Invalid(format!("messages of {bytes} bytes: 1 to {most} are allowed")));
        }
        if reply_bytes != message_bytes && test.is_udp() {
            return Err("datagrams come back as they are: leave out the reply".into());
        }
        if reply_bytes != message_bytes && test.is_stream() {
            return Err("a stream has no replies: leave out their size".into());
        }
        if test == NetTest::TcpStreamReverse && self.rate.is_some() {
            return Err("the endpoint sends as fast as it can: leave out rate".into());
        }
        if self.new_connections {
            return Err("for new connections there is tcp_crr".into());
        }
        let nodelay = self.nodelay.unwrap_or(test.nodelay());
        let sockets = SocketOptions { nodelay, buffer_bytes: self.socket_buffer };
        Ok(Workload::Net(Net { test, message_bytes, reply_bytes, sockets }))
    }

    fn http(&self) -> Result<Workload, Invalid> {
        check_headers(&self.headers)?;
        let body = match (&self.body, &self.body_file) {
            (None, None) => Body::None,
            (Some(text), None) => Body::Text(text.clone()),
            (None, Some(path)) => Body::File(path.clone()),
            (Some(_), Some(_)) => return Err("body and body_file: choose one".into()),
        };
        Ok(Workload::Http(Http {
            version: self.version()?,
            paths: self.asked_paths()?,
            method: self.method.clone(),
            headers: self.headers.clone(),
            body,
            expect: self.expect_status.clone().unwrap_or_default(),
            new_connections: self.new_connections,
            tls: Tls {
                insecure: self.insecure,
                cacert: self.cacert.clone(),
                cert: self.cert.clone(),
                key: self.key.clone(),
                sni: self.sni.clone(),
                version: self.tls_version,
                ciphers: self.ciphers.clone(),
                resume: self.tls_resume,
            },
        }))
    }

    fn version(&self) -> Result<Version, Invalid> {
        match self.http.as_deref() {
            None | Some(HTTP_1) => match (self.streams, self.no_hpack_table) {
                (None | Some(1), false) => Ok(Version::Http1),
                (None | Some(1), true) => Err("no_hpack_table goes with http = \"2\"".into()),
                (Some(_), _) => Err("streams goes with http = \"2\"".into()),
            },
            Some(HTTP_2) => {
                let streams = self.streams.unwrap_or(1);
                check_range("streams", streams, STREAMS_MAX)?;
                if self.new_connections && streams > 1 {
                    return Err("streams: with new_connections each connection carries one request: leave out streams".into());
                }
                Ok(Version::Http2 { streams, dynamic_table: !self.no_hpack_table })
            }
            Some(other) => Err(Invalid(format!(
                "http = \"{}\": write \"{HTTP_1}\" or \"{HTTP_2}\"",
                other.escape_debug()
            ))),
        }
    }

    fn asked_paths(&self) -> Result<Paths, Invalid> {
        let wrong = |text: String| Err(Invalid(text));
        let (paths, at_random) = (self.paths.clone(), self.random_order);
        if paths.is_empty() {
            return match (&self.path, at_random) {
                (_, true) => wrong("random_order goes with paths".into()),
                (Some(path), false) => Ok(Paths::One(path.clone())),
                (None, false) => Ok(Paths::OfUrl),
            };
        }
        if self.path.is_some() {
            return wrong("path and paths: choose one".into());
        }
        if paths.len() > PATHS_MAX {
            return wrong(format!("{} paths; {PATHS_MAX} are allowed", paths.len()));
        }
        if self.body_file.is_some() {
            return wrong(
                "paths: every request would have the body again: leave out body_file".into(),
            );
        }
        let bodies = paths.len() * self.body.as_ref().map_or(0, String::len);
        if bodies > BODIES_MAX_BYTES {
            return wrong(format!(
                "paths: their bodies are {bodies} bytes together; {BODIES_MAX_BYTES} are allowed"
            ));
        }
        let is_path = |path: &&String| {
            path.starts_with('/') && path.chars().all(|c| c.is_ascii_graphic() && c != '#')
        };
        match paths.iter().find(|path| !is_path(path)) {
            Some(path) => wrong(format!(
                "paths: '{}': write a slash first, and printable ASCII without spaces and #",
                path.escape_debug()
            )),
            None => Ok(Paths::Several { paths, at_random }),
        }
    }

    fn pace(&self, connections: u32) -> Result<Pace, Invalid> {
        let Some(rate) = self.rate else {
            let given = [
                ("poisson", self.poisson),
                ("max_connections", self.max_connections.is_some()),
                ("spin", self.spin.is_some()),
            ];
            return match given.into_iter().find(|(_, given)| *given) {
                Some((key, _)) => Err(Invalid(format!("{key} needs an open loop: give a rate"))),
                None => self.closed(),
            };
        };
        if !(rate > 0.0 && rate <= RATE_MAX) {
            let text = format!("rate = {rate}: write a number above 0, up to {RATE_MAX}");
            return Err(Invalid(text));
        }
        if self.linger.is_some() {
            return Err("linger goes with a closed loop: at a rate nothing waits".into());
        }
        if let Some(most) = self.max_connections.filter(|most| *most < connections) {
            let text =
                format!("max_connections = {most}: must be at least connections, {connections}");
            return Err(Invalid(text));
        }
        Ok(Pace::Open {
            rate,
            spacing: if self.poisson { Spacing::Poisson } else { Spacing::Even },
            connections_max: self.max_connections,
            spin: self.spin,
        })
    }

    fn closed(&self) -> Result<Pace, Invalid> {
        let lingers = self.linger.is_some();
        if lingers && self.idle == Some(Idle::Poll) {
            return Err(
                "linger goes with idle = sleep: a thread that polls takes each reply at once"
                    .into(),
            );
        }
        if lingers && self.reactor == Some(ReactorKind::Epoll) {
            return Err("linger goes with io_uring: epoll reports at once what is there".into());
        }
        Ok(Pace::Closed { linger: self.linger })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum KeysOf {
    Http,
    Net,
}

pub fn check_headers(headers: &[String]) -> Result<(), Invalid> {
    // A line end would begin another header, or another request.
    let is_bad = |header: &&String| header.chars().any(|c| c.is_control() && c != '\t');
    match headers.iter().find(is_bad) {
        Some(header) => {
            Err(Invalid(format!("headers: {header:?}: write it without control characters")))
        }
        None => Ok(()),
    }
}

impl TryFrom<LoadSpec> for Load {
    type Error = Invalid;

    fn try_from(spec: LoadSpec) -> Result<Self, Invalid> {
        let connections = spec.connections.unwrap_or(CONNECTIONS);
        check_range("connections", connections, CONNECTIONS_MAX)?;
        let is_udp = spec.test.is_some_and(NetTest::is_udp);
        let load = Self {
            workload: spec.workload()?,
            pace: spec.pace(connections)?,
            connections,
            timeout: spec.timeout.unwrap_or(if is_udp { LOST_AFTER } else { TIMEOUT }),
            client: Client {
                threads: spec.threads,
                cpus: spec.cpus,
                idle: spec.idle,
                reactor: spec.reactor,
                bind: spec.bind,
                family: match (spec.ipv4, spec.ipv6) {
                    (false, false) => Family::Any,
                    (true, false) => Family::V4,
                    (false, true) => Family::V6,
                    (true, true) => return Err("ipv4 and ipv6: choose one".into()),
                },
            },
        };
        check_range("threads", load.client.threads.unwrap_or(1).max(load.workers()), THREADS_MAX)?;
        Ok(load)
    }
}

impl From<Load> for LoadSpec {
    fn from(load: Load) -> Self {
        let Load { workload, pace, connections, timeout, client } = load;
        let mut spec = Self {
            connections: Some(connections),
            timeout: Some(timeout),
            threads: client.threads,
            cpus: client.cpus,
            idle: client.idle,
            reactor: client.reactor,
            bind: client.bind,
            ipv4: client.family == Family::V4,
            ipv6: client.family == Family::V6,
            ..Self::default()
        };
        match pace {
            Pace::Closed { linger } => spec.linger = linger,
            Pace::Open { rate, spacing, connections_max, spin } => {
                spec.rate = Some(rate);
                spec.poisson = spacing == Spacing::Poisson;
                spec.max_connections = connections_max;
                spec.spin = spin;
            }
        }
        match workload {
            Workload::Calls(call) => spec.call = Some(call),
            Workload::Net(net) => {
                spec.test = Some(net.test);
                spec.message_bytes = Some(net.message_bytes);
                spec.reply_bytes = Some(net.reply_bytes);
                spec.nodelay = Some(net.sockets.nodelay);
                spec.socket_buffer = net.sockets.buffer_bytes;
            }
            Workload::Http(http) => spec.put_http(http),
        }
        spec
    }
}

impl LoadSpec {
    fn put_http(&mut self, http: Http) {
        let Http { version, paths, method, headers, body, expect, new_connections, tls } = http;
        if let Version::Http2 { streams, dynamic_table } = version {
            self.http = Some(HTTP_2.to_owned());
            self.streams = Some(streams);
            self.no_hpack_table = !dynamic_table;
        }
        match paths {
            Paths::OfUrl => {}
            Paths::One(path) => self.path = Some(path),
            Paths::Several { paths, at_random } => {
                (self.paths, self.random_order) = (paths, at_random);
            }
        }
        match body {
            Body::None => {}
            Body::Text(text) => self.body = Some(text),
            Body::File(path) => self.body_file = Some(path),
        }
        (self.method, self.headers, self.expect_status) = (method, headers, Some(expect));
        self.new_connections = new_connections;
        (self.insecure, self.cacert, self.cert, self.key) =
            (tls.insecure, tls.cacert, tls.cert, tls.key);
        (self.sni, self.tls_version, self.ciphers, self.tls_resume) =
            (tls.sni, tls.version, tls.ciphers, tls.resume);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn load(keys: &str) -> Result<Load, String> {
        let spec = serde_json::from_str::<LoadSpec>(keys).map_err(|error| error.to_string())?;
        Load::try_from(spec).map_err(|why| why.0)
    }

    #[test]
    fn what_is_stored_is_read_as_the_same_load() {
        for keys in [
            "{}",
            r#"{"path": "/a", "method": "HEAD", "headers": ["X-A: b"], "expect_status": "2xx,404"}"#,
            r#"{"paths": ["/a", "/b"], "random_order": true, "body": "x", "timeout": "3s"}"#,
            r#"{"rate": "2k", "poisson": true, "max_connections": 20, "spin": "1us", "ipv6": true}"#,
            r#"{"new_connections": true, "tls_resume": true, "tls_version": "1.2", "body_file": "/x"}"#,
            r#"{"http": "2", "streams": 8, "no_hpack_table": true}"#,
            r#"{"test": "tcp_rr", "message_bytes": 64, "reply_bytes": 9, "nodelay": false}"#,
            r#"{"call": "getpid", "linger": "5us", "idle": "sleep", "cpus": [0, 1]}"#,
        ] {
            let asked = load(keys).unwrap();
            let stored = serde_json::to_string(&asked).unwrap();
            assert_eq!(serde_json::from_str::<Load>(&stored).unwrap(), asked, "{stored}");
        }
        let lost = load(r#"{"test": "udp_rr"}"#).unwrap().timeout;
        assert_eq!((lost, load("{}").unwrap().timeout), (LOST_AFTER, TIMEOUT));
    }

    #[test]
    fn loads_that_contradict_themselves_are_refused() {
        for (keys, part) in [
            (r#"{"body": "x", "body_file": "/x"}"#, "body and body_file: choose one"),
            (r#"{"ipv4": true, "ipv6": true}"#, "ipv4 and ipv6: choose one"),
            (r#"{"connections": 0}"#, "connections = 0: write 1 to 1000000"),
            (r#"{"threads": 2000, "connections": 9000}"#, "threads = 2000: write 1 to 1024"),
            (r#"{"rate": 5, "max_connections": 3}"#, "must be at least connections, 10"),
            (r#"{"streams": 2}"#, "streams goes with http = \"2\""),
            (r#"{"http": "3"}"#, "http = \"3\": write \"1.1\" or \"2\""),
            (r#"{"http": "2", "streams": 0}"#, "streams = 0: write 1 to 10000"),
            (
                r#"{"http": "2", "streams": 2, "new_connections": true}"#,
                "each connection carries one request",
            ),
            (r#"{"test": "tcp_rr", "http": "2"}"#, "http goes with HTTP"),
            (r#"{"random_order": true}"#, "random_order goes with paths"),
            (r#"{"test": "tcp_rr", "headers": ["a: b"]}"#, "headers goes with HTTP"),
            (r#"{"test": "udp_rr", "reply_bytes": 9}"#, "udp_rr: datagrams come back as they are"),
            (r#"{"test": "tcp_rr", "call": "getpid"}"#, "tcp_rr and a call: choose one"),
            (r#"{"socket_buffer": 9}"#, "socket_buffer goes with a test of the network"),
            (r#"{"headers": ["a: b\r\nc: d"]}"#, "write it without control characters"),
            (r#"{"expect_status": "20"}"#, "write 200, 2xx, 200-399"),
        ] {
            let why = load(keys).unwrap_err();
            assert!(why.contains(part), "{keys}: {why}");
        }
    }
}
