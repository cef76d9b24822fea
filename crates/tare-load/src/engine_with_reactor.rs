//! Requests and replies of one worker: an engine and the reactor under it, run phase by phase.

use std::sync::atomic::{AtomicBool, Ordering};

use tare_io::direct::DirectReactor;
use tare_io::epoll::EpollReactor;
use tare_io::uring::UringReactor;
use tare_io::{
    Buffers, DurationNs, Endpoint, Instant, Reactor, ReactorKind, SetupError, Tuning, Wait,
};

use crate::engine::{Engine, EngineConfig, IntervalSink, Life, Next, Stretch};
use crate::error::LoadError;
use crate::tally::{Series, Tally};

pub(crate) struct Exchange {
    engine: Engine,
    io: Io,
    /// The reason, if io_uring is the default but another reactor is used.
    pub note: Option<String>,
}

/// Runs the same code with any reactor, which is matched once per phase, not once per turn.
macro_rules! with_io {
    ($io:expr, $name:ident => $body:expr) => {
        match $io {
            Io::Uring($name) => {
                let $name = $name.as_mut();
                $body
            }
            Io::Epoll($name) => $body,
            Io::Direct($name) => $body,
        }
    };
}

enum Io {
    Uring(Box<UringReactor>),
    Epoll(EpollReactor),
    Direct(DirectReactor),
}

impl Io {
    fn new(
        wanted: Option<ReactorKind>,
        engine: &Engine,
        tuning: Tuning,
    ) -> Result<(Self, Option<String>), SetupError> {
        let slots = engine.slots();
        if wanted.is_none() && engine.exchanges_one_message() || wanted == Some(ReactorKind::Direct)
        {
            return Ok((Self::Direct(DirectReactor::new(tuning)), None));
        }
        let epoll = || EpollReactor::tuned(slots, tuning).map(Self::Epoll);
        if wanted == Some(ReactorKind::Epoll) {
            return Ok((epoll()?, None));
        }
        match UringReactor::tuned(slots, tuning) {
            Ok(io) => Ok((Self::Uring(Box::new(io)), None)),
            Err(error) if wanted.is_some() => Err(error),
            Err(error) => Ok((epoll()?, Some(error.to_string()))),
        }
    }

    fn kind(&self) -> ReactorKind {
        match self {
            Self::Uring(_) => ReactorKind::IoUring,
            Self::Epoll(_) => ReactorKind::Epoll,
            Self::Direct(_) => ReactorKind::Direct,
        }
    }
}

impl Exchange {
    /// Opens the engine's kept connections, and returns the tally of opening them. Fails if none
    /// opens.
    pub fn open(
        engine: Engine,
        wanted: Option<ReactorKind>,
        tuning: Tuning,
        stop: &AtomicBool,
        sink: &mut dyn IntervalSink,
    ) -> Result<(Self, Tally), LoadError> {
        let (io, note) = Io::new(wanted, &engine, tuning)?;
        let mut opened = Self { engine, io, note };
        let Self { engine, io, .. } = &mut opened;
        let opening = with_io!(io, io => open(engine, io, stop, sink))?;
        Ok((opened, opening))
    }

    pub fn kind(&self) -> ReactorKind {
        self.io.kind()
    }

    pub fn series(&self) -> Series {
        self.engine.series()
    }

    /// Returns the tally so far; the engine goes on counting in `spare`.
    pub fn exchange_tally(&mut self, spare: Box<Tally>) -> Box<Tally> {
        self.engine.exchange_tally(spare)
    }

    pub fn take_bodies(&mut self) -> Vec<(String, u64)> {
        self.engine.take_bodies()
    }

    pub fn life(&self) -> &Life {
        self.engine.life()
    }

    pub fn ended_life(&self) -> Life {
        self.engine.ended_life()
    }

    /// Waits until `start`, then runs a stretch, and returns when it began.
    pub fn run_from(
        &mut self,
        start: Instant,
        stretch: Stretch,
        stop: &AtomicBool,
        sink: &mut dyn IntervalSink,
    ) -> Result<Instant, SetupError> {
        let Self { engine, io, .. } = self;
        with_io!(io, io => {
            // Handles what happened since the last slice: servers close idle connections.
            let mut happened = Vec::new();
            io.wait(Wait::until(start), &mut happened)?;
            engine.turn(io, &mut happened, sink);
            let began = io.now();
            engine.begin(stretch, start);
            turn_until_finished(engine, io, stop, sink).map(|()| began)
        })
    }

    /// Submits the last operations, so that a closed connection does not stay open until there is
    /// something else to do.
    pub fn settle(&mut self, sink: &mut dyn IntervalSink) -> Result<(), SetupError> {
        let Self { engine, io, .. } = self;
        with_io!(io, io => settle(engine, io, sink))
    }

    pub fn close(&mut self) {
        let Self { engine, io, .. } = self;
        with_io!(io, io => engine.close(io));
    }
}

/// Opens the engine's kept connections; fails if none opens.
fn open<R: Reactor>(
    engine: &mut Engine,
    io: &mut R,
    stop: &AtomicBool,
    sink: &mut dyn IntervalSink,
) -> Result<Tally, LoadError> {
    engine.open(io);
    turn_until_finished(engine, io, stop, sink)?;
    let opening = engine.tally().clone();
    if opening.counts.opened == 0 && opening.counts.not_opened > 0 {
        let why = opening.failures.seen().next().map_or("no reason known", |(_, _, why)| why);
        let endpoint = engine.endpoint().to_string();
        return Err(LoadError::NoConnection { endpoint, why: why.to_owned() });
    }
    Ok(opening)
}

/// Runs the current phase to its end.
fn turn_until_finished<R: Reactor>(
    engine: &mut Engine,
    io: &mut R,
    stop: &AtomicBool,
    sink: &mut dyn IntervalSink,
) -> Result<(), SetupError> {
    let mut happened = Vec::with_capacity(8192);
    loop {
        if stop.load(Ordering::Relaxed) {
            engine.interrupt(io.now());
        }
        match engine.turn(io, &mut happened, sink) {
            Next::Finished => return Ok(()),
            Next::Wait(mut wait) => {
                let check = io.now() + STOP_CHECK;
                if check < wait.until {
                    wait.until = check;
                    wait.spin = DurationNs::ZERO;
                }
                io.wait(wait, &mut happened)?;
            }
        }
    }
}

/// Longest single wait, so that a request to stop is noticed in time.
const STOP_CHECK: DurationNs = DurationNs::from_ms(50);

fn settle<R: Reactor>(
    engine: &mut Engine,
    io: &mut R,
    sink: &mut dyn IntervalSink,
) -> Result<(), SetupError> {
    let mut happened = Vec::new();
    // Once to submit operations, once to reap their completions.
    for _ in 0..2 {
        io.wait(Wait::until(io.now()), &mut happened)?;
        engine.turn(io, &mut happened, sink);
    }
    Ok(())
}

/// Chooses large buffers for large messages, and for datagrams, which could be cut.
pub(crate) fn tuning(config: &EngineConfig) -> Tuning {
    let is_large = |bytes: u32| bytes as usize > Buffers::SMALL.bytes;
    let large = matches!(config.endpoint, Endpoint::Udp(_))
        || config.messages().is_some_and(|messages| is_large(messages.reply_bytes));
    let buffers = if large { Buffers::LARGE } else { Buffers::SMALL };
    Tuning { buffers, sockets: config.sockets, timeout: config.timeout }
}
