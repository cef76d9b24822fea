//! The one interface between an engine and the network: operations in, completions out.

use std::net::IpAddr;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::buffers::Buffers;
use crate::endpoint::Endpoint;
use crate::socket::SocketOptions;
use crate::time::{DurationNs, Instant, monotonic_now};

/// Starts operations on connections and waits for their completions.
///
/// A connection lives in a *slot* that the engine chooses. Starting one yields a [`Token`], which
/// is never used again: a completion that arrives late for a closed connection carries an old
/// token, and the engine drops it. Receiving is always on; the engine must pass every chunk that it
/// is given to [`Reactor::release`].
pub trait Reactor {
    fn now(&self) -> Instant;

    /// Starts to connect `slot`; ends in [`Happened::Connected`] or [`Happened::Failed`].
    fn connect(&mut self, slot: u32, to: &Endpoint, from: Option<IpAddr>) -> Token;

    /// Takes an accepted connection into `slot` and starts to receive from it.
    fn adopt(&mut self, slot: u32, accepted: Accepted) -> Token;

    /// Keeps bytes for as long as the reactor lives, so that the kernel may read them at any time.
    fn keep(&mut self, bytes: Arc<[u8]>) -> KeptId;

    /// Hands bytes to the kernel. A connection has one send at a time: the next may follow
    /// [`Happened::Sent`] or, after [`Outgoing::Quiet`], the peer's answer.
    fn send(&mut self, token: Token, bytes: Outgoing);

    /// Ends a connection. Nothing more is delivered for its token by later waits.
    fn close(&mut self, token: Token, how: Close);

    /// Submits what was started, waits as `wait` says, and appends the completions.
    fn wait(&mut self, wait: Wait, into: &mut Vec<Completion>) -> Result<(), SetupError>;

    /// The bytes of a received chunk.
    fn chunk(&self, chunk: &Chunk) -> &[u8];

    /// Gives a chunk's memory back.
    fn release(&mut self, chunk: Chunk);

    /// Segments with data that a connection has received so far; `None` if the reactor cannot know.
    fn data_segments(&self, _token: Token) -> Option<u64> {
        None
    }

    /// Total time for which waits have polled in vain ([`Wait::polls`]).
    fn idle(&self) -> DurationNs {
        DurationNs::ZERO
    }
}

/// A connection: its slot, and which of the slot's connections it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Token {
    pub slot: u32,
    pub generation: u32,
}

impl Token {
    pub const NONE: Self = Self { slot: u32::MAX, generation: 0 };
}

/// A connection from a server's listening socket.
#[derive(Debug)]
pub enum Accepted {
    Socket(OwnedFd),
    Simulated(u32),
}

/// Identifies bytes that a reactor keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KeptId(u32);

/// Bytes to send.
#[derive(Debug)]
pub enum Outgoing {
    /// Kept bytes, few enough that success need not be reported.
    Quiet(KeptId, Range<usize>),
    /// Kept bytes of any length; [`Happened::Sent`] brings an empty buffer.
    Kept(KeptId, Range<usize>),
    /// A buffer that comes back, cleared, with [`Happened::Sent`].
    Owned(Vec<u8>),
}

impl Outgoing {
    /// Whether [`Happened::Sent`] follows.
    pub fn is_reported(&self) -> bool {
        !matches!(self, Self::Quiet(..))
    }

    /// Returns the cleared buffer for [`Happened::Sent`].
    pub fn into_cleared_buffer(self) -> Vec<u8> {
        match self {
            Self::Quiet(..) | Self::Kept(..) => Vec::new(),
            Self::Owned(mut bytes) => {
                bytes.clear();
                bytes
            }
        }
    }
}

/// Bytes that a reactor keeps for its engine.
#[derive(Debug, Default)]
pub struct KeptBytes(Vec<Arc<[u8]>>);

impl KeptBytes {
    pub fn keep(&mut self, bytes: Arc<[u8]>) -> KeptId {
        self.0.push(bytes);
        KeptId(self.0.len() as u32 - 1)
    }

    pub fn bytes<'a>(&'a self, outgoing: &'a Outgoing) -> &'a [u8] {
        match outgoing {
            Outgoing::Quiet(id, range) | Outgoing::Kept(id, range) => {
                &self.0[id.0 as usize][range.start..range.end]
            }
            Outgoing::Owned(bytes) => bytes,
        }
    }
}

/// Settings of a reactor's buffers and sockets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuning {
    pub buffers: Buffers,
    pub sockets: SocketOptions,
    /// Timeout of calls that block.
    pub timeout: DurationNs,
}

impl Default for Tuning {
    fn default() -> Self {
        Self { buffers: Buffers::SMALL, sockets: SocketOptions::default(), timeout: TIMEOUT }
    }
}

const TIMEOUT: DurationNs = DurationNs::from_secs(10);

/// Longest [`Outgoing::Quiet`] send. With a full socket buffer, a longer send could still be under
/// way when its call returns, so it must be reported.
pub const QUIET_SEND_MAX_BYTES: usize = 4096;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    Graceful,
    /// Closes with a reset (RST), which also skips TIME_WAIT.
    Reset,
}

#[derive(Debug)]
pub struct Completion {
    pub token: Token,
    pub happened: Happened,
}

#[derive(Debug)]
pub enum Happened {
    Accepted(Accepted),
    Connected,
    Received(Chunk),
    /// A send other than [`Outgoing::Quiet`] is complete; its buffer comes back.
    Sent(Vec<u8>),
    /// The peer will send no more.
    Eof,
    /// The connection has failed, with this errno; the engine still has to close it.
    Failed(i32),
}

/// Received bytes, held in the reactor's memory until released.
#[derive(Debug)]
pub struct Chunk {
    pub(crate) index: u32,
    pub(crate) len: u32,
}

impl Chunk {
    /// Makes a chunk; only reactors outside this crate (the simulated one) need it.
    pub fn new(index: u32, len: u32) -> Self {
        Self { index, len }
    }

    pub fn index(&self) -> u32 {
        self.index
    }
}

/// How long to wait, and for how many completions.
#[derive(Clone, Copy, Debug)]
pub struct Wait {
    /// Latest time to return.
    pub until: Instant,
    /// Wait for this many completions before returning, if the kernel can.
    pub batch: u32,
    /// Return with fewer than [`Wait::batch`] completions after this long.
    pub linger: DurationNs,
    /// Time before `until` that is polled, not slept: waking from sleep takes tens of µs.
    pub spin: DurationNs,
    /// Poll all the time, so that no wake-up is needed; other threads of this CPU go first, if they
    /// are brief.
    pub polls: bool,
}

impl Wait {
    pub fn until(until: Instant) -> Self {
        let (linger, spin) = (DurationNs::ZERO, DurationNs::ZERO);
        Self { until, batch: 1, linger, spin, polls: false }
    }

    /// Returns how long to sleep; the time left after that is polled.
    pub(crate) fn sleep_at(&self, now: Instant) -> DurationNs {
        if self.polls {
            return DurationNs::ZERO;
        }
        let left = self.until.since(now);
        DurationNs::from_ns(left.as_ns().saturating_sub(self.spin.as_ns()))
    }
}

/// A reactor's polling.
#[derive(Debug, Default)]
pub(crate) struct Polling {
    /// Total time of polling in vain.
    pub idle: DurationNs,
    /// Until then no other thread goes first.
    insists_until: Instant,
}

/// A thread that runs only for a moment, such as one of the kernel's, needs less.
const BRIEF: DurationNs = DurationNs::from_us(100);
/// How long a thread does not yield after the CPU was taken for longer than [`BRIEF`].
const INSISTS: DurationNs = DurationNs::from_ms(20);

impl Polling {
    /// Called between two polls that found nothing.
    pub fn pause(&mut self, wait: &Wait) {
        let now = monotonic_now();
        if !wait.polls || now < self.insists_until {
            return std::hint::spin_loop();
        }
        std::thread::yield_now();
        // Linux 6.18 takes a whole time slice from a thread that yields: one that always yielded to
        // a busy neighbour got a thirtieth of the CPU.
        let back = monotonic_now();
        if back.since(now) > BRIEF {
            self.insists_until = back + INSISTS;
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReactorKind {
    IoUring,
    Epoll,
    /// Plain blocking calls, for one connection.
    Direct,
    Simulated,
}

impl ReactorKind {
    pub fn name(self) -> &'static str {
        match self {
            Self::IoUring => "io_uring",
            Self::Epoll => "epoll",
            Self::Direct => "direct",
            Self::Simulated => "simulated",
        }
    }
}

/// The kernel refused something that tare cannot run without.
#[derive(Debug, thiserror::Error)]
#[error("{what}: {source}{hint}")]
pub struct SetupError {
    pub what: String,
    pub source: std::io::Error,
    /// Empty, or starts with "; ".
    pub hint: &'static str,
}

impl SetupError {
    pub fn new(what: impl Into<String>, source: std::io::Error) -> Self {
        let hint = match source.raw_os_error() {
            Some(libc::EMFILE | libc::ENFILE) => "; raise the open-file limit (ulimit -n)",
            Some(libc::ENOMEM) => "; raise the locked-memory limit (ulimit -l)",
            Some(libc::EADDRINUSE) => "; another program has this address: choose another port",
            Some(libc::EADDRNOTAVAIL) => "; this machine has no such address",
            _ => "",
        };
        Self { what: what.into(), source, hint }
    }

    pub fn last(what: impl Into<String>) -> Self {
        Self::new(what, std::io::Error::last_os_error())
    }
}
