//! Datagrams of an endpoint: sent back, lost on purpose, or counted.

use std::collections::{HashMap, VecDeque};
use std::hash::{BuildHasher, RandomState};
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant, Random, SetupError, socket};
use tare_load::protocol::content::Checker;
use tare_load::protocol::wire::{
    self, GREETING_BYTES, Greeting, Purpose, REPLY, TAG_BYTES, cookie_of, with_cookie,
};

use super::EndpointPlan;
use super::sessions::{Session, Sessions};

/// Share of datagrams dropped at random, and the seed.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Loss {
    pub share: f64,
    pub seed: u64,
}

/// A sender that has begun a stream.
struct Stream {
    session: Arc<Session>,
    next_number: u64,
    checker: Checker,
    heard: Instant,
}

const STOP_CHECK: DurationNs = DurationNs::from_ms(50);
const STOP_LIMIT: std::time::Duration = std::time::Duration::from_millis(50);
/// Polls instead of sleeping this long before a reply is due.
const SPIN: DurationNs = DurationNs::from_ms(1);
/// A stream without a datagram for this long is over.
const SILENT: DurationNs = DurationNs::from_secs(60);
const STREAMS_MAX: usize = 4096;
const DATAGRAM_MAX: usize = 65_536;
/// Most datagrams held back at a time; more are answered at once.
const HELD_MAX: usize = 65_536;
const HELD_MAX_BYTES: usize = 32 << 20;

struct Datagrams<'a> {
    socket: &'a UdpSocket,
    delay: DurationNs,
    loss: Loss,
    random: Random,
    sessions: &'a Sessions,
    streams: HashMap<SocketAddr, Stream>,
    /// Keyed at random for this process, so that cookies cannot be guessed.
    cookies: RandomState,
    /// This endpoint's own address: datagrams from it are forged.
    own: Option<SocketAddr>,
    /// Replies that are held back, in the order in which they are due.
    held: VecDeque<(Instant, SocketAddr, Vec<u8>)>,
    held_bytes: usize,
}

pub fn serve(
    socket: &UdpSocket,
    plan: &EndpointPlan,
    sessions: &Sessions,
    stop: &AtomicBool,
) -> Result<(), SetupError> {
    let cannot = |error| SetupError::new("cannot receive datagrams", error);
    // With a delay, this thread must wake up to send replies; without one, it only receives.
    let polls = plan.delay > DurationNs::ZERO;
    socket::prepare_datagrams(socket, plan.sockets, polls).map_err(cannot)?;
    socket.set_read_timeout((!polls).then_some(STOP_LIMIT)).map_err(cannot)?;
    let (delay, loss) = (plan.delay, plan.loss);
    let random = Random::stream(loss.seed, "lost datagrams", 0);
    let mut own = Datagrams {
        socket,
        delay,
        loss,
        random,
        sessions,
        streams: HashMap::new(),
        cookies: RandomState::new(),
        own: socket.local_addr().ok(),
        held: VecDeque::new(),
        held_bytes: 0,
    };
    let mut buffer = vec![0; DATAGRAM_MAX];
    while !stop.load(Ordering::Relaxed) {
        own.send_due();
        match own.socket.recv_from(&mut buffer) {
            Ok((length, from)) => own.take(&mut buffer[..length], from),
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                let wait = own.wait();
                if polls && wait > DurationNs::ZERO {
                    let fds = [socket.as_raw_fd()];
                    socket::wait_ready(&fds, false, wait).map_err(cannot)?;
                }
            }
            // ICMP reports that a client went away.
            Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => {}
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(cannot(error)),
        }
    }
    Ok(())
}

impl Datagrams<'_> {
    fn take(&mut self, bytes: &mut [u8], from: SocketAddr) {
        if self.own.is_some_and(|own| is_same(own, from)) {
            return;
        }
        if let Some(stream) = self.streams.get_mut(&from)
            && bytes.len() != GREETING_BYTES
            && monotonic_now().since(stream.heard) < SILENT
        {
            if self.loss.share > 0.0 && self.random.chance(self.loss.share) {
                return;
            }
            return stream.count(bytes);
        }
        if let Ok(said) = <[u8; GREETING_BYTES]>::try_from(&*bytes)
            && let Some(greeting) = Greeting::parse(bytes)
            && let Purpose::Receive { .. } = greeting.purpose
        {
            return self.greet(greeting, &said, from);
        }
        if let Some(stream) = self.streams.get_mut(&from) {
            return stream.count(bytes);
        }
        // Replies are not answered: with a forged address, two endpoints would echo for ever.
        if bytes.first().is_none_or(|first| first & REPLY != 0) {
            return;
        }
        if self.loss.share > 0.0 && self.random.chance(self.loss.share) {
            return;
        }
        let fits = self.held.len() < HELD_MAX && self.held_bytes + bytes.len() <= HELD_MAX_BYTES;
        if self.delay > DurationNs::ZERO && fits {
            self.held_bytes += bytes.len();
            self.held.push_back((monotonic_now() + self.delay, from, bytes.to_vec()));
            return;
        }
        self.reply(bytes, from);
    }

    /// Sends the bytes back, marked as a reply; without room in the socket they are lost.
    fn reply(&mut self, bytes: &mut [u8], to: SocketAddr) {
        bytes[0] |= REPLY;
        let _ = self.socket.send_to(bytes, to);
    }

    /// Answers with a cookie; a sender that returns it has proved its address, and begins a stream.
    fn greet(&mut self, greeting: Greeting, said: &[u8; GREETING_BYTES], from: SocketAddr) {
        // Never 0, the cookie of a first greeting.
        let cookie = self.cookies.hash_one((from, greeting.session)) as u32 | 1;
        if cookie_of(said) == cookie && !self.begin(greeting, from) {
            return;
        }
        self.reply(&mut with_cookie(said, cookie), from);
    }

    /// Begins a stream; returns `false` if there is no room for another.
    fn begin(&mut self, greeting: Greeting, from: SocketAddr) -> bool {
        // Senders do not report the end of a stream, and another may get their port.
        self.forget_silent();
        if !self.streams.contains_key(&from)
            && self.streams.len() >= STREAMS_MAX
            && !self.forget_one(from.ip())
        {
            return false;
        }
        let session = self.sessions.get_or_create(greeting.session, from.ip());
        self.streams.insert(
            from,
            Stream { session, next_number: 0, checker: Checker::default(), heard: monotonic_now() },
        );
        true
    }

    /// Forgets a stream of the address with most streams, the one that was silent longest, unless
    /// `wanting` would then have more streams than that address.
    fn forget_one(&mut self, wanting: IpAddr) -> bool {
        let mut counts: HashMap<IpAddr, usize> = HashMap::new();
        for address in self.streams.keys() {
            *counts.entry(address.ip()).or_default() += 1;
        }
        let own = counts.get(&wanting).copied().unwrap_or(0);
        let most = counts.into_iter().max_by_key(|(_, n)| *n).filter(|(_, n)| *n > own + 1);
        let Some((whose, _)) = most else { return false };
        let theirs = self.streams.iter().filter(|(address, _)| address.ip() == whose);
        let silent = theirs.min_by_key(|(_, stream)| stream.heard).map(|(address, _)| *address);
        silent.is_some_and(|address| self.streams.remove(&address).is_some())
    }

    fn forget_silent(&mut self) {
        let now = monotonic_now();
        self.streams.retain(|_, stream| now.since(stream.heard) < SILENT);
    }

    fn send_due(&mut self) {
        while let Some((due, ..)) = self.held.front()
            && *due <= monotonic_now()
            && let Some((_, to, mut bytes)) = self.held.pop_front()
        {
            self.held_bytes -= bytes.len();
            self.reply(&mut bytes, to);
        }
    }

    /// Returns how long to sleep: 0 shortly before a reply is due.
    fn wait(&self) -> DurationNs {
        let Some((due, ..)) = self.held.front() else { return STOP_CHECK };
        let left = due.since(monotonic_now()).as_ns();
        // Waits are rounded up to milliseconds.
        DurationNs::from_ns(left.saturating_sub(2 * SPIN.as_ns())).min(STOP_CHECK)
    }
}

/// Whether `other` is this endpoint's address; one that listens on all addresses is reachable on
/// loopback, too.
fn is_same(own: SocketAddr, other: SocketAddr) -> bool {
    let other_ip = other.ip().to_canonical();
    let everywhere = own.ip().is_unspecified() && other_ip.is_loopback();
    own.port() == other.port() && (own.ip().to_canonical() == other_ip || everywhere)
}

impl Stream {
    fn count(&mut self, bytes: &[u8]) {
        self.heard = monotonic_now();
        let content = match bytes.split_first_chunk::<TAG_BYTES>() {
            Some((tag, rest)) => {
                let number = wire::number_of(tag);
                let late = number < self.next_number;
                self.session.disordered.fetch_add(u64::from(late), Ordering::Relaxed);
                self.next_number = self.next_number.max(number.wrapping_add(1));
                self.checker.is_content(TAG_BYTES as u64, rest)
            }
            None => self.checker.is_content(0, bytes),
        };
        self.session.wrong.fetch_add(u64::from(!content), Ordering::Relaxed);
        self.session.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        self.session.messages.fetch_add(1, Ordering::Relaxed);
    }
}
