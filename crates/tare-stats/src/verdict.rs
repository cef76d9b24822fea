//! Verdicts on comparisons, and the severity of doubts.

use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole interval, at the higher confidence of `strict_ratio`, is on the worse side.
    Slower,
    /// The whole interval, at the higher confidence of `strict_ratio`, is on the better side.
    Faster,
    /// The whole interval is within the tolerance.
    Same,
    /// None of these; more rounds would decide.
    Unresolved,
    /// A guard forbids a verdict.
    Void,
}

/// Severity of a reason to doubt a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    /// Worth knowing.
    Note,
    /// The numbers may not mean what they seem to.
    Warn,
    /// The numbers must not be used.
    Void,
}

impl Severity {
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warn => "warning",
            Self::Void => "void",
        }
    }
}

/// Minimum number of rounds for a verdict: two values do not show how they scatter.
pub const ROUNDS_MIN: u32 = 3;

impl Verdict {
    /// `overhead_percent` is positive when worse; `tolerance` is a share (0.02). `surer` is the
    /// overhead at the higher confidence that `Slower` and `Faster` require.
    ///
    /// `Same` is checked first: an effect wholly within the tolerance is negligible, even if it is
    /// certainly not zero.
    pub fn from_overhead(overhead_percent: &Estimate, surer: &Estimate, tolerance: f64) -> Self {
        let Estimate { lower, upper, n, .. } = *overhead_percent;
        let within = tolerance * 100.0;
        if n < ROUNDS_MIN {
            Self::Unresolved
        } else if lower >= -within && upper <= within {
            Self::Same
        } else if surer.lower > 0.0 {
            Self::Slower
        } else if surer.upper < 0.0 {
            Self::Faster
        } else {
            Self::Unresolved
        }
    }

    /// The verdict for a fixed number of values: without repeated looks, one level is enough.
    pub fn of_fixed(overhead_percent: &Estimate, tolerance: f64) -> Self {
        Self::from_overhead(overhead_percent, overhead_percent, tolerance)
    }

    pub fn word(self) -> &'static str {
        match self {
            Self::Slower => "slower",
            Self::Faster => "faster",
            Self::Same => "same",
            Self::Unresolved => "unresolved",
            Self::Void => "void",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn verdicts_need_the_whole_interval() {
        for (lower, upper, surer, n, expected) in [
            (2.1, 4.0, 1.0, 20, Verdict::Slower),
            (-4.0, -0.1, 0.05, 20, Verdict::Faster),
            (-4.0, -0.1, 0.2, 20, Verdict::Unresolved),
            (-1.9, 1.9, 1.0, 20, Verdict::Same),
            (0.5, 1.5, 0.6, 20, Verdict::Same),
            (0.5, 2.5, 0.4, 3, Verdict::Slower),
            (0.5, 2.5, 0.6, 3, Verdict::Unresolved),
            (-5.0, 5.0, 1.0, 20, Verdict::Unresolved),
            (10.0, 11.0, 1.0, 2, Verdict::Unresolved),
        ] {
            let estimate = Estimate { point: 0.0, lower, upper, level: 0.95, n };
            let wider = Estimate { lower: lower - surer, upper: upper + surer, ..estimate };
            assert_eq!(
                Verdict::from_overhead(&estimate, &wider, 0.02),
                expected,
                "{lower} {upper} {n}"
            );
        }
    }
}
