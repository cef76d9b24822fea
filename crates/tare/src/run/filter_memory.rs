//! Shared memory for a filter that is called without a server.

use std::sync::atomic::{AtomicU32, Ordering};

use tare_lab::filters::shared::SharedMemory;
use tare_lab::journal::Journal;
use tare_model::filters::FilterSpec;

use super::places::journal_folder;
use crate::failure::Failure;

/// Lives as long as this does.
pub struct Memory {
    pub name: String,
    _journal: Journal,
}

impl Memory {
    pub fn of(spec: &FilterSpec) -> Result<Option<Self>, Failure> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if !spec.filter.is_controlled() {
            return Ok(None);
        }
        let journal = Journal::create(&journal_folder()?)?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tare-filter-{}-{number}", std::process::id());
        SharedMemory::create(&name, &spec.prefix, &journal)?;
        Ok(Some(Self { name, _journal: journal }))
    }
}
