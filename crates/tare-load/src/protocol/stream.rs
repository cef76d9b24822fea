//! Streams: messages one way, as many as possible. There is no reply to wait for, so a worker is a
//! loop of sends (or, in reverse, of receives), and the receiver counts.
//!
//! Timing model: bytes received between two readings of the receiver's own clock. The sender asks
//! for a reading when its window opens and when it closes, and reads the answers afterwards:
//! asking does not interrupt the stream.

use std::io;
use std::os::fd::{AsRawFd, RawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use socket2::Socket;
use tare_io::system::thread_cpu_time;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Endpoint, Instant, socket};
use tare_model::samples::Counts;

use super::content::{Checker, content};
use super::control::{Control, address, connect, descriptors, lost, no_connection};
use super::wire::{self, Count, GO, GREETING_BYTES, Greeting, Purpose, REPLY, STOP};
use crate::engine::{EngineConfig, Life, Stretch};
use crate::error::LoadError;
use crate::pacer::Pacer;
use crate::session::WorkerReport;
use crate::tally::Tally;

/// One worker's connections of a stream.
pub struct StreamLane {
    config: EngineConfig,
    message_bytes: u32,
    reverse: bool,
    pacer: Pacer,
    sockets: Vec<Socket>,
    /// Bytes that each connection sent, or received in reverse.
    done: Vec<u64>,
    /// Only the first worker has one: it reads the receiver's clock and count for all workers.
    control: Option<Control>,
    buffer: Box<[u8]>,
    checker: Checker,
    /// There is no other worker, so this one knows how many bytes will arrive.
    alone: bool,
    /// The receiver's count at the end of the last slice.
    counted: Count,
    life: Life,
}

/// Identifies one worker of a stream.
#[derive(Clone, Copy, Debug)]
pub struct StreamWorker<'a> {
    pub worker: u32,
    pub session: u64,
    pub alone: bool,
    /// Ends any wait when set.
    pub stop: &'a Arc<AtomicBool>,
}

/// Readings at the edges of a slice's window.
#[derive(Default)]
struct Edges {
    opened: Option<Edge>,
    closed: Option<Edge>,
}

#[derive(Clone, Copy)]
struct Edge {
    at: Instant,
    cpu: tare_io::system::CpuTime,
    bytes: u64,
}

/// A function that receives with or without waiting.
type Receive = fn(RawFd, &mut [u8]) -> io::Result<usize>;

/// How much of a stream is received in one call.
pub fn receive_bytes(message_bytes: u32) -> usize {
    message_bytes.clamp(4 << 10, 128 << 10) as usize
}

/// Longest single wait for room or bytes, so that a request to stop is noticed in time.
const STOP_CHECK: DurationNs = DurationNs::from_ms(20);
/// Longest wait for bytes under way after the end of a slice.
const DRAIN: DurationNs = DurationNs::from_secs(5);
const DRAIN_CHECK: DurationNs = DurationNs::from_us(500);
/// Number of small messages sent per reading of the clock.
const SENDS_A_CLOCK_READING: u32 = 16;
const SMALL: u32 = 4096;
const GREETING_TRIES: u32 = 20;
const GREETING_PATIENCE: DurationNs = DurationNs::from_ms(250);

impl StreamLane {
    pub fn open(
        config: EngineConfig,
        message_bytes: u32,
        reverse: bool,
        pacer: Pacer,
        who: StreamWorker<'_>,
    ) -> Result<Self, LoadError> {
        let purpose = match reverse {
            true => Purpose::Send { message_bytes, nodelay: config.sockets.nodelay },
            false => Purpose::Receive { message_bytes },
        };
        let greeting = Greeting { purpose, session: who.session }.bytes();
        let mut sockets = Vec::new();
        for at in 0..config.connections as usize {
            let from = (!config.bind.is_empty()).then(|| config.bind[at % config.bind.len()]);
            let endpoint = address(&config.endpoint);
            let socket = connect(&config.endpoint, from, config.sockets, config.timeout, who.stop)
                .map_err(|error| no_connection(endpoint, &error))?;
            greet(&socket, &config.endpoint, &greeting, who.stop)?;
            // A single connection may block, so that each message takes one call.
            let limit = Some(std::time::Duration::from_nanos(STOP_CHECK.as_ns()));
            let blocking = config.connections == 1 && matches!(pacer, Pacer::Closed);
            let prepared = socket
                .set_nonblocking(!blocking)
                .and_then(|()| socket.set_read_timeout(limit))
                .and_then(|()| socket.set_write_timeout(limit));
            prepared.map_err(|error| lost(endpoint, &error))?;
            sockets.push(socket);
        }
        let control = match who.worker {
            0 => {
                let greeting = Greeting { purpose: Purpose::Count, session: who.session };
                Some(Control::open(&config, greeting, who.stop)?)
            }
            _ => None,
        };
        let done = vec![0; sockets.len()];
        let buffer =
            vec![0; if reverse { receive_bytes(message_bytes) } else { 0 }].into_boxed_slice();
        Ok(Self {
            config,
            message_bytes,
            reverse,
            pacer,
            sockets,
            done,
            control,
            buffer,
            checker: Checker::default(),
            alone: who.alone,
            counted: Count::default(),
            life: Life::default(),
        })
    }

    pub fn life(&self) -> &Life {
        &self.life
    }

    pub fn slice(
        &mut self,
        stretch: Stretch,
        start: Instant,
        stop: &AtomicBool,
    ) -> Result<(Tally, WorkerReport), LoadError> {
        let before = self.counted;
        let bytes_before: u64 = self.done.iter().sum();
        let (sent_before, resent_before) = (self.messages(), self.retransmits());
        self.pacer.begin(start);
        let edges = self.run(stretch, start, stop)?;
        let mut report = WorkerReport { began: start, ..WorkerReport::default() };
        let mut tally = Tally::default();
        let (Some(opened), Some(closed)) = (edges.opened, edges.closed) else {
            return Ok((tally, report));
        };
        report.elapsed = closed.at.since(opened.at);
        report.cpu = closed.cpu.since(opened.cpu);
        if self.reverse {
            tally = self.tally(opened.at, closed.at, closed.bytes - opened.bytes);
        } else if let Some(control) = &mut self.control {
            let (first, last) = (control.answer()?, control.answer()?);
            let at = |count: &Count| Instant::ZERO + DurationNs::from_ns(count.now_ns);
            let bytes = last.bytes.saturating_sub(first.bytes);
            tally = self.tally(at(&first), at(&last), bytes);
        }
        self.drain()?;
        report.sent = self.messages() - sent_before;
        tally.counts.retransmits = self.retransmits().saturating_sub(resent_before);
        let sent_bytes = self.done.iter().sum::<u64>() - bytes_before;
        let expected = self.alone.then(|| before.bytes.saturating_add(sent_bytes));
        let is_udp = matches!(self.config.endpoint, Endpoint::Udp(_));
        if let Some(control) = &mut self.control {
            let after = wait_until_quiet(control, expected, is_udp)?;
            self.counted = after;
            // The endpoint's counts are not trusted, hence saturating.
            let wrong = after.wrong.saturating_sub(before.wrong);
            if wrong > 0 {
                return Err(LoadError::WrongContent { pieces: wrong });
            }
            tally.counts.answered = match self.reverse {
                true => report.sent,
                false => after.messages.saturating_sub(before.messages),
            };
            tally.counts.disordered = after.disordered.saturating_sub(before.disordered);
        }
        self.life.sent += report.sent;
        self.life.answered += tally.counts.answered;
        Ok((tally, report))
    }

    /// Returns the number of whole messages sent; in reverse mode, received.
    fn messages(&self) -> u64 {
        self.done.iter().map(|bytes| bytes / u64::from(self.message_bytes)).sum()
    }

    fn tally(&self, start: Instant, end: Instant, bytes: u64) -> Tally {
        let messages = bytes / u64::from(self.message_bytes);
        let counts = Counts {
            started: messages,
            completed: messages,
            good: messages,
            body_bytes: bytes,
            received_bytes: bytes,
            ..Counts::default()
        };
        Tally { start, end, counts, ..Tally::default() }
    }

    /// Runs the ramp and the window.
    fn run(
        &mut self,
        stretch: Stretch,
        start: Instant,
        stop: &AtomicBool,
    ) -> Result<Edges, LoadError> {
        let start = if self.reverse { self.start_reverse(start)? } else { start };
        let open_at = start + stretch.ramp;
        let close_at = open_at + stretch.window;
        let mut edges = Edges::default();
        loop {
            let now = monotonic_now();
            let stopped = stop.load(Ordering::Relaxed);
            if edges.opened.is_none() && (now >= open_at || stopped) {
                edges.opened = Some(self.edge(now)?);
            }
            if now >= close_at || stopped {
                edges.closed = Some(self.edge(now)?);
                break;
            }
            let until = if edges.opened.is_none() { open_at } else { close_at };
            let moved = match self.reverse {
                true => self.receive_all(socket::receive)?,
                false => self.send_due(now)?,
            };
            if !moved {
                let limit = until.min(self.pacer.next_due(until)).since(monotonic_now());
                self.wait(limit)?;
            }
        }
        if self.reverse {
            self.tell(STOP)?;
        }
        Ok(edges)
    }

    /// Makes the endpoint send; the ramp begins when its first bytes arrive.
    fn start_reverse(&mut self, start: Instant) -> Result<Instant, LoadError> {
        self.tell(GO)?;
        let fds = descriptors(&self.sockets);
        socket::wait_ready(&fds, false, DRAIN).map_err(|error| self.lost(&error))?;
        Ok(monotonic_now().max(start))
    }

    fn edge(&mut self, at: Instant) -> Result<Edge, LoadError> {
        if let (Some(control), false) = (&mut self.control, self.reverse) {
            control.ask()?;
        }
        Ok(Edge { at, cpu: thread_cpu_time(), bytes: self.done.iter().sum() })
    }

    /// Sends what may be sent now, and returns whether anything was.
    fn send_due(&mut self, now: Instant) -> Result<bool, LoadError> {
        let mut moved = false;
        for at in 0..self.sockets.len() {
            let few = if self.message_bytes <= SMALL { SENDS_A_CLOCK_READING } else { 1 };
            for _ in 0..few {
                let fresh = self.done[at].is_multiple_of(u64::from(self.message_bytes));
                if fresh && self.pacer.next_due(now) > now {
                    break;
                }
                if !self.send_one(at)? {
                    break;
                }
                if fresh {
                    self.pacer.take(now);
                }
                moved = true;
            }
        }
        Ok(moved)
    }

    /// Sends a message or the rest of one, and returns whether the kernel took any of it.
    fn send_one(&mut self, at: usize) -> Result<bool, LoadError> {
        let done = self.done[at];
        let size = u64::from(self.message_bytes);
        let left = (size - done % size) as usize;
        let fd = self.sockets[at].as_raw_fd();
        let sent = match &self.config.endpoint {
            Endpoint::Udp(_) => socket::send(fd, self.datagram(done / size)),
            _ => socket::send(fd, content(done, left)),
        };
        match sent {
            Ok(n) => {
                self.done[at] += n as u64;
                Ok(true)
            }
            Err(error) if socket::is_retryable(&error) => Ok(false),
            Err(error) => Err(self.lost(&error)),
        }
    }

    /// A datagram, numbered if it has room, so that the receiver notices disorder.
    fn datagram(&mut self, number: u64) -> &[u8] {
        let size = self.message_bytes as usize;
        if self.buffer.len() != size {
            self.buffer = content(0, size).to_vec().into_boxed_slice();
        }
        let tag = wire::tag(number);
        if size >= tag.len() {
            self.buffer[..tag.len()].copy_from_slice(&tag);
        }
        &self.buffer
    }

    /// Receives what has arrived, and returns whether anything has.
    fn receive_all(&mut self, receive: Receive) -> Result<bool, LoadError> {
        let mut moved = false;
        for at in 0..self.sockets.len() {
            match receive(self.sockets[at].as_raw_fd(), &mut self.buffer) {
                Ok(0) => return Err(self.lost(&io::ErrorKind::UnexpectedEof.into())),
                Ok(n) => {
                    if !self.checker.is_content(self.done[at], &self.buffer[..n]) {
                        return Err(LoadError::WrongContent { pieces: 1 });
                    }
                    self.done[at] += n as u64;
                    moved = true;
                }
                Err(error) if socket::is_retryable(&error) => {}
                Err(error) => return Err(self.lost(&error)),
            }
        }
        Ok(moved)
    }

    fn wait(&self, limit: DurationNs) -> Result<(), LoadError> {
        let paced = self.pacer.is_open_loop();
        if paced && limit <= self.config.wait.spin {
            std::hint::spin_loop();
            return Ok(());
        }
        let limit = limit.min(STOP_CHECK);
        if paced {
            let spin = self.config.wait.spin.as_ns();
            let sleep = limit.as_ns().saturating_sub(spin);
            std::thread::park_timeout(std::time::Duration::from_nanos(sleep));
            return Ok(());
        }
        socket::wait_ready(&descriptors(&self.sockets), !self.reverse, limit)
            .map_err(|error| self.lost(&error))
    }

    /// Makes the endpoint start or stop sending.
    fn tell(&self, word: u8) -> Result<(), LoadError> {
        for socket in &self.sockets {
            // There is always room for one byte: nothing else is sent in this direction.
            socket::send(socket.as_raw_fd(), &[word]).map_err(|error| self.lost(&error))?;
        }
        Ok(())
    }

    /// Finishes partly sent messages, so that the next slice starts with whole ones; in reverse,
    /// receives everything that was sent.
    fn drain(&mut self) -> Result<(), LoadError> {
        let limit = monotonic_now() + DRAIN;
        let size = u64::from(self.message_bytes);
        let mut quiet_since = monotonic_now();
        loop {
            let now = monotonic_now();
            let moved = match self.reverse {
                true => self.receive_all(socket::receive_now)?,
                false => {
                    let begun = |done: &u64| !done.is_multiple_of(size);
                    let Some(at) = self.done.iter().position(begun) else { return Ok(()) };
                    self.send_one(at)?
                }
            };
            if moved {
                quiet_since = now;
            } else if self.reverse && now.since(quiet_since) > QUIET {
                return Ok(());
            } else {
                self.wait(DRAIN_CHECK)?;
            }
            if now >= limit {
                return Err(self.lost(&io::ErrorKind::TimedOut.into()));
            }
        }
    }

    fn retransmits(&self) -> u64 {
        match self.config.endpoint {
            // In reverse, the endpoint retransmits, and its count is not known here.
            Endpoint::Udp(_) => 0,
            _ if self.reverse => 0,
            _ => self.sockets.iter().map(|socket| socket::retransmits(socket.as_raw_fd())).sum(),
        }
    }

    fn lost(&self, error: &io::Error) -> LoadError {
        lost(address(&self.config.endpoint), error)
    }
}

/// After this long without bytes, everything that was sent is taken to have arrived.
const QUIET: DurationNs = DurationNs::from_ms(2);
const DATAGRAMS_QUIET: DurationNs = DurationNs::from_ms(30);

/// Sends the greeting on a socket; over UDP it is repeated until the endpoint confirms it.
fn greet(
    socket: &Socket,
    endpoint: &Endpoint,
    greeting: &[u8; GREETING_BYTES],
    stop: &AtomicBool,
) -> Result<(), LoadError> {
    let to = address(endpoint);
    let fail = |error: io::Error| no_connection(to, &error);
    if !matches!(endpoint, Endpoint::Udp(_)) {
        return match socket::send(socket.as_raw_fd(), greeting) {
            Ok(GREETING_BYTES) => Ok(()),
            Ok(_) => Err(fail(io::ErrorKind::WriteZero.into())),
            Err(error) => Err(fail(error)),
        };
    }
    let limit = std::time::Duration::from_nanos(GREETING_PATIENCE.as_ns());
    socket.set_read_timeout(Some(limit)).map_err(fail)?;
    let (mut heard, mut cookie) = ([0; GREETING_BYTES], 0);
    for _ in 0..GREETING_TRIES {
        if stop.load(Ordering::Relaxed) {
            return Err(fail(io::Error::other("interrupted")));
        }
        let said = wire::with_cookie(greeting, cookie);
        socket::send(socket.as_raw_fd(), &said).map_err(fail)?;
        match socket::receive(socket.as_raw_fd(), &mut heard) {
            Ok(GREETING_BYTES) => {
                let given = wire::cookie_of(&heard);
                let mut reply = wire::with_cookie(greeting, given);
                reply[0] |= REPLY;
                match heard == reply && given != 0 {
                    true if given == cookie => return Ok(()),
                    true => cookie = given,
                    false => {}
                }
            }
            Ok(_) => {}
            Err(error) if socket::is_retryable(&error) => {}
            Err(error) => return Err(fail(error)),
        }
    }
    Err(fail(io::Error::other("no datagram comes back; is UDP let through?")))
}

/// Returns the count once everything expected has arrived, or once it has not grown for a while: a
/// receiver that waits for its CPU may still have datagrams to read.
fn wait_until_quiet(
    control: &mut Control,
    expected: Option<u64>,
    is_udp: bool,
) -> Result<Count, LoadError> {
    let limit = monotonic_now() + DRAIN;
    let patience = if is_udp { DATAGRAMS_QUIET } else { QUIET };
    let mut last = control.count()?;
    let mut since = monotonic_now();
    loop {
        let now = monotonic_now();
        if expected == Some(last.bytes) || now.since(since) >= patience || now > limit {
            return Ok(last);
        }
        std::thread::park_timeout(std::time::Duration::from_nanos(DRAIN_CHECK.as_ns()));
        let count = control.count()?;
        if count.bytes != last.bytes {
            since = monotonic_now();
        }
        last = count;
    }
}
