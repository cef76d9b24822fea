//! What may be said of a comparison.

use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole interval that a difference takes is on the worse side.
    Slower,
    /// That interval is on the better side.
    Faster,
    /// The whole interval is within the tolerance.
    Same,
    /// Neither: more rounds would tell.
    Unresolved,
    /// A guard forbids a verdict.
    Void,
}

/// How grave it is what speaks against a number.
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
    /// As reports have it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Note => "note",
            Self::Warn => "warning",
            Self::Void => "void",
        }
    }
}

/// Rounds before which nothing is concluded: two values do not show how they scatter.
pub const ROUNDS_MIN: u32 = 3;

impl Verdict {
    /// `overhead_percent` is positive when worse; `tolerance` is a share (0.02). `surer` is the same
    /// at the level that a difference takes.
    ///
    /// `Same` goes first: an effect that lies wholly inside what the user called negligible is
    /// negligible, also where it is known so well that it is not zero.
    pub fn of(overhead_percent: &Estimate, surer: &Estimate, tolerance: f64) -> Self {
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

    /// Where how many values there are was settled before the first, and nobody looked meanwhile:
    /// one level is enough.
    pub fn of_fixed(overhead_percent: &Estimate, tolerance: f64) -> Self {
        Self::of(overhead_percent, overhead_percent, tolerance)
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
            assert_eq!(Verdict::of(&estimate, &wider, 0.02), expected, "{lower} {upper} {n}");
        }
    }
}
