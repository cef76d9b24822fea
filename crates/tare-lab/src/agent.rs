//! The far end of a place: an agent that is spoken to over a byte stream, and servers that it runs.

pub mod protocol;
mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::de::DeserializeOwned;
use tare_io::DurationNs;
use tare_io::time::monotonic_now;

use crate::error::LabError;
use crate::launch::Event;
use crate::running::{Running, Start};
use protocol::{Failed, FromAgent, Hello, Message, PROTOCOL, Request, ToAgent, Used};

pub use server::PlacedServer;

/// A conversation with an agent. Dropped, it ends, and with it all that the agent started.
#[derive(Debug)]
pub struct Agent {
    /// The place, for messages.
    who: String,
    pub hello: Hello,
    next: AtomicU64,
    ends: Mutex<Ends>,
    /// Set by the user's wish to stop: the agent is told.
    stop: Arc<AtomicBool>,
}

#[derive(Debug)]
struct Ends {
    running: Running,
    /// To the thread that writes: who is spoken to may not listen.
    to: Option<Sender<String>>,
    /// It did not answer in time, and is not asked again.
    silent: bool,
    from: Receiver<FromAgent>,
}

/// How long an answer may take where the request does not say.
pub const PATIENCE: DurationNs = DurationNs::from_secs(30);
/// … and where the user wants to stop.
const PATIENCE_OF_STOPPING: DurationNs = DurationNs::from_secs(5);
/// Between looks at the user's wish to stop.
const LOOK: Duration = Duration::from_millis(20);
/// How long an agent may take to end what it started, once its stream has ended.
const GRACE: DurationNs = DurationNs::from_secs(8);
/// Nothing that is said is longer.
pub const LINE_BYTES_MAX: u64 = 64 << 20;
/// Lines before the first word of an agent: banners of ssh, a kernel's last words.
const LINES_BEFORE_HELLO: usize = 1000;

impl Agent {
    /// Runs a command that ends in an agent on its standard input and output.
    pub fn start(
        start: &Start<'_>,
        patience: DurationNs,
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, LabError> {
        let mut running = Running::start(start)?;
        let cannot = |text: String| {
            Err(LabError::Environment(format!("{}: the place did not start: {text}", start.who)))
        };
        let Some((to, out)) = running.conversation() else {
            return cannot("it has no standard input and output".into());
        };
        let (sender, from) = channel();
        let (events, who) = (start.events.clone(), start.who.to_owned());
        let reader = std::thread::Builder::new().name("agent".into());
        if let Err(error) = reader.spawn(move || listen(out, &who, &sender, &events)) {
            return cannot(error.to_string());
        }
        let (lines, outbox) = channel();
        let writer = std::thread::Builder::new().name("to-agent".into());
        if let Err(error) = writer.spawn(move || write(to, &outbox)) {
            return cannot(error.to_string());
        }
        let mut ends = Ends { running, to: Some(lines), silent: false, from };
        let limit = monotonic_now() + patience;
        let hello = loop {
            match ends.from.recv_timeout(LOOK) {
                Ok(FromAgent { message: Message::Hello(hello), tare }) => break (tare, *hello),
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let how = ends.last_words();
                    return cannot(how);
                }
                Err(RecvTimeoutError::Timeout) if stop.load(Ordering::Relaxed) => {
                    ends.end(DurationNs::ZERO);
                    return cannot("interrupted".into());
                }
                Err(RecvTimeoutError::Timeout) if monotonic_now() > limit => {
                    ends.end(DurationNs::ZERO);
                    let words = ends.running.last_words();
                    return cannot(format!("no word from its agent within {patience}{words}"));
                }
                Err(RecvTimeoutError::Timeout) => {}
            }
        };
        let (protocol, hello) = hello;
        if protocol != PROTOCOL || hello.version != VERSION {
            ends.end(DurationNs::ZERO);
            return cannot(format!(
                "its agent is version {} (protocol {protocol}), this tare is {VERSION} (protocol \
                 {PROTOCOL}): build both from one source (make agent)",
                hello.version
            ));
        }
        let (ends, who) = (Mutex::new(ends), start.who.to_owned());
        Ok(Self { who, hello, next: AtomicU64::new(1), ends, stop: stop.clone() })
    }

    /// Asks, and waits for the answer.
    pub fn ask<T: DeserializeOwned>(&self, request: Request) -> Result<T, LabError> {
        self.ask_within(request, PATIENCE)
    }

    pub fn ask_within<T: DeserializeOwned>(
        &self,
        request: Request,
        patience: DurationNs,
    ) -> Result<T, LabError> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let mut ends = self.ends.lock().unwrap_or_else(|e| e.into_inner());
        if ends.silent {
            return Err(self.environment("its agent does not answer".into()));
        }
        ends.say(&ToAgent { tare: PROTOCOL, id, request }).map_err(|_| self.lost(&mut ends))?;
        let mut limit = monotonic_now() + patience;
        let mut told = false;
        loop {
            match ends.from.recv_timeout(LOOK) {
                Ok(FromAgent { message: Message::Done { id: of, value }, .. }) if of == id => {
                    return serde_json::from_value(value).map_err(|error| {
                        self.environment(format!("its agent's answer is not understood: {error}"))
                    });
                }
                Ok(FromAgent { message: Message::Failed { id: of, failed }, .. }) if of == id => {
                    return Err(match failed {
                        Failed::Usage(text) => LabError::Usage(text),
                        Failed::Environment(text) => LabError::Environment(text),
                        Failed::Target(text) => LabError::Target(text),
                    });
                }
                // An answer that came too late for its question.
                Ok(_) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost(&mut ends)),
                Err(RecvTimeoutError::Timeout) => {
                    if self.stop.load(Ordering::Relaxed) && !told {
                        told = true;
                        limit = limit.min(monotonic_now() + PATIENCE_OF_STOPPING);
                        let cancel = ToAgent { tare: PROTOCOL, id: 0, request: Request::Cancel };
                        let _ = ends.say(&cancel);
                    }
                    if monotonic_now() > limit {
                        ends.silent = true;
                        let text = format!("its agent did not answer within {patience}");
                        return Err(self.environment(text));
                    }
                }
            }
        }
    }

    /// What the server that it runs has used.
    pub fn used(&self) -> Option<Used> {
        self.ask(Request::Used).ok()
    }

    /// Ends the conversation, and waits until the place is gone.
    pub fn end(&self) {
        self.ends.lock().unwrap_or_else(|e| e.into_inner()).end(GRACE);
    }

    pub fn is_alive(&self) -> bool {
        let ends = self.ends.lock().unwrap_or_else(|e| e.into_inner());
        !ends.running.ends_within(DurationNs::ZERO)
    }

    /// The first process of its command, on this machine.
    pub fn pid(&self) -> u32 {
        self.ends.lock().unwrap_or_else(|e| e.into_inner()).running.id()
    }

    /// Why there is nobody to ask any more; `None` where there is.
    pub fn gone(&self) -> Option<LabError> {
        let mut ends = self.ends.lock().unwrap_or_else(|e| e.into_inner());
        ends.running.ends_within(DurationNs::ZERO).then(|| self.lost(&mut ends))
    }

    fn environment(&self, text: String) -> LabError {
        LabError::Environment(format!("{}: {text}", self.who))
    }

    fn lost(&self, ends: &mut Ends) -> LabError {
        self.environment(format!("the place is gone: {}", ends.last_words()))
    }
}

/// Agents and tare are built together.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Ends {
    fn say(&mut self, message: &ToAgent) -> Result<(), ()> {
        let line = serde_json::to_string(message).map_err(drop)? + "\n";
        self.to.as_ref().ok_or(())?.send(line).map_err(drop)
    }

    /// Why a command ended.
    fn last_words(&mut self) -> String {
        let how = match self.running.ends_within(DurationNs::from_secs(2)) {
            true => self.running.status().map_or(String::new(), |status| status.to_string()),
            false => "its stream ended".into(),
        };
        self.running.end_drains();
        format!("{how}{}", self.running.last_words())
    }

    fn end(&mut self, grace: DurationNs) {
        self.to = None;
        let grace = if self.silent { DurationNs::ZERO } else { grace };
        if !self.running.ends_within(grace) {
            self.running.signal(libc::SIGKILL);
        }
        if self.running.ends_within(GRACE) {
            self.running.status();
            self.running.end_drains();
        }
    }
}

impl Drop for Ends {
    fn drop(&mut self) {
        self.end(GRACE);
    }
}

/// Says everything in turn, until nobody has anything to say; then the stream ends.
fn write(mut to: ChildStdin, outbox: &Receiver<String>) {
    for line in outbox {
        if to.write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

/// Sorts what an agent says: events to the run's log, the rest to who asked.
fn listen(out: ChildStdout, who: &str, to: &Sender<FromAgent>, events: &Sender<Event>) {
    let mut reader = BufReader::with_capacity(64 << 10, out);
    let mut line = Vec::new();
    let mut strange = 0;
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        if !read.is_ok_and(|n| n > 0) {
            return;
        }
        match serde_json::from_slice(&line) {
            Ok(FromAgent { message: Message::Event(event), .. }) => {
                let _ = events.send(Event { who: who.to_owned(), ..event });
            }
            Ok(message) => {
                if to.send(message).is_err() {
                    return;
                }
            }
            // Not an agent's word: whoever speaks before it.
            Err(_) if strange < LINES_BEFORE_HELLO => strange += 1,
            Err(_) => return,
        }
    }
}
