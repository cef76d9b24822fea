//! Slices in the order they ran, reduced to what a picture of the whole run needs.

use tare_stats::Metric;
use tare_stats::samples::{Round, Series, Slice};

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
    /// In the unit of the [`Timeline`]'s metric; `None` where there was nothing to measure.
    pub value: Option<f32>,
    pub failed: u64,
}

impl Timeline {
    pub fn add(&mut self, round: &Round, metric: Metric) {
        self.marks.extend(round.slices.iter().map(|slice| Mark {
            round: round.index,
            variant: slice.variant,
            value: value(slice, metric).map(|value| value as f32).filter(|v| v.is_finite()),
            failed: slice.counts.failed + slice.counts.cut,
        }));
    }
}

/// What a single slice can say of a metric: a rate, or the mean of its latencies.
fn value(slice: &Slice, metric: Metric) -> Option<f64> {
    let counts = &slice.counts;
    let seconds = counts.window_ns as f64 / 1e9;
    match metric {
        Metric::Throughput => Some(counts.good as f64 / seconds),
        Metric::Bandwidth => Some(counts.body_bytes as f64 / seconds),
        Metric::SystemCall => {
            (counts.calls > 0).then(|| counts.window_ns as f64 / counts.calls as f64)
        }
        _ => slice.latency(Series::Headline)?.mean_ns(),
    }
}

/// The metric whose course over the run tells most, given what was to be resolved.
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
    matches!(metric.basis(), tare_stats::metric::Basis::Quantile(..))
        || metric == Metric::LatencyMean
}
