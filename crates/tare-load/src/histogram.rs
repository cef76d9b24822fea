//! Latencies: an HDR histogram of 3 significant digits from 1 ns to 60 s, with exact count, sum,
//! minimum and maximum beside it.

use hdrhistogram::Histogram as Hdr;
use tare_io::DurationNs;
use tare_model::Distribution;
use tare_model::distribution::{HIGHEST_NS, LOWEST_NS, SIGNIFICANT_DIGITS};

/// Allocates its 220 KB with the first value, so that an unused series costs nothing.
#[derive(Clone, Debug, Default)]
pub struct Histogram {
    hdr: Option<Box<Hdr<u64>>>,
    count: u64,
    sum_ns: u128,
    min_ns: u64,
    max_ns: u64,
}

impl Histogram {
    /// Allocates the memory now, so that recording never does.
    pub fn preallocated() -> Self {
        Self { hdr: Some(new_hdr()), ..Self::default() }
    }

    /// Makes a histogram of counted values, with their exact sum.
    pub fn from_distribution(distribution: &Distribution) -> Self {
        let mut histogram = Self::default();
        for (value, n) in distribution.counts() {
            histogram.record_n(DurationNs::from_ns(*value), *n);
        }
        histogram.sum_ns = distribution.sum_ns();
        histogram
    }

    #[inline]
    pub fn record(&mut self, value: DurationNs) {
        self.record_n(value, 1);
    }

    pub fn record_n(&mut self, value: DurationNs, n: u64) {
        let ns = value.as_ns();
        self.hdr.get_or_insert_with(new_hdr).saturating_record_n(ns.max(LOWEST_NS), n);
        self.min_ns = if self.count == 0 { ns } else { self.min_ns.min(ns) };
        self.max_ns = self.max_ns.max(ns);
        self.count += n;
        self.sum_ns += u128::from(ns) * u128::from(n);
    }

    /// Removes all values, but keeps the memory.
    pub fn clear(&mut self) {
        if self.count > 0
            && let Some(hdr) = &mut self.hdr
        {
            hdr.reset();
        }
        *self = Self { hdr: self.hdr.take(), ..Self::default() };
    }

    pub fn merge(&mut self, other: &Self) {
        let Some(theirs) = other.hdr.as_deref().filter(|_| other.count > 0) else { return };
        let mine = self.hdr.get_or_insert_with(new_hdr);
        // Fails only if the other's range is larger, and all histograms have the same.
        let added = mine.add(theirs);
        assert!(added.is_ok(), "histograms of one range: {added:?}");
        self.min_ns = if self.count == 0 { other.min_ns } else { self.min_ns.min(other.min_ns) };
        self.max_ns = self.max_ns.max(other.max_ns);
        self.count += other.count;
        self.sum_ns += other.sum_ns;
    }

    pub fn count(&self) -> u64 {
        self.count
    }

    pub fn min(&self) -> DurationNs {
        DurationNs::from_ns(self.min_ns)
    }

    pub fn max(&self) -> DurationNs {
        DurationNs::from_ns(self.max_ns)
    }

    /// Returns the exact mean, computed from the sum and not from the buckets.
    pub fn mean(&self) -> DurationNs {
        DurationNs::from_ns(self.sum_ns.checked_div(u128::from(self.count)).unwrap_or(0) as u64)
    }

    pub fn sum_ns(&self) -> u128 {
        self.sum_ns
    }

    pub fn stdev(&self) -> DurationNs {
        DurationNs::from_secs_f64(self.hdr.as_ref().map_or(0.0, |hdr| hdr.stdev() / 1e9))
    }

    /// The value that this share (0 to 1) of all values does not exceed.
    pub fn quantile(&self, quantile: f64) -> DurationNs {
        match &self.hdr {
            Some(hdr) if self.count > 0 => {
                DurationNs::from_ns(hdr.value_at_quantile(quantile).clamp(self.min_ns, self.max_ns))
            }
            _ => DurationNs::ZERO,
        }
    }

    /// Whether the sample is large enough for this quantile: at least ten values are beyond it.
    pub fn supports_quantile(&self, quantile: f64) -> bool {
        self.count as f64 * (1.0 - quantile.max(1.0 - quantile)) >= 10.0 - 1e-6
    }

    /// The share of values at or below `value`.
    pub fn share_up_to(&self, value: DurationNs) -> f64 {
        match &self.hdr {
            Some(hdr) if self.count > 0 => {
                hdr.count_between(0, value.as_ns()) as f64 / self.count as f64
            }
            _ => 0.0,
        }
    }

    /// The buckets, for writing logs; `None` while nothing was recorded.
    pub fn hdr(&self) -> Option<&Hdr<u64>> {
        self.hdr.as_deref().filter(|_| self.count > 0)
    }

    /// Converts the histogram to counted values, which take less space.
    pub fn distribution(&self) -> Distribution {
        let counts = self.recorded().map(|(value, n)| (value.as_ns(), n)).collect();
        Distribution::new(counts, self.sum_ns)
    }

    /// Distinct recorded values with their counts, smallest first.
    pub fn recorded(&self) -> impl Iterator<Item = (DurationNs, u64)> + '_ {
        self.hdr()
            .into_iter()
            .flat_map(|hdr| hdr.iter_recorded())
            .map(|step| (DurationNs::from_ns(step.value_iterated_to()), step.count_at_value()))
    }
}

fn new_hdr() -> Box<Hdr<u64>> {
    match Hdr::new_with_bounds(LOWEST_NS, HIGHEST_NS, SIGNIFICANT_DIGITS) {
        Ok(hdr) => Box::new(hdr),
        Err(error) => panic!("constant bounds of a histogram: {error}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_are_exact_and_quantiles_within_a_thousandth() {
        let mut histogram = Histogram::default();
        for us in 1..=1000 {
            histogram.record(DurationNs::from_us(us));
        }
        assert_eq!(histogram.mean(), DurationNs::from_ns(500_500));
        assert_eq!(
            (histogram.min(), histogram.max()),
            (DurationNs::from_us(1), DurationNs::from_ms(1))
        );
        for (q, us) in [(0.5, 500.0), (0.99, 990.0), (1.0, 1000.0)] {
            let got = histogram.quantile(q).as_ns() as f64 / 1000.0;
            assert!((got / us - 1.0).abs() < 0.001, "q{q}: {got}");
        }
    }

    #[test]
    fn merging_equals_recording_into_one() {
        let (mut a, mut b, mut both) =
            (Histogram::default(), Histogram::default(), Histogram::default());
        for ns in [1, 1_000, 70_000_000_000] {
            a.record(DurationNs::from_ns(ns));
            both.record(DurationNs::from_ns(ns));
        }
        b.record_n(DurationNs::from_ns(5), 4);
        both.record_n(DurationNs::from_ns(5), 4);
        a.merge(&b);
        a.merge(&Histogram::preallocated());
        assert_eq!(a.recorded().collect::<Vec<_>>(), both.recorded().collect::<Vec<_>>());
        assert_eq!((a.count(), a.mean(), a.max()), (both.count(), both.mean(), both.max()));
        assert_eq!(a.max().as_ns(), 70_000_000_000, "beyond the range, but exact");
    }

    #[test]
    fn small_samples_hold_no_tails() {
        let mut histogram = Histogram::default();
        histogram.record_n(DurationNs::from_us(1), 1000);
        assert!(
            histogram.supports_quantile(0.5)
                && histogram.supports_quantile(0.99)
                && !histogram.supports_quantile(0.999)
        );
    }

    #[test]
    fn cleared_is_empty() {
        let mut histogram = Histogram::preallocated();
        histogram.record(DurationNs::from_us(3));
        histogram.clear();
        assert_eq!((histogram.count(), histogram.quantile(0.5)), (0, DurationNs::ZERO));
        assert_eq!(histogram.recorded().count(), 0);
    }
}
