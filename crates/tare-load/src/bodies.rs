//! Replies that are looked at under load: a server may answer its probe as it should, and others
//! not. Of a random few the body is hashed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use tare_io::DurationNs;
use tare_model::status::StatusSet;

use crate::protocol::http1::{Capture, Wanted};
use crate::protocol::reply::Reply;
use crate::source::{NextRequest, Source};

/// SHA-256 of bodies with the expected status, and how many had each.
#[derive(Debug, Default)]
pub struct Bodies {
    seen: BTreeMap<[u8; 32], u64>,
}

/// A server whose every body is another is told by a few.
const KINDS_MAX: usize = 8;

impl Bodies {
    fn add(&mut self, hash: [u8; 32]) {
        if self.seen.len() < KINDS_MAX || self.seen.contains_key(&hash) {
            *self.seen.entry(hash).or_default() += 1;
        }
    }

    /// Those since it was last asked, in hexadecimal.
    fn take(&mut self) -> Vec<(String, u64)> {
        let hex = |hash: [u8; 32]| hash.iter().map(|byte| format!("{byte:02x}")).collect();
        std::mem::take(&mut self.seen).into_iter().map(|(hash, n)| (hex(hash), n)).collect()
    }
}

/// What a lane has seen; empty where its source looks at replies itself, or asks for several
/// things.
#[derive(Clone, Debug, Default)]
pub struct SeenBodies(Rc<RefCell<Bodies>>);

impl SeenBodies {
    pub fn take(&self) -> Vec<(String, u64)> {
        self.0.borrow_mut().take()
    }

    /// The same requests; replies are looked at.
    pub fn of(&self, source: Box<dyn Source>, expected: &StatusSet) -> Box<dyn Source> {
        match source.wanted() {
            Wanted::Nothing if source.is_constant() => {
                let (bodies, expected) = (self.0.clone(), expected.clone());
                Box::new(LookedAt { source, bodies, expected })
            }
            _ => source,
        }
    }
}

struct LookedAt {
    source: Box<dyn Source>,
    bodies: Rc<RefCell<Bodies>>,
    expected: StatusSet,
}

impl Source for LookedAt {
    fn next(&mut self, scratch: &mut Vec<u8>) -> NextRequest {
        self.source.next(scratch)
    }

    fn wanted(&self) -> Wanted {
        Wanted::Few
    }

    fn on_reply(&mut self, reply: &Reply, capture: &Capture) {
        if let Some(hash) = capture.hash_of_few()
            && self.expected.contains(reply.status)
        {
            self.bodies.borrow_mut().add(hash);
        }
    }

    fn wants_stop(&self) -> bool {
        self.source.wants_stop()
    }

    fn rest(&mut self) -> DurationNs {
        self.source.rest()
    }
}
