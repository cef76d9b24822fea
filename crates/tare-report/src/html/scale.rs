//! The axis of overheads: percent up to a factor of two, factors (3×) beyond. An axis that needs
//! both is broken between them, so that neither squeezes the other.

use tare_model::Metric;

use super::plot::{SMALL, fitting_ticks, log_ticks};
use crate::run::Bounds;
use crate::run::words::{TIMES, factor, is_far, percent_of, worse};

pub struct Scale {
    metric: Metric,
    /// Parts from left to right; they do not overlap.
    parts: Vec<Part>,
}

/// A stretch of the axis.
#[derive(Clone, Copy, Debug)]
struct Part {
    /// Whether the part is logarithmic and shows factors; otherwise it is linear and in percent.
    is_times: bool,
    /// Lower end, as a factor: how many times worse a variant is.
    low: f64,
    /// Upper end, as a factor.
    high: f64,
    /// Left edge in pixels.
    from: f64,
    /// Right edge in pixels.
    to: f64,
}

pub struct Tick {
    pub x: i32,
    pub label: String,
}

/// Share of the width for each part that shows factors.
const TIMES_SHARE: f64 = 0.32;
/// Gap between two parts in pixels.
const GAP: f64 = 14.0;
/// Room beyond the farthest value, as a share of a part's width.
const ROOM: f64 = 0.06;
/// An interval that reaches further than this many times its estimate ends in an arrow.
const REACH: f64 = 5.0;

/// Overheads, grouped by the part of the axis that shows them.
#[derive(Default)]
struct Kinds {
    /// Range of the factors of variants that are at least two times better.
    better: Option<(f64, f64)>,
    /// Overheads within a factor of two.
    near: Vec<Bounds>,
    /// Range of the factors of variants that are at least two times worse.
    worse: Option<(f64, f64)>,
}

impl Kinds {
    fn from_bounds(metric: Metric, all: &[Bounds]) -> Self {
        let mut kinds = Self::default();
        for bounds in all {
            let [point, lower, upper] =
                [bounds.point, bounds.lower, bounds.upper].map(|percent| worse(metric, percent));
            let side = match point {
                point if !is_far(point) => {
                    kinds.near.push(*bounds);
                    continue;
                }
                point if point >= TIMES => &mut kinds.worse,
                _ => &mut kinds.better,
            };
            // A total loss has no position; it is drawn beyond all others.
            if point > 0.0 && point.is_finite() {
                let (low, high) = (lower.max(point / REACH), upper.min(point * REACH));
                let (least, most) = side.unwrap_or((low, high));
                *side = Some((least.min(low), most.max(high)));
            }
        }
        kinds
    }

    /// Returns the number of parts that an axis for all overheads has.
    fn parts(&self) -> usize {
        let far = usize::from(self.better.is_some()) + usize::from(self.worse.is_some());
        if self.near.is_empty() { 1 } else { 1 + far }
    }
}

impl Scale {
    /// Whether the axis of these overheads is broken.
    pub fn is_broken(metric: Metric, all: &[Bounds]) -> bool {
        Kinds::from_bounds(metric, all).parts() > 1
    }

    /// Makes an axis that holds zero, the tolerance, every estimate, and as much of every interval
    /// as fits beside them; `ends` are in pixels.
    pub fn new(metric: Metric, all: &[Bounds], tolerance: Option<f64>, ends: (i32, i32)) -> Self {
        let kinds = Kinds::from_bounds(metric, all);
        let (left, right) = (f64::from(ends.0), f64::from(ends.1));
        let part = |is_times: bool, (low, high): (f64, f64), (from, to): (f64, f64)| Part {
            is_times,
            low,
            high,
            from,
            to,
        };
        let room = |(low, high): (f64, f64)| (high / low).max(1.2).powf(ROOM);
        if kinds.near.is_empty() && kinds.better.or(kinds.worse).is_some() {
            // The axis always holds a factor of 1, which is no overhead.
            let far = [kinds.better, kinds.worse].into_iter().flatten();
            let (low, high) =
                far.fold((1.0, 1.0), |(l, h): (f64, f64), (low, high)| (l.min(low), h.max(high)));
            let room = room((low, high));
            let all = part(true, (low / room, high * room), (left, right));
            return Self { metric, parts: vec![all] };
        }
        let (mut low, mut high) = near_range(&kinds.near, tolerance);
        if kinds.better.is_some() {
            low = low.max(percent_of(metric, TIMES.recip()));
        }
        if kinds.worse.is_some() {
            high = high.min(percent_of(metric, TIMES));
        }
        let (low, high) = (worse(metric, low), worse(metric, high));
        let side = (right - left) * TIMES_SHARE;
        let from = if kinds.better.is_some() { left + side } else { left };
        let to = if kinds.worse.is_some() { right - side } else { right };
        let mut parts = Vec::new();
        if let Some((least, most)) = kinds.better {
            let room = room((least, most));
            let most = (most * room).min(low);
            let least = least.min(most) / room;
            parts.push(part(true, (least, most), (left, from - GAP)));
        }
        parts.push(part(false, (low, high), (from, to)));
        if let Some((least, most)) = kinds.worse {
            let room = room((least, most));
            let least = (least / room).max(high);
            let most = most.max(least) * room;
            parts.push(part(true, (least, most), (to + GAP, right)));
        }
        Self { metric, parts }
    }

    /// Returns the position of an overhead in percent, or the nearest edge.
    pub fn x(&self, percent: f64) -> i32 {
        let times = worse(self.metric, percent);
        let last = self.parts.len() - 1;
        let part =
            self.parts.iter().enumerate().find(|(at, part)| times <= part.high || *at == last);
        let Some((_, part)) = part else { return 0 };
        let share = part.share(self.metric, times).clamp(0.0, 1.0);
        (part.from + share * (part.to - part.from)).round() as i32
    }

    /// Whether an overhead is to the left, or to the right, of all that is shown.
    pub fn is_cut(&self, percent: f64) -> [bool; 2] {
        let times = worse(self.metric, percent);
        let is_left = self.parts.first().is_some_and(|part| times < part.low);
        let is_right = self.parts.last().is_some_and(|part| times > part.high);
        [is_left, is_right]
    }

    /// Returns the middles of the gaps.
    pub fn breaks(&self) -> Vec<i32> {
        self.parts.windows(2).map(|two| ((two[0].to + two[1].from) / 2.0).round() as i32).collect()
    }

    pub fn has_times(&self) -> bool {
        self.parts.iter().any(|part| part.is_times)
    }

    /// Returns marks with labels that do not overlap; short labels take precedence.
    pub fn ticks(&self) -> Vec<Tick> {
        let all = self.parts.iter().flat_map(|part| part.marks(self.metric));
        let mut all: Vec<(f64, String)> = all.collect();
        all.sort_by_key(|(_, label)| label.chars().count());
        let right = self.parts.last().map_or(0.0, |part| part.to) + MARGIN;
        let mut taken: Vec<[f64; 2]> = Vec::new();
        let fits = |(x, label): (f64, String)| {
            let half = (label.chars().count() + 1) as f64 * CHARACTER / 2.0;
            // `tick_label` moves labels in from the edges.
            let middle = x.max(half).min(right - half);
            let own = [middle - half, middle + half];
            let fits = taken.iter().all(|[from, to]| own[1] <= *from || *to <= own[0]);
            fits.then(|| {
                taken.push(own);
                Tick { x: x.round() as i32, label }
            })
        };
        let mut ticks: Vec<Tick> = all.into_iter().filter_map(fits).collect();
        ticks.sort_by_key(|tick| tick.x);
        ticks
    }
}

/// Least room beside the axis, in pixels.
const MARGIN: f64 = 14.0;
/// Width of a character in a label.
const CHARACTER: f64 = SMALL / 1.24 * 0.56;

impl Part {
    fn share(&self, metric: Metric, times: f64) -> f64 {
        let place = |times: f64| match self.is_times {
            true => times.max(f64::MIN_POSITIVE).ln(),
            false => percent_of(metric, times),
        };
        (place(times) - place(self.low)) / (place(self.high) - place(self.low))
    }

    /// Returns the positions and labels of this part's marks.
    fn marks(&self, metric: Metric) -> Vec<(f64, String)> {
        let pixels = self.to - self.from;
        let x = |times: f64| self.from + self.share(metric, times) * pixels;
        if !self.is_times {
            let (low, high) = (percent_of(metric, self.low), percent_of(metric, self.high));
            let marks = fitting_ticks(low, high, pixels as u32, percent);
            let place = |mark: f64| (x(worse(metric, mark)), percent(mark));
            return marks.into_iter().map(place).collect();
        }
        let mut marks = Vec::new();
        if self.low < 1.0 {
            let better = log_ticks(self.high.min(1.0).recip(), self.low.recip());
            let better = better.into_iter().rev().filter(|times| *times > 1.0);
            marks.extend(better.map(|times| (x(times.recip()), format_times(times.recip()))));
        }
        if self.high > 1.0 {
            let worse = log_ticks(self.low.max(1.0), self.high);
            marks.extend(worse.into_iter().map(|times| (x(times), format_times(times))));
        }
        marks
    }
}

fn near_range(near: &[Bounds], tolerance: Option<f64>) -> (f64, f64) {
    let farthest = near.iter().map(|own| own.point.abs()).fold(0.0, f64::max);
    let most = (farthest * 3.0).max(NEAR);
    let edge = tolerance.unwrap_or(0.5).max(0.05) * 1.3;
    let bounded = |value: f64| value.clamp(-most, most);
    let low = near.iter().map(|own| bounded(own.lower)).fold(-edge, f64::min);
    let high = near.iter().map(|own| bounded(own.upper)).fold(edge, f64::max);
    let room = (high - low) * ROOM;
    (low - room, high + room)
}

/// Intervals are shown at least up to this many percent, however small the estimates are.
const NEAR: f64 = 100.0;

pub fn percent(value: f64) -> String {
    let rounded = (value * 1000.0).round() / 1000.0;
    let sign = if rounded < 0.0 { "−" } else { "" };
    format!("{sign}{} %", rounded.abs())
}

/// Formats a factor: `3×`, and below one `1/3×`.
pub fn format_times(times: f64) -> String {
    match times {
        times if times < 0.995 => format!("1/{}×", short(times.recip())),
        times => format!("{}×", short(times)),
    }
}

/// Formats a factor without trailing zeros.
fn short(value: f64) -> String {
    let text = factor(value);
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn around(point: f64, half: f64) -> Bounds {
        Bounds { point, lower: point - half, upper: point + half }
    }

    fn of(metric: Metric, all: &[Bounds]) -> Scale {
        let scale = Scale::new(metric, all, Some(1.0), (0, 400));
        // In every case marks lie on the axis, and positions only increase.
        for part in &scale.parts {
            for (x, _) in part.marks(metric) {
                assert!((0.0..=400.0).contains(&x), "{x} of {:?}", scale.parts);
            }
        }
        let steps: Vec<i32> = (-300..1500).map(|percent| scale.x(f64::from(percent))).collect();
        assert!(steps.is_sorted(), "{:?}", scale.parts);
        assert_eq!(scale.breaks().len() + 1, scale.parts.len());
        assert_eq!(Scale::is_broken(metric, all), scale.parts.len() > 1);
        scale
    }

    fn close(metric: Metric, points: &[f64]) -> Scale {
        of(metric, &points.iter().map(|point| around(*point, 0.9)).collect::<Vec<_>>())
    }

    fn labels(scale: &Scale) -> Vec<String> {
        scale.ticks().into_iter().map(|tick| tick.label).collect()
    }

    #[test]
    fn small_overheads_keep_their_room_beside_a_far_one() {
        let scale = close(Metric::ServerCpu, &[4.0, 1234.0]);
        let widths = [scale.x(4.9) - scale.x(3.1), scale.x(4.0) - scale.x(0.0)];
        assert!(widths[0] > 50 && widths[1] > 120, "{widths:?}");
        assert!(scale.x(1234.0) > 300);
        assert_eq!(scale.breaks().len(), 1);
        let labels = labels(&scale);
        assert!(
            labels.contains(&"0 %".to_owned()) && labels.contains(&"13.3×".to_owned()),
            "{labels:?}"
        );
    }

    #[test]
    fn marks_stand_where_their_values_do_beside_wide_intervals() {
        let wide = Bounds { point: 150.0, lower: -10.0, upper: 500.0 };
        for near in [around(4.0, 1.0), around(40.0, 5.0), around(80.0, 100.0), around(-40.0, 60.0)]
        {
            let scale = of(Metric::ServerCpu, &[near, wide]);
            let at_zero = scale.ticks().into_iter().find(|tick| tick.label == "0 %").unwrap();
            assert_eq!(at_zero.x, scale.x(0.0), "{:?}", scale.parts);
            assert!(scale.x(near.point) < scale.breaks()[0], "{:?}", scale.parts);
            assert!(scale.x(150.0) > scale.breaks()[0], "{:?}", scale.parts);
        }
    }

    #[test]
    fn labels_that_are_moved_in_from_the_edges_do_not_run_into_others() {
        let wide = Bounds { point: 3.0, lower: -61.0, upper: 5.0 };
        for ends in [(14, 336), (14, 120), (14, 60)] {
            let scale = Scale::new(Metric::ServerCpu, &[wide], Some(2.0), ends);
            let ticks = scale.ticks();
            let moved = |tick: &Tick| {
                let half = (tick.label.chars().count() as f64 * CHARACTER / 2.0) as i32;
                [tick.x.max(half).min(ends.1 + 14 - half), half]
            };
            for pair in ticks.windows(2) {
                let [[left, half], [right, other]] = [moved(&pair[0]), moved(&pair[1])];
                assert!(left + half < right - other, "{ends:?}: {:?}", labels(&scale));
            }
        }
    }

    #[test]
    fn small_ones_alone_have_one_axis_in_percent() {
        let scale = close(Metric::ServerCpu, &[4.0, -3.0]);
        assert!(!scale.has_times());
        assert_eq!(scale.is_cut(4.0), [false, false]);
        assert_eq!(scale.is_cut(-300.0), [true, false]);
    }

    #[test]
    fn far_ones_alone_have_one_axis_in_times() {
        let scale = close(Metric::ServerCpu, &[300.0, 700.0]);
        assert!(scale.has_times() && scale.breaks().is_empty());
        // The axis begins at an overhead of zero.
        assert!((0..40).contains(&scale.x(0.0)), "{}", scale.x(0.0));
        let at = [0.0, 100.0, 300.0, 700.0].map(|percent| scale.x(percent));
        let steps = [at[1] - at[0], (at[2] - at[1]), (at[3] - at[2])];
        assert!(steps.iter().all(|step| (step - steps[0]).abs() <= 1), "{steps:?}");
    }

    #[test]
    fn throughput_that_is_lost_or_gained_is_told_in_times_too() {
        // One variant loses nine tenths; another gives three times as much.
        let scale = close(Metric::Throughput, &[2.0, 90.0, -200.0]);
        assert_eq!(scale.breaks().len(), 2);
        let labels = labels(&scale);
        assert!(labels.contains(&"1/3×".to_owned()), "{labels:?}");
        assert_eq!(scale.is_cut(100.0), [false, true]);
        assert_eq!(scale.x(100.0), 400);
    }

    #[test]
    fn whatever_an_interval_reaches_to_its_estimate_is_shown() {
        let all = [Bounds { point: 700.0, lower: -99.0, upper: 1e9 }];
        let scale = of(Metric::ServerCpu, &all);
        assert_eq!(scale.is_cut(1e9), [false, true]);
        assert!((100..300).contains(&scale.x(700.0)), "{}", scale.x(700.0));
        // Identical repetitions give an interval of zero width.
        let scale = of(Metric::ServerCpu, &[around(3.0, 0.0), around(900.0, 0.0)]);
        assert_eq!(scale.breaks().len(), 1);
        // The first variant lost all of its throughput.
        let lost = [around(100.0, 0.0), around(98.0, 3.0), around(4.0, 1.0)];
        assert!(of(Metric::Throughput, &lost).x(100.0) == 400);
        of(Metric::Throughput, &[around(100.0, 0.0)]);
        of(Metric::Throughput, &[]);
    }
}
