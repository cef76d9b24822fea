//! Which statuses count as good.

use serde::{Deserialize, Serialize};

/// A set of status codes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusSet {
    ranges: Vec<(u16, u16)>,
}

impl StatusSet {
    pub fn success() -> Self {
        Self { ranges: vec![(200, 299)] }
    }

    pub fn any() -> Self {
        Self { ranges: vec![(100, 999)] }
    }

    /// Reads `200`, `2xx`, `200-399` and lists of them.
    pub fn parse(text: &str) -> Option<Self> {
        let code = |text: &str| text.parse().ok().filter(|code| (100..=999).contains(code));
        let ranges = text.split(',').map(|part| match part.split_once('-') {
            Some((low, high)) => Some((code(low)?, code(high)?)).filter(|(low, high)| low <= high),
            None => match part.strip_suffix("xx") {
                Some(hundreds) => code(&format!("{hundreds}00")).map(|low| (low, low + 99)),
                None => code(part).map(|code| (code, code)),
            },
        });
        Some(Self { ranges: ranges.collect::<Option<_>>()? })
    }

    pub fn contains(&self, status: u16) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&status))
    }

    /// A text that [`Self::parse`] reads.
    pub fn check(text: &str) -> Result<String, String> {
        Self::parse(text).map(|_| text.to_owned()).ok_or_else(|| STATUS_ALLOWED.to_owned())
    }
}

pub const STATUS_ALLOWED: &str = "write 200, 2xx, 200-399, or a list of these";
