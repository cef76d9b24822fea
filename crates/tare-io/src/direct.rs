//! The reactor for a single connection: plain blocking calls, the fastest way to wait for one
//! socket. A round trip takes one send and one receive.
//!
//! While it waits for bytes, it notices timeouts and stop requests late (see [`RECEIVE_LIMIT`]), so
//! it suits closed loops only.

use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::time::Duration;

use socket2::Socket;

use crate::endpoint::Endpoint;
use crate::reactor::{
    Accepted, Chunk, Close, Completion, Happened, KeptBytes, KeptId, Outgoing, Reactor, SetupError,
    Token, Tuning, Wait,
};
use crate::socket::{self, Blocking, SocketOptions};
use crate::time::{DurationNs, Instant, monotonic_now};

pub struct DirectReactor {
    kept: KeptBytes,
    socket: Option<Socket>,
    generation: u32,
    /// Something was sent and nothing has arrived since: a receive may block.
    awaiting: bool,
    ready: Vec<Completion>,
    buffer: Box<[u8]>,
    /// The chunk that was handed out has not been released yet.
    lent: bool,
    sockets: SocketOptions,
    timeout: Duration,
    datagrams: bool,
}

const SLOT: u32 = 0;
/// Longest blocking receive, so that time limits are noticed. The kernel rounds it up to its
/// ticks.
const RECEIVE_LIMIT: Duration = Duration::from_millis(4);
const SLEEP_MAX: DurationNs = DurationNs::from_ms(20);
const BUFFER_BYTES: usize = 256 * 1024;

impl DirectReactor {
    pub fn new(tuning: Tuning) -> Self {
        Self {
            kept: KeptBytes::default(),
            socket: None,
            generation: 0,
            awaiting: false,
            ready: Vec::with_capacity(4),
            buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
            lent: false,
            sockets: tuning.sockets,
            timeout: Duration::from_nanos(tuning.timeout.as_ns().max(1)),
            datagrams: false,
        }
    }

    fn token(&self) -> Token {
        Token { slot: SLOT, generation: self.generation }
    }

    fn push(&mut self, happened: Happened) {
        let token = self.token();
        self.ready.push(Completion { token, happened });
    }

    fn open(&self, to: &Endpoint, from: Option<IpAddr>) -> io::Result<Socket> {
        let socket = socket::open_outgoing(to, from, Blocking::Yes, self.sockets)?;
        socket.connect_timeout(&socket::address(to)?, self.timeout)?;
        socket.set_read_timeout(Some(RECEIVE_LIMIT))?;
        socket.set_write_timeout(Some(self.timeout))?;
        Ok(socket)
    }

    /// Receives what is there; otherwise waits for bytes until `until` ([`SLEEP_MAX`] at most).
    fn receive_until(&mut self, until: Instant) -> Result<(), SetupError> {
        self.receive(false);
        if !self.ready.is_empty() {
            return Ok(());
        }
        let limit = until.since(self.now()).min(SLEEP_MAX);
        match &self.socket {
            Some(socket) => socket::wait_readable_exactly(socket, limit)
                .map_err(|error| SetupError::new("cannot wait for bytes", error))?,
            None => std::thread::park_timeout(Duration::from_nanos(limit.as_ns())),
        }
        self.receive(false);
        Ok(())
    }

    /// Receives once, and waits for bytes if `blocking`.
    fn receive(&mut self, blocking: bool) {
        let Some(socket) = &self.socket else { return };
        let received = match blocking {
            true => socket::receive(socket.as_raw_fd(), &mut self.buffer),
            false => socket::receive_now(socket.as_raw_fd(), &mut self.buffer),
        };
        match received {
            Ok(0) => {
                self.awaiting = false;
                self.push(Happened::Eof);
            }
            Ok(length) => {
                self.awaiting = false;
                self.lent = true;
                self.push(Happened::Received(Chunk { index: 0, len: length as u32 }));
            }
            Err(error) if socket::is_retryable(&error) => {}
            Err(error) => self.push(failed(&error)),
        }
    }
}

fn failed(error: &io::Error) -> Happened {
    // A connect that timed out has no errno.
    let other = if error.kind() == ErrorKind::TimedOut { libc::ETIMEDOUT } else { libc::EIO };
    Happened::Failed(error.raw_os_error().unwrap_or(other))
}

impl Reactor for DirectReactor {
    fn now(&self) -> Instant {
        monotonic_now()
    }

    fn connect(&mut self, slot: u32, to: &Endpoint, from: Option<IpAddr>) -> Token {
        assert!(slot == SLOT && self.socket.is_none(), "one connection at a time");
        self.generation = self.generation.wrapping_add(1);
        self.datagrams = matches!(to, Endpoint::Udp(_));
        match self.open(to, from) {
            Ok(socket) => {
                self.socket = Some(socket);
                self.push(Happened::Connected);
            }
            Err(error) => self.push(failed(&error)),
        }
        self.token()
    }

    fn adopt(&mut self, _slot: u32, _accepted: Accepted) -> Token {
        panic!("a reactor for one connection does not listen")
    }

    fn keep(&mut self, bytes: Arc<[u8]>) -> KeptId {
        self.kept.keep(bytes)
    }

    fn send(&mut self, token: Token, bytes: Outgoing) {
        assert_eq!(token, self.token(), "send on a closed connection");
        let Some(socket) = &self.socket else { return };
        let mut left = self.kept.bytes(&bytes);
        while !left.is_empty() {
            match socket::send(socket.as_raw_fd(), left) {
                Ok(n) => left = &left[n..],
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // A datagram that finds no room is lost, as it could be on the network.
                Err(error) if self.datagrams && socket::is_retryable(&error) => break,
                Err(error) => {
                    let happened = failed(&error);
                    return self.push(happened);
                }
            }
        }
        self.awaiting = true;
        if bytes.is_reported() {
            self.push(Happened::Sent(bytes.into_cleared_buffer()));
        }
    }

    fn close(&mut self, token: Token, how: Close) {
        if token != self.token() {
            return;
        }
        if let (Some(socket), Close::Reset) = (&self.socket, how) {
            socket::reset_on_close(socket);
        }
        self.socket = None;
        self.awaiting = false;
        self.generation = self.generation.wrapping_add(1);
    }

    fn wait(&mut self, wait: Wait, into: &mut Vec<Completion>) -> Result<(), SetupError> {
        assert!(!self.lent, "the last chunk was not given back");
        // A completed send is reported together with the reply to it.
        let told = self.ready.iter().all(|c| matches!(c.happened, Happened::Sent(_)));
        let now = self.now();
        if told && now < wait.until {
            if self.awaiting {
                self.receive(true);
            } else if self.ready.is_empty() {
                self.receive_until(wait.until)?;
            }
        } else if told {
            self.receive(false);
        }
        into.append(&mut self.ready);
        Ok(())
    }

    fn chunk(&self, chunk: &Chunk) -> &[u8] {
        &self.buffer[..chunk.len as usize]
    }

    fn release(&mut self, _chunk: Chunk) {
        self.lent = false;
    }
}
