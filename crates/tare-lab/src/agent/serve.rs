//! The agent's end of the stream: requests come in, answers and events go out, one per line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::REQUEST_BYTES_MAX;
use super::protocol::{AgentCommand, FromAgent, Hello, Message, PROTOCOL, ToAgent};
use crate::event::Event;
use crate::executor::requests::Request;
use crate::executor::{Executor, ExecutorPlan, OnServerEnd};
use crate::journal::Journal;
use crate::meters::groups::Group;
use tare_model::Failure;

pub type AgentReader = Box<dyn Read + Send>;
pub type To = Box<dyn Write + Send>;

/// An agent's settings.
#[derive(Debug)]
pub struct AgentSetup {
    pub hello: Hello,
    /// Control group of its container, by which it meters servers.
    pub own_group: Option<Group>,
    /// Whether it ends all that servers leave behind: this process has no other children.
    pub ends_orphans: bool,
    /// The agent ends after this long without a message from tare.
    pub lonely_after: Duration,
    /// Records what it starts, if its place outlives it.
    pub journal: Option<Journal>,
}

/// Limit of concurrent requests; more are rejected.
const REQUESTS_MAX: usize = 256;

/// How often to check, at the end, whether requests in progress have ended.
const ENDING_LOOKS: u32 = 600;
const ENDING_LOOK: Duration = Duration::from_millis(5);

/// Executes requests, each in its own thread, until the stream ends; then ends everything that was
/// started.
pub fn serve(from: AgentReader, to: To, served: AgentSetup) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    let to = Outgoing(Arc::new(Mutex::new(to)));
    to.say(Message::Hello(Box::new(served.hello))).map_err(|error| error.to_string())?;
    let words = listen(from, stop.clone()).map_err(|error| error.to_string())?;
    let executor = Arc::new(Executor::new(ExecutorPlan {
        stop: stop.clone(),
        on_end: to.ends(),
        events: to.events(),
        journal: served.journal.as_ref().map(Journal::entries),
        own_group: served.own_group,
        ends_orphans: served.ends_orphans,
    }));
    let under_way = Arc::new(AtomicUsize::new(0));
    loop {
        match words.recv_timeout(served.lonely_after) {
            Ok((id, AgentCommand::Ask(request))) => {
                carry_out(id, request, &executor, &to, &under_way)
            }
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    stop.store(true, Ordering::Relaxed);
    // A server that is still starting is not registered yet, so it could not be ended.
    for _ in 0..ENDING_LOOKS {
        if under_way.load(Ordering::Relaxed) == 0 {
            break;
        }
        std::thread::park_timeout(ENDING_LOOK);
    }
    executor.end();
    drop(served.journal);
    Ok(())
}

fn carry_out(
    id: u64,
    request: Request,
    executor: &Arc<Executor>,
    to: &Outgoing,
    under_way: &Arc<AtomicUsize>,
) {
    if under_way.fetch_add(1, Ordering::Relaxed) >= REQUESTS_MAX {
        under_way.fetch_sub(1, Ordering::Relaxed);
        let text = format!("more than {REQUESTS_MAX} requests at a time");
        return to.answer(id, Err(Failure::usage(text)));
    }
    let (executor, answers, left) = (executor.clone(), to.clone(), under_way.clone());
    let work = move || {
        let carry_out = std::panic::AssertUnwindSafe(|| request.carry_out(&executor));
        let answer = std::panic::catch_unwind(carry_out)
            .unwrap_or_else(|_| Err(Failure::bug("the agent panicked")));
        left.fetch_sub(1, Ordering::Relaxed);
        answers.answer(id, answer);
    };
    if let Err(error) = std::thread::Builder::new().name("request".into()).spawn(work) {
        under_way.fetch_sub(1, Ordering::Relaxed);
        let text = format!("cannot start a thread: {error}");
        to.answer(id, Err(Failure::environment(text)));
    }
}

/// Receives tare's messages in order. `Cancel` and the end of the stream take effect here at once.
fn listen(from: AgentReader, stop: Arc<AtomicBool>) -> io::Result<Receiver<(u64, AgentCommand)>> {
    let (sender, words) = channel();
    let work = move || {
        let mut reader = BufReader::with_capacity(64 << 10, from);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line);
            // A broken or overlong line ends the stream.
            if read.is_err() || !line.ends_with(b"\n") {
                break;
            }
            match ToAgent::parse(&line) {
                Ok(ToAgent { word: AgentCommand::Cancel, .. }) => {
                    stop.store(true, Ordering::Relaxed)
                }
                Ok(ToAgent { id, word, .. }) => {
                    if sender.send((id, word)).is_err() {
                        break;
                    }
                }
                Err(why) => {
                    eprintln!("tare-agent: {why}");
                    break;
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("stream".into()).spawn(work)?;
    Ok(words)
}

/// The stream to tare, one line at a time.
#[derive(Clone)]
struct Outgoing(Arc<Mutex<To>>);

impl Outgoing {
    fn say(&self, message: Message) -> io::Result<()> {
        let line = serde_json::to_string(&FromAgent { tare: PROTOCOL, message })? + "\n";
        let mut to = self.0.lock().unwrap_or_else(|e| e.into_inner());
        to.write_all(line.as_bytes())?;
        to.flush()
    }

    /// Ignores errors: the reading thread notices the end of the stream.
    fn answer(&self, id: u64, answer: Result<serde_json::Value, Failure>) {
        let _ = self.say(match answer {
            Ok(value) => Message::Done { id, value },
            Err(failed) => Message::Failed { id, failed },
        });
    }

    /// Returns a callback that reports a server's unexpected end at once.
    fn ends(&self) -> OnServerEnd {
        let to = self.clone();
        Arc::new(move |server, _| drop(to.say(Message::Ended(server))))
    }

    /// Forwards servers' output as it comes.
    fn events(&self) -> Sender<Event> {
        let (sender, events) = channel();
        let to = self.clone();
        // If the thread cannot start, servers' output is lost; they run all the same.
        let _ = std::thread::Builder::new().name("events".into()).spawn(move || {
            for event in events {
                if to.say(Message::Event(event)).is_err() {
                    break;
                }
            }
        });
        sender
    }
}
