//! Writes on a thread of its own, so that measuring never waits for a disk.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use tare_model::calibration::Calibration;
use tare_model::samples::{Launch, MachineUse, Slice};

use crate::blob::Packer;
use crate::{RunEnd, RunId, Store, StoreError};

/// Something to write.
#[derive(Debug)]
pub enum Entry {
    RoundBegan { number: u32, cycles: u32, started_unix_ms: u64 },
    Slice { round: u32, slice: Arc<Slice> },
    RoundEnded { number: u32, elapsed_ns: u64, machine: MachineUse, launches: Vec<Launch> },
    RoundLost { number: u32, started_unix_ms: u64, why: String },
    Event { unix_ms: u64, who: String, text: String },
    Found(Calibration),
    RunEnded(RunEnd),
}

/// Writes entries in order. It stops at the first failure; entries written before it remain.
#[derive(Debug)]
pub struct Writer {
    entries: Option<SyncSender<(RunId, Entry)>>,
    failure: Arc<Mutex<Option<StoreError>>>,
    thread: Option<JoinHandle<Store>>,
}

/// Capacity of the queue. Writing is faster than measuring; a disk that stalls for longer than this
/// many slices delays the run, but nothing is lost.
const WAITING_MAX: usize = 4096;

impl Writer {
    pub fn start(mut store: Store) -> Result<Self, StoreError> {
        let mut packer = Packer::new().map_err(|error| store.damaged(error))?;
        let (entries, inbox) = sync_channel(WAITING_MAX);
        let failure = Arc::new(Mutex::new(None));
        let told = failure.clone();
        let work = move || {
            if let Err(error) = write_all(&mut store, &inbox, &mut packer) {
                *told.lock().unwrap_or_else(|e| e.into_inner()) = Some(error);
            }
            store
        };
        let thread = std::thread::Builder::new().name("store".into()).spawn(work);
        let thread = thread.map_err(|error| StoreError::Unusable {
            path: String::new(),
            why: format!("cannot start a thread: {error}"),
        })?;
        Ok(Self { entries: Some(entries), failure, thread: Some(thread) })
    }

    /// Queues an entry. Fails once writing has failed.
    pub fn write(&self, run: RunId, entry: Entry) -> Result<(), StoreError> {
        let sent = self.entries.as_ref().is_some_and(|entries| entries.send((run, entry)).is_ok());
        if sent { Ok(()) } else { Err(self.take_failure()) }
    }

    /// Waits until everything is written, and returns the store.
    pub fn finish(mut self) -> Result<Store, StoreError> {
        drop(self.entries.take());
        let Some(thread) = self.thread.take() else { return Err(self.take_failure()) };
        let store = thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        let failure = self.failure.lock().unwrap_or_else(|e| e.into_inner()).take();
        failure.map_or(Ok(store), Err)
    }

    fn take_failure(&self) -> StoreError {
        let failure = self.failure.lock().unwrap_or_else(|e| e.into_inner()).take();
        failure.unwrap_or_else(|| StoreError::Unusable {
            path: String::new(),
            why: "writing to it has failed before".into(),
        })
    }
}

fn write_all(
    store: &mut Store,
    inbox: &Receiver<(RunId, Entry)>,
    packer: &mut Packer,
) -> Result<(), StoreError> {
    for (run, entry) in inbox {
        match entry {
            Entry::RoundBegan { number, cycles, started_unix_ms } => {
                store.begin_round(run, number, cycles, started_unix_ms)?;
            }
            Entry::Slice { round, slice } => store.add_slice(run, round, &slice, packer)?,
            Entry::RoundLost { number, started_unix_ms, why } => {
                store.lose_round(run, number, started_unix_ms, &why)?;
            }
            Entry::RoundEnded { number, elapsed_ns, machine, launches } => {
                store.end_round(run, number, elapsed_ns, &machine, &launches)?;
            }
            Entry::Event { unix_ms, who, text } => store.add_event(run, unix_ms, &who, &text)?,
            Entry::Found(found) => store.set_found(run, &found)?,
            Entry::RunEnded(end) => store.end_run(run, &end)?,
        }
    }
    Ok(())
}
