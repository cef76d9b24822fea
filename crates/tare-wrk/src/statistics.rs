//! wrk's statistics: mean, standard deviation, extremes, and the share within one deviation.

use tare_io::DurationNs;
use tare_load::{Histogram, Observer, Tally};

/// Latencies in µs, or requests per second: distinct values in rising order, with their counts.
#[derive(Clone, Debug, Default)]
pub struct Statistic {
    values: Vec<(f64, u64)>,
    count: u64,
    pub min: f64,
    pub max: f64,
    pub mean: f64,
    pub stdev: f64,
}

impl Statistic {
    pub fn of_latency(histogram: &Histogram) -> Self {
        let us = |duration: DurationNs| duration.as_ns() as f64 / 1e3;
        // A bucket is given by its upper edge, which may be above the largest recorded value.
        let (min, max) = (histogram.min(), histogram.max());
        let values = histogram.recorded().map(|(v, n)| (us(v.clamp(min, max)), n)).collect();
        Self {
            min: us(histogram.min()),
            max: us(histogram.max()),
            mean: us(histogram.mean()),
            ..Self::from_counts(values)
        }
    }

    pub fn of_samples(samples: &[f64]) -> Self {
        let mut samples = samples.to_vec();
        samples.sort_by(f64::total_cmp);
        Self::from_counts(samples.into_iter().map(|sample| (sample, 1)).collect())
    }

    fn from_counts(values: Vec<(f64, u64)>) -> Self {
        let count: u64 = values.iter().map(|(_, n)| n).sum();
        if count == 0 {
            return Self::default();
        }
        let total = count as f64;
        let mean = values.iter().map(|(value, n)| value * *n as f64).sum::<f64>() / total;
        let square = |(value, n): &(f64, u64)| (value - mean).powi(2) * *n as f64;
        // wrk divides by n − 1.
        let variance = values.iter().map(square).sum::<f64>() / (total - 1.0).max(1.0);
        Self {
            min: values.first().map_or(0.0, |(value, _)| *value),
            max: values.last().map_or(0.0, |(value, _)| *value),
            mean,
            stdev: variance.sqrt(),
            values,
            count,
        }
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn distinct(&self) -> usize {
        self.values.len()
    }

    /// Returns the `at`-th distinct value, counted from 1, and its count.
    pub fn entry(&self, at: usize) -> Option<(f64, u64)> {
        self.values.get(at.checked_sub(1)?).copied()
    }

    pub fn percentile(&self, percent: f64) -> f64 {
        let rank = (percent / 100.0 * self.count as f64 + 0.5).max(1.0) as u64;
        let mut seen = 0;
        for (value, n) in &self.values {
            seen += n;
            if seen >= rank {
                return *value;
            }
        }
        self.max
    }

    /// Share of values within one standard deviation of the mean, in percent.
    pub fn within_one_stdev(&self) -> f64 {
        let (low, high) = (self.mean - self.stdev, self.mean + self.stdev);
        let inside: u64 =
            self.values.iter().filter(|(v, _)| (low..=high).contains(v)).map(|(_, n)| n).sum();
        if self.count == 0 { 0.0 } else { inside as f64 / self.count as f64 * 100.0 }
    }
}

/// Collects each worker's rate over every interval, as wrk samples its threads.
#[derive(Debug, Default)]
pub struct RateSamples(pub Vec<f64>);

/// Shorter intervals, as at the end of a run, give no useful rate.
const SAMPLE_MIN: DurationNs = DurationNs::from_ms(50);

impl Observer for RateSamples {
    fn worker_interval(&mut self, tally: &Tally) {
        if tally.elapsed() >= SAMPLE_MIN {
            self.0.push(tally.counts.completed as f64 / tally.elapsed().as_secs_f64());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_and_percentiles() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        let statistic = Statistic::of_samples(&samples);
        assert_eq!((statistic.min, statistic.max, statistic.mean), (1.0, 100.0, 50.5));
        assert!((statistic.stdev - 29.011).abs() < 0.001);
        assert_eq!(statistic.percentile(50.0), 50.0);
        assert_eq!(statistic.percentile(100.0), 100.0);
        assert!((statistic.within_one_stdev() - 58.0).abs() < 1e-9);
        assert_eq!((statistic.entry(0), statistic.entry(1)), (None, Some((1.0, 1))));
        assert_eq!(Statistic::of_samples(&[]).percentile(50.0), 0.0);
    }
}
