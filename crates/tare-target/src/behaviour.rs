//! Decides when and what to answer. Pure, so that the expected results can be computed and
//! simulated.

use tare_io::{DurationNs, Instant, Random};

use crate::effort::{Effort, Habit};

/// How the target behaves. The default answers at once, correctly.
#[derive(Clone, Debug)]
pub struct Behaviour {
    /// Delay from a request's arrival, or the end of its service, to the reply.
    pub delay: Delay,
    /// A real queue: workers, and how long one is busy with a request.
    pub service: Option<Service>,
    /// CPU time burnt for every request; `habits` change it.
    pub busy: DurationNs,
    pub habits: Vec<Habit>,
    /// Number of this launch, for habits that only some launches have.
    pub launch: u64,
    pub stall: Option<Stall>,
    pub body_bytes: usize,
    pub chunked: bool,
    /// After this many requests, replies have other bytes of the same length.
    pub change_after: Option<u64>,
    /// Share of replies, drawn at random, with other bytes of the same length.
    pub odd_rate: f64,
    /// Share of connections on which all replies have other bytes.
    pub odd_connections: f64,
    /// Closes a connection after this many replies; the last one says so.
    pub close_after: Option<u64>,
    pub error_rate: f64,
    pub error_status: u16,
    pub reset_rate: f64,
    /// Sends the head in pieces, this far apart.
    pub slow_head: Option<DurationNs>,
    /// Speaks HTTP/2, and no HTTP/1.1.
    pub http2: Option<Http2Behaviour>,
    pub defect: Option<Defect>,
    /// Only every n-th reply has the defect.
    pub defect_every: Option<u64>,
    /// The process exits after this many requests.
    pub die_after: Option<u64>,
    pub seed: u64,
}

impl Default for Behaviour {
    fn default() -> Self {
        Self {
            delay: Delay::Fixed(DurationNs::ZERO),
            service: None,
            busy: DurationNs::ZERO,
            habits: Vec::new(),
            launch: 0,
            stall: None,
            body_bytes: 612,
            chunked: false,
            change_after: None,
            odd_rate: 0.0,
            odd_connections: 0.0,
            close_after: None,
            error_rate: 0.0,
            error_status: 503,
            reset_rate: 0.0,
            slow_head: None,
            http2: None,
            defect: None,
            defect_every: None,
            die_after: None,
            seed: 0,
        }
    }
}

/// Options of HTTP/2.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Http2Behaviour {
    /// Limits of concurrent streams on a connection; the next applies after every hundred requests.
    /// Empty: no limit.
    pub streams: Vec<u32>,
    /// Share of requests that are refused with REFUSED_STREAM.
    pub refuse_rate: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    pub time: DurationNs,
    pub workers: u32,
    /// Fixed cost of a turn, in which a free worker takes all waiting requests together: servers
    /// with an event loop gain from requests that come at once.
    pub turn: DurationNs,
    /// A connection stays with one worker, drawn at random.
    pub sticky: bool,
}

/// The latest turn of a worker of the queue; it may begin in the future.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Turn {
    begins: Instant,
    ends: Instant,
}

impl Turn {
    /// Returns when a request that came at `arrival` is answered.
    fn serve(&mut self, arrival: Instant, service: Service) -> Instant {
        if arrival > self.begins {
            self.begins = arrival.max(self.ends);
            self.ends = self.begins + service.turn;
        }
        self.ends = self.ends + service.time;
        self.ends
    }
}

/// Nothing is answered at the start of every period; replies due then come at the end of the stall.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stall {
    pub length: DurationNs,
    pub every: DurationNs,
}

#[derive(Clone, Debug, PartialEq)]
pub enum Delay {
    Fixed(DurationNs),
    /// Exponential with this mean.
    Exponential(DurationNs),
    /// Points of the distribution: share (0 to 1) and delay, both rising, with linear interpolation
    /// between them.
    Quantiles(Vec<(f64, DurationNs)>),
}

impl Delay {
    /// Reads `5ms`, `exp:5ms`, or `50:1ms,99:20ms,100:100ms` (percentiles).
    pub fn parse(text: &str) -> Result<Self, ParseDelayError> {
        let bad = || ParseDelayError { input: text.to_owned() };
        if let Some(mean) = text.strip_prefix("exp:") {
            return DurationNs::parse(mean).map(Self::Exponential).map_err(|_| bad());
        }
        if !text.contains(':') {
            return DurationNs::parse(text).map(Self::Fixed).map_err(|_| bad());
        }
        let mut points = Vec::new();
        for point in text.split(',') {
            let (percent, delay) = point.split_once(':').ok_or_else(bad)?;
            let percent: f64 = percent.parse().map_err(|_| bad())?;
            points.push((percent / 100.0, DurationNs::parse(delay).map_err(|_| bad())?));
        }
        let rising = points.windows(2).all(|w| w[0].0 < w[1].0 && w[0].1 <= w[1].1);
        let ends = points.last().is_some_and(|(share, _)| *share == 1.0) && points[0].0 >= 0.0;
        if rising && ends { Ok(Self::Quantiles(points)) } else { Err(bad()) }
    }

    fn draw(&self, random: &mut Random) -> DurationNs {
        match self {
            Self::Fixed(delay) => *delay,
            Self::Exponential(mean) => {
                DurationNs::from_secs_f64(mean.as_secs_f64() * random.exponential())
            }
            Self::Quantiles(points) => quantile_of(points, random.uniform()),
        }
    }
}

fn quantile_of(points: &[(f64, DurationNs)], share: f64) -> DurationNs {
    let mut low = (0.0, points[0].1);
    for high in points {
        if share <= high.0 {
            let inside = (share - low.0) / (high.0 - low.0).max(f64::MIN_POSITIVE);
            let (a, b) = (low.1.as_ns() as f64, high.1.as_ns() as f64);
            return DurationNs::from_ns((a + (b - a) * inside).round() as u64);
        }
        low = *high;
    }
    low.1
}

#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "'{input}' is not a delay; write 5ms, exp:5ms (exponential with that mean), or rising \
     percentiles that end with 100, as 50:1ms,99:20ms,100:100ms"
)]
pub struct ParseDelayError {
    input: String,
}

/// A way to break HTTP, for testing clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Defect {
    CutHead,
    CutBody,
    CutChunks,
    NoReply,
    Silence,
    BadStatusLine,
    BadLength,
    TwoLengths,
    LengthAndChunked,
    BadChunkSize,
    BadChunkEnd,
    LongHead,
    ManyHeaders,
    Unasked,
    SwitchProtocols,
    EndlessInterim,
}

impl Defect {
    pub const ALL: [(&'static str, Self); 16] = [
        ("cut-head", Self::CutHead),
        ("cut-body", Self::CutBody),
        ("cut-chunks", Self::CutChunks),
        ("no-reply", Self::NoReply),
        ("silence", Self::Silence),
        ("bad-status-line", Self::BadStatusLine),
        ("bad-length", Self::BadLength),
        ("two-lengths", Self::TwoLengths),
        ("length-and-chunked", Self::LengthAndChunked),
        ("bad-chunk-size", Self::BadChunkSize),
        ("bad-chunk-end", Self::BadChunkEnd),
        ("long-head", Self::LongHead),
        ("many-headers", Self::ManyHeaders),
        ("unasked", Self::Unasked),
        ("switch-protocols", Self::SwitchProtocols),
        ("endless-interim", Self::EndlessInterim),
    ];

    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().find(|(known, _)| *known == name).map(|(_, defect)| *defect)
    }

    /// Returns the bytes sent instead of a reply, and whether the connection is then closed.
    pub fn bytes(self) -> (Vec<u8>, bool) {
        let head = "HTTP/1.1 200 OK\r\n";
        let chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n";
        let whole = "HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok";
        let (text, close) = match self {
            Self::CutHead => (format!("{head}Content-Le"), true),
            Self::CutBody => (format!("{head}Content-Length: 100\r\n\r\nshort"), true),
            Self::CutChunks => (format!("{chunked}64\r\nshort"), true),
            Self::NoReply => (String::new(), true),
            Self::Silence => (String::new(), false),
            Self::BadStatusLine => ("SSH-2.0-OpenSSH_9.2\r\n\r\n".to_owned(), false),
            Self::BadLength => (format!("{head}Content-Length: ten\r\n\r\n"), false),
            Self::TwoLengths => {
                (format!("{head}Content-Length: 1\r\nContent-Length: 2\r\n\r\n"), false)
            }
            Self::LengthAndChunked => {
                (format!("{head}Content-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n"), false)
            }
            Self::BadChunkSize => (format!("{chunked}xyz\r\n"), false),
            Self::BadChunkEnd => (format!("{chunked}2\r\nokNO"), false),
            Self::LongHead => (format!("{head}X: {}\r\n\r\n", "x".repeat(70_000)), false),
            Self::ManyHeaders => (format!("{head}{}\r\n", "X: y\r\n".repeat(129)), false),
            Self::Unasked => (format!("{whole}{whole}"), false),
            Self::SwitchProtocols => {
                ("HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\n\r\n".to_owned(), false)
            }
            Self::EndlessInterim => ("HTTP/1.1 100 Continue\r\n\r\n".repeat(101), false),
        };
        (text.into_bytes(), close)
    }
}

/// When and how one request is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    pub at: Instant,
    pub answer: Answer,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    Status(u16),
    Defect(Defect),
    Reset,
}

/// Decides for one thread of the server.
#[derive(Debug)]
pub struct Brain {
    behaviour: Behaviour,
    random: Random,
    /// Latest turn of each worker of the queue.
    workers: Vec<Turn>,
    started: Instant,
    effort: Effort,
    requests: u64,
}

impl Brain {
    pub fn new(behaviour: Behaviour, thread: u64, started: Instant) -> Self {
        let workers = behaviour.service.map_or(0, |service| service.workers as usize);
        let draw = Effort::draw(behaviour.seed, behaviour.launch);
        Self {
            random: Random::stream(behaviour.seed, "target", thread),
            workers: vec![Turn { begins: Instant::ZERO, ends: started }; workers],
            effort: Effort::new(behaviour.busy, &behaviour.habits, started, draw),
            requests: 0,
            behaviour,
            started,
        }
    }

    pub fn behaviour(&self) -> &Behaviour {
        &self.behaviour
    }

    /// Draws the worker of a new connection, if connections stay with one.
    pub fn draw_worker(&mut self) -> Option<usize> {
        let service = self.behaviour.service.filter(|service| service.sticky)?;
        Some(self.random.below(u64::from(service.workers)) as usize)
    }

    /// Decides on a request that came at `arrival`, for the given worker or, if `None`, for any.
    /// Calls must be in order of arrival.
    pub fn decide(&mut self, arrival: Instant, worker: Option<usize>) -> Decision {
        let served = match self.behaviour.service {
            Some(service) => {
                // The connection's worker takes the request, or else the worker that is free first;
                // there is at least one.
                let worker = match worker {
                    Some(own) => self.workers.get_mut(own),
                    None => self.workers.iter_mut().min_by_key(|turn| turn.ends),
                };
                worker.map_or(arrival, |turn| turn.serve(arrival, service))
            }
            None => arrival,
        };
        let at = served + self.behaviour.delay.draw(&mut self.random);
        Decision { at: self.after_stall(at), answer: self.answer() }
    }

    /// Returns the CPU cost of requests and chores.
    pub fn effort(&mut self) -> &mut Effort {
        &mut self.effort
    }

    /// Draws whether replies on a new connection have other bytes.
    pub fn is_odd_connection(&mut self) -> bool {
        let share = self.behaviour.odd_connections;
        share > 0.0 && self.random.chance(share)
    }

    /// Draws whether a request is refused with REFUSED_STREAM.
    pub fn refuses(&mut self) -> bool {
        let share = self.behaviour.http2.as_ref().map_or(0.0, |http2| http2.refuse_rate);
        share > 0.0 && self.random.chance(share)
    }

    /// Whether the process is to exit instead of answering the newest request.
    pub fn is_to_die(&self) -> bool {
        self.behaviour.die_after.is_some_and(|after| self.requests >= after)
    }

    /// Counts a request, and draws whether its reply has other bytes.
    pub fn is_odd_reply(&mut self) -> bool {
        let share = self.behaviour.odd_rate;
        self.requests += 1;
        self.behaviour.change_after.is_some_and(|after| self.requests > after)
            || share > 0.0 && self.random.chance(share)
    }

    fn answer(&mut self) -> Answer {
        let Behaviour { reset_rate, error_rate, error_status, defect_every, .. } = self.behaviour;
        let is_hit = defect_every.is_none_or(|every| (self.requests + 1).is_multiple_of(every));
        let defect = self.behaviour.defect.filter(|_| is_hit);
        if reset_rate > 0.0 && self.random.chance(reset_rate) {
            Answer::Reset
        } else if let Some(defect) = defect {
            Answer::Defect(defect)
        } else if error_rate > 0.0 && self.random.chance(error_rate) {
            Answer::Status(error_status)
        } else {
            Answer::Status(200)
        }
    }

    fn after_stall(&self, at: Instant) -> Instant {
        let Some(Stall { length, every }) = self.behaviour.stall else { return at };
        // The first stall comes a period after the start, so that connections can open.
        let since = at.since(self.started).as_ns();
        let (period, phase) = (since / every.as_ns(), since % every.as_ns());
        if period > 0 && phase < length.as_ns() {
            at + DurationNs::from_ns(length.as_ns() - phase)
        } else {
            at
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ms(ms: u64) -> Instant {
        Instant::ZERO + DurationNs::from_ms(ms)
    }

    fn brain(behaviour: Behaviour) -> Brain {
        Brain::new(behaviour, 0, Instant::ZERO)
    }

    #[test]
    fn the_queue_serves_one_after_another() {
        let service = Some(Service {
            time: DurationNs::from_ms(10),
            workers: 1,
            turn: DurationNs::ZERO,
            sticky: false,
        });
        let mut one = brain(Behaviour { service, ..Default::default() });
        let at: Vec<_> = [0, 1, 2, 50].map(|t| one.decide(ms(t), None).at).into();
        assert_eq!(at, [ms(10), ms(20), ms(30), ms(60)]);
        let service = Some(Service {
            time: DurationNs::from_ms(10),
            workers: 2,
            turn: DurationNs::ZERO,
            sticky: false,
        });
        let mut two = brain(Behaviour { service, ..Default::default() });
        let at: Vec<_> = [0, 1, 2, 50].map(|t| two.decide(ms(t), None).at).into();
        assert_eq!(at, [ms(10), ms(11), ms(20), ms(60)]);
        // The first request comes alone, the next two wait for its end and share a turn, and the
        // last comes later.
        let turn = DurationNs::from_ms(5);
        let service =
            Some(Service { time: DurationNs::from_ms(10), workers: 1, turn, sticky: false });
        let mut turns = brain(Behaviour { service, ..Default::default() });
        let at: Vec<_> = [1, 2, 3, 50].map(|t| turns.decide(ms(t), None).at).into();
        assert_eq!(at, [ms(16), ms(31), ms(41), ms(65)]);
    }

    #[test]
    fn stalls_hold_back_what_is_due_in_them() {
        let stall =
            Some(Stall { length: DurationNs::from_ms(100), every: DurationNs::from_secs(1) });
        let mut brain = brain(Behaviour { stall, ..Default::default() });
        let at: Vec<_> =
            [50, 999, 1000, 1099, 1100, 2030].map(|t| brain.decide(ms(t), None).at).into();
        assert_eq!(at, [ms(50), ms(999), ms(1100), ms(1100), ms(1100), ms(2100)]);
    }

    #[test]
    fn delays_follow_their_law() {
        let mut random = Random::stream(3, "test", 0);
        let delay = Delay::parse("50:1ms,99:20ms,100:100ms").unwrap();
        let mut drawn: Vec<_> = (0..100_000).map(|_| delay.draw(&mut random).as_ns()).collect();
        drawn.sort_unstable();
        for (share, ms) in [(0.5, 1.0), (0.75, 10.69), (0.99, 20.0), (0.995, 60.0)] {
            let got = drawn[(share * 100_000.0) as usize] as f64 / 1e6;
            assert!((got / ms - 1.0).abs() < 0.05, "{share}: {got}");
        }
        let exponential = Delay::parse("exp:5ms").unwrap();
        let sum: f64 = (0..100_000).map(|_| exponential.draw(&mut random).as_secs_f64()).sum();
        assert!((sum / 100_000.0 / 0.005 - 1.0).abs() < 0.02, "{sum}");
        assert_eq!(Delay::parse("5ms"), Ok(Delay::Fixed(DurationNs::from_ms(5))));
        for text in ["", "5", "exp:", "50:1ms", "50:2ms,100:1ms", "x:1ms,100:2ms", "99:1ms,50:2ms"]
        {
            let error = Delay::parse(text).unwrap_err().to_string();
            assert!(error.contains("is not a delay; write 5ms"), "{text}: {error}");
        }
    }

    #[test]
    fn errors_and_resets_come_at_their_rates() {
        let behaviour = Behaviour { error_rate: 0.1, reset_rate: 0.2, ..Default::default() };
        let mut brain = brain(behaviour);
        let (mut errors, mut resets) = (0, 0);
        for _ in 0..10_000 {
            match brain.decide(ms(0), None).answer {
                Answer::Status(503) => errors += 1,
                Answer::Reset => resets += 1,
                _ => {}
            }
        }
        assert!((700..900).contains(&errors), "10 % of the 80 % not reset: {errors}");
        assert!((1900..2100).contains(&resets), "{resets}");
    }
}
