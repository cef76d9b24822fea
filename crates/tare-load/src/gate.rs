//! Where workers wait for each other.

use std::sync::{Condvar, Mutex};

/// Workers start their windows together, once all have their connections.
pub(crate) struct Gate {
    waiting: Mutex<u32>,
    opened: Condvar,
}

impl Gate {
    pub(crate) fn new(workers: u32) -> Self {
        Self { waiting: Mutex::new(workers), opened: Condvar::new() }
    }

    /// This worker is ready; returns when all are.
    pub(crate) fn arrive(&self) {
        self.leave();
        let mut waiting = self.waiting.lock().unwrap_or_else(|e| e.into_inner());
        while *waiting > 0 {
            waiting = self.opened.wait(waiting).unwrap_or_else(|e| e.into_inner());
        }
    }

    /// This worker will not keep the others waiting. Harmless when said twice.
    pub(crate) fn leave(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(|e| e.into_inner());
        *waiting = waiting.saturating_sub(1);
        if *waiting == 0 {
            self.opened.notify_all();
        }
    }
}
