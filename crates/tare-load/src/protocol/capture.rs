//! Captures parts of replies: bodies for scripts, hashes of bodies for probes.
//!
//! A server decides how long its replies are. Captured bodies therefore share a budget, and a reply
//! that exceeds it is a defect; a hash takes the same memory for any body.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use aws_lc_rs::digest::{Context, SHA256};

use tare_io::Random;
use tare_model::samples::BODY_START_MAX;

use crate::protocol::reply::ReplyDefect;

/// The parts of replies that a source wants to see.
#[derive(Clone, Debug, Default)]
pub enum Wanted {
    /// Nothing: bytes are only counted.
    #[default]
    Nothing,
    /// A hash of the body, for a random few replies.
    Few,
    /// The headers, a hash of the body, and the start of the body.
    Hashes,
    /// The headers and the body; the bodies of all connections together fit the budget.
    Bodies(Arc<Budget>),
}

/// Limit of the bytes captured at a time.
#[derive(Debug)]
pub struct Budget {
    limit_bytes: u64,
    used_bytes: AtomicU64,
}

/// A budget that is enough for nearly all scripts.
pub const BODIES_MAX_BYTES: u64 = 64 << 20;

impl Budget {
    pub fn new(limit_bytes: u64) -> Arc<Self> {
        Arc::new(Self { limit_bytes, used_bytes: AtomicU64::new(0) })
    }

    fn take(&self, bytes: u64) -> Result<(), ReplyDefect> {
        let fits = |used: u64| used.checked_add(bytes).filter(|all| *all <= self.limit_bytes);
        match self.used_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits) {
            Ok(_) => Ok(()),
            Err(_) => Err(ReplyDefect::BodiesTooLong { limit_bytes: self.limit_bytes }),
        }
    }

    fn give_back(&self, bytes: u64) {
        self.used_bytes.fetch_sub(bytes, Ordering::Relaxed);
    }
}

/// Parts of a reply, captured while it arrives and kept until it has been looked at.
#[derive(Debug)]
pub struct Capture {
    /// Names and values of headers in one buffer; `headers` has their lengths.
    text: Vec<u8>,
    headers: Vec<(usize, usize)>,
    head_bytes: usize,
    body: Body,
}

enum Body {
    Few(Few),
    Hash { so_far: Context, bytes: u64, start: Vec<u8> },
    Kept { bytes: Vec<u8>, budget: Arc<Budget> },
}

/// Chooses the replies of a connection that are hashed: many of the first, so that slow servers are
/// sampled too, then one in a hundred.
struct Few {
    so_far: Option<Context>,
    /// Replies up to and including the next one that is hashed.
    left: u32,
    one_in: u32,
    random: Random,
}

const ONE_IN_FIRST: u32 = 4;
const ONE_IN: u32 = 100;

impl Few {
    fn begin(&mut self) {
        self.left -= 1;
        self.so_far = (self.left == 0).then(|| Context::new(&SHA256));
        if self.left == 0 {
            self.left = 1 + self.random.below(2 * u64::from(self.one_in)) as u32;
            self.one_in = (self.one_in * 2).min(ONE_IN);
        }
    }
}

/// Gives each connection a random stream of its own.
static NEXT: AtomicU64 = AtomicU64::new(0);

/// Memory that a connection keeps between replies.
const KEPT_BYTES: usize = 64 << 10;

impl Capture {
    /// Makes a capture; `None` if nothing is wanted.
    pub fn for_wanted(wanted: &Wanted) -> Option<Self> {
        let body = match wanted {
            Wanted::Nothing => return None,
            Wanted::Few => Body::Few(Few {
                so_far: None,
                left: 1,
                one_in: ONE_IN_FIRST,
                random: Random::stream(0, "bodies", NEXT.fetch_add(1, Ordering::Relaxed)),
            }),
            Wanted::Hashes => {
                Body::Hash { so_far: Context::new(&SHA256), bytes: 0, start: Vec::new() }
            }
            Wanted::Bodies(budget) => Body::Kept { bytes: Vec::new(), budget: budget.clone() },
        };
        Some(Self { text: Vec::new(), headers: Vec::new(), head_bytes: 0, body })
    }

    /// Names and values, in the order in which they came.
    pub fn headers(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        let mut rest = self.text.as_slice();
        self.headers.iter().map(move |(name, value)| {
            let (own, behind) = rest.split_at(name + value);
            rest = behind;
            own.split_at(*name)
        })
    }

    /// Length of the reply's head, as received.
    pub fn head_bytes(&self) -> usize {
        self.head_bytes
    }

    /// The decoded body; empty if only its hash is captured.
    pub fn body(&self) -> &[u8] {
        match &self.body {
            Body::Few(_) | Body::Hash { .. } => &[],
            Body::Kept { bytes, .. } => bytes,
        }
    }

    /// SHA-256 of the body, in hexadecimal.
    pub fn sha256(&self) -> String {
        let hash = match &self.body {
            Body::Few(_) => return String::new(),
            Body::Hash { so_far, .. } => so_far.clone().finish(),
            Body::Kept { bytes, .. } => aws_lc_rs::digest::digest(&SHA256, bytes),
        };
        hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The start of the body, for [`Wanted::Hashes`].
    pub fn body_start(&self) -> &[u8] {
        match &self.body {
            Body::Hash { start, .. } => start,
            _ => &[],
        }
    }

    pub fn body_bytes(&self) -> u64 {
        match &self.body {
            Body::Few(_) => 0,
            Body::Hash { bytes, .. } => *bytes,
            Body::Kept { bytes, .. } => bytes.len() as u64,
        }
    }

    /// The body's hash, if the reply is one of the few that are hashed.
    pub fn hash_of_few(&self) -> Option<[u8; 32]> {
        let Body::Few(Few { so_far: Some(so_far), .. }) = &self.body else { return None };
        so_far.clone().finish().as_ref().try_into().ok()
    }

    /// Begins a reply with a head of this many bytes.
    pub(super) fn begin(&mut self, head_bytes: usize) {
        if let Body::Few(few) = &mut self.body {
            return few.begin();
        }
        self.forget();
        self.head_bytes = head_bytes;
    }

    /// Skips the next reply if it is not one of the few that are hashed; returns whether it did.
    pub(super) fn skips(&mut self) -> bool {
        match &mut self.body {
            Body::Few(few) if few.left > 1 => {
                few.begin();
                true
            }
            _ => false,
        }
    }

    pub(super) fn wants_headers(&self) -> bool {
        !matches!(self.body, Body::Few(_))
    }

    pub(super) fn add_header(&mut self, name: &str, value: &[u8]) {
        self.text.extend_from_slice(name.as_bytes());
        self.text.extend_from_slice(value);
        self.headers.push((name.len(), value.len()));
    }

    pub(super) fn add(&mut self, more: &[u8]) -> Result<(), ReplyDefect> {
        match &mut self.body {
            Body::Few(few) => {
                if let Some(so_far) = &mut few.so_far {
                    so_far.update(more);
                }
            }
            Body::Hash { so_far, bytes, start } => {
                let room = BODY_START_MAX - start.len();
                start.extend_from_slice(&more[..more.len().min(room)]);
                so_far.update(more);
                *bytes += more.len() as u64;
            }
            Body::Kept { bytes, budget } => {
                budget.take(more.len() as u64)?;
                let all = bytes.len() + more.len();
                if all > bytes.capacity() {
                    // Doubles its capacity, as vectors do, but never beyond the budget.
                    let wanted = all.max((2 * bytes.capacity()).min(budget.limit_bytes as usize));
                    bytes.reserve_exact(wanted - bytes.len());
                }
                bytes.extend_from_slice(more);
            }
        }
        Ok(())
    }

    /// Clears the capture once it has been read, or when its connection ends.
    pub fn forget(&mut self) {
        self.text.clear();
        self.headers.clear();
        match &mut self.body {
            Body::Few(few) => few.so_far = None,
            Body::Hash { so_far, bytes, start } => {
                *so_far = Context::new(&SHA256);
                *bytes = 0;
                start.clear();
            }
            Body::Kept { bytes, budget } => {
                budget.give_back(bytes.len() as u64);
                bytes.clear();
                bytes.shrink_to(KEPT_BYTES);
            }
        }
    }
}

impl Drop for Capture {
    fn drop(&mut self) {
        self.forget();
    }
}

impl std::fmt::Debug for Body {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Few(few) => write!(f, "a hash of one in {}", few.one_in),
            Self::Hash { bytes, .. } => write!(f, "a hash of {bytes} bytes"),
            Self::Kept { bytes, .. } => write!(f, "{} bytes", bytes.len()),
        }
    }
}
