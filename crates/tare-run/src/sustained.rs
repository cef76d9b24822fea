//! Sustained load: on all variants at once, for seconds, or in turns. It shows how long servers
//! take to warm up, and whether they cost the same as in slices (`tare_stats::sustained`).

use tare_io::DurationNs;
use tare_lab::meters::Reading;
use tare_lab::world::{Launch as _, World};
use tare_load::Stretch;
use tare_load::measured::Measured;
use tare_model::sustained::{Bin, Sustained, WarmUp};
use tare_stats::design::{CellOrder, SurveyOrder, SustainedOrder};
use tare_stats::surveys::SurveyState;

use crate::launches::RunningVariant;
use crate::runner::Runner;
use crate::schedule::CellId;
use tare_model::Failure;

/// Servers share a CPU in turns of milliseconds; a bin holds several turns of each variant.
const BIN_PER_VARIANT: DurationNs = DurationNs::from_us(12_500);
/// Least number of bins in which changes are looked for, however many variants there are.
const BINS_MIN: u64 = 50;

impl<L: World> Runner<'_, L> {
    /// Loads all variants from their first request until they are warm.
    pub(crate) fn survey(
        &mut self,
        survey: SurveyOrder,
        cell: CellId,
        orders: &mut [CellOrder],
        up: &mut [RunningVariant<L>],
    ) -> Result<(), Failure> {
        // With a single variant, a disturbance of the machine looks like warming up.
        if up.len() < 2 {
            return Ok(());
        }
        let limits = survey.limits;
        let mut next = Some(survey.first);
        while let Some(length) = next {
            self.together(cell, up, length, true)?;
            if self.is_halted() {
                return Ok(());
            }
            let further = self.surveys.further(&loads(up, cell), &limits);
            let further = further.filter(|_| !self.is_halted());
            next = further.map(DurationNs::from_ns);
        }
        // All cells of a sweep are measured on the same launches.
        let standing = self.surveys.add(&loads(up, cell), &limits);
        let (found, given) = (self.surveys.found(), self.surveys.warm());
        for up in up.iter_mut() {
            let SurveyState { is_moving, behind } = standing[up.variant.0];
            let load = &mut up.lane_mut(cell).load;
            let bins = load.sustained.as_ref().map_or(&[][..], |sustained| &sustained.bins);
            let all = bins.iter().copied().fold(Bin::default(), Bin::plus);
            load.warmup = WarmUp { ns: all.ns, requests: all.answered };
            (load.not_warm, load.behind) = (is_moving, behind);
        }
        let names = self.plan().variants.iter().map(|variant| &variant.name);
        let words: Vec<String> = names
            .zip(&found)
            .map(|(name, warm)| {
                let s = warm.ns as f64 / 1e9;
                format!("{name} warm after {s:.2} s and {} requests", warm.requests)
            })
            .collect();
        self.note(self.cells[cell.0].run, words.join(", "))?;
        let longest = given.iter().map(|warm| warm.ns).max().unwrap_or(0);
        for order in orders {
            order.use_launches(longest);
            self.cells[order.cell].warm = Some(given.clone());
            self.write_found(CellId(order.cell))?;
        }
        Ok(())
    }

    /// Puts sustained load on all warm variants.
    pub(crate) fn check_sustained(
        &mut self,
        sustained: SustainedOrder,
        cell: CellId,
        up: &mut [RunningVariant<L>],
    ) -> Result<(), Failure> {
        let SustainedOrder { length, turns } = sustained;
        // Their warm-up may have been sustained load already.
        let mut loads = up.iter().filter_map(|up| up.lane(cell).load.sustained.as_ref());
        let has = loads.any(|load| load.in_turns == turns.is_some());
        if has || up.len() < 2 {
            return Ok(());
        }
        self.load_sustained(length, turns, cell, up)?;
        // Sustained load that was cut off shows nothing.
        if self.is_halted() {
            up.iter_mut().for_each(|up| up.lane_mut(cell).load.sustained = None);
        }
        Ok(())
    }

    fn load_sustained(
        &mut self,
        length: DurationNs,
        turns: Option<u32>,
        cell: CellId,
        up: &mut [RunningVariant<L>],
    ) -> Result<(), Failure> {
        let Some(turns) = turns else { return self.together(cell, up, length, false) };
        // Drops the record of this launch's warm-up; other launches keep theirs.
        up.iter_mut().for_each(|up| up.lane_mut(cell).load.sustained = None);
        for _ in 0..turns {
            for up in up.iter_mut() {
                let turn = DurationNs::from_ns(length.as_ns() / u64::from(turns));
                self.together(cell, std::slice::from_mut(up), turn, false)?;
            }
        }
        for up in up.iter_mut() {
            up.lane_mut(cell).load.sustained.iter_mut().for_each(|load| load.in_turns = true);
        }
        Ok(())
    }

    /// Loads all of these at the same time.
    fn together(
        &mut self,
        cell: CellId,
        up: &mut [RunningVariant<L>],
        length: DurationNs,
        cold: bool,
    ) -> Result<(), Failure> {
        for up in up.iter_mut() {
            up.open(cell)?;
            up.meter = up.launched.as_ref().map(L::Launch::meter);
        }
        let bin = DurationNs::from_ns(BIN_PER_VARIANT.as_ns() * up.len() as u64);
        let bin = bin.min(DurationNs::from_ns(length.as_ns() / BINS_MIN));
        let stretch = Stretch { window: length, interval: bin, ..Stretch::NONE };
        let (mut loads, meters): (Vec<&mut L::Load>, Vec<Option<&L::Meter>>) =
            up.iter_mut().map(|up| (&mut up.connections, up.meter.as_ref())).unzip();
        let measured = self.lab.load_at_once(&mut loads, stretch, &meters)?;
        for (up, (measured, readings)) in up.iter_mut().zip(measured) {
            up.add_counts(&measured.counts);
            let lane = up.lane_mut(cell);
            let mut more = sustained(&measured, &readings, cold);
            if let Some(before) = lane.load.sustained.take() {
                more.bins.splice(0..0, before.bins);
                more.one_thread &= before.one_thread;
            }
            lane.load.sustained = Some(more);
        }
        Ok(())
    }
}

/// Returns the sustained load of all variants, in their order.
fn loads<L: World>(up: &[RunningVariant<L>], cell: CellId) -> Vec<&Sustained> {
    let mut up: Vec<&RunningVariant<L>> = up.iter().collect();
    up.sort_by_key(|up| up.variant);
    up.iter().filter_map(|up| up.lane(cell).load.sustained.as_ref()).collect()
}

/// Bins what a server's load and its meter measured; CPU time is 0 if nothing meters it.
fn sustained(measured: &Measured, readings: &[Reading], cold: bool) -> Sustained {
    let of = |reading: &Reading, thread: Option<(usize, usize)>| match thread {
        Some((thread, what)) => reading.threads.get(thread).map_or(0, |t| t[what]),
        None => reading.cpu_ns,
    };
    let nothing = [Reading::default(), Reading::default()];
    let readings = if readings.len() < 2 { &nothing } else { readings };
    let (first, last) = (&readings[0], &readings[readings.len() - 1]);
    let threads = last.threads.len();
    let gained = |thread| of(last, thread).saturating_sub(of(first, thread));
    let busiest = (0..threads).max_by_key(|thread| gained(Some((*thread, 0))));
    let of_busiest = busiest.map_or(0, |thread| gained(Some((thread, 0))));
    let marks = match measured.marks.as_slice() {
        // A load without requests has no intervals.
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
    Sustained { cold, in_turns: false, bins, one_thread }
}

/// A single thread with at least this share of a server's CPU time counts as doing all the work.
const ONE_THREAD: f64 = 0.8;

/// Returns the increase of a counter up to time `ns`, interpolated linearly between readings.
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
