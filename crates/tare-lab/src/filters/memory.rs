//! Shared memory for a filter that is called without a server.

use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use tare_model::filters::FilterSpec;

use super::shared::SharedMemory;
use crate::journal::Journal;
use crate::journal::resources;
use tare_model::Failure;

/// Creates shared memory, after recording it in the journal.
pub fn create(name: &str, prefix: &str, journal: &Journal) -> Result<SharedMemory, Failure> {
    let note = |path: &Path| journal.record_before_create(resources::SharedMemory(path.to_owned()));
    SharedMemory::create(name, prefix, note)
}

/// Shared memory that is removed when this is dropped.
#[derive(Debug)]
pub struct FilterMemory {
    pub name: String,
    _journal: Journal,
}

impl FilterMemory {
    /// Returns `None` if the filter needs no shared memory. `state` is the folder of journals.
    pub fn create_for(spec: &FilterSpec, state: &Path) -> Result<Option<Self>, Failure> {
        static MADE: AtomicU32 = AtomicU32::new(0);
        if !spec.filter.is_controlled() {
            return Ok(None);
        }
        let journal = Journal::create(state)?;
        let number = MADE.fetch_add(1, Ordering::Relaxed);
        let name = format!("tare-filter-{}-{number}", std::process::id());
        create(&name, &spec.prefix, &journal)?;
        Ok(Some(Self { name, _journal: journal }))
    }
}
