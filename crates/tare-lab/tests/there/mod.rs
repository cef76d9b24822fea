//! An agent on a thread of the test process, at the end of a byte stream.

use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::thread::JoinHandle;
use std::time::Duration;

use tare_io::DurationNs;
use tare_lab::Halt;
use tare_lab::agent::protocol::Hello;
use tare_lab::agent::serve::{AgentSetup, serve};
use tare_lab::agent::{Agent, VERSION};
use tare_lab::lab::site::Site;

pub struct There {
    pub site: Site,
    /// Raised when a server there ends by itself.
    #[allow(dead_code)] // Some tests do not use it.
    pub halt: Halt,
    /// The agent's stream, for tests that break it.
    pub stream: UnixStream,
    pub thread: Option<JoinHandle<Result<(), String>>>,
}

impl There {
    pub fn new(name: &str) -> Self {
        let (ours, theirs) = UnixStream::pair().unwrap();
        let stream = theirs.try_clone().unwrap();
        let served = AgentSetup {
            hello: Hello { version: VERSION.into(), ..Hello::default() },
            own_group: None,
            ends_orphans: false,
            lonely_after: Duration::from_secs(60),
            journal: None,
        };
        let far = (Box::new(theirs.try_clone().unwrap()), Box::new(theirs));
        let thread = std::thread::spawn(move || serve(far.0, far.1, served));
        let near = (Box::new(ours.try_clone().unwrap()) as _, Box::new(ours) as _);
        let (events, _unheard) = channel();
        let limit = DurationNs::from_secs(10);
        let halt = Halt::default();
        let agent = Agent::connect(name, near, None, &events, limit, &halt).unwrap();
        Self { halt, site: Site::There(Arc::new(agent)), stream, thread: Some(thread) }
    }

    /// Closes the stream, which ends the agent.
    pub fn end(mut self) {
        self.stream.shutdown(std::net::Shutdown::Both).unwrap();
        self.thread.take().unwrap().join().unwrap().unwrap();
    }
}
