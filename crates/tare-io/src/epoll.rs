//! The reactor on epoll: level-triggered; reads when bytes are reported, writes at once.

use std::collections::VecDeque;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use crate::buffers::Buffers;
use crate::endpoint::Endpoint;
use crate::reactor::{
    Accepted, Chunk, Close, Completion, Happened, KeptBytes, KeptId, Outgoing, Polling, Reactor,
    SetupError, Token, Tuning, Wait,
};
use crate::socket::{self, Blocking, SocketOptions};
use crate::time::{DurationNs, Instant, monotonic_now};

pub struct EpollReactor {
    epoll: OwnedFd,
    listener: Option<OwnedFd>,
    kept: KeptBytes,
    connections: Vec<Connection>,
    /// Completions known without a wait: immediate failures, and buffers sent at once.
    ready: Vec<Completion>,
    events: Vec<libc::epoll_event>,
    buffers: Box<[u8]>,
    shape: Buffers,
    sockets: SocketOptions,
    free_buffers: Vec<u32>,
    polling: Polling,
    /// False on kernels before 5.11, where waits are rounded up to milliseconds.
    has_pwait2: bool,
}

#[derive(Default)]
struct Connection {
    fd: Option<OwnedFd>,
    generation: u32,
    connecting: bool,
    interest: u32,
    /// Unsent bytes, in order. There may be several entries if the peer does not read, since
    /// nothing waits for quiet sends.
    unsent: VecDeque<Unsent>,
}

struct Unsent {
    bytes: Outgoing,
    sent: usize,
}

const EVENTS: usize = 512;
/// Epoll's user data for the listening socket; connections use their slot.
const LISTENER: u64 = u64::MAX;
/// Connections accepted in a row before existing ones are served again.
const ACCEPTS_A_TURN: usize = 64;

impl EpollReactor {
    /// A reactor for connections in slots `0..slots`.
    pub fn new(slots: u32) -> Result<Self, SetupError> {
        Self::tuned(slots, Tuning::default())
    }

    pub fn tuned(slots: u32, tuning: Tuning) -> Result<Self, SetupError> {
        let shape = tuning.buffers;
        // SAFETY: no pointers are passed; the result is checked before use.
        let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
        if epoll < 0 {
            return Err(SetupError::last("cannot create an epoll instance"));
        }
        Ok(Self {
            // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
            epoll: unsafe { OwnedFd::from_raw_fd(epoll) },
            listener: None,
            kept: KeptBytes::default(),
            connections: (0..slots).map(|_| Connection::default()).collect(),
            ready: Vec::with_capacity(slots as usize),
            events: vec![libc::epoll_event { events: 0, u64: 0 }; EVENTS],
            buffers: vec![0; usize::from(shape.count) * shape.bytes].into_boxed_slice(),
            shape,
            sockets: tuning.sockets,
            free_buffers: (0..u32::from(shape.count)).collect(),
            polling: Polling::default(),
            has_pwait2: true,
        })
    }

    /// Starts to accept connections.
    pub fn listen(&mut self, listener: OwnedFd) -> Result<(), SetupError> {
        self.control(libc::EPOLL_CTL_ADD, listener.as_raw_fd(), libc::EPOLLIN as u32, LISTENER)
            .map_err(|error| SetupError::new("cannot wait for connections", error))?;
        self.listener = Some(listener);
        Ok(())
    }

    fn control(&self, op: i32, fd: RawFd, events: u32, data: u64) -> io::Result<()> {
        let mut event = libc::epoll_event { events, u64: data };
        // SAFETY: `event` is valid for the call, which does not keep it.
        let done = unsafe { libc::epoll_ctl(self.epoll.as_raw_fd(), op, fd, &mut event) };
        if done < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
    }

    fn next_token(&mut self, slot: u32) -> Token {
        let connection = &mut self.connections[slot as usize];
        assert!(connection.fd.is_none(), "slot {slot} is in use");
        connection.generation = connection.generation.wrapping_add(1);
        Token { slot, generation: connection.generation }
    }

    fn install(&mut self, token: Token, fd: OwnedFd, connecting: bool) -> io::Result<()> {
        let interest = (libc::EPOLLIN | if connecting { libc::EPOLLOUT } else { 0 }) as u32;
        self.control(libc::EPOLL_CTL_ADD, fd.as_raw_fd(), interest, u64::from(token.slot))?;
        let connection = &mut self.connections[token.slot as usize];
        *connection = Connection {
            fd: Some(fd),
            generation: token.generation,
            connecting,
            interest,
            unsent: VecDeque::new(),
        };
        Ok(())
    }

    fn set_interest(&mut self, slot: u32, interest: u32) {
        let connection = &mut self.connections[slot as usize];
        if connection.interest == interest {
            return;
        }
        connection.interest = interest;
        let Some(fd) = connection.fd.as_ref().map(AsRawFd::as_raw_fd) else { return };
        if let Err(error) = self.control(libc::EPOLL_CTL_MOD, fd, interest, u64::from(slot)) {
            self.fail(slot, &error);
        }
    }

    fn fail(&mut self, slot: u32, error: &io::Error) {
        let generation = self.connections[slot as usize].generation;
        self.ready.push(Completion {
            token: Token { slot, generation },
            happened: Happened::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
        });
    }

    /// Sends what is unsent, and registers for EPOLLOUT if the kernel takes no more.
    fn flush(&mut self, slot: u32) {
        loop {
            let connection = &mut self.connections[slot as usize];
            let Some(fd) = connection.fd.as_ref().map(AsRawFd::as_raw_fd) else { return };
            let Some(unsent) = connection.unsent.front_mut() else { break };
            let left = &self.kept.bytes(&unsent.bytes)[unsent.sent..];
            match socket::send(fd, left) {
                Ok(n) if n == left.len() => self.finish_send(slot),
                Ok(n) => unsent.sent += n,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let interest = connection.interest | libc::EPOLLOUT as u32;
                    return self.set_interest(slot, interest);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => {
                    connection.unsent.clear();
                    return self.fail(slot, &error);
                }
            }
        }
        let interest = self.connections[slot as usize].interest & !(libc::EPOLLOUT as u32);
        self.set_interest(slot, interest);
    }

    /// Removes the first unsent entry, which has been sent, and reports it unless it was quiet.
    fn finish_send(&mut self, slot: u32) {
        let connection = &mut self.connections[slot as usize];
        let token = Token { slot, generation: connection.generation };
        match connection.unsent.pop_front() {
            Some(Unsent { bytes, .. }) if bytes.is_reported() => {
                self.ready.push(Completion {
                    token,
                    happened: Happened::Sent(bytes.into_cleared_buffer()),
                });
            }
            _ => {}
        }
    }

    fn accept_waiting(&mut self, into: &mut Vec<Completion>) {
        let Some(listener) = &self.listener else { return };
        for _ in 0..ACCEPTS_A_TURN {
            let null = std::ptr::null_mut();
            let flags = libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK;
            // SAFETY: null address pointers are allowed; the descriptor is checked before use.
            let fd = unsafe { libc::accept4(listener.as_raw_fd(), null, null.cast(), flags) };
            if fd < 0 {
                return;
            }
            // SAFETY: the kernel just gave us this descriptor; nobody else owns it.
            let accepted = Accepted::Socket(unsafe { OwnedFd::from_raw_fd(fd) });
            into.push(Completion { token: Token::NONE, happened: Happened::Accepted(accepted) });
        }
    }

    fn on_event(&mut self, slot: u32, events: u32, into: &mut Vec<Completion>) {
        let connection = &mut self.connections[slot as usize];
        let Some(fd) = connection.fd.as_ref().map(AsRawFd::as_raw_fd) else { return };
        let token = Token { slot, generation: connection.generation };
        if connection.connecting {
            connection.connecting = false;
            let error = connection
                .fd
                .as_ref()
                .and_then(|fd| socket2::SockRef::from(fd).take_error().unwrap_or_else(Some));
            if let Some(error) = error {
                let errno = error.raw_os_error().unwrap_or(libc::EIO);
                self.set_interest(slot, 0);
                into.push(Completion { token, happened: Happened::Failed(errno) });
                return;
            }
            self.set_interest(slot, libc::EPOLLIN as u32);
            into.push(Completion { token, happened: Happened::Connected });
        } else if events & libc::EPOLLOUT as u32 != 0 {
            self.flush(slot);
        }
        if events & (libc::EPOLLIN | libc::EPOLLHUP | libc::EPOLLERR) as u32 != 0 {
            self.read(token, fd, into);
        }
    }

    /// Reads once. Without a free buffer it returns, and epoll reports the event again.
    fn read(&mut self, token: Token, fd: RawFd, into: &mut Vec<Completion>) {
        let Some(index) = self.free_buffers.pop() else { return };
        let bytes = self.shape.bytes;
        let at = index as usize * bytes;
        let happened = match socket::receive(fd, &mut self.buffers[at..at + bytes]) {
            Ok(0) => Happened::Eof,
            Ok(len) => {
                let happened = Happened::Received(Chunk { index, len: len as u32 });
                into.push(Completion { token, happened });
                return;
            }
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                self.free_buffers.push(index);
                return;
            }
            Err(error) => Happened::Failed(error.raw_os_error().unwrap_or(libc::EIO)),
        };
        self.free_buffers.push(index);
        // The end of a stream stays readable for ever, so stop watching for it.
        let interest = self.connections[token.slot as usize].interest & libc::EPOLLOUT as u32;
        self.set_interest(token.slot, interest);
        into.push(Completion { token, happened });
    }

    /// Waits once for events, and returns how many there are.
    fn poll(&mut self, wait: Wait) -> Result<usize, SetupError> {
        let now = self.now();
        let sleep = if self.ready.is_empty() { wait.sleep_at(now) } else { Default::default() };
        let timeout = libc::timespec {
            tv_sec: (sleep.as_ns() / 1_000_000_000).min(3600) as i64,
            tv_nsec: (sleep.as_ns() % 1_000_000_000) as i64,
        };
        let (fd, events) = (self.epoll.as_raw_fd(), self.events.as_mut_ptr());
        let n = if self.has_pwait2 {
            // SAFETY: `events` has room for EVENTS entries and `timeout` is valid for the call.
            unsafe {
                libc::syscall(
                    libc::SYS_epoll_pwait2,
                    fd,
                    events,
                    EVENTS,
                    &raw const timeout,
                    std::ptr::null::<libc::sigset_t>(),
                    0,
                )
            }
        } else {
            let ms = sleep.as_ns().div_ceil(1_000_000).min(1000) as i32;
            // SAFETY: `events` has room for EVENTS entries.
            i64::from(unsafe { libc::epoll_wait(fd, events, EVENTS as i32, ms) })
        };
        if n >= 0 {
            return Ok(n as usize);
        }
        match io::Error::last_os_error() {
            error if error.kind() == ErrorKind::Interrupted => Ok(0),
            error if error.raw_os_error() == Some(libc::ENOSYS) && self.has_pwait2 => {
                self.has_pwait2 = false;
                Ok(0)
            }
            error => Err(SetupError::new("cannot wait for events", error)),
        }
    }
}

impl Reactor for EpollReactor {
    fn now(&self) -> Instant {
        monotonic_now()
    }

    fn connect(&mut self, slot: u32, to: &Endpoint, from: Option<IpAddr>) -> Token {
        let token = self.next_token(slot);
        let started =
            socket::open_outgoing(to, from, Blocking::No, self.sockets).and_then(|socket| {
                match socket.connect(&socket::address(to)?) {
                    Ok(()) => {}
                    Err(error) if error.raw_os_error() == Some(libc::EINPROGRESS) => {}
                    Err(error) => return Err(error),
                }
                self.install(token, socket.into(), true)
            });
        if let Err(error) = started {
            self.fail(slot, &error);
        }
        token
    }

    fn adopt(&mut self, slot: u32, accepted: Accepted) -> Token {
        let token = self.next_token(slot);
        let Accepted::Socket(fd) = accepted else { panic!("a simulated connection on epoll") };
        socket::prepare_accepted(&fd, Blocking::No, self.sockets);
        if let Err(error) = self.install(token, fd, false) {
            self.fail(slot, &error);
        }
        token
    }

    fn keep(&mut self, bytes: Arc<[u8]>) -> KeptId {
        self.kept.keep(bytes)
    }

    fn send(&mut self, token: Token, bytes: Outgoing) {
        let connection = &mut self.connections[token.slot as usize];
        assert_eq!(connection.generation, token.generation, "send on a closed connection");
        let mut sent = 0;
        if connection.unsent.is_empty()
            && let Some(fd) = &connection.fd
        {
            let all = self.kept.bytes(&bytes);
            sent = match socket::send(fd.as_raw_fd(), all) {
                Ok(sent) => sent,
                Err(error)
                    if [ErrorKind::WouldBlock, ErrorKind::Interrupted].contains(&error.kind()) =>
                {
                    0
                }
                Err(error) => return self.fail(token.slot, &error),
            };
            if sent == all.len() {
                if bytes.is_reported() {
                    self.ready.push(Completion {
                        token,
                        happened: Happened::Sent(bytes.into_cleared_buffer()),
                    });
                }
                return;
            }
        }
        connection.unsent.push_back(Unsent { bytes, sent });
        self.flush(token.slot);
    }

    fn close(&mut self, token: Token, how: Close) {
        let connection = &mut self.connections[token.slot as usize];
        if connection.generation != token.generation {
            return;
        }
        let fd = connection.fd.take();
        connection.generation = connection.generation.wrapping_add(1);
        connection.unsent.clear();
        if let (Some(fd), Close::Reset) = (&fd, how) {
            socket::reset_on_close(fd);
        }
    }

    fn data_segments(&self, token: Token) -> Option<u64> {
        let fd = self.connections.get(token.slot as usize)?.fd.as_ref()?;
        Some(u64::from(socket::tcp_info(fd.as_raw_fd())?.tcpi_data_segs_in))
    }

    fn wait(&mut self, wait: Wait, into: &mut Vec<Completion>) -> Result<(), SetupError> {
        let mut looked: Option<Instant> = None;
        loop {
            let n = self.poll(wait)?;
            into.append(&mut self.ready);
            for at in 0..n {
                let event = self.events[at];
                match event.u64 {
                    LISTENER => self.accept_waiting(into),
                    slot => self.on_event(slot as u32, event.events, into),
                }
            }
            if !into.is_empty() || self.now() >= wait.until {
                if let Some(since) = looked {
                    self.polling.idle = self.polling.idle + self.now().since(since);
                }
                return Ok(());
            }
            if wait.polls && looked.is_none() {
                looked = Some(self.now());
            }
            self.polling.pause(&wait);
        }
    }

    fn chunk(&self, chunk: &Chunk) -> &[u8] {
        let at = chunk.index as usize * self.shape.bytes;
        &self.buffers[at..at + chunk.len as usize]
    }

    fn release(&mut self, chunk: Chunk) {
        self.free_buffers.push(chunk.index);
    }

    fn idle(&self) -> DurationNs {
        self.polling.idle
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Tests io_uring too, if it is available.
    #[test]
    fn who_polls_for_nothing_says_how_long_and_who_sleeps_says_nothing() {
        let mut reactors: Vec<Box<dyn Reactor>> = vec![Box::new(EpollReactor::new(1).unwrap())];
        if let Ok(uring) = crate::uring::UringReactor::new(1) {
            reactors.push(Box::new(uring));
        }
        for mut io in reactors {
            let mut wait = |polls| {
                let until = io.now() + DurationNs::from_ms(50);
                let mut happened = Vec::new();
                io.wait(Wait { polls, ..Wait::until(until) }, &mut happened).unwrap();
                assert!(happened.is_empty() && io.now() >= until);
                io.idle()
            };
            assert_eq!(wait(false), DurationNs::ZERO);
            let idle = wait(true);
            assert!(idle > DurationNs::ZERO);
            assert_eq!(wait(false), idle);
        }
    }
}
