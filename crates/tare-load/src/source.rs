//! Which request comes next: one of a list, or (in `tare-wrk`) what a script writes.

use tare_io::{DurationNs, Random};

use crate::protocol::capture::{Capture, Wanted};
use crate::protocol::reply::Reply;

/// Gives the requests of one worker.
pub trait Source {
    /// Returns the next request; a script may write it to `scratch`, which is empty.
    fn next(&mut self, scratch: &mut Vec<u8>) -> NextRequest;

    /// Parts of replies to capture for [`Source::on_reply`].
    fn wanted(&self) -> Wanted {
        Wanted::Nothing
    }

    /// Whether every request is the same, so that replies can be compared.
    fn is_constant(&self) -> bool {
        false
    }

    /// Called for each captured reply.
    fn on_reply(&mut self, _reply: &Reply, _capture: &Capture) {}

    /// Whether this worker should end; called after requests and replies.
    fn wants_stop(&self) -> bool {
        false
    }

    /// How long a connection rests before its next request (closed loop).
    fn rest(&mut self) -> DurationNs {
        DurationNs::ZERO
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextRequest {
    /// The request at this index of the codec's list.
    Listed(u32),
    /// Bytes that a script wrote: this many whole HTTP/1.1 requests, answered in order.
    Written { requests: u32, to_head: bool },
}

/// Requests from a list, in turn or at random.
#[derive(Debug)]
pub struct Listed {
    /// Number of requests in the list; at least one.
    n: u32,
    at: u32,
    random: Option<Random>,
}

impl Listed {
    pub fn in_turn(n: usize, from: usize) -> Self {
        Self { n: n.max(1) as u32, at: from as u32, random: None }
    }

    pub fn at_random(n: usize, random: Random) -> Self {
        Self { n: n.max(1) as u32, at: 0, random: Some(random) }
    }
}

impl Source for Listed {
    #[inline]
    fn next(&mut self, _scratch: &mut Vec<u8>) -> NextRequest {
        if let Some(random) = &mut self.random {
            return NextRequest::Listed(random.below(u64::from(self.n)) as u32);
        }
        let at = self.at;
        self.at = if at + 1 < self.n { at + 1 } else { 0 };
        NextRequest::Listed(at)
    }

    fn is_constant(&self) -> bool {
        self.n == 1
    }
}

/// A source of either kind: most are lists, which need no call through a vtable.
pub enum AnySource {
    Listed(Listed),
    Other(Box<dyn Source>),
}

impl From<Listed> for AnySource {
    fn from(listed: Listed) -> Self {
        Self::Listed(listed)
    }
}

impl From<Box<dyn Source>> for AnySource {
    fn from(source: Box<dyn Source>) -> Self {
        Self::Other(source)
    }
}

macro_rules! either {
    ($source:expr, $name:ident => $body:expr) => {
        match $source {
            AnySource::Listed($name) => $body,
            AnySource::Other($name) => $body,
        }
    };
}

impl Source for AnySource {
    #[inline]
    fn next(&mut self, scratch: &mut Vec<u8>) -> NextRequest {
        either!(self, source => source.next(scratch))
    }

    fn wanted(&self) -> Wanted {
        either!(self, source => source.wanted())
    }

    fn is_constant(&self) -> bool {
        either!(self, source => source.is_constant())
    }

    fn on_reply(&mut self, reply: &Reply, capture: &Capture) {
        either!(self, source => source.on_reply(reply, capture));
    }

    #[inline]
    fn wants_stop(&self) -> bool {
        either!(self, source => source.wants_stop())
    }

    #[inline]
    fn rest(&mut self) -> DurationNs {
        either!(self, source => source.rest())
    }
}
