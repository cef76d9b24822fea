//! Files that a run writes: opened before it starts, so that a bad path costs nothing.

use std::fs::File;
use std::io::Write;
use std::path::{Path, PathBuf};

use crate::failure::Failure;

/// A file (or `-`, standard output) that is written at the end.
pub struct Output {
    flag: String,
    path: PathBuf,
    file: Option<File>,
}

impl Output {
    pub fn create(flag: &str, path: &Path) -> Result<Self, Failure> {
        if path.as_os_str() == "-" {
            return Ok(Self { flag: flag.into(), path: path.into(), file: None });
        }
        let file = File::create(path).map_err(|error| {
            Failure::Environment(format!("{flag}: cannot write {}: {error}", path.display()))
        })?;
        Ok(Self { flag: flag.into(), path: path.into(), file: Some(file) })
    }

    pub fn is_stdout(&self) -> bool {
        self.file.is_none()
    }

    pub fn write(&mut self, text: &str) -> Result<(), Failure> {
        let written = match &mut self.file {
            Some(file) => file.write_all(text.as_bytes()).and_then(|()| file.flush()),
            None => print(text),
        };
        written.map_err(|error| {
            let (flag, path) = (&self.flag, self.path.display());
            Failure::Environment(format!("{flag}: cannot write {path}: {error}"))
        })
    }
}

/// Standard output; a reader that has gone away is no failure.
pub fn print(text: &str) -> std::io::Result<()> {
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        done => done,
    }
}
