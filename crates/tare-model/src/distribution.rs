//! Latencies as counted values: the buckets of a histogram, small enough to keep thousands of them.

use serde::{Deserialize, Serialize};

use crate::Invalid;
use crate::samples::NUMBER_MAX;

/// Range and precision of histograms in nanoseconds, both recorded and stored. The range starts at
/// 1 ns because one from 1 µs has steps of half a microsecond up to a millisecond. Values above the
/// highest are counted as the highest.
pub const LOWEST_NS: u64 = 1;
pub const HIGHEST_NS: u64 = 60_000_000_000;
pub const SIGNIFICANT_DIGITS: u8 = 3;

/// Values in nanoseconds with how often each occurred, in ascending order. Merges by adding.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(try_from = "Message", into = "Message")]
pub struct Distribution {
    counts: Vec<(u64, u64)>,
    total: u64,
    /// Exact sum of the values, not computed from buckets.
    sum_ns: u128,
}

/// A distribution as a message: its buckets, and its sum in decimal digits.
type Message = (Vec<(u64, u64)>, String);

impl From<Distribution> for Message {
    fn from(distribution: Distribution) -> Self {
        (distribution.counts, distribution.sum_ns.to_string())
    }
}

impl TryFrom<Message> for Distribution {
    type Error = Invalid;

    fn try_from((counts, sum): Message) -> Result<Self, Invalid> {
        let total = counts.iter().try_fold(0u64, |sum, (_, n)| sum.checked_add(*n));
        let ascends = counts.is_sorted_by(|a, b| a.0 < b.0);
        match (total, sum.parse()) {
            (Some(total), Ok(sum_ns)) if ascends && total <= NUMBER_MAX => {
                Ok(Self { counts, total, sum_ns })
            }
            _ => Err("not a distribution: values must ascend, and their number have a sum".into()),
        }
    }
}

impl Distribution {
    /// `counts` must be in ascending order of value.
    pub fn new(counts: Vec<(u64, u64)>, sum_ns: u128) -> Self {
        assert!(counts.is_sorted_by(|a, b| a.0 < b.0), "ascending values");
        let total = counts.iter().map(|(_, n)| n).sum();
        Self { counts, total, sum_ns }
    }

    pub fn count(&self) -> u64 {
        self.total
    }

    pub fn counts(&self) -> &[(u64, u64)] {
        &self.counts
    }

    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    pub fn mean_ns(&self) -> Option<f64> {
        (self.total > 0).then(|| self.sum_ns as f64 / self.total as f64)
    }

    /// Whether at least ten values lie beyond the quantile; fewer say nothing about it.
    pub fn holds(&self, quantile: f64) -> bool {
        self.total as f64 * (1.0 - quantile.max(1.0 - quantile)) >= 10.0 - 1e-6
    }

    /// The value that this share of all values does not exceed; `None` if there are too few values.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        if !self.holds(quantile) {
            return None;
        }
        let rank = ((self.total as f64 * quantile).ceil() as u64).clamp(1, self.total);
        let mut seen = 0;
        for (value, n) in &self.counts {
            seen += n;
            if seen >= rank {
                return Some(*value);
            }
        }
        None
    }

    pub fn max_ns(&self) -> u64 {
        self.counts.last().map_or(0, |(value, _)| *value)
    }

    pub fn merge(&mut self, other: &Self) {
        if other.total == 0 {
            return;
        }
        let mut merged = Vec::with_capacity(self.counts.len() + other.counts.len());
        let (mut mine, mut theirs) =
            (self.counts.iter().peekable(), other.counts.iter().peekable());
        while let (Some(a), Some(b)) = (mine.peek(), theirs.peek()) {
            merged.push(match a.0.cmp(&b.0) {
                std::cmp::Ordering::Less => (a.0, a.1),
                std::cmp::Ordering::Greater => (b.0, b.1),
                std::cmp::Ordering::Equal => (a.0, a.1 + b.1),
            });
            let (step_a, step_b) = (a.0 <= b.0, b.0 <= a.0);
            if step_a {
                mine.next();
            }
            if step_b {
                theirs.next();
            }
        }
        merged.extend(mine);
        merged.extend(theirs);
        self.counts = merged;
        self.total += other.total;
        self.sum_ns += other.sum_ns;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;
    use tare_io::Random;

    fn of(values: &[u64]) -> Distribution {
        let mut counts = BTreeMap::new();
        for value in values {
            *counts.entry(*value).or_insert(0) += 1;
        }
        Distribution::new(counts.into_iter().collect(), values.iter().map(|v| u128::from(*v)).sum())
    }

    #[test]
    fn merging_is_counting_together_in_any_order() {
        let mut random = Random::stream(3, "distribution", 0);
        for _ in 0..200 {
            let mut draw =
                || -> Vec<u64> { (0..random.below(60)).map(|_| random.below(40)).collect() };
            let (a, b) = (draw(), draw());
            let mut ab = of(&a);
            ab.merge(&of(&b));
            let mut ba = of(&b);
            ba.merge(&of(&a));
            let both: Vec<u64> = a.iter().chain(&b).copied().collect();
            assert_eq!(ab, of(&both));
            assert_eq!(ab, ba);
        }
    }

    #[test]
    fn quantiles_are_those_of_the_sorted_values() {
        let values: Vec<u64> = (1..=1000).collect();
        let distribution = of(&values);
        assert_eq!(distribution.quantile(0.5), Some(500));
        assert_eq!(distribution.quantile(0.99), Some(990));
        assert_eq!(distribution.quantile(0.999), None, "one value beyond it");
        assert_eq!(distribution.mean_ns(), Some(500.5));
        assert_eq!(Distribution::default().quantile(0.5), None);
    }
}
