//! The far end of the stream: requests come in, answers and events go out, each a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::REQUEST_BYTES_MAX;
use super::protocol::{FromAgent, Hello, Message, PROTOCOL, ToAgent, Word};
use crate::event::Event;
use crate::executor::requests::Request;
use crate::executor::{Executor, ExecutorPlan, OnServerEnd};
use crate::journal::Journal;
use crate::meters::groups::Group;
use tare_model::Failure;

pub type From = Box<dyn Read + Send>;
pub type To = Box<dyn Write + Send>;

/// What an agent is, beside its stream.
#[derive(Debug)]
pub struct Served {
    pub hello: Hello,
    /// The container that it meters servers by.
    pub own_group: Option<Group>,
    /// It has no children but servers and what they leave.
    pub ends_orphans: bool,
    /// It ends where tare has said nothing for so long.
    pub lonely_after: Duration,
    /// What it starts is written down there, where its place does not end with it.
    pub journal: Option<Journal>,
}

/// Requests that are carried out at a time; more are turned down.
const REQUESTS_MAX: usize = 256;

/// How long requests may take to end once nobody waits for them.
const ENDING_LOOKS: u32 = 600;
const ENDING_LOOK: Duration = Duration::from_millis(5);

/// Carries out what is asked, each request in a thread of its own, until the stream ends; then ends
/// everything that was started.
pub fn serve(from: From, to: To, served: Served) -> Result<(), String> {
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
            Ok((id, Word::Ask(request))) => carry_out(id, request, &executor, &to, &under_way),
            Ok(_) => {}
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => break,
        }
    }
    stop.store(true, Ordering::Relaxed);
    // A server that is being started is not held yet: it could not be ended.
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

/// Hears tare's words in the order in which they come. What cannot wait for its turn happens here:
/// `Cancel`, and the end of the stream.
fn listen(from: From, stop: Arc<AtomicBool>) -> io::Result<Receiver<(u64, Word)>> {
    let (sender, words) = channel();
    let work = move || {
        let mut reader = BufReader::with_capacity(64 << 10, from);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line);
            // A stream that cannot be followed has ended.
            if read.is_err() || !line.ends_with(b"\n") {
                break;
            }
            match ToAgent::parse(&line) {
                Ok(ToAgent { word: Word::Cancel, .. }) => stop.store(true, Ordering::Relaxed),
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

/// Where lines are written, one after another.
#[derive(Clone)]
struct Outgoing(Arc<Mutex<To>>);

impl Outgoing {
    fn say(&self, message: Message) -> io::Result<()> {
        let line = serde_json::to_string(&FromAgent { tare: PROTOCOL, message })? + "\n";
        let mut to = self.0.lock().unwrap_or_else(|e| e.into_inner());
        to.write_all(line.as_bytes())?;
        to.flush()
    }

    /// Where nobody listens any more the stream has ended, which is noticed where it is read.
    fn answer(&self, id: u64, answer: Result<serde_json::Value, Failure>) {
        let _ = self.say(match answer {
            Ok(value) => Message::Done { id, value },
            Err(failed) => Message::Failed { id, failed },
        });
    }

    /// Tells tare at once which server ended by itself.
    fn ends(&self) -> OnServerEnd {
        let to = self.clone();
        Arc::new(move |server, _| drop(to.say(Message::Ended(server))))
    }

    /// Passes on what servers say, as it comes.
    fn events(&self) -> Sender<Event> {
        let (sender, events) = channel();
        let to = self.clone();
        // Without a thread servers are not heard; they run all the same.
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
