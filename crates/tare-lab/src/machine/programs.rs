//! Finds programs that tare starts.

use std::path::{Path, PathBuf};

use tare_io::owned;
use tare_io::process::is_root;

use crate::machine::packages::how_to_install;
use tare_model::Failure;

/// Finds a program by its names, in order of preference. As root, skips programs that another user
/// could have put there, and relative entries of PATH.
pub fn find(names: &[&str]) -> Option<PathBuf> {
    look(names).ok().flatten()
}

/// Returns whether a file that comes with tare's program is safe to use. Only root refuses any.
pub fn is_ours(path: &Path) -> bool {
    !is_root() || owned::check_near_program(path).is_ok()
}

/// Returns the program, `None` if there is none, or why the one that exists is not run.
fn look(names: &[&str]) -> Result<Option<PathBuf>, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers may be outside the PATH of ordinary users.
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let folders: Vec<PathBuf> = folders.collect();
    let all = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    for path in all.filter(|path| path.is_file()) {
        if !is_root() || path.is_absolute() && owned::check(&path).is_ok() {
            return Ok(Some(path));
        }
    }
    // Root skips folders that others can write to, even if the program is there.
    let there = |name: &&str| {
        owned::removed_from_path().iter().find(|(folder, _)| folder.join(name).is_file())
    };
    match names.iter().find_map(|name| there(name).map(|found| (name, found))) {
        None => Ok(None),
        Some((name, (folder, why))) => {
            Err(format!("{} is not run as root: {why}", folder.join(name).display()))
        }
    }
}

/// Finds a program by its names, or says how to install it: `package` is Debian's name.
pub fn need(names: &[&str], package: &str) -> Result<PathBuf, Failure> {
    let found = look(names).map_err(Failure::environment)?;
    found.ok_or_else(|| {
        Failure::environment(format!(
            "{} is not installed ({})",
            names.join(" or "),
            how_to_install(package)
        ))
    })
}

/// Finds a program by its name, or by a path that only root and this user can write to.
pub fn named(name: &str) -> Result<PathBuf, String> {
    match name.contains('/') {
        true => owned::check(Path::new(name)).map_err(|error| error.to_string()),
        false => need(&[name], name).map_err(|error| error.to_string()),
    }
}
