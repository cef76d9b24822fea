//! What is asked: one fixed request, a list of them, or (in `tare-wrk`) a script.

use tare_io::{DurationNs, Random};

use crate::protocol::http1::{Capture, Reply, Wanted};

/// Gives the requests of one worker.
pub trait Source {
    /// The next request. Its bytes are either immortal, or written to `scratch` (which is empty).
    fn next(&mut self, scratch: &mut Vec<u8>) -> Asked;

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
pub struct Asked {
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

/// One request, as bytes that live as long as the program: the kernel may read them at any time.
#[derive(Clone, Copy, Debug)]
pub struct FixedRequest {
    bytes: &'static [u8],
    to_head: bool,
}

impl FixedRequest {
    /// Keeps `bytes` until the program ends. Made once for a plan, not once for a request.
    pub fn new(bytes: Vec<u8>) -> Self {
        let to_head = bytes.starts_with(b"HEAD ");
        Self { bytes: bytes.leak(), to_head }
    }

    pub fn bytes(&self) -> &'static [u8] {
        self.bytes
    }

    fn asked(&self) -> Asked {
        Asked { bytes: AskedBytes::Fixed(self.bytes), replies: 1, to_head: self.to_head }
    }
}

impl Source for FixedRequest {
    fn next(&mut self, _scratch: &mut Vec<u8>) -> Asked {
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
    fn next(&mut self, _scratch: &mut Vec<u8>) -> Asked {
        let n = self.requests.len();
        let at = match &mut self.random {
            Some(random) => random.below(n as u64) as usize,
            None => self.at % n,
        };
        self.at = at + 1;
        self.requests[at].asked()
    }
}
