//! What is asked: one fixed request, a list of them, or (in `tare-wrk`) a script.

use std::collections::BTreeSet;
use std::sync::Mutex;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Deserialize, Serialize};
use tare_io::{DurationNs, Random};

use crate::protocol::http1::{Capture, Wanted};
use crate::protocol::reply::Reply;

/// Gives the requests of one worker.
pub trait Source {
    /// The next request. Its bytes are either immortal, or written to `scratch` (which is empty).
    fn next(&mut self, scratch: &mut Vec<u8>) -> NextRequest;

    /// What is kept of replies for [`Source::on_reply`].
    fn wanted(&self) -> Wanted {
        Wanted::Nothing
    }

    /// Whether every request is the same, so that replies can be compared.
    fn is_constant(&self) -> bool {
        false
    }

    /// A reply came.
    fn on_reply(&mut self, _reply: &Reply, _capture: &Capture) {}

    /// Whether this worker should end; asked after requests and replies.
    fn wants_stop(&self) -> bool {
        false
    }

    /// How long a connection rests before its next request (closed loop).
    fn rest(&mut self) -> DurationNs {
        DurationNs::ZERO
    }
}

#[derive(Clone, Copy, Debug)]
pub struct NextRequest {
    pub bytes: AskedBytes,
    /// Replies that these bytes call for; more than one where requests are pipelined.
    pub replies: u32,
    /// The method is HEAD: replies have no body.
    pub to_head: bool,
}

#[derive(Clone, Copy, Debug)]
pub enum AskedBytes {
    Fixed(&'static [u8]),
    InScratch,
}

/// A name without a lifetime in it: derived code would take that for its own.
type Immortal = &'static [u8];

/// One request, as bytes that live as long as the program: the kernel may read them at any time.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct FixedRequest {
    bytes: Immortal,
    to_head: bool,
}

impl FixedRequest {
    /// Keeps `bytes` until the program ends, once: each launch's plan asks for the same.
    pub fn new(bytes: Vec<u8>) -> Self {
        static KEPT: Mutex<BTreeSet<&'static [u8]>> = Mutex::new(BTreeSet::new());
        let mut kept = KEPT.lock().unwrap_or_else(|e| e.into_inner());
        let bytes = kept.get(bytes.as_slice()).copied().unwrap_or_else(|| {
            let bytes: &'static [u8] = bytes.leak();
            kept.insert(bytes);
            bytes
        });
        Self { bytes, to_head: bytes.starts_with(b"HEAD ") }
    }

    pub fn bytes(&self) -> &'static [u8] {
        self.bytes
    }

    fn asked(&self) -> NextRequest {
        NextRequest { bytes: AskedBytes::Fixed(self.bytes), replies: 1, to_head: self.to_head }
    }
}

/// As base64: it crosses to other places in JSON.
impl From<FixedRequest> for String {
    fn from(request: FixedRequest) -> Self {
        STANDARD.encode(request.bytes)
    }
}

impl TryFrom<String> for FixedRequest {
    type Error = base64::DecodeError;

    fn try_from(text: String) -> Result<Self, base64::DecodeError> {
        Ok(Self::new(STANDARD.decode(text)?))
    }
}

impl Source for FixedRequest {
    fn next(&mut self, _scratch: &mut Vec<u8>) -> NextRequest {
        self.asked()
    }

    fn is_constant(&self) -> bool {
        true
    }
}

/// Requests from a list, in order from a start of the worker's own, or at random.
pub struct ListedRequests {
    requests: std::sync::Arc<[FixedRequest]>,
    at: usize,
    random: Option<Random>,
}

impl ListedRequests {
    /// `requests` must not be empty.
    pub fn in_order(requests: std::sync::Arc<[FixedRequest]>, start: usize) -> Self {
        Self { requests, at: start, random: None }
    }

    pub fn at_random(requests: std::sync::Arc<[FixedRequest]>, random: Random) -> Self {
        Self { requests, at: 0, random: Some(random) }
    }
}

impl Source for ListedRequests {
    fn next(&mut self, _scratch: &mut Vec<u8>) -> NextRequest {
        let n = self.requests.len();
        let at = match &mut self.random {
            Some(random) => random.below(n as u64) as usize,
            None => self.at % n,
        };
        self.at = at + 1;
        self.requests[at].asked()
    }
}
