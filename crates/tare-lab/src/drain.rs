//! A server's output: read to its end, counted, its beginning kept.

use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use tare_io::time::wall_unix_ms;
use tare_model::plain;

use crate::event::Event;

/// What a server wrote since it was started.
#[derive(Debug, Default)]
pub struct Written {
    pub lines: AtomicU64,
    pub bytes: AtomicU64,
    /// The newest few lines, for error messages.
    last: Mutex<Vec<String>>,
}

/// Lines of one launch that go into the event log; the rest is only counted.
const LINES_KEPT: u64 = 50;
const LINE_BYTES_MAX: usize = 2000;
const LAST_LINES: usize = 5;

impl Written {
    pub fn last_lines(&self) -> Vec<String> {
        self.last.lock().unwrap_or_else(|e| e.into_inner()).clone()
    }

    fn take(&self, bytes: &[u8], who: &str, events: &Sender<Event>) {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let before = self.lines.fetch_add(1, Ordering::Relaxed);
        if before > LINES_KEPT {
            return;
        }
        let cut = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        let mut text = plain::line(String::from_utf8_lossy(cut).trim_end()).into_owned();
        if before == LINES_KEPT {
            text = "(further lines of this launch are counted, not kept)".into();
        }
        let mut last = self.last.lock().unwrap_or_else(|e| e.into_inner());
        if last.len() == LAST_LINES {
            last.remove(0);
        }
        last.push(text.clone());
        drop(last);
        // Nobody may be left to listen.
        let _ = events.send(Event { unix_ms: wall_unix_ms(), who: who.to_owned(), text });
    }
}

/// Reads `from` until its end, on a thread of its own.
pub fn drain(
    from: impl Read + Send + 'static,
    who: String,
    written: Arc<Written>,
    events: Sender<Event>,
) -> std::io::Result<JoinHandle<()>> {
    let work = move || {
        let mut reader = BufReader::with_capacity(64 << 10, from);
        let mut line = Vec::new();
        // A line without end must not take memory without end.
        while let Ok(n) = reader.by_ref().take(64 << 10).read_until(b'\n', &mut line) {
            if n == 0 {
                break;
            }
            written.take(&line, &who, &events);
            line.clear();
        }
    };
    std::thread::Builder::new().name("drain".into()).spawn(work)
}
