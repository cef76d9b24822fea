//! Where a run's slices and events are kept.

use tare_store::{Entry, RunId, Writer};

use crate::error::RunError;

pub trait Record {
    fn write(&self, run: RunId, entry: Entry) -> Result<(), RunError>;
}

impl Record for Writer {
    fn write(&self, run: RunId, entry: Entry) -> Result<(), RunError> {
        Ok(Self::write(self, run, entry)?)
    }
}
