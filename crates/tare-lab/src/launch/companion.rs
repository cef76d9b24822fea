//! A process that a server needs beside it: started before it, ended after it.

use std::path::Path;

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};

use crate::executor::local::HostContext;
use crate::executor::running::{Running, Start};
use crate::launch::spec::CompanionSpec;
use tare_model::Failure;

#[derive(Debug)]
pub struct Companion(Running);

const READY_WITHIN: DurationNs = DurationNs::from_secs(5);
const READY_CHECK: DurationNs = DurationNs::from_us(500);
/// How long it may take to end when asked; then it is killed.
const GRACE: DurationNs = DurationNs::from_secs(2);

impl Companion {
    /// Starts it, and waits until it is ready.
    pub fn start(spec: &CompanionSpec, folder: &Path, host: &HostContext) -> Result<Self, Failure> {
        // In a place its journal is removed with the place; on this machine `tare clean` must find
        // it. Filters, which need a companion, do not run on ssh hosts.
        let data = ("XDG_DATA_HOME".to_owned(), folder.display().to_string());
        let env = if host.journal.is_none() { vec![data] } else { Vec::new() };
        let running = Running::start(&Start {
            who: &format!("{}, controller", host.who),
            argv: &spec.argv,
            env: &env,
            cpus: &host.cpus,
            journal: host.journal.as_ref(),
            entrances: &[],
            events: &host.events,
            talks: false,
        })?;
        let mut companion = Self(running);
        let limit = monotonic_now() + READY_WITHIN;
        while !spec.ready.exists() {
            companion.wait_until_ready(limit, &host.who)?;
        }
        Ok(companion)
    }

    fn wait_until_ready(&mut self, limit: Instant, who: &str) -> Result<(), Failure> {
        let ended = self.0.ends_within(READY_CHECK);
        if ended {
            self.0.end_drains();
        }
        if ended || monotonic_now() > limit {
            let words = self.0.last_words();
            let text = format!("{who}: its controller did not start{words}");
            return Err(Failure::environment(text));
        }
        Ok(())
    }
}

impl Drop for Companion {
    fn drop(&mut self) {
        self.0.signal(libc::SIGTERM);
        if !self.0.ends_within(GRACE) {
            self.0.signal(libc::SIGKILL);
            self.0.ends_within(GRACE);
        }
        self.0.status();
        self.0.forget_if_gone();
        self.0.end_drains();
    }
}
