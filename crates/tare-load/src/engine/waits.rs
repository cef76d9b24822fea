//! Connections that wait for something other than a reply: to be established, or for the server to
//! close. All timeouts are equal, so the first to start waiting is the first to expire.

use tare_io::Instant;

use super::links::{Link, Linked, List};

#[derive(Debug)]
pub struct Waits {
    since: Vec<Option<Instant>>,
    links: Box<[Link]>,
    waiting: List,
}

impl Waits {
    pub fn new(slots: u32) -> Self {
        let links = vec![Link::NONE; slots as usize].into_boxed_slice();
        Self { since: vec![None; slots as usize], links, waiting: List::EMPTY }
    }

    /// Starts the wait of `slot`. Calls must come in the order of `now`.
    pub fn start(&mut self, slot: u32, now: Instant) {
        self.stop(slot);
        self.since[slot as usize] = Some(now);
        self.links.push(&mut self.waiting, slot);
    }

    pub fn stop(&mut self, slot: u32) {
        if self.since[slot as usize].take().is_some() {
            self.links.remove(&mut self.waiting, slot);
        }
    }

    pub fn is_waiting(&self, slot: u32) -> bool {
        self.since[slot as usize].is_some()
    }

    /// The slot that has waited longest, and since when.
    pub fn oldest(&self) -> Option<(u32, Instant)> {
        let slot = self.waiting.first()?;
        Some((slot, self.since[slot as usize]?))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_comes_first_whatever_is_taken_out() {
        let at = Instant::from_ns;
        let mut waits = Waits::new(4);
        for slot in 0..4 {
            waits.start(slot, at(u64::from(slot)));
        }
        waits.stop(1);
        waits.stop(0);
        assert_eq!(waits.oldest(), Some((2, at(2))));
        waits.start(2, at(9));
        assert_eq!(waits.oldest(), Some((3, at(3))));
        waits.stop(3);
        waits.stop(3);
        assert_eq!(waits.oldest(), Some((2, at(9))));
        waits.stop(2);
        assert_eq!(waits.oldest(), None);
    }
}
