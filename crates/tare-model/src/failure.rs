//! Why a command, a run or a step of it ends without success.

use std::fmt;
use std::path::Path;

use serde::{Deserialize, Serialize};
use tare_io::SetupError;

use crate::Invalid;

/// An error with the party that can fix it, which determines the exit code.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{text}")]
pub struct Failure {
    pub fault: Fault,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Fault {
    /// The user's arguments or file.
    Usage,
    /// A missing program or permission, a port taken, a disk full.
    Environment,
    /// The server: refused, reset, wrong answer.
    Target,
    /// A `--fail-if` gate failed. This is no error, but the answer that was asked for.
    Gate,
    /// The run is too imprecise to decide a `--fail-if` gate, or a verdict is unresolved with
    /// `--fail-if unresolved`.
    Unresolved,
    /// Guards forbid a verdict that was asked for.
    Void,
    /// The user stopped it; what was measured has been printed.
    Interrupted,
    /// A bug in tare.
    Bug,
}

impl Fault {
    pub fn exit_code(self) -> u8 {
        match self {
            Self::Gate => 1,
            Self::Usage => 2,
            Self::Environment => 3,
            Self::Target => 4,
            Self::Unresolved => 5,
            Self::Void => 6,
            Self::Bug => 70,
            Self::Interrupted => 130,
        }
    }
}

macro_rules! constructors {
    ($($name:ident $fault:ident)*) => {
        $(pub fn $name(text: impl Into<String>) -> Self {
            Self { fault: Fault::$fault, text: text.into() }
        })*
    };
}

impl Failure {
    constructors! {
        usage Usage
        environment Environment
        target Target
        gate Gate
        unresolved Unresolved
        void Void
        bug Bug
    }

    pub fn interrupted() -> Self {
        Self { fault: Fault::Interrupted, text: "interrupted".into() }
    }

    /// The user gave `value` for `flag`, and it cannot be used.
    pub fn flag(flag: &str, value: &str, allowed: impl fmt::Display) -> Self {
        Self::usage(format!("{flag} {value}: {allowed}"))
    }

    pub fn file(what: &str, path: &Path, error: std::io::Error) -> Self {
        Self::environment(format!("cannot {what} {}: {error}", path.display()))
    }

    /// Prefixes the text with a name, unless it starts with that already.
    #[must_use]
    pub fn named(self, name: &str) -> Self {
        // A client of a variant is named with it: "a, client 2 of 4".
        let is_named = |text: &str| text.strip_prefix(name)?.chars().next();
        self.map(|text| match is_named(&text) {
            Some(':' | ',') => text,
            _ => format!("{name}: {text}"),
        })
    }

    #[must_use]
    pub fn map(self, change: impl FnOnce(String) -> String) -> Self {
        Self { text: change(self.text), ..self }
    }
}

impl From<Invalid> for Failure {
    fn from(invalid: Invalid) -> Self {
        Self::usage(invalid.0)
    }
}

impl From<SetupError> for Failure {
    fn from(error: SetupError) -> Self {
        Self::environment(error.to_string())
    }
}
