//! A network namespace of its own.

use serde::{Deserialize, Serialize};

use super::{Bytes, Limits, PlaceFacts};
use crate::Invalid;

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct NetnsSpec {
    /// Bandwidth of its link: `1gbit`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub rate: Option<String>,
    /// Delay added by its link, each way: `1ms`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delay: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cpus: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub memory: Option<Bytes>,
}

const RATE_UNITS: [&str; 4] = ["bit", "kbit", "mbit", "gbit"];
const DELAY_UNITS: [&str; 3] = ["us", "ms", "s"];

fn is_amount(text: &str, units: &[&str]) -> bool {
    let at = text.find(|c: char| c.is_ascii_alphabetic()).unwrap_or(text.len());
    let number = text[..at].parse::<f64>();
    number.is_ok_and(|n| n > 0.0 && n < 1e6) && units.contains(&&text[at..])
}

impl PlaceFacts for NetnsSpec {
    fn name(&self) -> String {
        "netns".into()
    }

    fn check(&self) -> Result<(), Invalid> {
        for (key, value, units) in
            [("rate", &self.rate, &RATE_UNITS[..]), ("delay", &self.delay, &DELAY_UNITS[..])]
        {
            if let Some(text) = value.as_ref().filter(|text| !is_amount(text, units)) {
                return Err(Invalid(format!(
                    "netns: {key} = {text:?}: write it as tc does, a number above 0 and one of {}",
                    units.join(", ")
                )));
            }
        }
        Ok(())
    }

    fn limits(&self) -> Limits {
        Limits::from_settings(self.cpus, self.memory)
    }

    fn is_always_the_same(&self) -> bool {
        true
    }

    fn is_limited_by_group(&self) -> bool {
        true
    }
}
