//! The connections on which counts and orders go: small questions, small answers.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::Socket;
use tare_io::socket::{self, Blocking};
use tare_io::{DurationNs, Endpoint, SocketOptions};

use super::wire::{ASK, COUNT_BYTES, Count, Greeting, Purpose};
use crate::engine::EngineConfig;
use crate::run::LoadError;

/// A blocking connection to an endpoint, greeted.
pub struct Control {
    socket: Socket,
    endpoint: SocketAddr,
    /// Answers that are under way.
    asked: u32,
}

impl Control {
    pub fn open(config: &EngineConfig, purpose: Purpose, session: u64) -> Result<Self, LoadError> {
        Self::reach(&config.endpoint, &config.bind, config.timeout, purpose, session)
    }

    pub fn reach(
        endpoint: &Endpoint,
        bind: &[IpAddr],
        timeout: DurationNs,
        purpose: Purpose,
        session: u64,
    ) -> Result<Self, LoadError> {
        let endpoint = address(endpoint);
        let to = Endpoint::Tcp(endpoint);
        let from = bind.first().copied();
        let connected = connect(&to, from, SocketOptions::default(), timeout);
        let mut control = match connected {
            Ok(socket) => Self { socket, endpoint, asked: 0 },
            Err(error) => return Err(no_connection(endpoint, &error)),
        };
        control.say(&Greeting { purpose, session }.bytes())?;
        Ok(control)
    }

    pub fn say(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        let said = self.socket.write_all(bytes);
        said.map_err(|error| lost(self.endpoint, &error))
    }

    /// Hears whole answers; an endpoint that closes instead refuses, or is of another version.
    pub fn hear(&mut self, into: &mut [u8]) -> Result<(), LoadError> {
        let heard = self.socket.read_exact(into);
        heard.map_err(|error| lost(self.endpoint, &error))
    }

    /// Asks for the session's count; the answer is taken up later, so that asking takes no time.
    pub fn ask(&mut self) -> Result<(), LoadError> {
        self.asked += 1;
        self.say(&[ASK])
    }

    /// The answer to the first question that has none yet.
    pub fn answer(&mut self) -> Result<Count, LoadError> {
        assert!(self.asked > 0, "an answer to nothing");
        self.asked -= 1;
        let mut bytes = [0; COUNT_BYTES];
        self.hear(&mut bytes)?;
        Ok(Count::parse(&bytes))
    }

    pub fn count(&mut self) -> Result<Count, LoadError> {
        self.ask()?;
        self.answer()
    }

    /// Waits for an answer as long as this.
    pub fn be_patient(&self, limit: DurationNs) {
        let limit = Some(Duration::from_nanos(limit.as_ns()));
        // Only fails for a limit of zero.
        let _ = self.socket.set_read_timeout(limit);
    }
}

/// The endpoint's address, however it is spoken to.
pub fn address(endpoint: &Endpoint) -> SocketAddr {
    match endpoint {
        Endpoint::Tcp(address) | Endpoint::Udp(address) => *address,
        Endpoint::Unix(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}

/// A blocking socket that is connected, or why not.
pub fn connect(
    to: &Endpoint,
    from: Option<IpAddr>,
    options: SocketOptions,
    limit: DurationNs,
) -> std::io::Result<Socket> {
    let socket = socket::outgoing(to, from, Blocking::Yes, options)?;
    let limit = Duration::from_nanos(limit.as_ns().max(1));
    socket.connect_timeout(&socket::address(to)?, limit)?;
    socket.set_read_timeout(Some(limit))?;
    socket.set_write_timeout(Some(limit))?;
    Ok(socket)
}

pub fn no_connection(endpoint: SocketAddr, error: &Error) -> LoadError {
    LoadError::NoConnection { endpoint: endpoint.to_string(), why: words(error) }
}

/// The endpoint was there, and no longer is.
pub fn lost(endpoint: SocketAddr, error: &Error) -> LoadError {
    let why = match error.kind() {
        ErrorKind::UnexpectedEof | ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => {
            "it closed the connection: it is not tare net --serve of this version, has ended, or \
             does not serve this (calls need --calls)"
                .to_owned()
        }
        ErrorKind::WouldBlock | ErrorKind::TimedOut => "no answer within the time limit".to_owned(),
        _ => words(error),
    };
    LoadError::EndpointLost { endpoint: endpoint.to_string(), why }
}

fn words(error: &Error) -> String {
    error.raw_os_error().map_or_else(|| error.to_string(), tare_io::system::errno_text)
}

/// For polling.
pub fn descriptors(sockets: &[Socket]) -> Vec<std::os::fd::RawFd> {
    sockets.iter().map(AsRawFd::as_raw_fd).collect()
}
