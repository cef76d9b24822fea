//! The first load on a launch, measured on its own.

use std::fmt;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;

use crate::plan::SLICE_LENGTHS;

/// Length of the first load, which is the only slice of its launch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum Cold {
    For(DurationNs),
    Requests(u64),
}

const REQUESTS_MAX: u64 = 1_000_000_000;

impl Cold {
    pub fn parse(text: &str) -> Result<Self, String> {
        let allowed =
            || "write a time (200ms) up to 60s, or a number of requests (5000)".to_owned();
        let found = match text.parse() {
            Ok(requests) => {
                Some(Self::Requests(requests)).filter(|_| (1..=REQUESTS_MAX).contains(&requests))
            }
            Err(_) => {
                DurationNs::parse(text).ok().filter(|t| SLICE_LENGTHS.contains(t)).map(Self::For)
            }
        };
        found.ok_or_else(allowed)
    }
}

impl fmt::Display for Cold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::For(time) => write!(f, "{time}"),
            Self::Requests(requests) => write!(f, "{requests}"),
        }
    }
}

impl From<Cold> for String {
    fn from(cold: Cold) -> Self {
        cold.to_string()
    }
}

impl TryFrom<String> for Cold {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        Self::parse(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_time_or_a_number() {
        assert_eq!(Cold::parse("200ms"), Ok(Cold::For(DurationNs::from_ms(200))));
        assert_eq!(Cold::parse("5000"), Ok(Cold::Requests(5000)));
        assert_eq!(Cold::parse("5000").unwrap().to_string(), "5000");
        for wrong in ["", "0", "0ms", "-1", "2h", "5000 requests", "1e9"] {
            assert!(Cold::parse(wrong).is_err(), "{wrong}");
        }
    }
}
