//! The mean of rounds of unequal precision.
//!
//! The slices of a round that a noisy neighbour disturbed scatter. In a plain mean such a round
//! counts as much as any other, and widens the interval for good. Here each round is weighted by
//! its own precision, as studies are in a random-effects meta-analysis: weights are 1 / (τ² + s²),
//! where s² comes from the scatter of the round's own cycles and τ² is the additional variance
//! between launches (Paule and Mandel). A round's value does not affect its weight, and no round is
//! dropped. The interval is that of Hartung and Knapp and of Sidik and Jonkman, with their factor
//! never below 1.

use crate::estimate::{Estimate, median, t_quantile};

/// One round's log ratio, and what is known of its precision from its own cycles.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Round {
    pub value: f64,
    /// Variance of the value from the round's cycles; `None` without cycles.
    pub variance: Option<f64>,
}

impl Round {
    /// A round without information from cycles.
    pub fn from_value(value: f64) -> Self {
        Self { value, variance: None }
    }
}

/// The mean, and how well it is known.
#[derive(Clone, Debug, PartialEq)]
pub struct Mean {
    pub point: f64,
    pub standard_error: f64,
    pub degrees: f64,
    pub n: u32,
    /// Weight of each round; they sum to 1.
    pub shares: Vec<f64>,
}

/// Prior variance of a log ratio between launches: identical nginx processes differ by a few
/// percent.
pub(crate) const BETWEEN_PRIOR: f64 = 0.02 * 0.02;
/// Weight of the prior, in rounds (or degrees of freedom): three launches that happen to agree
/// prove little, but a hundred are convincing.
pub(crate) const EXPECTED: f64 = 4.0;

impl Mean {
    /// `None` for fewer than two rounds, or if a value or variance is not finite.
    pub fn from_rounds(rounds: &[Round]) -> Option<Self> {
        let k = rounds.len();
        let variances = variances(rounds);
        let is_finite = |(round, own): (&Round, &f64)| round.value.is_finite() && own.is_finite();
        if k < 2 || !rounds.iter().zip(&variances).all(is_finite) {
            return None;
        }
        let seen = between(rounds, &variances);
        let between = expected_between(seen, k);
        let weights: Vec<f64> = variances.iter().map(|own| 1.0 / (between + own)).collect();
        let total: f64 = weights.iter().sum();
        let (point, squares) = fit(rounds, &weights);
        let factor = (squares / (k as f64 - 1.0)).max(1.0);
        let shares: Vec<f64> = weights.iter().map(|weight| weight / total).collect();
        let standard_error = (factor / total).sqrt();
        let degrees = degrees(&shares, seen);
        Some(Self { point, standard_error, degrees, n: k as u32, shares })
    }

    pub fn interval(&self, level: f64) -> Estimate {
        let half = t_quantile(self.degrees, level) * self.standard_error;
        let Self { point, n, .. } = *self;
        Estimate { point, lower: point - half, upper: point + half, level, n }
    }
}

/// The variance between launches, combined from the observed one and the prior.
pub(crate) fn expected_between(seen: f64, launches: usize) -> f64 {
    let n = launches as f64;
    (BETWEEN_PRIOR * EXPECTED + seen * n) / (EXPECTED + n)
}

/// Degrees of freedom of the mean, which are few if few rounds have most of the weight. The prior
/// adds some, but fewer if rounds differ by more than the prior says.
fn degrees(shares: &[f64], seen: f64) -> f64 {
    let squares: f64 = shares.iter().map(|share| share * share).sum();
    let credit = (BETWEEN_PRIOR / seen).min(1.0);
    (1.0 / squares - 1.0 + EXPECTED * credit).max(1.0)
}

/// The degrees of freedom of this many rounds, if they differ as expected.
pub(crate) fn degrees_of(rounds: f64) -> f64 {
    rounds - 1.0 + EXPECTED
}

/// The weighted mean, and the weighted sum of squares about it.
fn fit(rounds: &[Round], weights: &[f64]) -> (f64, f64) {
    let total: f64 = weights.iter().sum();
    let pairs = || rounds.iter().zip(weights);
    let mean = pairs().map(|(round, weight)| weight * round.value).sum::<f64>() / total;
    let squares = pairs().map(|(round, weight)| weight * (round.value - mean).powi(2)).sum();
    (mean, squares)
}

/// The variance of each round from its cycles. A round without cycles counts like the median round.
fn variances(rounds: &[Round]) -> Vec<f64> {
    let known: Vec<f64> = rounds.iter().filter_map(|round| round.variance).collect();
    let middle = if known.is_empty() { 0.0 } else { median(&known) };
    rounds.iter().map(|round| round.variance.unwrap_or(middle)).collect()
}

/// τ², for which the weighted sum of squares equals its expectation, rounds less one. Zero if the
/// rounds' own variances already explain how they differ.
pub fn between(rounds: &[Round], variances: &[f64]) -> f64 {
    let wanted = rounds.len() as f64 - 1.0;
    let excess = |between: f64| {
        let weights: Vec<f64> =
            variances.iter().map(|own| 1.0 / (between + own).max(f64::MIN_POSITIVE)).collect();
        fit(rounds, &weights).1 - wanted
    };
    if excess(0.0) <= 0.0 {
        return 0.0;
    }
    let values: Vec<f64> = rounds.iter().map(|round| round.value).collect();
    let (mut low, mut high) = (0.0, 2.0 * crate::estimate::variance(&values));
    // The sum of squares falls as τ² rises.
    for _ in 0..BISECTIONS {
        let middle = f64::midpoint(low, high);
        match excess(middle) > 0.0 {
            true => low = middle,
            false => high = middle,
        }
    }
    f64::midpoint(low, high)
}

/// Number of bisections, which narrow the interval to a billionth.
const BISECTIONS: u32 = 30;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::tests::normal;
    use tare_io::Random;

    fn even(values: &[f64]) -> Vec<Round> {
        values.iter().map(|v| Round { value: *v, variance: Some(1e-4) }).collect()
    }

    #[test]
    fn equal_rounds_are_a_plain_mean_and_never_known_better_than_launches_are_expected_to_differ() {
        let mut random = Random::stream(1, "weighted", 0);
        for _ in 0..100 {
            let values: Vec<f64> = (0..20).map(|_| 0.05 * normal(&mut random)).collect();
            let plain = Estimate::of_mean(&values, 0.95).unwrap();
            let got = Mean::from_rounds(&even(&values)).unwrap();
            assert!((plain.point - got.point).abs() < 1e-12);
            let half = got.interval(0.95).half_width();
            assert!((half / plain.half_width() - 1.0).abs() < 0.02, "{half} and {plain:?}");
            assert!(got.shares.iter().all(|share| (share - 0.05).abs() < 1e-9));
        }
        // If rounds differ less than their own cycles and the prior suggest, the interval follows
        // from those: 1e-4 and half of 4e-4.
        let calm = Mean::from_rounds(&even(&[0.0, 1e-6, -1e-6, 0.0])).unwrap().interval(0.95);
        assert!((calm.half_width() - 2.365 * (3e-4f64 / 4.0).sqrt()).abs() < 1e-4, "{calm:?}");
        assert_eq!(Mean::from_rounds(&even(&[1.0])), None);
        let same = [Round { value: 1.0, variance: Some(0.0) }; 400];
        assert!(Mean::from_rounds(&same).unwrap().interval(0.95).half_width() < 2e-4);
    }

    #[test]
    fn wild_rounds_weigh_little_and_values_decide_no_weight() {
        let mut rounds = even(&[0.00, 0.01, -0.01, 0.005, -0.005, 0.0]);
        rounds.push(Round { value: 0.2, variance: Some(0.04) });
        let got = Mean::from_rounds(&rounds).unwrap();
        assert!(got.shares[6] < 0.02 && got.point < 0.005, "{got:?}");
        // With a variance like the others', that round has its full weight.
        rounds[6].variance = Some(1e-4);
        let got = Mean::from_rounds(&rounds).unwrap();
        assert!((got.shares[6] - 1.0 / 7.0).abs() < 1e-9, "{got:?}");
    }

    #[test]
    fn the_variance_between_rounds_is_found() {
        let mut random = Random::stream(2, "weighted", 0);
        let mut sum = 0.0;
        for _ in 0..400 {
            let rounds: Vec<Round> = (0..30)
                .map(|n| {
                    let own: f64 = if n % 3 == 0 { 0.05 } else { 0.01 };
                    let value = (0.02f64.powi(2) + own * own).sqrt() * normal(&mut random);
                    Round { value, variance: Some(own * own) }
                })
                .collect();
            let variances = variances(&rounds);
            sum += between(&rounds, &variances);
        }
        assert!((sum / 400.0 / 4e-4 - 1.0).abs() < 0.1, "{}", (sum / 400.0).sqrt());
    }
}
