//! What may be said of a comparison.

use serde::{Deserialize, Serialize};

use crate::estimate::Estimate;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Verdict {
    /// The whole interval is on the worse side.
    Slower,
    /// The whole interval is on the better side.
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

/// Rounds before which nothing is concluded: t intervals of fewer are wide, and their coverage
/// under repeated looks is poor.
pub const ROUNDS_MIN: u32 = 20;

/// The same where their number was settled before.
pub const FIXED_MIN: u32 = 5;

impl Verdict {
    /// `overhead_percent` is positive when worse; `tolerance` is a share (0.02).
    ///
    /// `Same` goes first: an effect that lies wholly inside what the user called negligible is
    /// negligible, also where it is known so well that it is not zero.
    pub fn of(overhead_percent: &Estimate, tolerance: f64) -> Self {
        match overhead_percent.n < ROUNDS_MIN {
            true => Self::Unresolved,
            false => Self::of_fixed(overhead_percent, tolerance),
        }
    }

    /// Where how many rounds there are was settled before the first, and nobody looked meanwhile.
    pub fn of_fixed(overhead_percent: &Estimate, tolerance: f64) -> Self {
        let Estimate { lower, upper, n, .. } = *overhead_percent;
        let within = tolerance * 100.0;
        if n < FIXED_MIN {
            Self::Unresolved
        } else if lower >= -within && upper <= within {
            Self::Same
        } else if lower > 0.0 {
            Self::Slower
        } else if upper < 0.0 {
            Self::Faster
        } else {
            Self::Unresolved
        }
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
        for (lower, upper, n, expected) in [
            (2.1, 4.0, 20, Verdict::Slower),
            (-4.0, -0.1, 20, Verdict::Faster),
            (-1.9, 1.9, 20, Verdict::Same),
            (0.5, 1.5, 20, Verdict::Same),
            (0.5, 2.5, 20, Verdict::Slower),
            (-0.1, 2.5, 20, Verdict::Unresolved),
            (-5.0, 5.0, 20, Verdict::Unresolved),
            (10.0, 11.0, 19, Verdict::Unresolved),
        ] {
            let estimate = Estimate { point: 0.0, lower, upper, level: 0.95, n };
            assert_eq!(Verdict::of(&estimate, 0.02), expected, "{lower} {upper} {n}");
        }
    }
}
