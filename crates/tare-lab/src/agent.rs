//! The far end of a place: an agent that is spoken to over a byte stream, and servers that it runs.

pub mod protocol;
mod server;

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{ChildStdin, ChildStdout};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{
    Receiver, RecvTimeoutError, Sender, SyncSender, TrySendError, channel, sync_channel,
};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::value::RawValue;
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_model::plain;
use tare_model::samples::ServerUse;

use crate::commands;
use crate::error::LabError;
use crate::event::Event;
use crate::meter::FarMeter;
use crate::running::{Running, Start};
use protocol::{Failed, HeardLine, Hello, PROTOCOL, Request, ToAgent, Used};

pub use server::{MeteredBy, PlacedServer};

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
    fate: Option<Fate>,
}

/// Who knows why a place is gone, better than its last words tell.
pub type AskFate = Box<dyn Fn() -> Option<String> + Send + Sync>;

struct Fate(AskFate);

impl std::fmt::Debug for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fate")
    }
}

#[derive(Debug)]
struct Ends {
    running: Running,
    /// To the thread that writes: who is spoken to may not listen.
    to: Option<Sender<String>>,
    /// It did not answer in time, and is not asked again.
    silent: bool,
    from: Receiver<Heard>,
    /// Which answer is waited for; others are dropped.
    awaited: Arc<AtomicU64>,
    /// Events that it may still send before its next server is started.
    events_left: Arc<AtomicU64>,
}

/// What an agent said that somebody waits for.
#[derive(Debug)]
enum Heard {
    Hello(u32, Box<Hello>),
    Done(Box<RawValue>),
    Failed(Failed),
    /// A line that is longer than any answer; nothing is heard after it.
    TooLong,
    /// A line of another protocol than its greeting's; nothing is heard after it.
    Other(u32),
}

/// How long an answer may take where the request does not say.
pub const PATIENCE: DurationNs = DurationNs::from_secs(30);
/// … and where the user wants to stop.
const PATIENCE_OF_STOPPING: DurationNs = DurationNs::from_secs(5);
/// Between looks at the user's wish to stop.
const LOOK: Duration = Duration::from_millis(20);
/// How long an agent may take to end what it started, once its stream has ended.
const GRACE: DurationNs = DurationNs::from_secs(8);
/// Nothing that an agent is asked is longer: a server's files are part of it.
pub const REQUEST_BYTES_MAX: u64 = 128 << 20;
/// Nothing that it answers is: pages, histograms.
const ANSWER_BYTES_MAX: u64 = 4 << 20;
/// Nor is its greeting longer than this.
const HELLO_BYTES_MAX: u64 = 64 << 10;
/// Lines that are no agent's: banners of ssh, a kernel's last words.
const STRANGE_LINES_MAX: usize = 1000;
/// Answers that nobody waits for: a few come too late, more are not an agent's.
const STRAYS_MAX: usize = 1000;
/// A launch's own lines are cut off sooner, where the agent is ours.
const EVENTS_A_LAUNCH: u64 = 200;
const EVENT_CHARS_MAX: usize = 2000;
/// A greeting or an answer, and no more.
const WAITING_MAX: usize = 2;
/// Who hears nothing for longer may take tare for dead: a stream can break without a word.
const ALIVE_EVERY: Duration = Duration::from_secs(10);
/// While it is asked nothing.
const NO_REQUEST: u64 = 0;

impl FarMeter for Agent {
    fn used(&self) -> Option<ServerUse> {
        Self::used(self).and_then(|used| used.server)
    }

    fn rss_bytes(&self) -> Option<u64> {
        Self::used(self).and_then(|used| used.rss_bytes)
    }

    fn throttled_periods(&self) -> u64 {
        Self::used(self).map_or(0, |used| used.throttled_periods)
    }
}

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
        let (sender, from) = sync_channel(WAITING_MAX);
        let awaited = Arc::new(AtomicU64::new(NO_REQUEST));
        let events_left = Arc::new(AtomicU64::new(EVENTS_A_LAUNCH));
        let listener = Listener {
            who: start.who.to_owned(),
            to: sender,
            awaited: awaited.clone(),
            events: start.events.clone(),
            events_left: events_left.clone(),
        };
        let reader = std::thread::Builder::new().name("agent".into());
        if let Err(error) = reader.spawn(move || listener.listen(out)) {
            return cannot(error.to_string());
        }
        let (lines, outbox) = channel();
        let writer = std::thread::Builder::new().name("to-agent".into());
        if let Err(error) = writer.spawn(move || write(to, &outbox)) {
            return cannot(error.to_string());
        }
        let to = Some(lines);
        let mut ends = Ends { running, to, silent: false, from, awaited, events_left };
        let limit = monotonic_now() + patience;
        let hello = loop {
            match ends.from.recv_timeout(LOOK) {
                Ok(Heard::Hello(tare, hello)) => break (tare, *hello),
                Ok(_) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let how = ends.last_words();
                    return cannot(how);
                }
            }
            if stop.load(Ordering::Relaxed) {
                ends.end(DurationNs::ZERO);
                return cannot("interrupted".into());
            }
            if monotonic_now() > limit {
                ends.end(DurationNs::ZERO);
                let words = ends.running.last_words();
                return cannot(format!("no word from its agent within {patience}{words}"));
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
        Ok(Self { who, hello, next: AtomicU64::new(1), ends, stop: stop.clone(), fate: None })
    }

    /// Who is to be asked where it is gone.
    pub fn tell_fate(&mut self, ask: AskFate) {
        self.fate = Some(Fate(ask));
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
        if matches!(request, Request::Start { .. }) {
            ends.events_left.store(EVENTS_A_LAUNCH, Ordering::Relaxed);
        }
        ends.awaited.store(id, Ordering::Release);
        ends.say(&ToAgent { tare: PROTOCOL, id, request }).map_err(|_| self.lost(&mut ends))?;
        let mut limit = monotonic_now() + patience;
        let mut told = false;
        loop {
            match ends.from.recv_timeout(LOOK) {
                Ok(Heard::Done(value)) => {
                    return serde_json::from_str(value.get()).map_err(|error| {
                        self.environment(format!("its agent's answer is not understood: {error}"))
                    });
                }
                Ok(Heard::Failed(failed)) => return Err(failed.into()),
                Ok(Heard::TooLong) => {
                    ends.silent = true;
                    let mebibytes = ANSWER_BYTES_MAX >> 20;
                    let text = format!("its agent sent a line of more than {mebibytes} MiB");
                    return Err(self.environment(text));
                }
                Ok(Heard::Other(other)) => {
                    ends.silent = true;
                    let text =
                        format!("its agent greeted in protocol {PROTOCOL} and now speaks {other}");
                    return Err(self.environment(text));
                }
                Ok(Heard::Hello(..)) | Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost(&mut ends)),
            }
            if self.stop.load(Ordering::Relaxed) && !told {
                told = true;
                limit = limit.min(monotonic_now() + PATIENCE_OF_STOPPING);
                let cancel = ToAgent { tare: PROTOCOL, id: 0, request: Request::Cancel };
                let _ = ends.say(&cancel);
            }
            if monotonic_now() > limit {
                ends.silent = true;
                return Err(self.did_not_answer(&format!("within {patience}")));
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

    /// Why there is nobody to ask any more; `None` where there still is after so long: the end of a
    /// place far away is heard a little late.
    pub fn gone(&self, patience: DurationNs) -> Option<LabError> {
        let mut ends = self.ends.lock().unwrap_or_else(|e| e.into_inner());
        if ends.silent {
            return Some(self.did_not_answer("in time"));
        }
        ends.running.ends_within(patience).then(|| self.lost(&mut ends))
    }

    fn environment(&self, text: String) -> LabError {
        LabError::Environment(format!("{}: {text}", self.who))
    }

    fn did_not_answer(&self, when: &str) -> LabError {
        let fate = self.fate.as_ref().and_then(|fate| fate.0());
        let fate = fate.map_or(String::new(), |fate| format!(": {fate}"));
        self.environment(format!("its agent did not answer {when}{fate}"))
    }

    fn lost(&self, ends: &mut Ends) -> LabError {
        let words = ends.last_words();
        let fate = self.fate.as_ref().and_then(|fate| fate.0());
        self.environment(match fate {
            Some(fate) => format!("the place is gone: {fate}"),
            None => format!("the place is gone: {words}"),
        })
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
        let grace = if self.silent { DurationNs::ZERO } else { commands::patience(grace) };
        if !self.running.ends_within(grace) {
            self.running.signal(libc::SIGKILL);
        }
        if self.running.ends_within(commands::patience(GRACE)) {
            self.running.status();
            self.running.forget_if_gone();
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
    let alive = ToAgent { tare: PROTOCOL, id: NO_REQUEST, request: Request::Alive };
    let alive = serde_json::to_string(&alive).unwrap_or_default() + "\n";
    loop {
        let line = match outbox.recv_timeout(ALIVE_EVERY) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => alive.clone(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if to.write_all(line.as_bytes()).is_err() {
            return;
        }
    }
}

impl From<Failed> for LabError {
    fn from(failed: Failed) -> Self {
        let safe = |text: String| plain::line(&text).into_owned();
        match failed {
            Failed::Usage(text) => Self::Usage(safe(text)),
            Failed::Environment(text) => Self::Environment(safe(text)),
            Failed::Target(text) => Self::Target(safe(text)),
        }
    }
}

/// Sorts what an agent says: events to the run's log, the awaited answer to who asked. An agent in
/// another's place may say anything, at any speed: only this much of it is kept.
struct Listener {
    who: String,
    to: SyncSender<Heard>,
    awaited: Arc<AtomicU64>,
    events: Sender<Event>,
    events_left: Arc<AtomicU64>,
}

impl Listener {
    fn listen(&self, out: ChildStdout) {
        let mut reader = BufReader::with_capacity(64 << 10, out);
        let mut line = Vec::new();
        let (mut strange, mut strays, mut greeted) = (0, 0, false);
        while strange < STRANGE_LINES_MAX && strays < STRAYS_MAX {
            line.clear();
            line.shrink_to(64 << 10);
            let most = if greeted { ANSWER_BYTES_MAX } else { HELLO_BYTES_MAX };
            let read = reader.by_ref().take(most).read_until(b'\n', &mut line);
            if !read.as_ref().is_ok_and(|n| *n > 0) {
                return;
            }
            if greeted && line.len() as u64 == most && !line.ends_with(b"\n") {
                let _ = self.to.try_send(Heard::TooLong);
                return;
            }
            match serde_json::from_slice::<HeardLine<'_>>(&line) {
                // Not an agent's word: whoever speaks before it.
                Err(_) => strange += 1,
                Ok(HeardLine { tare, .. }) if greeted && tare != PROTOCOL => {
                    let _ = self.to.try_send(Heard::Other(tare));
                    return;
                }
                Ok(HeardLine { event: Some(event), .. }) => self.on_event(event),
                Ok(HeardLine { hello: Some(_), .. }) if greeted => strays += 1,
                Ok(HeardLine { tare, hello: Some(hello), .. }) => {
                    greeted = true;
                    let Ok(hello) = serde_json::from_str(hello.get()) else { return };
                    if self.to.try_send(Heard::Hello(tare, hello)).is_err() {
                        return;
                    }
                }
                Ok(heard) => match self.pass_on(heard) {
                    Passed::On => {}
                    Passed::Unasked => strays += 1,
                    Passed::Disconnected => return,
                },
            }
        }
    }

    fn pass_on(&self, heard: HeardLine<'_>) -> Passed {
        let is_awaited = |id: u64| {
            id != NO_REQUEST
                && self
                    .awaited
                    .compare_exchange(id, NO_REQUEST, Ordering::AcqRel, Ordering::Relaxed)
                    .is_ok()
        };
        let message = match heard {
            HeardLine { done: Some(answer), .. } if is_awaited(answer.id) => {
                Heard::Done(answer.value.to_owned())
            }
            HeardLine { failed: Some(failure), .. } if is_awaited(failure.id) => {
                Heard::Failed(failure.failed)
            }
            _ => return Passed::Unasked,
        };
        match self.to.try_send(message) {
            Ok(()) => Passed::On,
            Err(TrySendError::Full(_)) => Passed::Unasked,
            Err(TrySendError::Disconnected(_)) => Passed::Disconnected,
        }
    }

    fn on_event(&self, event: Event) {
        let less = |left: u64| left.checked_sub(1);
        let Ok(left) = self.events_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
        else {
            return;
        };
        let text: String = match left {
            1 => "(further events of this launch are not kept)".into(),
            _ => event.text.chars().take(EVENT_CHARS_MAX).collect(),
        };
        let text = plain::line(&text).into_owned();
        let _ = self.events.send(Event { unix_ms: event.unix_ms, who: self.who.clone(), text });
    }
}

/// What became of a line.
enum Passed {
    On,
    Unasked,
    Disconnected,
}

#[cfg(test)]
mod tests;
