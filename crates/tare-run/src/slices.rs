//! One cell's part of a round: warm-up, slices in turn, and rests between them.

use std::sync::Arc;

use tare_io::DurationNs;
use tare_lab::meters::Quiet;
use tare_lab::world::{Launch as _, LaunchUsage, World};
use tare_load::{LaneId, Stretch};
use tare_model::calibration::Calibration;
use tare_model::plan::{ReconnectEach, VariantId};
use tare_model::samples::{AtRest, Ramps, Round, Slice};
use tare_model::usage::Usage;
use tare_stats::design::CellOrder;
use tare_stats::idle::{WATCH_NS, at_rest};
use tare_stats::slicing::{Fit, Pace, SliceShape, Trials};
use tare_stats::surveys::{is_warm, still_needed, warm_next};
use tare_store::Entry;

use crate::cell::Cell;
use crate::launches::RunningVariant;
use crate::observer::Event;
use crate::runner::Runner;
use crate::schedule::{self, CellId};
use crate::window::Window;
use tare_model::Failure;

/// A slice is over when all servers are idle, or have had enough time to become so.
const QUIET: Quiet = Quiet {
    time: DurationNs::from_us(1500),
    cpu_ns: 45_000,
    look: DurationNs::from_us(250),
    limit: DurationNs::from_ms(20),
};

/// Threads that used at least this share of the busiest thread's time count as workers. Workers use
/// about equal time; a compiler or garbage collector uses less.
const BUSY_SHARE: f64 = 0.3;

impl<L: World> Runner<'_, L> {
    /// Opens connections, warms up and runs the cycles of a cell.
    pub(crate) fn measure(
        &mut self,
        cell: CellId,
        order: &CellOrder,
        up: &mut [RunningVariant<L>],
        round: &mut Round,
    ) -> Result<(), Failure> {
        let run = self.cells[cell.0].run;
        let mut made_by = Vec::new();
        let mut all_poll = true;
        for up in up.iter_mut() {
            let source = up.open(cell)?;
            all_poll &= source.polls;
            let by = source.to_string();
            let by_another = !self.plan().variants[up.variant.0].clients.is_on_host();
            let load = &mut up.lane_mut(cell).load;
            (load.by, load.by_another) = (Some(by.clone()), by_another);
            made_by.push(by);
        }
        self.note_load(run, made_by)?;
        let shape = match order.shape {
            Some(shape) => shape,
            None => {
                let Some(pace) = self.trials(cell, order, up)? else { return Ok(()) };
                self.settle_shape(cell, order.fit, pace)?
            }
        };
        let planned = order.cycles_of(&shape);
        self.begin(cell, planned, round)?;
        let window = Window::for_cell(shape, order, self.cells[cell.0].plan);
        for up in up.iter_mut() {
            if !order.is_cold {
                self.warm(cell, order, up, window)?;
            }
            // Load has started all threads and processes by now.
            up.meter = up.launched.as_ref().map(L::Launch::meter);
        }
        let seed = schedule::seed_of(self.plan().seed, cell);
        let by_sleepers = if all_poll { order.by_sleepers(round.cycles) } else { 0 };
        let cycles = schedule::round(seed, round.index, up.len(), round.cycles, by_sleepers);
        let draws_anew =
            self.cells[cell.0].plan.slices.reconnect_each == Some(ReconnectEach::Slice);
        self.quiesce(up);
        let before: Vec<_> = up.iter().map(VariantUsage::read).collect();
        let began = self.clock().now();
        let (mut own, mut windows_ns) = (vec![0; up.len()], vec![0; up.len()]);
        for (at, cycle) in cycles.into_iter().enumerate() {
            let is_fixed = order.fit.length.is_some();
            let window = if order.is_cold { window } else { window.shaped(&cycle.shape, is_fixed) };
            let stretch = Stretch { sleeps: cycle.by_sleepers, ..window.stretch() };
            if at > 0 && draws_anew {
                self.open_anew(cell, up)?;
            }
            for (position, LaneId(at)) in cycle.lanes.into_iter().enumerate() {
                let variant = up[at].variant;
                let Some(slice) = self.slice(at, cell, up, stretch)? else {
                    return Ok(());
                };
                own[at] += slice.used.as_ref().map_or(0, Usage::cpu_ns);
                windows_ns[at] += slice.counts.window_ns;
                let (variant_number, position) = (variant.number(), position as u32);
                let slice =
                    Slice { variant: variant_number, cycle: cycle.number, position, ..slice };
                let slice = Arc::new(slice);
                self.write(run, Entry::Slice { round: round.index, slice: slice.clone() })?;
                let slice = Arc::unwrap_or_clone(slice);
                if cycle.by_sleepers {
                    round.by_sleepers.push(slice);
                    continue;
                }
                round.slices.push(slice);
                self.on_event(&Event::SliceDone { cell, variant, cycle: cycle.number });
            }
        }
        let elapsed_ns = self.clock().now().since(began).as_ns();
        for (at, before) in before.into_iter().enumerate() {
            if !order.is_cold {
                own[at] += self.ramp(at, cell, up, window)?;
            }
            let after = VariantUsage::read(&up[at]);
            let load = &mut up[at].lane_mut(cell).load;
            load.idle_cpu_ns = after.cpu_ns.saturating_sub(before.cpu_ns).saturating_sub(own[at]);
            load.idle_ns = elapsed_ns.saturating_sub(windows_ns[at]);
            (load.busy_threads, load.delay_ns) = after.threads_since(&before);
            load.cpus = self.plan().server_cpus.len() as u32;
        }
        Ok(())
    }

    /// Replaces the connections to the same servers by new ones.
    fn open_anew(&mut self, cell: CellId, up: &mut [RunningVariant<L>]) -> Result<(), Failure> {
        for up in up.iter_mut() {
            let life = up.close()?;
            up.lane_mut(cell).beside.add(&life);
        }
        for up in up.iter_mut() {
            up.open(cell)?;
        }
        // Servers must have accepted the new connections before the next slice.
        self.quiesce(up);
        Ok(())
    }

    /// Measures what idle servers use. Of the CPU time that servers use outside slices, this much
    /// is not deferred work.
    pub(crate) fn watch_rest(&self, up: &mut [RunningVariant<L>]) {
        up.iter_mut().for_each(|up| up.meter = up.launched.as_ref().map(L::Launch::meter));
        let read = |up: &[RunningVariant<L>]| -> Vec<u64> {
            up.iter().map(RunningVariant::cpu_ns).collect()
        };
        let (mut before, mut began) = (read(up), self.clock().now());
        let mut stretches: Vec<Vec<u64>> = Vec::new();
        while !at_rest(&stretches) && !self.is_halted() {
            self.clock().pause(DurationNs::from_ns(WATCH_NS));
            let (after, now) = (read(up), self.clock().now());
            let used =
                before.iter().zip(&after).map(|(before, after)| after.saturating_sub(*before));
            let used: Vec<u64> = used.collect();
            for (up, cpu_ns) in up.iter_mut().zip(&used) {
                let at_rest = AtRest { cpu_ns: *cpu_ns, ns: now.since(began).as_ns() };
                up.lanes.values_mut().for_each(|lane| lane.load.at_rest = Some(at_rest));
            }
            stretches.push(used);
            (before, began) = (after, now);
        }
    }

    /// Loads a launch until it has had the warm-up that its variant needs.
    fn warm(
        &mut self,
        cell: CellId,
        order: &CellOrder,
        up: &mut RunningVariant<L>,
        window: Window,
    ) -> Result<(), Failure> {
        let warm = self.cells[cell.0].warm.as_ref().filter(|_| order.fit.warmup.is_none());
        // A stored plan may list fewer variants.
        let needed = warm.filter(|_| up.launched.is_some()).and_then(|w| w.get(up.variant.0));
        // Other cells of a sweep have loaded the same launch before.
        let others = up.lanes.iter().filter(|(other, _)| **other != cell);
        let others = others.map(|(_, other)| other.load.warmup);
        let needed = still_needed(needed.copied().unwrap_or_default(), others);
        let mut least = window.shape.warmup;
        loop {
            let length = warm_next(up.lane(cell).load.warmup, needed, least, order.warmup_max);
            let measured = up.load(window.warmup(length))?;
            let load = &mut up.lane_mut(cell).load;
            load.warmup.ns += length.as_ns();
            load.warmup.requests += measured.counts.answered;
            if is_warm(load.warmup, needed, order.warmup_max) || self.is_halted() {
                return Ok(());
            }
            least = window.shape.length;
        }
    }

    /// Makes one slice on one variant, and the rest after it; `None` if the run is halted.
    fn slice(
        &mut self,
        at: usize,
        cell: CellId,
        up: &mut [RunningVariant<L>],
        stretch: Stretch,
    ) -> Result<Option<Slice>, Failure> {
        let before = self.used_beside(&up[at]);
        let measured = up[at].load(stretch)?;
        let still = self.quiesce(up);
        let load = &mut up[at].lane_mut(cell).load;
        load.rests += 1;
        load.rests_cut += u32::from(!still);
        let after = self.used_beside(&up[at]);
        if self.is_halted() {
            return Ok(None);
        }
        let used = after.zip(before).map(|(after, before)| after.since(&before));
        if let Some(gone) =
            up[at].launched.as_ref().and_then(|launched| launched.place_failure(DurationNs::ZERO))
        {
            return Err(gone);
        }
        let (counts, latencies) = (measured.counts, measured.latencies);
        let slice = Slice { counts, used, latencies, ..Slice::default() };
        if slice.counts.answered == 0 {
            self.check_alive(&mut up[at])?;
        }
        Ok(Some(slice))
    }

    /// Returns what a variant used so far, and what its neighbours did.
    fn used_beside(&self, up: &RunningVariant<L>) -> Option<Usage> {
        let used = up.used().usage?;
        let all = used.all.or(self.lab.neighbours(up.variant, &used));
        Some(Usage { all, ..used })
    }

    /// Makes load as short as a slice's ramp, so that the cost of ramps can be subtracted; returns
    /// its CPU time.
    fn ramp(
        &mut self,
        at: usize,
        cell: CellId,
        up: &mut [RunningVariant<L>],
        window: Window,
    ) -> Result<u64, Failure> {
        let before = up[at].used().usage;
        let measured = up[at].load(window.only_ramp())?;
        self.quiesce(up);
        let Some((after, before)) = up[at].used().usage.zip(before) else { return Ok(0) };
        let (server, answered) = (after.since(&before), measured.counts.answered);
        let cpu_ns = server.cpu_ns();
        if answered > 0 {
            up[at].lane_mut(cell).load.ramps = Some(Ramps { ramps: 1, answered, server });
        }
        Ok(cpu_ns)
    }

    /// Waits until all servers are idle, so that none does deferred work while another is measured;
    /// returns whether they are.
    fn quiesce(&self, up: &[RunningVariant<L>]) -> bool {
        let meters: Vec<&L::Meter> = up.iter().filter_map(|up| up.meter.as_ref()).collect();
        self.lab.quiesce(&meters, QUIET)
    }

    /// Tries all variants once before the first round, if they run alone.
    pub(crate) fn fit_alone(&mut self, order: &CellOrder) -> Result<(), Failure> {
        let cell = CellId(order.cell);
        let mut slowest: Option<Pace> = None;
        for variant in 0..self.plan().variants.len() {
            let mut up = self.launch_all(&[VariantId(variant)], 0, &[(cell, order)])?;
            if self.is_halted() {
                return Ok(());
            }
            for up in &mut up {
                up.open(cell)?;
            }
            let Some(pace) = self.trials(cell, order, &mut up)? else {
                self.note_ended(&mut up);
                return Ok(());
            };
            slowest = Some(slowest.map_or(pace, |slowest| slowest.slowest(pace)));
            for up in &mut up {
                up.close()?;
            }
            self.stop_all(up)?;
        }
        match slowest {
            Some(pace) => self.settle_shape(cell, order.fit, pace).map(drop),
            None => Ok(()),
        }
    }

    /// Returns the pace of the slowest variant, from a few trials on each; `None` if the run is
    /// halted.
    fn trials(
        &mut self,
        cell: CellId,
        order: &CellOrder,
        up: &mut [RunningVariant<L>],
    ) -> Result<Option<Pace>, Failure> {
        let mut slowest: Option<Pace> = None;
        for up in up {
            let mut trials = Trials::default();
            while let Some(shape) = trials.next() {
                let window = Window::for_cell(shape, order, self.cells[cell.0].plan);
                let measured = up.load(window.stretch())?;
                let (per_s, latency) = measured.rate_and_mean();
                trials.take(Pace { per_s, latency });
                if self.is_halted() {
                    return Ok(None);
                }
            }
            let pace = trials.pace();
            slowest = match (slowest, pace) {
                (Some(slowest), Some(pace)) => Some(slowest.slowest(pace)),
                (slowest, pace) => slowest.or(pace),
            };
        }
        Ok(slowest)
    }

    fn settle_shape(&mut self, cell: CellId, fit: Fit, pace: Pace) -> Result<SliceShape, Failure> {
        let shape = fit.shape(pace);
        self.cells[cell.0].shape = Some(shape);
        self.write_found(cell)?;
        let SliceShape { length, ramp, warmup, .. } = shape;
        let text = format!("slices of {length} after a ramp of {ramp}, warm-up {warmup}");
        self.note(self.cells[cell.0].run, text)?;
        Ok(shape)
    }

    /// Stores the shape and the warm-ups, so that a resumed run uses the same.
    pub(crate) fn write_found(&mut self, cell: CellId) -> Result<(), Failure> {
        let Cell { run, shape, warm, .. } = &self.cells[cell.0];
        let Some(shape) = shape else { return Ok(()) };
        self.write(
            *run,
            Entry::Found(Calibration {
                window: shape.length,
                ramp: shape.ramp,
                warmup: shape.warmup,
                warm: warm.clone(),
            }),
        )
    }
}

/// A variant's use so far.
struct VariantUsage {
    cpu_ns: u64,
    threads: Vec<[u64; 2]>,
}

impl VariantUsage {
    fn read<L: World>(up: &RunningVariant<L>) -> Self {
        let LaunchUsage { usage, threads } = up.used();
        Self { cpu_ns: usage.map_or(0, |usage| usage.cpu_ns()), threads }
    }

    /// Returns how many threads did the work, and how long all of them waited for a CPU.
    fn threads_since(&self, before: &Self) -> (u32, u64) {
        let pairs = self.threads.iter().zip(&before.threads);
        let since =
            |at: usize| pairs.clone().map(move |(now, then)| now[at].saturating_sub(then[at]));
        let busiest: u64 = since(0).max().unwrap_or(0);
        let least = (busiest as f64 * BUSY_SHARE).max(1.0);
        let busy = since(0).filter(|ns| *ns as f64 >= least).count();
        (busy as u32, since(1).sum())
    }
}
