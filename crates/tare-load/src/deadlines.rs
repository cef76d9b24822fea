//! Which request has waited longest. All time limits are equal, so those that started first expire
//! first: a linked list through the slots, with no allocation and no timer a request.

use tare_io::Instant;

#[derive(Debug)]
pub struct Deadlines {
    nodes: Vec<Node>,
    first: u32,
    last: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    started: Instant,
    before: u32,
    after: u32,
    waiting: bool,
}

const NONE: u32 = u32::MAX;

impl Deadlines {
    pub fn new(slots: u32) -> Self {
        let node = Node { started: Instant::ZERO, before: NONE, after: NONE, waiting: false };
        Self { nodes: vec![node; slots as usize], first: NONE, last: NONE }
    }

    /// `slot` waits from now on. Calls must come in the order of `now`.
    pub fn start(&mut self, slot: u32, now: Instant) {
        self.stop(slot);
        self.nodes[slot as usize] =
            Node { started: now, before: self.last, after: NONE, waiting: true };
        match self.last {
            NONE => self.first = slot,
            last => self.nodes[last as usize].after = slot,
        }
        self.last = slot;
    }

    pub fn stop(&mut self, slot: u32) {
        let node = self.nodes[slot as usize];
        if !node.waiting {
            return;
        }
        match node.before {
            NONE => self.first = node.after,
            before => self.nodes[before as usize].after = node.after,
        }
        match node.after {
            NONE => self.last = node.before,
            after => self.nodes[after as usize].before = node.before,
        }
        self.nodes[slot as usize].waiting = false;
    }

    /// The slot that has waited longest, and since when.
    pub fn oldest(&self) -> Option<(u32, Instant)> {
        (self.first != NONE).then(|| (self.first, self.nodes[self.first as usize].started))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_comes_first_whatever_is_taken_out() {
        let at = Instant::from_ns;
        let mut deadlines = Deadlines::new(4);
        for slot in 0..4 {
            deadlines.start(slot, at(u64::from(slot)));
        }
        deadlines.stop(1);
        deadlines.stop(0);
        assert_eq!(deadlines.oldest(), Some((2, at(2))));
        deadlines.start(2, at(9));
        assert_eq!(deadlines.oldest(), Some((3, at(3))));
        deadlines.stop(3);
        deadlines.stop(3);
        assert_eq!(deadlines.oldest(), Some((2, at(9))));
        deadlines.stop(2);
        assert_eq!(deadlines.oldest(), None);
    }
}
