//! Counts of each stream so far, whichever thread serves it.

use std::collections::VecDeque;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tare_io::Instant;
use tare_load::protocol::wire::Count;

/// Sessions by number. Clients do not report when a session is over. If there are too many, one of
/// the address with most sessions is forgotten, so that no address can evict the sessions of
/// another.
#[derive(Default)]
pub struct Sessions(Mutex<VecDeque<Entry>>);

struct Entry {
    number: u64,
    from: IpAddr,
    session: Arc<Session>,
}

#[derive(Debug, Default)]
pub struct Session {
    pub bytes: AtomicU64,
    pub messages: AtomicU64,
    pub wrong: AtomicU64,
    pub disordered: AtomicU64,
    message_bytes: AtomicU64,
}

/// More than any run has at a time.
const SESSIONS_MAX: usize = 4096;

impl Sessions {
    pub fn get_or_create(&self, number: u64, from: IpAddr) -> Arc<Session> {
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some(entry) = all.iter().rev().find(|entry| entry.number == number) {
            return entry.session.clone();
        }
        if all.len() >= SESSIONS_MAX {
            forget_one(&mut all, from);
        }
        let session = Arc::<Session>::default();
        all.push_back(Entry { number, from, session: session.clone() });
        session
    }
}

/// Forgets a session of the address with most sessions; on a tie, of `wanting`.
fn forget_one(all: &mut VecDeque<Entry>, wanting: IpAddr) {
    let mut counts: std::collections::HashMap<IpAddr, usize> = [(wanting, 1)].into();
    for entry in all.iter() {
        *counts.entry(entry.from).or_default() += 1;
    }
    let most = counts.values().copied().max().unwrap_or(0);
    let whose = match counts.get(&wanting) {
        Some(own) if *own == most => wanting,
        _ => counts.into_iter().find(|(_, n)| *n == most).map_or(wanting, |(from, _)| from),
    };
    // A session that nothing uses any more goes first.
    let is_unused = |entry: &Entry| entry.from == whose && Arc::strong_count(&entry.session) == 1;
    let found = all.iter().position(is_unused);
    let found = found.or_else(|| all.iter().position(|entry| entry.from == whose));
    all.remove(found.unwrap_or(0));
}

impl Session {
    /// Sets the message size by which the received or sent bytes are divided to count messages.
    pub fn cut_by(&self, message_bytes: u32) {
        self.message_bytes.store(u64::from(message_bytes), Ordering::Relaxed);
    }

    pub fn count(&self, now: Instant) -> Count {
        let of = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bytes = of(&self.bytes);
        let messages = match of(&self.message_bytes) {
            0 => of(&self.messages),
            size => bytes / size,
        };
        Count {
            bytes,
            messages,
            wrong: of(&self.wrong),
            disordered: of(&self.disordered),
            now_ns: now.since(Instant::ZERO).as_ns(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_cannot_make_the_sessions_of_another_go() {
        let (one, other) = (IpAddr::from([10, 0, 0, 1]), IpAddr::from([10, 0, 0, 2]));
        let sessions = Sessions::default();
        sessions.get_or_create(7, one).bytes.store(42, Ordering::Relaxed);
        (100..100 + 3 * SESSIONS_MAX as u64)
            .for_each(|number| drop(sessions.get_or_create(number, other)));
        assert_eq!(sessions.get_or_create(7, one).bytes.load(Ordering::Relaxed), 42);
        assert!(sessions.0.lock().unwrap().len() <= SESSIONS_MAX);
    }
}
