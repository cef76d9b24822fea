//! Control connections to an endpoint: short requests for counts and calls, and short answers.

use std::io::{Error, ErrorKind, Read, Write};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use socket2::Socket;
use tare_io::process::{readable_within, writable_within};
use tare_io::socket::{self, Blocking};
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Endpoint, SocketOptions};

use super::wire::{ASK, COUNT_BYTES, Count, Greeting};
use crate::engine::EngineConfig;
use crate::error::LoadError;

/// A blocking connection to an endpoint, on which the greeting has been sent.
pub struct Control {
    socket: Socket,
    endpoint: SocketAddr,
    /// Questions without an answer so far.
    asked: u32,
    /// Timeout of an answer.
    patience: DurationNs,
    stop: Arc<AtomicBool>,
}

impl Control {
    pub fn open(
        config: &EngineConfig,
        greeting: Greeting,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, LoadError> {
        let from = config.bind.first().copied();
        Self::reach(address(&config.endpoint), from, config.timeout, greeting, stop)
    }

    /// Connects to an endpoint. `stop` ends any wait.
    pub fn reach(
        endpoint: SocketAddr,
        from: Option<IpAddr>,
        patience: DurationNs,
        greeting: Greeting,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, LoadError> {
        let to = Endpoint::Tcp(endpoint);
        let connected = connect(&to, from, SocketOptions::default(), patience, stop);
        let socket = connected.map_err(|error| no_connection(endpoint, &error))?;
        let mut control = Self { socket, endpoint, asked: 0, patience, stop: stop.clone() };
        control.say(&greeting.bytes())?;
        Ok(control)
    }

    pub fn say(&mut self, bytes: &[u8]) -> Result<(), LoadError> {
        let said = self.socket.write_all(bytes);
        said.map_err(|error| lost(self.endpoint, &error))
    }

    /// Reads a whole answer. An endpoint that closes instead refuses, or has another version.
    pub fn hear(&mut self, into: &mut [u8]) -> Result<(), LoadError> {
        let heard = self.hear_within(into);
        heard.map_err(|error| lost(self.endpoint, &error))
    }

    fn hear_within(&mut self, into: &mut [u8]) -> std::io::Result<()> {
        let limit = monotonic_now() + self.patience;
        let mut got = 0;
        while got < into.len() {
            if readable_within(&self.socket, STOP_CHECK) {
                match self.socket.read(&mut into[got..])? {
                    0 => return Err(ErrorKind::UnexpectedEof.into()),
                    n => got += n,
                }
            } else if self.stop.load(Ordering::Relaxed) {
                return Err(interrupted());
            } else if monotonic_now() > limit {
                return Err(ErrorKind::TimedOut.into());
            }
        }
        Ok(())
    }

    /// Asks for the session's count. The answer is read later, so that asking takes no time.
    pub fn ask(&mut self) -> Result<(), LoadError> {
        self.asked += 1;
        self.say(&[ASK])
    }

    /// Reads the answer to the oldest open question.
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

    /// Sets the timeout of answers.
    pub fn set_timeout(&mut self, limit: DurationNs) {
        self.patience = limit;
    }
}

/// The endpoint's address, for TCP or UDP.
pub fn address(endpoint: &Endpoint) -> SocketAddr {
    match endpoint {
        Endpoint::Tcp(address) | Endpoint::Udp(address) => *address,
        Endpoint::Unix(_) => SocketAddr::from(([0, 0, 0, 0], 0)),
    }
}

/// Connects a blocking socket, within `limit` and unless `stop` is set.
pub fn connect(
    to: &Endpoint,
    from: Option<IpAddr>,
    options: SocketOptions,
    limit: DurationNs,
    stop: &AtomicBool,
) -> std::io::Result<Socket> {
    let socket = socket::open_outgoing(to, from, Blocking::Yes, options)?;
    let until = monotonic_now() + limit;
    socket.set_nonblocking(true)?;
    match socket.connect(&socket::address(to)?) {
        Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {
            while !writable_within(&socket, STOP_CHECK) {
                if stop.load(Ordering::Relaxed) {
                    return Err(interrupted());
                }
                if monotonic_now() > until {
                    return Err(ErrorKind::TimedOut.into());
                }
            }
        }
        connected => connected?,
    }
    if let Some(error) = socket.take_error()? {
        return Err(error);
    }
    socket.set_nonblocking(false)?;
    let limit = Duration::from_nanos(limit.as_ns().max(1));
    socket.set_read_timeout(Some(limit))?;
    socket.set_write_timeout(Some(limit))?;
    Ok(socket)
}

/// Longest wait between two checks of `stop`.
const STOP_CHECK: DurationNs = DurationNs::from_ms(20);

fn interrupted() -> Error {
    Error::other("interrupted")
}

pub fn no_connection(endpoint: SocketAddr, error: &Error) -> LoadError {
    LoadError::NoConnection { endpoint: endpoint.to_string(), why: words(error) }
}

/// The error for an endpoint that was connected and has stopped answering.
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

pub fn descriptors(sockets: &[Socket]) -> Vec<std::os::fd::RawFd> {
    sockets.iter().map(AsRawFd::as_raw_fd).collect()
}
