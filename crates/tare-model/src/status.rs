//! Which statuses count as good.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A set of status codes, written `200`, `2xx`, `200-399`, or as a list of these.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
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

    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let code = |text: &str| text.parse().ok().filter(|code| (100..=999).contains(code));
        let ranges = text.split(',').map(|part| match part.split_once('-') {
            Some((low, high)) => Some((code(low)?, code(high)?)).filter(|(low, high)| low <= high),
            None => match part.strip_suffix("xx") {
                Some(hundreds) => code(&format!("{hundreds}00")).map(|low| (low, low + 99)),
                None => code(part).map(|code| (code, code)),
            },
        });
        let ranges = ranges.collect::<Option<_>>().ok_or(STATUS_ALLOWED)?;
        Ok(Self { ranges })
    }

    pub fn contains(&self, status: u16) -> bool {
        self.ranges.iter().any(|(low, high)| (*low..=*high).contains(&status))
    }
}

impl Default for StatusSet {
    fn default() -> Self {
        Self::success()
    }
}

impl fmt::Display for StatusSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, (low, high)) in self.ranges.iter().enumerate() {
            let comma = if at > 0 { "," } else { "" };
            match (low, high) {
                (low, high) if low == high => write!(f, "{comma}{low}")?,
                (low, high) if low % 100 == 0 && *high == low + 99 => {
                    write!(f, "{comma}{}xx", low / 100)?;
                }
                (low, high) => write!(f, "{comma}{low}-{high}")?,
            }
        }
        Ok(())
    }
}

impl TryFrom<String> for StatusSet {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, &'static str> {
        Self::parse(&text)
    }
}

impl From<StatusSet> for String {
    fn from(set: StatusSet) -> Self {
        set.to_string()
    }
}

const STATUS_ALLOWED: &str = "write 200, 2xx, 200-399, or a list of these";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sets_are_written_as_they_are_read() {
        for text in ["200", "2xx", "200-399", "2xx,404,500-503", "100-999"] {
            assert_eq!(StatusSet::parse(text).unwrap().to_string(), text);
        }
        for text in ["", "20", "399-200", "2x", "200,,"] {
            assert_eq!(StatusSet::parse(text), Err(STATUS_ALLOWED), "{text}");
        }
    }
}
