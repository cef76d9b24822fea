//! Programs that tare starts: where they are, and which version.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use crate::error::LabError;

/// A program by one of its names, in the order of preference.
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers live where ordinary users' paths do not look.
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let folders: Vec<PathBuf> = folders.collect();
    let all = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    all.into_iter().find(|path| path.is_file())
}

/// tare itself.
pub fn own() -> Result<PathBuf, LabError> {
    std::env::current_exe()
        .map_err(|error| LabError::Environment(format!("where is tare? {error}")))
}

/// The same, or the words for what to do.
pub fn need(names: &[&str], package: &str) -> Result<PathBuf, LabError> {
    find(names).ok_or_else(|| {
        LabError::Environment(format!(
            "{} is not installed (Debian: apt-get install {package})",
            names.join(" or ")
        ))
    })
}

/// The first line of what it says of itself.
pub fn version(path: &std::path::Path, flag: &str) -> Option<String> {
    let output = Command::new(path).arg(flag).stdin(Stdio::null()).output().ok()?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    text.lines().find(|line| !line.trim().is_empty()).map(|line| line.trim().to_owned())
}
