//! What each stream has brought so far, whichever thread received it.

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use tare_io::Instant;
use tare_load::net::wire::Count;

/// Sessions by number. The oldest are forgotten: nobody says when one is over.
#[derive(Default)]
pub struct Sessions(Mutex<VecDeque<(u64, Arc<Session>)>>);

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
    pub fn of(&self, number: u64) -> Arc<Session> {
        let mut all = self.0.lock().unwrap_or_else(|e| e.into_inner());
        if let Some((_, session)) = all.iter().rev().find(|(own, _)| *own == number) {
            return session.clone();
        }
        if all.len() == SESSIONS_MAX {
            all.pop_front();
        }
        let session = Arc::<Session>::default();
        all.push_back((number, session.clone()));
        session
    }
}

impl Session {
    /// A stream of bytes is cut into messages by their size alone.
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
