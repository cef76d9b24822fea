//! What the user wrote, and cannot be.

use std::fmt;

/// One line: what, where, and what is allowed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Invalid(pub String);

impl fmt::Display for Invalid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Invalid {}

impl Invalid {
    /// Says whom it is about.
    #[must_use]
    pub fn of(self, who: &str) -> Self {
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
