//! Why a run ended.

use tare_stats::design::Ended;

use tare_model::Failure;

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stopped {
    /// Every requested interval is narrow enough.
    Precision,
    /// Every gate is decided.
    Gates,
    /// A limit of the check is exceeded, under this load or under the other.
    Exceeded,
    MaxTime,
    /// The check would not be decided within its time limit (`--screen`).
    Screen,
    /// The requested number of rounds is complete.
    Rounds,
    /// Guards forbid every verdict.
    Void,
    Interrupted,
    Failed(Failure),
}

impl From<Ended> for Stopped {
    fn from(ended: Ended) -> Self {
        match ended {
            Ended::Precision => Self::Precision,
            Ended::Gates => Self::Gates,
            Ended::Exceeded => Self::Exceeded,
            Ended::MaxTime => Self::MaxTime,
            Ended::Screen => Self::Screen,
            Ended::Rounds => Self::Rounds,
            Ended::Void => Self::Void,
        }
    }
}

impl Stopped {
    /// Returns its word in the store and in JSON.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Precision => "precision",
            Self::Gates => "gates",
            Self::Exceeded => "exceeded",
            Self::MaxTime => "max-time",
            Self::Screen => "screen",
            Self::Rounds => "rounds",
            Self::Void => "void",
            Self::Interrupted => "interrupted",
            Self::Failed(_) => "failed",
        }
    }
}
