//! The load engine against the target, on a simulated network.

use std::net::SocketAddr;

use tare_io::{DurationNs, Endpoint, Instant, Reactor, Wait};
use tare_load::engine::{Engine, IntervalSink, Life, Next, Stretch};
use tare_load::tally::Tally;
use tare_target::behaviour::Behaviour;
use tare_target::server::Server;
use tare_target::stats::Stats;
use tare_target::tls::TlsServer;

use crate::net::{Net, NetOptions, SimReactor};

/// Where the simulated target listens; nothing real does.
pub fn endpoint() -> Endpoint {
    Endpoint::Tcp(SocketAddr::from(([192, 0, 2, 1], 80)))
}

/// The results of a simulated run.
pub struct Outcome {
    /// Connections opened before the stretch.
    pub opening: Tally,
    pub tally: Tally,
    pub life: Life,
    pub stats: Stats,
    pub trace: Vec<String>,
}

pub struct World {
    pub net: NetOptions,
    pub behaviour: Behaviour,
    pub tls: Option<TlsServer>,
    /// If false, connections are refused.
    pub listening: bool,
}

/// Limit of simulated time; a simulation that reaches it hangs.
const TIME_LIMIT: DurationNs = DurationNs::from_secs(3600);
/// Connections the simulated target holds.
const SLOTS: u32 = 4096;

impl World {
    pub fn new(behaviour: Behaviour) -> Self {
        Self { net: NetOptions::default(), behaviour, tls: None, listening: true }
    }

    /// Opens the engine's connections, runs one stretch, closes the connections, and lets the
    /// target notice.
    pub fn run(&self, mut engine: Engine, stretch: Stretch) -> Outcome {
        let net = Net::new(self.net.clone());
        let (mut client_io, mut server_io) = (net.host(), net.host());
        if self.listening {
            server_io.listen(&endpoint());
        }
        let stats = Stats::new(1);
        let behaviour = self.behaviour.clone();
        let mut server =
            Server::new(behaviour, self.tls.clone(), stats.clone(), 0, SLOTS, net.now());
        let mut running = Running {
            net,
            client_io: &mut client_io,
            server_io: &mut server_io,
            server: &mut server,
            server_wake: Instant::ZERO,
        };
        engine.open(running.client_io);
        running.until_finished(&mut engine);
        let opening = engine.tally().clone();
        engine.begin(stretch, running.net.now());
        running.until_finished(&mut engine);
        let (tally, life) = (engine.tally().clone(), engine.ended_life());
        engine.close(running.client_io);
        running.settle();
        Outcome { opening, tally, life, stats, trace: running.net.trace() }
    }
}

struct Running<'a> {
    net: Net,
    client_io: &'a mut SimReactor,
    server_io: &'a mut SimReactor,
    server: &'a mut Server,
    server_wake: Instant,
}

impl Running<'_> {
    fn until_finished(&mut self, engine: &mut Engine) {
        let give_up = self.net.now() + TIME_LIMIT;
        let mut happened = Vec::new();
        loop {
            assert!(self.net.now() < give_up, "the simulation hangs");
            take(self.client_io, &mut happened);
            let Next::Wait(wait) = engine.turn(self.client_io, &mut happened, &mut OneInterval)
            else {
                return;
            };
            self.advance(wait);
        }
    }

    /// Delivers what is under way.
    fn settle(&mut self) {
        for _ in 0..1000 {
            let next = self.net.next_event();
            if next == Instant::FAR {
                return;
            }
            self.advance(Wait::until(next));
            take(self.client_io, &mut Vec::new());
        }
    }

    /// Moves the clock on until a kernel would wake the client: as many completions as it waits for
    /// have arrived, or at least one has and the linger time is over.
    fn advance(&mut self, wait: Wait) {
        let until = wait.until;
        let lingers = self.net.now() + wait.linger;
        loop {
            let done = self.client_io.completions() as u32;
            let is_late = self.net.now() >= lingers;
            if done >= wait.batch.max(1) || (done > 0 && is_late) {
                return;
            }
            let until = if is_late { until } else { until.min(lingers) };
            let next = until.min(self.net.next_event()).min(self.server_wake);
            assert!(next < Instant::FAR, "everybody waits for ever");
            self.net.advance(next.max(self.net.now()));
            if self.server_io.has_completions() || self.server_wake <= self.net.now() {
                let mut happened = Vec::new();
                take(self.server_io, &mut happened);
                self.server_wake = self.server.turn(self.server_io, &mut happened).until;
            }
            if self.net.now() >= wait.until {
                return;
            }
        }
    }
}

fn take(io: &mut SimReactor, into: &mut Vec<tare_io::Completion>) {
    // Never fails: there is no kernel.
    let taken = io.wait(Wait::until(Instant::ZERO), into);
    assert!(taken.is_ok());
}

/// Keeps everything in one interval.
struct OneInterval;

impl IntervalSink for OneInterval {
    fn exchange(&mut self, _tally: &mut Box<Tally>) -> bool {
        false
    }
}
