//! Numbers with their intervals.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

/// A value and how well it is known: with probability `level` the procedure that made it covers the
/// truth. Never a bare number.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Estimate {
    pub point: f64,
    pub lower: f64,
    pub upper: f64,
    pub level: f64,
    /// Number of independent values (rounds).
    pub n: u32,
}

impl Estimate {
    /// Student's t interval for the mean of `values`. `None` for fewer than two values, or if a
    /// value is not finite.
    pub fn of_mean(values: &[f64], level: f64) -> Option<Self> {
        let n = values.len();
        if n < 2 || !values.iter().all(|value| value.is_finite()) {
            return None;
        }
        let mean = mean(values);
        let half = t_quantile(n as f64 - 1.0, level) * (variance(values) / n as f64).sqrt();
        Some(Self { point: mean, lower: mean - half, upper: mean + half, level, n: n as u32 })
    }

    /// Maps the point and both bounds by a monotone function. A falling one swaps the bounds.
    pub fn map(self, f: impl Fn(f64) -> f64) -> Self {
        let (a, b) = (f(self.lower), f(self.upper));
        Self { point: f(self.point), lower: a.min(b), upper: a.max(b), ..self }
    }

    /// Exponentiates an estimate of a logarithm. Two rounds and many comparisons can give bounds
    /// that overflow an `f64`; a bound limited to [`FURTHEST`] means that nothing is known.
    pub fn from_log(self) -> Self {
        let furthest = FURTHEST.ln();
        let lower = self.lower.max(self.point - furthest);
        let upper = self.upper.min(self.point + furthest);
        Self { lower, upper, ..self }.map(f64::exp)
    }

    pub fn half_width(&self) -> f64 {
        (self.upper - self.lower) / 2.0
    }

    pub fn covers(&self, value: f64) -> bool {
        (self.lower..=self.upper).contains(&value)
    }
}

/// How many times smaller or larger than its point a bound can be.
pub const FURTHEST: f64 = 1e6;

/// The level that each of `m` intervals needs so that all of them are right together with
/// probability `level` (Šidák; conservative where they are correlated).
pub fn sidak(level: f64, m: usize) -> f64 {
    level.powf(1.0 / m.max(1) as f64)
}

/// How many standard errors a two-sided interval of this level spans to each side.
pub fn t_quantile(degrees: f64, level: f64) -> f64 {
    // The arguments are in range by construction: degrees ≥ 1, 0 < level < 1.
    StudentsT::new(0.0, 1.0, degrees).map_or(f64::INFINITY, |t| t.inverse_cdf((1.0 + level) / 2.0))
}

/// The upper of the two middle values; NaN without values.
pub fn median(values: &[f64]) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

pub fn mean(values: &[f64]) -> f64 {
    values.iter().sum::<f64>() / values.len() as f64
}

/// Sample variance, over n − 1. Zero for a single value.
pub fn variance(values: &[f64]) -> f64 {
    if values.len() < 2 {
        return 0.0;
    }
    let mean = mean(values);
    values.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / (values.len() - 1) as f64
}

/// The mean of what is left when `share` of the values is cut off at each end. A single stalled
/// slice cannot move it; with fewer than 1 / `share` values nothing is cut.
pub fn trimmed_mean(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let cut = (sorted.len() as f64 * share) as usize;
    mean(&sorted[cut..sorted.len() - cut])
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use tare_io::Random;

    /// A draw from nearly the standard normal distribution.
    pub(crate) fn normal(random: &mut Random) -> f64 {
        (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0
    }

    #[test]
    fn quantiles_of_t_are_those_of_the_tables() {
        for (degrees, level, expected) in
            [(1.0, 0.95, 12.706), (19.0, 0.95, 2.093), (59.0, 0.95, 2.001), (19.0, 0.99, 2.861)]
        {
            let got = t_quantile(degrees, level);
            assert!((got - expected).abs() < 0.001, "{degrees} {level}: {got}");
        }
    }

    #[test]
    fn an_interval_by_hand() {
        let got = Estimate::of_mean(&[1.0, 2.0, 3.0, 4.0], 0.95).unwrap();
        // s = 1.29099, t(3) = 3.18245, half = 2.05426
        assert!((got.point - 2.5).abs() < 1e-12 && (got.half_width() - 2.05426).abs() < 1e-4);
        assert_eq!(Estimate::of_mean(&[1.0], 0.95), None);
        assert_eq!(Estimate::of_mean(&[1.0, f64::NAN], 0.95), None);
    }

    #[test]
    fn bounds_are_numbers_however_little_is_known() {
        let known = Estimate::of_mean(&[1.0, 1.1, 0.9], 0.95).unwrap();
        assert_eq!(known.from_log(), known.map(f64::exp));
        // Two rounds that differ by a fifth, and a thousand comparisons.
        let unknown = Estimate::of_mean(&[0.0, 0.2], sidak(0.95, 1000)).unwrap();
        assert!(unknown.map(f64::exp).upper.is_infinite());
        let cut = unknown.from_log();
        assert!((cut.upper / cut.point - FURTHEST).abs() < 1.0, "{cut:?}");
        assert!((cut.point / cut.lower - FURTHEST).abs() < 1.0, "{cut:?}");
        assert_eq!((cut.level, cut.n), (unknown.level, 2));
    }

    #[test]
    fn intervals_shift_and_scale_with_their_values_and_narrow_with_more() {
        let mut random = Random::stream(1, "estimate", 0);
        for _ in 0..200 {
            let n = 2 + random.below(50) as usize;
            let values: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
            let base = Estimate::of_mean(&values, 0.95).unwrap();
            let moved: Vec<f64> = values.iter().map(|v| 3.0 * v + 7.0).collect();
            let other = Estimate::of_mean(&moved, 0.95).unwrap();
            assert!((other.point - (3.0 * base.point + 7.0)).abs() < 1e-9);
            assert!((other.half_width() - 3.0 * base.half_width()).abs() < 1e-9);
            assert!(Estimate::of_mean(&values, 0.99).unwrap().half_width() >= base.half_width());
            let doubled: Vec<f64> = values.iter().chain(&values).copied().collect();
            let double = Estimate::of_mean(&doubled, 0.95).unwrap();
            assert!(double.half_width() <= base.half_width() + 1e-12);
            assert!(base.covers(base.point) && base.lower <= base.upper);
        }
    }

    #[test]
    fn a_falling_map_swaps_the_bounds() {
        let base = Estimate { point: 1.0, lower: 0.5, upper: 2.0, level: 0.95, n: 20 };
        let mapped = base.map(|x| 1.0 - x);
        assert_eq!((mapped.lower, mapped.point, mapped.upper), (-1.0, 0.0, 0.5));
    }

    #[test]
    fn sidak_makes_the_family_right() {
        assert_eq!(sidak(0.95, 1), 0.95);
        assert!((sidak(0.95, 9).powi(9) - 0.95).abs() < 1e-12);
    }

    #[test]
    fn trimming_ignores_a_few_wild_values_and_only_a_few() {
        let mut values = vec![1.0; 9];
        values.push(1000.0);
        assert_eq!(trimmed_mean(&values, 0.2), 1.0);
        assert_eq!(trimmed_mean(&[1.0, 2.0, 9.0], 0.2), 4.0, "three values: nothing to cut");
        let mut random = Random::stream(2, "trim", 0);
        for _ in 0..200 {
            let n = 1 + random.below(40) as usize;
            let values: Vec<f64> = (0..n).map(|_| random.uniform()).collect();
            let low = values.iter().copied().fold(f64::INFINITY, f64::min);
            let high = values.iter().copied().fold(f64::NEG_INFINITY, f64::max);
            let got = trimmed_mean(&values, 0.2);
            assert!((low - 1e-12..=high + 1e-12).contains(&got));
            let mirrored: Vec<f64> = values.iter().map(|v| -v).collect();
            assert!((trimmed_mean(&mirrored, 0.2) + got).abs() < 1e-12);
        }
    }
}
