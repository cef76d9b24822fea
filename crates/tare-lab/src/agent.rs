//! tare's end of the stream to an agent: sends requests concurrently, each with its own timeout,
//! and receives answers and events.

pub mod clock;
pub mod protocol;
pub mod serve;

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, SyncSender, channel, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde_json::value::RawValue;
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_model::plain;

use crate::agent::clock::Offset;
use crate::event::Event;
use crate::executor::requests::{ExecutorRequest, Request};
use crate::executor::running::{Running, Start};
use crate::halt::{Halt, OnEnd};
use crate::machine::commands;
use protocol::{AgentCommand, HeardLine, Hello, PROTOCOL, ToAgent};
use tare_model::{Failure, Fault};

/// A connection to an agent. Dropping it ends the agent and all that the agent started.
#[derive(Debug)]
pub struct Agent {
    /// The place, for messages.
    who: String,
    pub hello: Hello,
    next: AtomicU64,
    /// Queue of the writing thread: an agent that does not read blocks only it. `None` once ended.
    to: Mutex<Option<Sender<String>>>,
    line: Arc<PendingRequests>,
    /// The command that runs the agent.
    command: Mutex<Option<Running>>,
    /// The agent answered late or wrongly, and is sent no further requests.
    silent: AtomicBool,
    /// When raised, requests in progress are cancelled.
    halt: Halt,
    fate: Option<Fate>,
    clock: Mutex<Offset>,
}

/// Explains why a place is gone, better than its last output does.
pub type AskFate = Box<dyn Fn() -> Option<String> + Send + Sync>;

struct Fate(AskFate);

impl std::fmt::Debug for Fate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Fate")
    }
}

/// State that waiting requests share with the receiving thread.
#[derive(Debug, Default)]
struct PendingRequests {
    waiting: Mutex<Waiting>,
    /// How many more events of the current launch are kept.
    events_left: AtomicU64,
    /// tare itself is ending the connection.
    is_closing: AtomicBool,
}

#[derive(Debug, Default)]
struct Waiting {
    greeting: Option<SyncSender<(u32, Hello)>>,
    by_id: BTreeMap<u64, SyncSender<Answer>>,
    /// The stream has ended.
    has_ended: bool,
    /// Why the stream has ended, if the agent is at fault.
    fault: Option<String>,
}

/// An agent's answer, not yet parsed as the expected type.
type Answer = Result<Box<RawValue>, Failure>;

impl PendingRequests {
    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Registers a request and returns where its answer will arrive; `None` if the stream has
    /// ended.
    fn wait_for(&self, id: u64) -> Option<Receiver<Answer>> {
        let (sender, answer) = sync_channel(1);
        let mut waiting = self.waiting();
        if waiting.has_ended {
            return None;
        }
        waiting.by_id.insert(id, sender);
        Some(answer)
    }

    /// Ends all waiting: no further answers will come.
    fn end(&self) {
        let mut waiting = self.waiting();
        waiting.has_ended = true;
        waiting.greeting = None;
        waiting.by_id.clear();
    }
}

/// Default timeout of a request.
pub const TIMEOUT: DurationNs = DurationNs::from_secs(30);
/// Timeout of a request once tare is stopping.
const TIMEOUT_OF_STOPPING: DurationNs = DurationNs::from_secs(5);
/// Interval between checks whether tare is stopping.
const LOOK: Duration = Duration::from_millis(20);
/// How long an agent may take to end what it started, once its stream has ended.
const GRACE: DurationNs = DurationNs::from_secs(8);
/// Longest request; it may contain a server's files.
pub const REQUEST_BYTES_MAX: u64 = 128 << 20;
/// Longest answer: pages, histograms, readings.
const ANSWER_BYTES_MAX: u64 = 16 << 20;
const HELLO_BYTES_MAX: u64 = 64 << 10;
/// Limit of lines that are not an agent's: ssh banners, a kernel's last messages.
const STRANGE_LINES_MAX: usize = 1000;
/// Limit of unexpected answers: a few may be late, more show a faulty agent.
const STRAYS_MAX: usize = 1000;
/// Limit of events kept per launch; tare's own agent stops sooner.
const EVENTS_A_LAUNCH: u64 = 200;
const EVENT_CHARS_MAX: usize = 2000;

/// Converts an agent's failure: verdicts and interruptions are tare's own, not an agent's.
fn blamed_by_agent(failure: Failure) -> Failure {
    let fault = match failure.fault {
        Fault::Usage | Fault::Environment | Fault::Target | Fault::Bug => failure.fault,
        Fault::Gate | Fault::Unresolved | Fault::Void | Fault::Interrupted => Fault::Environment,
    };
    Failure { fault, text: indented(&failure.text) }
}

/// Longest reason for a failed request; it may contain a server's last lines.
const FAILURE_CHARS_MAX: usize = 8000;
/// Keep-alive interval: an agent that hears nothing for longer may assume that tare is gone.
const ALIVE_EVERY: Duration = Duration::from_secs(10);

impl Agent {
    /// Runs a command that starts an agent on its standard input and output.
    pub fn start(start: &Start<'_>, timeout: DurationNs, halt: &Halt) -> Result<Self, Failure> {
        let mut running = Running::start(start)?;
        let Some((to, from)) = running.conversation() else {
            let text = format!("{}: the place has no standard input and output", start.who);
            return Err(Failure::environment(text));
        };
        let stream = (Box::new(from) as serve::AgentReader, Box::new(to) as serve::To);
        Self::connect(start.who, stream, Some(running), start.events, timeout, halt)
    }

    /// Waits for the greeting of the agent at the other end of a stream.
    pub fn connect(
        who: &str,
        (from, to): (serve::AgentReader, serve::To),
        command: Option<Running>,
        events: &Sender<Event>,
        timeout: DurationNs,
        halt: &Halt,
    ) -> Result<Self, Failure> {
        let line = Arc::new(PendingRequests::default());
        line.events_left.store(EVENTS_A_LAUNCH, Ordering::Relaxed);
        let (greeting, hello) = sync_channel(1);
        line.waiting().greeting = Some(greeting);
        let listener = Listener {
            who: who.to_owned(),
            line: line.clone(),
            events: events.clone(),
            on_end: halt.on_end(),
        };
        let (lines, outbox) = channel();
        let mut agent = Self {
            who: who.to_owned(),
            hello: Hello::default(),
            next: AtomicU64::new(1),
            to: Mutex::new(Some(lines)),
            line,
            command: Mutex::new(command),
            silent: AtomicBool::new(false),
            halt: halt.clone(),
            fate: None,
            clock: Mutex::default(),
        };
        let cannot = |agent: &Self, text: String| {
            agent.end_within(DurationNs::ZERO);
            Err(agent.environment(format!("the place did not start: {text}")))
        };
        let named = |name: &str| std::thread::Builder::new().name(name.into());
        let heard = named("agent").spawn(move || listener.listen(from));
        let wrote = named("to-agent").spawn(move || write(to, &outbox));
        if let Some(error) = heard.err().or(wrote.err()) {
            return cannot(&agent, error.to_string());
        }
        let limit = monotonic_now() + timeout;
        let (protocol, hello) = loop {
            match hello.recv_timeout(LOOK) {
                Ok(heard) => break heard,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => {
                    let how = agent.last_words();
                    return cannot(&agent, how);
                }
            }
            if halt.is_raised() {
                return cannot(&agent, "interrupted".into());
            }
            if monotonic_now() > limit {
                agent.end_within(DurationNs::ZERO);
                let words = agent.command().as_ref().map_or(String::new(), Running::last_words);
                return cannot(&agent, format!("no word from its agent within {timeout}{words}"));
            }
        };
        if protocol != PROTOCOL || hello.version != VERSION {
            let text = format!(
                "its agent is version {} (protocol {protocol}), this tare is {VERSION} (protocol \
                 {PROTOCOL}): build both from one source (make agent)",
                plain::short(&hello.version, 50)
            );
            return cannot(&agent, text);
        }
        agent.hello = hello;
        Ok(agent)
    }

    /// Sets the function that explains why the place is gone.
    pub fn set_fate_lookup(&mut self, ask: AskFate) {
        self.fate = Some(Fate(ask));
    }

    pub fn who(&self) -> &str {
        &self.who
    }

    /// Returns the last known offset of its clocks from this process's.
    pub fn clock(&self) -> Offset {
        *self.clock.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn set_clock(&self, offset: Offset) {
        *self.clock.lock().unwrap_or_else(|e| e.into_inner()) = offset;
    }

    pub fn ask<A: ExecutorRequest>(
        &self,
        request: A,
        timeout: DurationNs,
    ) -> Result<A::Reply, Failure> {
        let reply = self.ask_any(request.into(), timeout)?;
        serde_json::from_str(reply.get()).map_err(|error| {
            let why = plain::short(&error.to_string(), EVENT_CHARS_MAX);
            self.environment(format!("its agent's answer is not understood: {why}"))
        })
    }

    fn ask_any(&self, request: Request, timeout: DurationNs) -> Result<Box<RawValue>, Failure> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        if self.silent.load(Ordering::Relaxed) {
            return Err(self.environment("its agent does not answer".into()));
        }
        if matches!(request, Request::Start { .. }) {
            self.line.events_left.store(EVENTS_A_LAUNCH, Ordering::Relaxed);
        }
        let Some(answer) = self.line.wait_for(id) else { return Err(self.lost()) };
        if let Err(error) = self.say(id, AgentCommand::Ask(request)) {
            self.line.waiting().by_id.remove(&id);
            return Err(error);
        }
        let mut limit = monotonic_now() + timeout;
        let mut told = false;
        loop {
            match answer.recv_timeout(LOOK) {
                Ok(answer) => return answer,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return Err(self.lost()),
            }
            if self.halt.is_raised() && !told {
                told = true;
                limit = limit.min(monotonic_now() + TIMEOUT_OF_STOPPING);
                let _ = self.say(0, AgentCommand::Cancel);
            }
            if monotonic_now() > limit {
                self.line.waiting().by_id.remove(&id);
                self.silent.store(true, Ordering::Relaxed);
                return Err(self.did_not_answer(&format!("within {timeout}")));
            }
        }
    }

    fn say(&self, id: u64, word: AgentCommand) -> Result<(), Failure> {
        let message = serde_json::to_string(&ToAgent { tare: PROTOCOL, id, word });
        // Only a load with scripted requests cannot be serialised.
        let line = message.map_err(|error| {
            Failure::usage(format!("{}: this stays where tare runs: {error}", self.who))
        })?;
        let to = self.to.lock().unwrap_or_else(|e| e.into_inner());
        let sent = to.as_ref().is_some_and(|to| to.send(line + "\n").is_ok());
        if sent { Ok(()) } else { Err(self.lost()) }
    }

    /// Ends the connection, and waits until the place is gone.
    pub fn end(&self) {
        self.end_within(GRACE);
    }

    pub fn is_alive(&self) -> bool {
        match &*self.command() {
            Some(running) => !running.ends_within(DurationNs::ZERO),
            None => !self.line.waiting().has_ended,
        }
    }

    /// The pid, on this machine, of the command that runs the agent.
    pub fn pid(&self) -> Option<u32> {
        self.command().as_ref().map(Running::id)
    }

    /// Returns why the agent is gone; `None` if it is still there after `timeout`. The end of a
    /// remote place is noticed with a delay.
    pub fn loss_within(&self, timeout: DurationNs) -> Option<Failure> {
        if self.silent.load(Ordering::Relaxed) {
            return Some(self.did_not_answer("in time"));
        }
        let has_ended = match &*self.command() {
            Some(running) => running.ends_within(timeout),
            None => self.line.waiting().has_ended,
        };
        has_ended.then(|| self.lost())
    }

    fn command(&self) -> MutexGuard<'_, Option<Running>> {
        self.command.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn environment(&self, text: String) -> Failure {
        Failure::environment(format!("{}: {text}", self.who))
    }

    fn did_not_answer(&self, when: &str) -> Failure {
        let fate = self.fate.as_ref().and_then(|fate| fate.0());
        let fate = fate.map_or(String::new(), |fate| format!(": {fate}"));
        self.environment(format!("its agent did not answer {when}{fate}"))
    }

    fn lost(&self) -> Failure {
        if let Some(fault) = self.line.waiting().fault.clone() {
            self.silent.store(true, Ordering::Relaxed);
            return self.environment(fault);
        }
        let words = self.last_words();
        let fate = self.fate.as_ref().and_then(|fate| fate.0());
        self.environment(format!("the place is gone: {}", fate.unwrap_or(words)))
    }

    /// Describes how the agent's command ended.
    fn last_words(&self) -> String {
        let mut command = self.command();
        let Some(running) = &mut *command else { return "its stream ended".into() };
        let how = match running.ends_within(DurationNs::from_secs(2)) {
            true => running.status().map_or(String::new(), |status| status.to_string()),
            false => "its stream ended".into(),
        };
        running.end_drains();
        format!("{how}{}", running.last_words())
    }

    fn end_within(&self, grace: DurationNs) {
        self.line.is_closing.store(true, Ordering::Relaxed);
        *self.to.lock().unwrap_or_else(|e| e.into_inner()) = None;
        let silent = self.silent.load(Ordering::Relaxed);
        let grace = if silent { DurationNs::ZERO } else { commands::remaining_time(grace) };
        let mut command = self.command();
        let Some(running) = &mut *command else { return };
        if !running.ends_within(grace) {
            running.signal(libc::SIGKILL);
        }
        if running.ends_within(commands::remaining_time(GRACE)) {
            running.status();
            running.forget_if_gone();
            running.end_drains();
        }
    }
}

/// Agents must have the same version as tare.
pub const VERSION: &str = env!("CARGO_PKG_VERSION");

impl Drop for Agent {
    fn drop(&mut self) {
        self.end();
    }
}

/// Writes queued lines, or keep-alives, until all senders are gone; then the stream ends.
fn write(mut to: serve::To, outbox: &Receiver<String>) {
    let alive = ToAgent { tare: PROTOCOL, id: 0, word: AgentCommand::Alive };
    let alive = serde_json::to_string(&alive).unwrap_or_default() + "\n";
    loop {
        let line = match outbox.recv_timeout(ALIVE_EVERY) {
            Ok(line) => line,
            Err(RecvTimeoutError::Timeout) => alive.clone(),
            Err(RecvTimeoutError::Disconnected) => return,
        };
        if to.write_all(line.as_bytes()).and_then(|()| to.flush()).is_err() {
            return;
        }
    }
}

/// Dispatches an agent's messages: events to the run's log, answers to waiting requests. An agent
/// may be foreign and send anything at any rate, so only a limited amount is kept.
struct Listener {
    who: String,
    line: Arc<PendingRequests>,
    events: Sender<Event>,
    on_end: OnEnd,
}

impl Listener {
    fn listen(&self, from: serve::AgentReader) {
        let mut greeted = false;
        let fault = self.hear(from, &mut greeted).err();
        self.line.waiting().fault = fault;
        self.line.end();
        // Without a greeting the place did not start; its caller may try another way, as a VM does
        // when KVM fails.
        if greeted && !self.line.is_closing.load(Ordering::Relaxed) {
            (self.on_end)(&self.who);
        }
    }

    /// Receives until the stream ends; an error is the agent's fault.
    fn hear(&self, from: serve::AgentReader, greeted: &mut bool) -> Result<(), String> {
        let mut reader = BufReader::with_capacity(64 << 10, from);
        let mut line = Vec::new();
        let (mut strange, mut strays) = (0, 0);
        while strange < STRANGE_LINES_MAX && strays < STRAYS_MAX {
            line.clear();
            line.shrink_to(64 << 10);
            let most = if *greeted { ANSWER_BYTES_MAX } else { HELLO_BYTES_MAX };
            let read = reader.by_ref().take(most).read_until(b'\n', &mut line);
            if !read.as_ref().is_ok_and(|n| *n > 0) {
                return Ok(());
            }
            if *greeted && line.len() as u64 == most && !line.ends_with(b"\n") {
                let mebibytes = ANSWER_BYTES_MAX >> 20;
                return Err(format!("its agent sent a line of more than {mebibytes} MiB"));
            }
            match serde_json::from_slice::<HeardLine<'_>>(&line) {
                // Not an agent's message: some programs print before the agent starts.
                Err(_) => strange += 1,
                Ok(HeardLine { tare, .. }) if *greeted && tare != PROTOCOL => {
                    return Err(format!(
                        "its agent greeted in protocol {PROTOCOL} and now speaks {tare}"
                    ));
                }
                Ok(HeardLine { event: Some(event), .. }) => self.on_event(event),
                Ok(HeardLine { ended: Some(_), .. }) => (self.on_end)(&self.who),
                Ok(HeardLine { hello: Some(_), .. }) if *greeted => strays += 1,
                Ok(HeardLine { tare, hello: Some(hello), .. }) => {
                    *greeted = true;
                    // Another protocol's greeting may not parse; its number is enough.
                    let hello = serde_json::from_str(hello.get()).unwrap_or_default();
                    let greeting = self.line.waiting().greeting.take();
                    if let Some(to) = greeting {
                        let _ = to.try_send((tare, hello));
                    }
                }
                Ok(heard) => strays += usize::from(!self.pass_on(heard)),
            }
        }
        Ok(())
    }

    /// Delivers an answer; returns whether a request was waiting for it.
    fn pass_on(&self, heard: HeardLine<'_>) -> bool {
        let waits = |id: u64| self.line.waiting().by_id.remove(&id);
        match heard {
            HeardLine { done: Some(answer), .. } => {
                waits(answer.id).is_some_and(|to| to.try_send(Ok(answer.value.to_owned())).is_ok())
            }
            HeardLine { failed: Some(failure), .. } => waits(failure.id).is_some_and(|to| {
                let failed = blamed_by_agent(failure.failed);
                to.try_send(Err(failed)).is_ok()
            }),
            _ => false,
        }
    }

    fn on_event(&self, event: Event) {
        let less = |left: u64| left.checked_sub(1);
        let Ok(left) =
            self.line.events_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less)
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

/// Indents a failure's lines after the first, so that a server's output in it cannot be mistaken
/// for tare's.
fn indented(text: &str) -> String {
    let cut: String = text.chars().take(FAILURE_CHARS_MAX).collect();
    let lines: Vec<String> =
        cut.lines().map(|line| plain::line(line.trim()).into_owned()).collect();
    lines.join("\n    ")
}

#[cfg(test)]
mod tests;
