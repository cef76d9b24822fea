//! Reads TOML files. Every error names the file, the line and what is allowed.

use std::io::Read;
use std::path::{Path, PathBuf};

use serde::de::DeserializeOwned;
use tare_io::files::open_input;

use tare_model::Failure;

use crate::similar::closest;

const FILE_BYTES_MAX: u64 = 1 << 20;

pub fn read(path: &Path) -> Result<String, Failure> {
    let in_file = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    let file = open_input(path).map_err(|error| in_file(error.to_string()))?;
    let mut text = String::new();
    file.take(FILE_BYTES_MAX + 1)
        .read_to_string(&mut text)
        .map_err(|error| in_file(error.to_string()))?;
    match text.len() as u64 > FILE_BYTES_MAX {
        true => Err(in_file("it is longer than 1 MB; experiments are short".into())),
        false => Ok(text),
    }
}

pub struct Source<'a> {
    pub path: &'a Path,
    pub text: &'a str,
}

impl Source<'_> {
    pub fn parse<T: DeserializeOwned>(&self) -> Result<T, Failure> {
        toml::from_str(self.text).map_err(|error| self.parse_error(&error))
    }

    /// Returns an error for the line at this byte.
    pub fn at(&self, byte: usize, what: &str) -> Failure {
        let line = self.text[..byte.min(self.text.len())].matches('\n').count() + 1;
        Failure::usage(format!("{}:{line}: {what}", self.path.display()))
    }

    /// Returns the absolute path; paths in the file are relative to its folder.
    pub fn resolve(&self, path: &Path) -> PathBuf {
        let path = self.path.parent().unwrap_or(Path::new(".")).join(path);
        std::path::absolute(&path).unwrap_or(path)
    }

    pub fn parse_error(&self, error: &toml::de::Error) -> Failure {
        let message = error.message().lines().collect::<Vec<_>>().join(" ");
        let what = nearest(&message).unwrap_or(message);
        match error.span() {
            Some(span) => self.at(span.start, &what),
            None => Failure::usage(format!("{}: {what}", self.path.display())),
        }
    }
}

/// Rewrites serde's "unknown field (or variant) `x`, expected one of `a`, `b`", with the most
/// similar name first.
pub fn nearest(message: &str) -> Option<String> {
    let (rest, what) = match message.strip_prefix("unknown variant ") {
        Some(rest) => (rest, "word"),
        None => (message.strip_prefix("unknown field ")?, "key"),
    };
    let mut quoted = rest.split('`').skip(1).step_by(2);
    let unknown = quoted.next()?;
    let mut known: Vec<&str> = quoted.collect();
    known.sort_unstable();
    let meant = closest(unknown, known.iter().copied());
    known.retain(|name| Some(*name) != meant);
    let others = known.join(", ");
    Some(match (meant, others.is_empty()) {
        (Some(meant), false) => {
            format!("unknown {what} '{unknown}'; did you mean '{meant}'? (others are {others})")
        }
        (Some(meant), true) => format!("unknown {what} '{unknown}'; did you mean '{meant}'?"),
        (None, _) => format!("unknown {what} '{unknown}'; known are {others}"),
    })
}
