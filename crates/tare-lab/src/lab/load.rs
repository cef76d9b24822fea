//! Load from a variant's clients: this process or agents. Several clients divide a load and begin
//! each slice at one instant; their results are merged.

use tare_io::DurationNs;
use tare_io::Instant;
use tare_io::time::monotonic_now;
use tare_load::measured::Measured;
use tare_load::{LaneId, LoadPlan, Stretch};
use tare_model::plain;
use tare_model::samples::{NUMBER_MAX, Probe};

use crate::agent::TIMEOUT;
use crate::executor::requests::{self, Close, Intervals, Open, Slice};
use crate::executor::{INTERVALS_MAX, LaneLife, LoadId, Opened};
use crate::lab::site::{Site, ask_all, ask_each};
use crate::meters::Reading;
use crate::meters::metering::{Metering, sample};
use crate::world::{LoadSource, MakeLoad};
use tare_model::Failure;

/// Load on one variant.
#[derive(Debug, Default)]
pub struct Load {
    /// Its clients, and the load that each has open.
    clients: Vec<(Site, LoadId)>,
    timeout: DurationNs,
    /// Requests that probes sent since [`MakeLoad::take_sent`].
    sent: u64,
    /// Measurements from opening its connections.
    opening: Option<Measured>,
}

/// Each client opens one lane.
const LANE: LaneId = LaneId(0);
/// Extra time beyond the slice itself: its drain, and the round trip.
const GRACE: DurationNs = DurationNs::from_secs(20);
/// Time from the request to the start of a slice, in addition to twice the longest round trip.
const LEAD: DurationNs = DurationNs::from_ms(2);
/// A slice is repeated if a client is late by more than the window divided by this.
const LATE_SHARE: u64 = 10;
/// Most attempts at a slice with late clients: a client may be delayed now and then.
const TRIES: u32 = 5;
const WHY_CHARS_MAX: usize = 500;

impl MakeLoad for Load {
    type Clients = Vec<Site>;

    fn open(&mut self, clients: &Vec<Site>, plan: &LoadPlan) -> Result<LoadSource, Failure> {
        self.give_up();
        self.timeout = plan.engine.timeout;
        let parts = plan.divided(u32::try_from(clients.len()).unwrap_or(u32::MAX))?;
        clients.iter().try_for_each(Site::set_clock)?;
        let asked =
            clients.iter().zip(parts).map(|(site, part)| (site, Open { lanes: vec![part] }));
        let replies = ask_each(asked, TIMEOUT);
        // If one fails, the others are open and must be closed.
        let of_site = |(site, reply): (&Site, &Result<Opened, Failure>)| {
            reply.as_ref().ok().map(|opened| (site.clone(), opened.load))
        };
        self.clients = clients.iter().zip(&replies).filter_map(of_site).collect();
        let opened: Result<Vec<Opened>, Failure> = replies.into_iter().collect();
        let opened = opened.inspect_err(|_| self.give_up())?;
        self.opening = Measured::alongside(opened.iter().map(|one| one.opening.clone()).collect());
        let first = opened.into_iter().next();
        Ok(LoadSource {
            reactor: first.as_ref().map_or_else(String::new, |opened| opened.reactor.clone()),
            note: first.and_then(|opened| opened.note),
            polls: plan.engine.wait.polls && clients.len() == 1,
            clients: clients.len(),
            clock_error: self.clock_error(),
        })
    }

    fn slice(&mut self, stretch: Stretch) -> Result<Measured, Failure> {
        match &self.clients[..] {
            [alone] => self.slice_by(alone, stretch),
            _ => self.slice_alongside(stretch),
        }
    }

    fn close(&mut self) -> Result<LaneLife, Failure> {
        let asked = self.clients.iter().map(|(site, load)| (site, Close { load: *load }));
        let lives: Vec<Vec<LaneLife>> = ask_all(asked, TIMEOUT)?;
        self.clients.clear();
        Ok(LaneLife::sum(lives.iter().flatten()))
    }

    fn ask(
        &mut self,
        clients: &Vec<Site>,
        plan: &LoadPlan,
    ) -> Result<Result<Probe, String>, Failure> {
        let Some(site) = clients.first() else {
            return Err(Failure::bug("nobody to ask"));
        };
        let probed = site.ask(requests::Probe { plan: Box::new(plan.clone()) })?;
        self.sent += probed.sent.min(NUMBER_MAX);
        let why = |why: String| match site {
            Site::Here(_) => why,
            Site::There(_) => plain::short(&why, WHY_CHARS_MAX),
        };
        Ok(probed.probe.map(Probe::bounded).map_err(why))
    }

    fn take_sent(&mut self) -> u64 {
        std::mem::take(&mut self.sent)
    }
}

impl Load {
    /// Returns the measurements from opening its connections; `None` before that.
    pub fn opening(&self) -> Option<&Measured> {
        self.opening.as_ref()
    }

    /// Returns the intervals of the last slice, if they were kept, client by client. The start of
    /// each is its offset from the client's first interval.
    pub fn intervals(&self) -> Result<Vec<Measured>, Failure> {
        let mut all: Vec<Measured> = Vec::new();
        for (site, load) in &self.clients {
            let first = all.len();
            loop {
                let from = all.len() - first;
                let more = site.ask(Intervals { load: *load, from })?;
                if more.is_empty() || from > INTERVALS_MAX {
                    break;
                }
                all.extend(more);
            }
            let began = all.get(first).map_or(Instant::ZERO, |interval| interval.began);
            for interval in &mut all[first..] {
                interval.began = Instant::ZERO + interval.began.since(began);
            }
        }
        Ok(all)
    }

    /// Closes its loads: agents keep what is not closed.
    fn give_up(&mut self) {
        for (site, load) in self.clients.drain(..) {
            let _ = site.ask(Close { load });
        }
    }

    fn slice_by(
        &self,
        (site, load): &(Site, LoadId),
        stretch: Stretch,
    ) -> Result<Measured, Failure> {
        let limit = stretch.ramp + stretch.window + self.timeout + GRACE;
        let start_at = stretch.start_at.map(|at| site.clock().there(at));
        let stretch = Stretch { start_at, ..stretch };
        site.ask_within(Slice { load: *load, lane: LANE, stretch }, limit)
    }

    fn clock_error(&self) -> DurationNs {
        let errors = self.clients.iter().map(|(site, _)| site.clock().error());
        errors.max().unwrap_or_default()
    }

    /// Runs the same slice on several clients, which begin it at one instant.
    fn slice_alongside(&self, stretch: Stretch) -> Result<Measured, Failure> {
        let limit = stretch.ramp + stretch.window + self.timeout + GRACE;
        let late_max = DurationNs::from_ns(stretch.window.as_ns() / LATE_SHARE);
        let clients = &self.clients;
        let mut late = DurationNs::ZERO;
        // Repeated slices also cost the server CPU time, so their replies are counted too.
        let mut answered = 0;
        for _ in 0..TRIES {
            let trips = clients.iter().map(|(site, _)| site.clock().trip);
            let trip = trips.max().unwrap_or_default();
            let begin = stretch.start_at.unwrap_or_else(|| monotonic_now() + trip + trip + LEAD);
            let asked = clients.iter().map(|(site, load)| {
                let start_at = Some(site.clock().there(begin));
                let stretch = Stretch { start_at, ..stretch };
                (site, Slice { load: *load, lane: LANE, stretch })
            });
            let parts: Vec<Measured> = ask_all(asked, limit)?;
            // Start of each client's slice, by this process's clock.
            let began = parts.iter().zip(clients);
            let began = began.map(|(part, (site, _))| site.clock().here(part.began));
            let began: Vec<Instant> = began.collect();
            let (first, last) = (began.iter().min(), began.iter().max());
            let skew_ns = last.zip(first).map_or(0, |(last, first)| last.since(*first).as_ns());
            late = last.map_or(DurationNs::ZERO, |last| last.since(begin));
            let nobody = || Failure::bug("a load by nobody");
            let mut all = Measured::alongside(parts).ok_or_else(nobody)?;
            all.counts.answered += answered;
            // A stretch without a ramp is no slice: it measures the cost of a ramp or warms a
            // server up, and its clients need not begin together.
            if late > late_max && stretch.ramp > DurationNs::ZERO {
                answered = all.counts.answered;
                continue;
            }
            if let Some(together) = &mut all.counts.together {
                together.skews_ns = vec![skew_ns.min(NUMBER_MAX)];
                together.clock_ns = self.clock_error().as_ns();
                for (client, began) in together.clients.iter_mut().zip(&began) {
                    client.late_ns = began.since(begin).as_ns().min(NUMBER_MAX);
                }
            }
            return Ok(all);
        }
        Err(Failure::environment(format!(
            "one of {} clients began {TRIES} slices in a row too late, the last by {} µs: a slice \
             of {} allows {late_max} (slices.window: longer slices; or fewer clients)",
            clients.len(),
            late.as_ns() / 1000,
            stretch.window
        )))
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.give_up();
    }
}

/// Runs the same stretch of each load at the same time, and reads these meters at the end of each
/// interval.
pub fn run_together(
    loads: &mut [&mut Load],
    stretch: Stretch,
    meters: &[Option<&Metering>],
) -> Result<Vec<(Measured, Vec<Reading>)>, Failure> {
    let trips = loads.iter().flat_map(|load| &load.clients).map(|(site, _)| site.clock().trip);
    let trip = trips.max().unwrap_or_default();
    let start = monotonic_now() + trip + trip + LEAD;
    let stretch = Stretch { start_at: Some(start), ..stretch };
    // An extra reading, so that the last interval ends before the last reading even if it is late.
    let intervals = stretch.window.as_ns().div_ceil(stretch.interval.as_ns().max(1));
    let times = u32::try_from(intervals + 2).unwrap_or(u32::MAX);
    std::thread::scope(|scope| {
        let readings = scope.spawn(|| sample(meters, start, stretch.interval, times));
        let loads = loads.iter_mut().map(|load| scope.spawn(move || load.slice(stretch)));
        let loads: Vec<_> = loads.collect();
        let lost = || Failure::bug("a load thread panicked");
        let measured = loads.into_iter().map(|load| load.join().unwrap_or_else(|_| Err(lost())));
        let measured: Result<Vec<Measured>, Failure> = measured.collect();
        let readings = readings.join().unwrap_or_else(|_| Err(lost()))?;
        Ok(measured?.into_iter().zip(readings).collect())
    })
}
