//! Servers with known habits on one simulated CPU, measured as `tare run` does: in slices with
//! rests between them, and under sustained load.

use tare_io::{DurationNs, Instant, Random};
use tare_model::counters::{Counter, Counters};
use tare_model::samples::{AtRest, Counts, Launch, Ramps, Round, Slice};
use tare_model::sustained::{Bin, Sustained, WarmUp};
use tare_model::usage::Usage;
use tare_stats::idle::{WATCH_NS, at_rest};
use tare_stats::slicing::LONGER_MAX;
use tare_target::effort::{Effort, Habit};

/// The behaviour of a server.
#[derive(Clone, Debug)]
pub struct Kind {
    pub base: DurationNs,
    pub habits: Vec<Habit>,
    pub odd: Odd,
}

/// Which of its replies have another body.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Odd {
    None,
    Rate(f64),
    Connections(f64),
    After(u64),
}

/// What makes equal requests differ.
#[derive(Clone, Copy, Debug)]
pub struct Noise {
    /// Standard deviation between launches of the logarithm of all costs.
    pub launch: f64,
    /// Standard deviation between slices of the logarithm of all costs.
    pub slice: f64,
    /// Increase of the logarithm of all costs while a neighbour bursts; 0 without a neighbour.
    pub bursts: f64,
}

impl Noise {
    pub fn quiet(launch: f64, slice: f64) -> Self {
        Self { launch, slice, bursts: 0.0 }
    }
}

/// A neighbour that alternates between bursts and pauses of random length.
struct Neighbour {
    random: Random,
    is_bursting: bool,
    until: Instant,
}

impl Neighbour {
    fn is_bursting(&mut self, now: Instant) -> bool {
        while now >= self.until {
            self.is_bursting = !self.is_bursting;
            let mean = if self.is_bursting { BURST } else { PAUSE };
            let length = scaled(mean, self.random.exponential());
            self.until = self.until + length.max(DurationNs::from_ms(1));
        }
        self.is_bursting
    }
}

/// Durations as in `tare run` when replies are quick.
const LAUNCH: DurationNs = DurationNs::from_ms(30);
const RAMP: DurationNs = DurationNs::from_ms(2);
const WINDOW: DurationNs = DurationNs::from_ms(20);
const RAMP_JITTER: u64 = 20;
const STILL: DurationNs = DurationNs::from_us(1500);
const REST_MAX: DurationNs = DurationNs::from_ms(20);
/// Servers that share a CPU take turns of this length.
const TURN: DurationNs = DurationNs::from_ms(3);
/// Step of the clock while nothing happens.
const TICK: DurationNs = DurationNs::from_us(1);
const BIN_PER_SERVER: DurationNs = DurationNs::from_us(12_500);
/// Mean length of a neighbour's bursts.
const BURST: DurationNs = DurationNs::from_ms(400);
/// Mean length of a neighbour's pauses.
const PAUSE: DurationNs = DurationNs::from_ms(600);
/// One body in this many is inspected.
const LOOKED_AT: u64 = 100;

/// One launch of a server.
struct Server {
    effort: Effort,
    odd: Odd,
    /// The cost of this launch relative to the nominal cost.
    factor: f64,
    /// How much of a burst's cost this server feels: servers use different caches.
    suffers: f64,
    connections: u64,
    /// Requests since the current connections were opened.
    on_these: u64,
    /// Requests since the launch.
    served: u64,
    cpu_ns: u64,
    /// CPU time that is due for work beside requests.
    owed: u64,
    rests: u32,
    rests_cut: u32,
    bodies: [u64; 2],
}

/// All servers of one round.
pub struct Lab {
    now: Instant,
    random: Random,
    noise: Noise,
    neighbour: Neighbour,
    servers: Vec<Server>,
}

fn normal(random: &mut Random) -> f64 {
    let angle = std::f64::consts::TAU * random.uniform();
    (2.0 * random.exponential()).sqrt() * angle.cos()
}

fn scaled(time: DurationNs, factor: f64) -> DurationNs {
    DurationNs::from_ns((time.as_ns() as f64 * factor) as u64)
}

impl Lab {
    pub fn new(kinds: &[Kind], noise: Noise, connections: u64, seed: u64, round: u32) -> Self {
        let mut random = Random::stream(seed, "simulated lab", u64::from(round));
        let mut now = Instant::from_ns(1_000_000_000);
        let servers = kinds.iter().map(|kind| {
            now = now + LAUNCH;
            Server {
                effort: Effort::new(kind.base, &kind.habits, now, random.next_u64()),
                odd: kind.odd,
                factor: (noise.launch * normal(&mut random)).exp(),
                suffers: if noise.bursts > 0.0 { 0.8 + 0.4 * random.uniform() } else { 1.0 },
                connections,
                on_these: 0,
                served: 0,
                cpu_ns: 0,
                owed: 0,
                rests: 0,
                rests_cut: 0,
                bodies: [0; 2],
            }
        });
        let servers = servers.collect();
        let mut own = Random::stream(seed, "simulated neighbour", u64::from(round));
        let is_bursting = own.uniform() * (BURST + PAUSE).as_ns() as f64 > PAUSE.as_ns() as f64;
        let neighbour = Neighbour { random: own, is_bursting: !is_bursting, until: now };
        Self { now, random, noise, neighbour, servers }
    }

    /// Adds the work beside requests that is due.
    fn chores(&mut self) {
        for server in &mut self.servers {
            while let Some(until) = server.effort.take_due_chore(self.now) {
                let ns = until.since(self.now).as_ns();
                if ns == 0 {
                    break;
                }
                server.owed += ns;
            }
        }
    }

    /// Lets a server use the CPU for `ns`; others with work due use up to as much meanwhile.
    fn burn(&mut self, at: usize, ns: u64) {
        let mut elapsed = ns;
        for (other, server) in self.servers.iter_mut().enumerate() {
            let used = if other == at { ns } else { ns.min(server.owed) };
            server.cpu_ns += used;
            if other != at {
                server.owed -= used;
                elapsed += used;
            }
        }
        self.now = self.now + DurationNs::from_ns(elapsed);
    }

    fn request(&mut self, at: usize, noise: f64) {
        self.chores();
        let owed = std::mem::take(&mut self.servers[at].owed);
        self.burn(at, owed);
        let noise = match self.neighbour.is_bursting(self.now) {
            true => noise * (self.noise.bursts * self.servers[at].suffers).exp(),
            false => noise,
        };
        let server = &mut self.servers[at];
        let first = server.on_these < server.connections;
        let cost = server.effort.request_cost(self.now, first);
        let cost = scaled(cost, server.factor * noise);
        if server.on_these.is_multiple_of(LOOKED_AT) {
            let is_odd = match server.odd {
                Odd::None => false,
                Odd::Rate(share) => self.random.chance(share),
                // At least one connection is odd in this launch.
                Odd::Connections(share) => {
                    let odd = (server.connections as f64 * share).ceil() as u64;
                    self.random.below(server.connections) < odd
                }
                Odd::After(n) => server.served >= n,
            };
            server.bodies[usize::from(is_odd)] += 1;
        }
        server.on_these += 1;
        server.served += 1;
        self.burn(at, cost.as_ns());
    }

    /// Lets time pass without requests; returns what each server used.
    fn idle_for(&mut self, length: DurationNs) -> Vec<u64> {
        let before: Vec<u64> = self.servers.iter().map(|server| server.cpu_ns).collect();
        let ends = self.now + length;
        while self.now < ends {
            self.chores();
            if let Some(at) = self.servers.iter().position(|server| server.owed > 0) {
                let owed = std::mem::take(&mut self.servers[at].owed);
                self.burn(at, owed);
            } else {
                let next = self.servers.iter().map(|server| server.effort.next_chore()).min();
                self.now = next.unwrap_or(ends).clamp(self.now + TICK, ends + TICK);
            }
        }
        self.servers.iter().zip(before).map(|(server, before)| server.cpu_ns - before).collect()
    }

    /// Returns what each server uses without requests, measured as `tare run` does.
    pub fn watch_rest(&mut self) -> Vec<AtRest> {
        let mut stretches: Vec<Vec<u64>> = Vec::new();
        while !at_rest(&stretches) {
            stretches.push(self.idle_for(DurationNs::from_ns(WATCH_NS)));
        }
        let last = stretches.pop().unwrap_or_default();
        last.into_iter().map(|cpu_ns| AtRest { cpu_ns, ns: WATCH_NS }).collect()
    }

    /// Waits until all servers are idle; returns whether they are.
    fn rest(&mut self) -> bool {
        let limit = self.now + REST_MAX;
        loop {
            self.chores();
            if let Some(at) = self.servers.iter().position(|server| server.owed > 0) {
                let owed = std::mem::take(&mut self.servers[at].owed);
                self.burn(at, owed);
            } else {
                let next = self.servers.iter().map(|server| server.effort.next_chore()).min();
                let next = next.unwrap_or(Instant::FAR);
                if next > self.now + STILL {
                    self.now = self.now + STILL;
                    return true;
                }
                self.now = self.now.max(next);
            }
            if self.now >= limit {
                return false;
            }
        }
    }

    /// Loads one server for a ramp and a window, which opens and closes with a reply; then rests.
    fn slice(&mut self, at: usize, ramp: DurationNs, window: DurationNs) -> Slice {
        let noise = (self.noise.slice * normal(&mut self.random)).exp();
        let before = self.servers[at].cpu_ns;
        self.servers[at].bodies = [0; 2];
        let opens = self.now + ramp;
        let closes = opens + window;
        let (mut answered, mut good) = (0, 0);
        let mut opened = None;
        while self.now < closes {
            self.request(at, noise);
            answered += 1;
            match opened {
                None if self.now >= opens => opened = Some(self.now),
                None => {}
                Some(_) => good += 1,
            }
        }
        let window_ns = self.now.since(opened.unwrap_or(self.now)).as_ns();
        for _ in 0..self.servers[at].connections {
            self.request(at, noise);
            answered += 1;
        }
        let still = self.rest();
        let server = &mut self.servers[at];
        server.rests += 1;
        server.rests_cut += u32::from(!still);
        let cpu_ns = server.cpu_ns - before;
        let bodies = [("same", server.bodies[0]), ("odd", server.bodies[1])];
        let bodies = bodies.into_iter().filter(|(_, n)| *n > 0);
        let counts = Counts {
            window_ns,
            started: good,
            completed: good,
            good,
            answered,
            status: vec![(200, good)],
            bodies: bodies.map(|(hash, n)| (hash.to_owned(), n)).collect(),
            ..Counts::default()
        };
        let server = Counters::default().with(Counter::Cpu, cpu_ns).with(Counter::User, cpu_ns);
        Slice { variant: at as u32, counts, used: Some(server.into()), ..Slice::default() }
    }

    /// Loads all servers at once.
    pub fn together(&mut self, length: DurationNs, cold: bool) -> Vec<Sustained> {
        let n = self.servers.len();
        let bin = DurationNs::from_ns(BIN_PER_SERVER.as_ns() * n as u64);
        let ends = self.now + length;
        let mut all = vec![Sustained { cold, one_thread: true, ..Sustained::default() }; n];
        for server in &mut self.servers {
            server.on_these = 0;
        }
        let mut first = 0;
        while self.now < ends {
            let began = self.now;
            let before: Vec<[u64; 2]> = self.servers.iter().map(|s| [s.cpu_ns, s.served]).collect();
            let weather = self.noise.slice * normal(&mut self.random) / 2.0;
            let noise: Vec<f64> = (0..n)
                .map(|_| weather + self.noise.slice / 2.0 * normal(&mut self.random))
                .collect();
            while self.now < began + bin {
                let turn_ends = self.now + TURN;
                while self.now < turn_ends {
                    self.request(first, noise[first].exp());
                }
                first = (first + 1) % n;
            }
            let ns = self.now.since(began).as_ns();
            for ((server, before), sustained) in self.servers.iter().zip(before).zip(&mut all) {
                let cpu_ns = server.cpu_ns - before[0];
                let answered = server.served - before[1];
                sustained.bins.push(Bin {
                    ns,
                    answered,
                    cpu_ns,
                    delay_ns: ns.saturating_sub(cpu_ns),
                });
            }
        }
        all
    }

    /// Makes the slices of a round, after each launch has had the warm-up that it needs; `given` is
    /// the warm-up that it had before.
    pub fn measure(
        &mut self,
        index: u32,
        cycles: u32,
        needed: &[WarmUp],
        given: &[WarmUp],
        sustained: &[Option<Sustained>],
    ) -> Round {
        let began = self.now;
        let n = self.servers.len();
        let mut warmed = given.to_vec();
        for at in 0..n {
            self.servers[at].on_these = 0;
            self.warm(at, &needed[at], &mut warmed[at]);
        }
        self.rest();
        let before: Vec<u64> = self.servers.iter().map(|server| server.cpu_ns).collect();
        let measured = self.now;
        let mut own = vec![0; n];
        let mut slices = Vec::new();
        for cycle in 0..cycles {
            let jitter = WINDOW.as_ns() as f64 / RAMP_JITTER as f64 * self.random.uniform();
            let ramp = RAMP + DurationNs::from_ns(jitter as u64);
            let window = scaled(WINDOW, LONGER_MAX.powf(self.random.uniform()));
            let turned = self.random.below(n as u64) as usize;
            for position in 0..n {
                let at = (position + turned) % n;
                let slice = self.slice(at, ramp, window);
                own[at] += slice.used.as_ref().map_or(0, Usage::cpu_ns);
                slices.push(Slice { cycle, position: position as u32, ..slice });
            }
        }
        let mut launches = Vec::new();
        for at in 0..n {
            let ramp = self.slice(at, DurationNs::ZERO, RAMP + scaled(WINDOW, 0.5 / 20.0));
            let server = ramp.used.unwrap_or_default();
            own[at] += server.cpu_ns();
            let mut launch = Launch { variant: at as u32, fresh: true, ..Launch::default() };
            launch.load.ramps = Some(Ramps { ramps: 1, answered: ramp.counts.answered, server });
            launch.load.warmup = warmed[at];
            launch.load.sustained = sustained.get(at).cloned().flatten();
            launches.push(launch);
        }
        for (at, launch) in launches.iter_mut().enumerate() {
            let server = &self.servers[at];
            launch.cpu_ns = server.cpu_ns;
            launch.load.idle_cpu_ns = (server.cpu_ns - before[at]).saturating_sub(own[at]);
            let windows = slices.iter().filter(|slice| slice.variant as usize == at);
            let windows: u64 = windows.map(|slice| slice.counts.window_ns).sum();
            launch.load.idle_ns = self.now.since(measured).as_ns() - windows;
            (launch.load.rests, launch.load.rests_cut) = (server.rests, server.rests_cut);
            (launch.load.cpus, launch.load.busy_threads) = (1, 1);
        }
        let elapsed_ns = self.now.since(began).as_ns();
        Round { index, cycles, elapsed_ns, launches, slices, ..Round::default() }
    }

    fn warm(&mut self, at: usize, needed: &WarmUp, had: &mut WarmUp) {
        let most = DurationNs::from_secs(5).as_ns();
        loop {
            let left = needed.ns.saturating_sub(had.ns).max(WINDOW.as_ns());
            let slice = self.slice(at, RAMP, DurationNs::from_ns(left));
            had.ns += left;
            had.requests += slice.counts.answered;
            if (had.ns >= needed.ns && had.requests >= needed.requests) || had.ns >= most {
                return;
            }
        }
    }
}
