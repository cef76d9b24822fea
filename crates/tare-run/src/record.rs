//! Where a run's slices and events are kept.

use tare_store::{Entry, RunId, Writer};

use tare_model::Failure;

pub trait Record {
    fn write(&self, run: RunId, entry: Entry) -> Result<(), Failure>;
}

impl Record for Writer {
    fn write(&self, run: RunId, entry: Entry) -> Result<(), Failure> {
        Ok(Self::write(self, run, entry)?)
    }
}
