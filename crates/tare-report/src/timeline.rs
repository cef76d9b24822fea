//! Slices in the order they ran, reduced to what a chart of the whole run needs.

use tare_model::Metric;
use tare_model::metric::Basis;
use tare_model::samples::{Round, Series, Slice};
use tare_stats::round_digest::observed;

/// Every slice of a run, in order.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Timeline {
    pub marks: Vec<Mark>,
}

/// One slice.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mark {
    pub round: u32,
    pub variant: u32,
    /// Value in the unit of the [`Timeline`]'s metric; `None` if there was nothing to measure.
    pub value: Option<f32>,
    pub failed: u64,
}

impl Timeline {
    /// Adds the slices with clients that make the planned load.
    pub fn add(&mut self, round: &Round, metric: Metric) {
        self.marks.extend(round.slices.iter().map(|slice| Mark {
            round: round.index,
            variant: slice.variant,
            value: value(slice, metric).map(|value| value as f32).filter(|v| v.is_finite()),
            failed: slice.counts.failed + slice.counts.cut,
        }));
    }
}

/// Returns a slice's value of a metric: a rate, or the mean of its latencies.
fn value(slice: &Slice, metric: Metric) -> Option<f64> {
    match metric.basis() {
        // Without a good reply the rate is 0, which is worth a mark.
        Basis::Cycle if slice.counts.good == 0 && metric.more_is_better() => Some(0.0),
        Basis::Cycle => metric.number(&observed(slice, None)),
        Basis::Quantile(..) | Basis::Total => slice.latency(Series::Headline)?.mean_ns(),
    }
}

/// Returns the metric to draw over the run, given the requested metrics.
pub fn metric_of(asked: &[Metric]) -> Metric {
    let rates = [Metric::Throughput, Metric::Bandwidth, Metric::SystemCall];
    let found = asked.iter().copied().find(|metric| rates.contains(metric));
    found.unwrap_or(if asked.iter().any(|m| is_latency(*m)) {
        Metric::LatencyMean
    } else {
        Metric::Throughput
    })
}

fn is_latency(metric: Metric) -> bool {
    matches!(metric.basis(), Basis::Quantile(..)) || metric == Metric::LatencyMean
}
