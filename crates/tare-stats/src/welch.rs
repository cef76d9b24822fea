//! Two samples that were not taken in pairs: Welch's t, with each sample's own variance.

use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::estimate::{Estimate, mean, t_quantile, variance};
use crate::weighted::Mean;

/// A difference of two means, and how well it is known.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    pub point: f64,
    standard_error: f64,
    degrees: f64,
    /// Size of the smaller sample.
    pub n: u32,
}

/// Summary of a sample, sufficient for a difference of means.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moments {
    pub mean: f64,
    pub variance: f64,
    pub n: u32,
}

impl Moments {
    pub fn from_values(values: &[f64]) -> Self {
        Self { mean: mean(values), variance: variance(values), n: values.len() as u32 }
    }

    fn variance_of_mean(&self) -> f64 {
        self.variance / f64::from(self.n)
    }
}

impl Difference {
    /// `b` minus `a`; `None` with fewer than two values on a side.
    pub fn of_means(a: &[f64], b: &[f64]) -> Option<Self> {
        let (a, b) = (Moments::from_values(a), Moments::from_values(b));
        Self::from_parts(b.mean - a.mean, (a.variance_of_mean(), a.n), (b.variance_of_mean(), b.n))
    }

    /// The log ratio of the means, `b` over `a`: these are the means that people publish, and the
    /// noise of both is included. Values must be positive.
    pub fn of_log_means(a: &[f64], b: &[f64]) -> Option<Self> {
        Self::of_log_moments(Moments::from_values(a), Moments::from_values(b))
    }

    /// Like [`Self::of_log_means`], from summaries of the samples.
    pub fn of_log_moments(a: Moments, b: Moments) -> Option<Self> {
        // To first order, a mean's logarithm has the variance of the mean, over the mean squared.
        let of = |own: Moments| own.variance_of_mean() / own.mean.powi(2);
        Self::from_parts((b.mean / a.mean).ln(), (of(a), a.n), (of(b), b.n))
    }

    /// `b` minus `a`, for weighted means.
    pub fn of_weighted(a: &Mean, b: &Mean) -> Self {
        let of = |mean: &Mean| (mean.standard_error.powi(2), mean.degrees);
        Self::of_parts(b.point - a.point, of(a), of(b), a.n.min(b.n))
    }

    fn from_parts(point: f64, (va, na): (f64, u32), (vb, nb): (f64, u32)) -> Option<Self> {
        if na < 2 || nb < 2 || !point.is_finite() || !(va + vb).is_finite() {
            return None;
        }
        let degrees = |n: u32| f64::from(n) - 1.0;
        Some(Self::of_parts(point, (va, degrees(na)), (vb, degrees(nb)), na.min(nb)))
    }

    /// Takes the variance of each mean, and its degrees of freedom.
    fn of_parts(point: f64, (va, da): (f64, f64), (vb, db): (f64, f64), n: u32) -> Self {
        let (sum, below) = (va + vb, va * va / da + vb * vb / db);
        // Without any variance, any number of degrees gives the same interval.
        let degrees = if below > 0.0 { sum * sum / below } else { da + db };
        Self { point, standard_error: sum.sqrt(), degrees, n }
    }

    pub fn interval(&self, level: f64) -> Estimate {
        let half = t_quantile(self.degrees, level) * self.standard_error;
        Estimate {
            point: self.point,
            lower: self.point - half,
            upper: self.point + half,
            level,
            n: self.n,
        }
    }

    /// Probability that chance alone gives a difference this large, to either side.
    pub fn p_value(&self) -> f64 {
        if self.standard_error == 0.0 {
            return if self.point == 0.0 { 1.0 } else { 0.0 };
        }
        let t = (self.point / self.standard_error).abs();
        let tail = StudentsT::new(0.0, 1.0, self.degrees).map_or(0.5, |t_of| t_of.sf(t));
        (2.0 * tail).min(1.0)
    }
}

/// A p value corrected for `m` questions (Šidák): below 0.05 exactly if the interval at the
/// family's level excludes zero.
pub fn corrected(p: f64, m: usize) -> f64 {
    1.0 - (1.0 - p).powi(i32::try_from(m.max(1)).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::estimate::sidak;
    use tare_io::Random;

    #[test]
    fn by_hand() {
        // Means 2.5 and 6, variances 5/3 and 10/3, four and five values.
        let (a, b) = ([1.0, 2.0, 3.0, 4.0], [4.0, 5.0, 6.0, 7.0, 8.0]);
        let found = Difference::of_means(&a, &b).unwrap();
        assert!((found.point - 3.5).abs() < 1e-12);
        assert!((found.standard_error - (5.0f64 / 12.0 + 0.5).sqrt()).abs() < 1e-12);
        // (11/12)² / ((5/12)²/3 + (1/2)²/4)
        assert!((found.degrees - 6.980_769).abs() < 1e-5, "{}", found.degrees);
        assert_eq!(Difference::of_means(&[1.0], &b), None);
    }

    #[test]
    fn intervals_and_p_values_agree_and_cover() {
        let mut random = Random::stream(9, "welch", 0);
        let mut normal = || (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
        let (mut covered, mut called) = (0, 0);
        for _ in 0..2000 {
            let a: Vec<f64> = (0..8).map(|_| 100.0 + 3.0 * normal()).collect();
            let b: Vec<f64> = (0..20).map(|_| 90.0 + 9.0 * normal()).collect();
            let found = Difference::of_log_means(&a, &b).unwrap();
            let level = sidak(0.95, 4);
            assert_eq!(corrected(found.p_value(), 4) < 0.05, !found.interval(level).covers(0.0));
            covered += u32::from(found.interval(0.95).covers(0.9f64.ln()));
            let same: Vec<f64> = (0..20).map(|_| 100.0 + 9.0 * normal()).collect();
            called += u32::from(Difference::of_log_means(&a, &same).unwrap().p_value() < 0.05);
        }
        assert!((1860..=1940).contains(&covered), "{covered} of 2000 at 95 %");
        assert!((60..=140).contains(&called), "{called} of 2000 at 5 %");
    }
}
