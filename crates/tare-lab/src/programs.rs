//! Programs that tare starts: where they are, and which version.

use std::path::PathBuf;

use tare_io::DurationNs;
use tare_io::owned;
use tare_io::process::is_root;

use crate::commands::{Outcome, run};
use crate::error::LabError;

/// How long a program may take to say its version.
const PATIENCE: DurationNs = DurationNs::from_secs(10);
const VERSION_CHARS_MAX: usize = 200;

/// A program by one of its names, in the order of preference. Root takes none that another user
/// could have put there, or that is found only by being in the right folder.
pub fn find(names: &[&str]) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers live where ordinary users' paths do not look.
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let folders: Vec<PathBuf> = folders.collect();
    let all = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    let may_run = |path: &PathBuf| !is_root() || path.is_absolute() && owned::check(path).is_ok();
    all.into_iter().find(|path| path.is_file() && may_run(path))
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
    let Outcome { out, err, .. } = run(&[path.to_str()?, flag], PATIENCE);
    let mut lines = out.lines().chain(err.lines()).map(str::trim);
    lines.find(|line| !line.is_empty()).map(|line| line.chars().take(VERSION_CHARS_MAX).collect())
}
