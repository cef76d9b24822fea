//! Patterns that an interval for a mean does not show: rounds that drift, and rounds of two kinds.

use crate::estimate::{mean, variance};

/// With fewer rounds, the shape of a ratio is not judged.
pub const ROUNDS_MIN: usize = 20;
/// The fewest values for which a steady rise is beyond chance.
pub const ROUNDS_MIN_SINGLE: usize = 8;
/// Standard score of the Mann-Kendall statistic beyond which there is a trend: 1 in 400 runs
/// without one exceeds it.
const TREND_Z: f64 = 3.0;
/// Distance between two groups, in standard deviations within them, beyond which there are two
/// modes. The best split of normal values has 2.7; in simulation fewer than 1 of 200 runs reach 5.
const MODES_APART: f64 = 5.0;
/// Minimum share of each group: a few outliers are not a second mode.
const MODE_SHARE_MIN: f64 = 0.15;

/// The Mann-Kendall standard score of a trend, negative if values fall; `None` if it may be chance,
/// or with fewer than `least` values.
pub fn trend(values: &[f64], least: usize) -> Option<f64> {
    let n = values.len();
    if n < least {
        return None;
    }
    let mut score = 0.0;
    for (at, early) in values.iter().enumerate() {
        for late in &values[at + 1..] {
            score += match late.total_cmp(early) {
                std::cmp::Ordering::Less => -1.0,
                std::cmp::Ordering::Equal => 0.0,
                std::cmp::Ordering::Greater => 1.0,
            };
        }
    }
    let n = n as f64;
    let z = score / (n * (n - 1.0) * (2.0 * n + 5.0) / 18.0).sqrt();
    (z.abs() > TREND_Z).then_some(z)
}

/// Two groups that values fall into: their means, and the upper one's share.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Modes {
    pub low: f64,
    pub high: f64,
    pub high_share: f64,
}

/// Splits values into the two groups with the least variance within them; `None` unless the groups
/// lie far apart.
pub fn two_modes(values: &[f64]) -> Option<Modes> {
    let n = values.len();
    if n < ROUNDS_MIN {
        return None;
    }
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let least = (n as f64 * MODE_SHARE_MIN).ceil() as usize;
    let within = |at: usize| {
        let (low, high) = sorted.split_at(at);
        variance(low) * (low.len() - 1) as f64 + variance(high) * (high.len() - 1) as f64
    };
    let split = (least..=n - least).min_by(|a, b| within(*a).total_cmp(&within(*b)))?;
    let (low, high) = sorted.split_at(split);
    let apart = mean(high) - mean(low);
    let deviation = (within(split) / (n - 2) as f64).sqrt();
    (apart > MODES_APART * deviation && apart > 0.0).then(|| Modes {
        low: mean(low),
        high: mean(high),
        high_share: high.len() as f64 / n as f64,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::normal;
    use tare_io::Random;

    #[test]
    fn noise_has_neither_trend_nor_modes() {
        let mut random = Random::stream(5, "shape", 0);
        let (mut trends, mut modes) = (0, 0);
        for _ in 0..1000 {
            let n = 20 + random.below(60);
            let values: Vec<f64> = (0..n).map(|_| normal(&mut random)).collect();
            trends += u32::from(trend(&values, ROUNDS_MIN).is_some());
            modes += u32::from(two_modes(&values).is_some());
        }
        assert!(trends <= 8 && modes <= 8, "{trends} trends and {modes} modes in 1000");
    }

    #[test]
    fn a_drift_and_a_second_mode_are_seen() {
        let mut random = Random::stream(6, "shape", 0);
        let rising: Vec<f64> =
            (0..40).map(|at| f64::from(at) * 0.1 + normal(&mut random)).collect();
        assert!(trend(&rising, ROUNDS_MIN).unwrap() > 3.0);
        let falling: Vec<f64> = rising.iter().map(|value| -value).collect();
        assert!(trend(&falling, ROUNDS_MIN).unwrap() < -3.0);
        let mixed: Vec<f64> =
            (0..40).map(|at| f64::from(at % 4 / 3) * 10.0 + normal(&mut random)).collect();
        let modes = two_modes(&mixed).unwrap();
        assert!((modes.high - modes.low - 10.0).abs() < 1.0 && modes.high_share == 0.25);
        assert_eq!(two_modes(&[1.0; 30]), None);
    }
}
