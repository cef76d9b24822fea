//! The two ends of the stream: requests come in, answers and events go out, each a line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex};

use serde_json::Value;
use tare_lab::Event;
use tare_lab::agent::REQUEST_BYTES_MAX;
use tare_lab::agent::protocol::{Failed, FromAgent, Hello, Message, PROTOCOL, Request, ToAgent};

pub type From = Box<dyn Read + Send>;
pub type To = Box<dyn Write + Send>;

pub fn standard() -> (From, To) {
    (Box::new(io::stdin()), Box::new(io::stdout()))
}

/// Requests in the order they come; the end of the stream is the end of all. What is to happen
/// between two answers happens here: `Cancel`, and the stream's end.
pub fn listen(from: From, stop: Arc<AtomicBool>) -> io::Result<Receiver<(u64, Request)>> {
    let (sender, requests) = channel();
    let work = move || {
        let mut reader = BufReader::with_capacity(64 << 10, from);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read = reader.by_ref().take(REQUEST_BYTES_MAX).read_until(b'\n', &mut line);
            let whole = read.is_ok() && line.ends_with(b"\n");
            let message = whole.then(|| ToAgent::parse(&line)).and_then(|parsed| match parsed {
                Ok(message) => Some(message),
                Err(why) => {
                    eprintln!("tare-agent: {why}");
                    None
                }
            });
            // A stream that cannot be followed has ended.
            let Some(message) = message else { break };
            match message.request {
                Request::Cancel => stop.store(true, Ordering::Relaxed),
                request => {
                    if sender.send((message.id, request)).is_err() {
                        break;
                    }
                }
            }
        }
        stop.store(true, Ordering::Relaxed);
    };
    std::thread::Builder::new().name("stream".into()).spawn(work)?;
    Ok(requests)
}

/// Where lines are written, one after another.
#[derive(Clone)]
pub struct Outgoing(Arc<Mutex<To>>);

impl Outgoing {
    pub fn new(to: To) -> Self {
        Self(Arc::new(Mutex::new(to)))
    }

    fn say(&self, message: Message) -> io::Result<()> {
        let line = serde_json::to_string(&FromAgent { tare: PROTOCOL, message })? + "\n";
        let mut to = self.0.lock().unwrap_or_else(|e| e.into_inner());
        to.write_all(line.as_bytes())?;
        to.flush()
    }

    pub fn hello(&self, hello: Hello) -> io::Result<()> {
        self.say(Message::Hello(Box::new(hello)))
    }

    pub fn answer(&self, id: u64, answer: Result<Value, Failed>) -> io::Result<()> {
        self.say(match answer {
            Ok(value) => Message::Done { id, value },
            Err(failed) => Message::Failed { id, failed },
        })
    }

    /// What servers say, as it comes.
    pub fn events(&self) -> Sender<Event> {
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
