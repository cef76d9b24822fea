//! Reads a server's output to its end and counts it. The first lines go into the log, the last into
//! messages.

use std::cmp;
use std::collections::VecDeque;
use std::io::{BufRead, BufReader, Read};
use std::sync::Arc;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::Sender;
use std::thread::JoinHandle;

use tare_io::time::wall_unix_ms;
use tare_model::plain;

use crate::event::Event;

/// Output of a server since its start.
#[derive(Debug, Default)]
pub struct Written {
    pub lines: AtomicU64,
    pub bytes: AtomicU64,
    /// The newest lines, unedited, for error messages.
    last: Mutex<VecDeque<Vec<u8>>>,
}

/// Lines of one launch that go into the event log; the rest is only counted.
const LINES_KEPT: u64 = 50;
const LINE_BYTES_MAX: usize = 2000;
/// Newest lines that are kept: enough for a stack trace and its context.
const LAST_LINES: usize = 60;
/// Lines in a short message.
const FEW_LINES: usize = 5;
/// Lines in a message about a server that ended.
const TOLD_LINES: usize = 10;
const TOLD_CHARS_MAX: usize = 300;

impl Written {
    /// Returns the newest few lines.
    pub fn last_lines(&self) -> Vec<String> {
        let last = self.lines_kept();
        last[last.len().saturating_sub(FEW_LINES)..].to_vec()
    }

    /// Returns the lines that show why a server ended: the newest, without blank lines and with
    /// only the first frame of a stack trace. If none of them names an error, the newest earlier
    /// line that does replaces the first.
    pub fn telling_lines(&self) -> Vec<String> {
        telling(self.lines_kept())
    }

    fn lines_kept(&self) -> Vec<String> {
        let last = self.last.lock().unwrap_or_else(|e| e.into_inner());
        last.iter().map(|line| readable(line)).collect()
    }

    /// Keeps a line. Buffers are reused: a server may write a line for each request.
    fn keep(&self, line: &[u8]) {
        let mut last = self.last.lock().unwrap_or_else(|e| e.into_inner());
        let mut oldest = match last.len() < LAST_LINES {
            true => Vec::new(),
            false => last.pop_front().unwrap_or_default(),
        };
        oldest.clear();
        oldest.extend_from_slice(line);
        last.push_back(oldest);
    }

    fn take(&self, bytes: &[u8], who: &str, events: &Sender<Event>) {
        self.bytes.fetch_add(bytes.len() as u64, Ordering::Relaxed);
        let before = self.lines.fetch_add(1, Ordering::Relaxed);
        let cut = &bytes[..bytes.len().min(LINE_BYTES_MAX)];
        self.keep(cut);
        let text = match before.cmp(&LINES_KEPT) {
            cmp::Ordering::Less => readable(cut),
            cmp::Ordering::Equal => "(further lines of this launch are counted, not kept)".into(),
            cmp::Ordering::Greater => return,
        };
        // The receiver may be gone.
        let _ = events.send(Event { unix_ms: wall_unix_ms(), who: who.to_owned(), text });
    }
}

fn readable(line: &[u8]) -> String {
    plain::line(String::from_utf8_lossy(line).trim_end()).into_owned()
}

fn telling(lines: Vec<String>) -> Vec<String> {
    let is_frame = |line: &String| line.trim_start().starts_with("at ");
    let mut kept: Vec<String> = Vec::new();
    let mut after_frame = false;
    for line in lines.into_iter().filter(|line| !line.trim().is_empty()) {
        let frame = is_frame(&line);
        if !(frame && after_frame) {
            kept.push(line.chars().take(TOLD_CHARS_MAX).collect());
        }
        after_frame = frame;
    }
    let names_error = |line: &String| ERROR_WORDS.iter().any(|word| line.contains(word));
    let mut told = kept.split_off(kept.len().saturating_sub(TOLD_LINES));
    if !told.iter().any(names_error)
        && let Some(error) = kept.into_iter().rfind(names_error)
    {
        told[0] = error;
    }
    told
}

const ERROR_WORDS: [&str; 8] =
    ["Error", "error:", "ERROR", "Exception", "panicked", "fatal", "FATAL", "emerg"];

/// Reads `from` to its end, on a thread of its own.
pub fn drain(
    from: impl Read + Send + 'static,
    who: String,
    written: Arc<Written>,
    events: Sender<Event>,
) -> std::io::Result<JoinHandle<()>> {
    let work = move || {
        let mut reader = BufReader::with_capacity(64 << 10, from);
        let mut line = Vec::new();
        // An endless line must not take endless memory.
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

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    fn written(lines: &[&str]) -> Written {
        let written = Written::default();
        let (events, _) = channel();
        lines.iter().for_each(|line| written.take(line.as_bytes(), "a", &events));
        written
    }

    #[test]
    fn the_last_lines_are_kept_however_many_came_before() {
        let many: Vec<String> = (0..500).map(|n| format!("request {n}\n")).collect();
        let mut lines: Vec<&str> = many.iter().map(String::as_str).collect();
        lines.push("TypeError: boom\n");
        let told = written(&lines).telling_lines();
        assert_eq!(told.len(), TOLD_LINES);
        assert_eq!((told[0].as_str(), told[9].as_str()), ("request 491", "TypeError: boom"));
    }

    #[test]
    fn a_missing_module_is_named_although_a_stack_trace_follows() {
        let told = written(&[
            "node:internal/modules/cjs/loader:1080",
            "  throw err;",
            "  ^",
            "",
            "Error: Cannot find module '/srv/app.js'",
            "    at Module._resolveFilename (node:internal/modules/cjs/loader:1077:15)",
            "    at Module._load (node:internal/modules/cjs/loader:922:27)",
            "    at node:internal/main/run_main_module:23:47 {",
            "  code: 'MODULE_NOT_FOUND',",
            "  requireStack: []",
            "}",
            "",
            "Node.js v18.19.0",
        ])
        .telling_lines();
        let error = told.iter().position(|line| line.contains("Cannot find module '/srv/app.js'"));
        assert_eq!(error, Some(3), "{told:#?}");
        assert_eq!(told.iter().filter(|line| line.contains("    at ")).count(), 1);
    }

    #[test]
    fn an_error_far_above_the_last_lines_takes_the_place_of_the_oldest() {
        let mut lines = vec!["java.lang.IllegalStateException: boom"];
        lines.resize(30, "\tcleaning up");
        let told = written(&lines).telling_lines();
        assert_eq!(told[0], "java.lang.IllegalStateException: boom");
        assert_eq!(told.len(), TOLD_LINES);
    }
}
