//! The error for invalid input.

use std::fmt;

/// A one-line message: what is wrong, where, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl Invalid {
    /// Prefixes the message with the name of what it is about.
    #[must_use]
    pub fn named(self, who: &str) -> Self {
        Self(format!("{who}: {}", self.0))
    }
}

impl From<String> for Invalid {
    fn from(text: String) -> Self {
        Self(text)
    }
}

impl From<&str> for Invalid {
    fn from(text: &str) -> Self {
        Self(text.to_owned())
    }
}

/// Checks that a key's value is 1 to `most`.
pub(crate) fn check_range(key: &str, value: u32, most: u32) -> Result<(), Invalid> {
    match value {
        value if (1..=most).contains(&value) => Ok(()),
        value => Err(Invalid(format!("{key} = {value}: write 1 to {most}"))),
    }
}
