//! Load that does not let up: on all variants at once, for seconds. It finds how long servers take
//! to warm up, and whether they cost the same as in slices (`tare_stats::sustained`).

use std::sync::Arc;

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_lab::agent::protocol::LaneLife;
use tare_lab::meter::Meter;
use tare_load::measured::Measured;
use tare_load::{Edges, LoadPlan, Stretch};
use tare_model::sustained::{Bin, Sustained, WarmUp};
use tare_stats::surveys::are_over;
use tare_stats::sustained::warm_up;

use super::cell::Cell;
use super::clients::Clients;
use super::plan;
use super::round::Up;
use super::runner::Runner;
use crate::failure::Failure;

/// Servers share a CPU in turns of milliseconds: a bin holds several of each variant's.
const BIN_PER_VARIANT: DurationNs = DurationNs::from_us(12_500);
/// Changes are looked for in so many bins at least, however many variants there are.
const BINS_MIN: u64 = 50;

impl Runner<'_> {
    /// How long sustained load is, where this round's launches are to have it from their start.
    fn survey_length(&self, cell: usize) -> Option<DurationNs> {
        let plan = self.cells[cell].plan;
        let length = plan::sustained(plan)?;
        if plan.slices.warmup.is_some() {
            return None;
        }
        let Cell { surveys, warm, .. } = &self.cells[self.active_first()];
        // A resumed run knows from its first part.
        let again = surveys.wants_another() && (surveys.any() || warm.is_none());
        again.then_some(length)
    }

    /// Loads all variants from their first request on, until they are warm.
    pub(super) fn survey(
        &mut self,
        cell: usize,
        lane: usize,
        up: &mut [Up],
    ) -> Result<(), Failure> {
        let Some(length) = self.survey_length(cell) else { return Ok(()) };
        if !can_be_at_once(up) {
            return Ok(());
        }
        let most = self.cells[cell].plan.slices.warmup_max();
        self.together(cell, lane, up, length, true)?;
        let of = |up: &[Up]| -> Vec<WarmUp> {
            let each = up.iter().map(|up| up.lanes[lane].load.sustained.as_ref());
            each.map(|sustained| sustained.map(warm_up).unwrap_or_default()).collect()
        };
        let mut warm = of(up);
        if !are_over(&warm, length.as_ns()) && most > length && !self.interrupted() {
            self.together(
                cell,
                lane,
                up,
                DurationNs::from_ns(most.as_ns() - length.as_ns()),
                true,
            )?;
            warm = of(up);
        }
        if self.interrupted() {
            return Ok(());
        }
        let mut by_variant = vec![WarmUp::default(); self.plan().variants.len()];
        for (up, warm) in up.iter_mut().zip(warm) {
            by_variant[up.variant] = warm;
            let sustained = up.lanes[lane].load.sustained.as_ref();
            let bins = sustained.map_or(&[][..], |sustained| &sustained.bins);
            let all = bins.iter().copied().fold(Bin::default(), Bin::plus);
            up.lanes[lane].load.warmup = WarmUp { ns: all.ns, requests: all.answered };
        }
        // Of a sweep, all cells are measured on the same launches.
        let first = self.active_first();
        let surveys = &mut self.cells[first].surveys;
        surveys.add(by_variant);
        let (found, given) = (surveys.found(), surveys.warm());
        let names = self.plan().variants.iter().map(|variant| &variant.name);
        let words: Vec<String> = names
            .zip(&found)
            .map(|(name, warm)| {
                let ns = DurationNs::from_ns(warm.ns);
                format!("{name} warm after {ns} and {} requests", warm.requests)
            })
            .collect();
        self.note(self.cells[cell].run, words.join(", "))?;
        for cell in self.active() {
            self.cells[cell].warm = Some(given.clone());
            self.write_found(cell)?;
        }
        Ok(())
    }

    /// Loads all warm variants at once, where this round is to.
    pub(super) fn check_sustained(
        &mut self,
        cell: usize,
        lane: usize,
        up: &mut [Up],
    ) -> Result<(), Failure> {
        let Some(length) = plan::sustained(self.cells[cell].plan) else { return Ok(()) };
        let has = up.iter().any(|up| up.lanes[lane].load.sustained.is_some());
        if has || !self.cells[cell].check_due || self.interrupted() || !can_be_at_once(up) {
            return Ok(());
        }
        self.together(cell, lane, up, length, false)
    }

    /// Load on all of these at the same time.
    fn together(
        &mut self,
        cell: usize,
        lane: usize,
        up: &mut [Up],
        length: DurationNs,
        cold: bool,
    ) -> Result<(), Failure> {
        let plan = self.cells[cell].plan;
        let mut clients = Vec::new();
        for up in up.iter_mut() {
            let stop = self.stop_flag();
            let mut own = Clients::start(plan.load.workers(), &plan.load_cpus, &stop)?;
            own.open(&[(&up.client, &up.lanes[lane].plan)])?;
            clients.push(own);
            up.meter = up.launched.as_ref().map(|launched| launched.meter());
        }
        let bin = DurationNs::from_ns(BIN_PER_VARIANT.as_ns() * up.len() as u64);
        let bin = bin.min(DurationNs::from_ns(length.as_ns() / BINS_MIN));
        let stretch = Stretch {
            ramp: DurationNs::ZERO,
            window: length,
            requests: None,
            interval: bin,
            edges: Edges::Clock,
        };
        let plans: Vec<&LoadPlan> = up.iter().map(|up| &up.lanes[lane].plan).collect();
        let meters: Vec<Option<&Meter>> = up.iter().map(|up| up.meter.as_ref()).collect();
        let (measured, readings) = at_once(&mut clients, &plans, stretch, &meters);
        let measured: Result<Vec<Measured>, Failure> = measured.into_iter().collect();
        let measured = measured?;
        for (at, (up, mut own)) in up.iter_mut().zip(clients).enumerate() {
            let lane = &mut up.lanes[lane];
            let life = own.close()?.first().copied().unwrap_or_default();
            lane.beside = LaneLife {
                sent: lane.beside.sent + life.sent,
                closed_by_server: lane.beside.closed_by_server + life.closed_by_server,
            };
            let mut more = sustained(&measured[at], &readings, at, cold);
            if let Some(before) = lane.load.sustained.take() {
                more.bins.splice(0..0, before.bins);
                more.one_thread &= before.one_thread;
            }
            lane.load.sustained = Some(more);
        }
        Ok(())
    }
}

/// An agent makes one load at a time: variants that have it in common cannot be loaded at once. One
/// variant alone has nobody to share the weather with.
fn can_be_at_once(up: &[Up]) -> bool {
    let agents: Vec<_> = up.iter().filter_map(|up| up.client.as_ref()).collect();
    let shared = |at: usize| agents[..at].iter().any(|other| Arc::ptr_eq(other, agents[at]));
    up.len() > 1 && !(0..agents.len()).any(shared)
}

/// What all servers had used at one time.
struct Reading {
    ns: u64,
    servers: Vec<Server>,
}

struct Server {
    cpu_ns: u64,
    threads: Vec<[u64; 2]>,
}

impl Reading {
    fn take(began: Instant, meters: &[Option<&Meter>]) -> Self {
        let servers = meters.iter().map(|meter| Server {
            cpu_ns: meter.and_then(|meter| meter.read()).map_or(0, |used| used.cpu_ns),
            threads: meter.map(|meter| meter.threads()).unwrap_or_default(),
        });
        let servers = servers.collect();
        Self { ns: monotonic_now().since(began).as_ns(), servers }
    }
}

/// Runs the same stretch on all of them, and reads meters at the end of every interval.
fn at_once(
    clients: &mut [Clients],
    plans: &[&LoadPlan],
    stretch: Stretch,
    meters: &[Option<&Meter>],
) -> (Vec<Result<Measured, Failure>>, Vec<Reading>) {
    std::thread::scope(|scope| {
        let began = monotonic_now();
        let mut readings = vec![Reading::take(began, meters)];
        let loads: Vec<_> = clients
            .iter_mut()
            .zip(plans)
            .map(|(clients, plan)| scope.spawn(move || clients.slice(0, plan, stretch)))
            .collect();
        let mut next = began + stretch.interval;
        while !loads.iter().all(|load| load.is_finished()) {
            let left = next.since(monotonic_now()).min(DurationNs::from_ms(5));
            std::thread::park_timeout(std::time::Duration::from_nanos(left.as_ns().max(100_000)));
            if monotonic_now() >= next {
                readings.push(Reading::take(began, meters));
                next = next + stretch.interval;
            }
        }
        readings.push(Reading::take(began, meters));
        let lost = || Err(Failure::Bug("a load thread panicked".into()));
        let measured = loads.into_iter().map(|load| load.join().unwrap_or_else(|_| lost()));
        (measured.collect(), readings)
    })
}

/// Of the server at that place: from what its load and its meter saw.
fn sustained(measured: &Measured, readings: &[Reading], at: usize, cold: bool) -> Sustained {
    let of = |reading: &Reading, thread: Option<(usize, usize)>| match thread {
        Some((thread, what)) => reading.servers[at].threads.get(thread).map_or(0, |t| t[what]),
        None => reading.servers[at].cpu_ns,
    };
    let (first, last) = (&readings[0], &readings[readings.len() - 1]);
    let threads = last.servers[at].threads.len();
    let gained = |thread| of(last, thread).saturating_sub(of(first, thread));
    let busiest = (0..threads).max_by_key(|thread| gained(Some((*thread, 0))));
    let of_busiest = busiest.map_or(0, |thread| gained(Some((thread, 0))));
    let marks = match measured.marks.as_slice() {
        // Another place's load is known by its sum.
        [] => &[(measured.counts.window_ns, measured.counts.completed)],
        marks => marks,
    };
    let mut bins = Vec::new();
    let mut before = Bin::default();
    for (ns, answered) in marks {
        let at = |thread| between(readings, *ns, |reading| of(reading, thread));
        let delay = busiest.map_or(0, |thread| at(Some((thread, 1))));
        let now = Bin { ns: *ns, answered: *answered, cpu_ns: at(None), delay_ns: delay };
        bins.push(Bin {
            ns: now.ns.saturating_sub(before.ns),
            answered: now.answered.saturating_sub(before.answered),
            cpu_ns: now.cpu_ns.saturating_sub(before.cpu_ns),
            delay_ns: now.delay_ns.saturating_sub(before.delay_ns),
        });
        before = now;
    }
    let one_thread = of_busiest as f64 >= ONE_THREAD * gained(None).max(1) as f64;
    Sustained { cold, bins, one_thread }
}

/// The share of a server's CPU time that makes a thread the one that does its work.
const ONE_THREAD: f64 = 0.8;

/// What a counter had gained at a time between readings: a straight line.
fn between(readings: &[Reading], ns: u64, of: impl Fn(&Reading) -> u64) -> u64 {
    let first = of(&readings[0]);
    let later = readings.partition_point(|reading| reading.ns < ns).min(readings.len() - 1).max(1);
    let Some(after) = readings.get(later) else { return 0 };
    let before = &readings[later - 1];
    let span = after.ns.saturating_sub(before.ns).max(1) as f64;
    let share = (ns.saturating_sub(before.ns) as f64 / span).min(1.0);
    let (a, b) = (of(before), of(after));
    (a as f64 + (b.saturating_sub(a)) as f64 * share) as u64 - first.min(a)
}
