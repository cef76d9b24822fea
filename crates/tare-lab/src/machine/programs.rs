//! Programs that tare starts: where they are, and which version.

use std::path::{Path, PathBuf};

use tare_io::owned;
use tare_io::process::is_root;

use tare_model::Failure;

/// A program by one of its names, in the order of preference. Root takes none that another user
/// could have put there, nor one found through a relative entry of PATH.
pub fn find(names: &[&str]) -> Option<PathBuf> {
    look(names).ok().flatten()
}

/// Whether what lies near tare, and belongs to it by its name, may be believed by root.
pub fn is_ours(path: &Path) -> bool {
    !is_root() || owned::check_near_program(path).is_ok()
}

/// A program, or none, or why one that is there is not run.
fn look(names: &[&str]) -> Result<Option<PathBuf>, String> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    // Servers live where ordinary users' paths do not look.
    let folders =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into()]);
    let folders: Vec<PathBuf> = folders.collect();
    let all = names.iter().flat_map(|name| folders.iter().map(move |folder| folder.join(name)));
    for path in all.filter(|path| path.is_file()) {
        if !is_root() || path.is_absolute() && owned::check(&path).is_ok() {
            return Ok(Some(path));
        }
    }
    // Root passes over folders that others can write to, also where a program is there.
    let there =
        |name: &&str| owned::passed_over().iter().find(|(folder, _)| folder.join(name).is_file());
    match names.iter().find_map(|name| there(name).map(|found| (name, found))) {
        None => Ok(None),
        Some((name, (folder, why))) => {
            Err(format!("{} is not run as root: {why}", folder.join(name).display()))
        }
    }
}

/// A program by one of its names, or the words for what to do.
pub fn need(names: &[&str], package: &str) -> Result<PathBuf, Failure> {
    let found = look(names).map_err(Failure::environment)?;
    found.ok_or_else(|| {
        Failure::environment(format!(
            "{} is not installed (Debian: apt-get install {package})",
            names.join(" or ")
        ))
    })
}

/// A program by its name, or by a path that only root and this user could have put it at.
pub fn named(name: &str) -> Result<PathBuf, String> {
    match name.contains('/') {
        true => owned::check(Path::new(name)).map_err(|error| error.to_string()),
        false => need(&[name], name).map_err(|error| error.to_string()),
    }
}
