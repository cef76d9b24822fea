//! A server that stands already: a launch is a command that starts it afresh, run to its end.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::samples::ServerUse;
use tare_model::servers::StandingSpec;

use super::ServerKind;
use crate::commands;
use crate::context::LaunchContext;
use crate::error::LabError;
use crate::launch_spec::LaunchSpec;
use crate::local::answers;
use crate::meter::{FarMeter, Meter};
use crate::server::Server;

const SHELL: &str = "/bin/sh";
const LISTEN_CHECK: DurationNs = DurationNs::from_ms(20);

impl ServerKind for StandingSpec {
    fn describe(&self) -> Result<String, LabError> {
        Ok(format!("stands already; at each launch: {}", self.relaunch))
    }

    fn needs(&self) -> Result<Vec<PathBuf>, LabError> {
        Ok(Vec::new())
    }

    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, LabError> {
        let argv = vec![SHELL.into(), "-c".into(), self.relaunch.clone()];
        Ok(context.launch_spec(argv, context.address()?, self.limit()?))
    }
}

/// It was started afresh; tare does not see what it uses, and leaves it standing.
#[derive(Debug)]
pub struct StandingServer {
    who: String,
    address: SocketAddr,
    limit: Instant,
}

impl StandingServer {
    pub fn start(who: &str, launch_spec: &LaunchSpec) -> Result<Self, LabError> {
        let limit = monotonic_now() + launch_spec.ready_within();
        let argv: Vec<&str> = launch_spec.argv.iter().map(String::as_str).collect();
        let outcome = commands::run(&argv, launch_spec.ready_within());
        if !outcome.worked {
            let text = format!("{who}: relaunch did not work: {}", outcome.said);
            return Err(LabError::Environment(text));
        }
        Ok(Self { who: who.to_owned(), address: launch_spec.address, limit })
    }
}

impl Server for StandingServer {
    fn wait_until_listening(&mut self, stop: &AtomicBool) -> Result<(), LabError> {
        while !answers(self.address) && !stop.load(Ordering::Relaxed) {
            self.not_yet(self.limit)?;
        }
        Ok(())
    }

    fn not_yet(&mut self, limit: Instant) -> Result<(), LabError> {
        if monotonic_now() > limit {
            let (who, address) = (&self.who, self.address);
            let text = format!("{who}: after relaunch, no good reply from {address} in time");
            return Err(LabError::Environment(text));
        }
        std::thread::park_timeout(std::time::Duration::from_nanos(LISTEN_CHECK.as_ns()));
        Ok(())
    }

    fn is_alive(&self) -> bool {
        true
    }

    fn meter(&self) -> Meter {
        Meter::far(Arc::new(Unseen))
    }

    fn logged(&self) -> (u64, u64) {
        (0, 0)
    }

    fn page(&self, _address: SocketAddr, _path: &str) -> Option<String> {
        None
    }

    fn lines(&self, _path: &Path) -> Option<u64> {
        None
    }

    fn ask_to_stop(&mut self) {}

    fn stop(&mut self) {}
}

/// What runs elsewhere under somebody else is not to be read.
#[derive(Debug)]
struct Unseen;

impl FarMeter for Unseen {
    fn used(&self) -> Option<ServerUse> {
        None
    }

    fn rss_bytes(&self) -> Option<u64> {
        None
    }
}
