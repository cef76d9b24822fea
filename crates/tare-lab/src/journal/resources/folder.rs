//! A folder of temporary files.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_io::owned::{self, TreeError};

use crate::journal::prefix::has_our_name;
use crate::journal::removal::{Removal, Removed, TIMEOUT};
use crate::machine::commands::run;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Folder(pub PathBuf);

impl Removal for Folder {
    fn remove(&self) -> Removed {
        let path = &self.0;
        if !has_our_name(path) {
            return Ok(None);
        }
        unmount_below(path)?;
        match owned::remove_tree(path) {
            Ok(true) => Ok(Some(format!("folder {}", path.display()))),
            Ok(false) => Ok(None),
            Err(error @ TreeError::Link(_)) => Err(error.to_string()),
            Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
        }
    }

    fn ends_with_the_boot(&self) -> bool {
        false
    }
}

/// Unmounts what container runtimes mounted in our folder.
fn unmount_below(folder: &Path) -> Result<(), String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(unescaped);
    let below: Vec<String> = points.filter(|point| Path::new(point).starts_with(folder)).collect();
    for point in below.into_iter().rev() {
        let done = run(&["umount", "--no-canonicalize", "--", &point], TIMEOUT);
        if !done.worked {
            return Err(format!("cannot unmount {point}: {}", done.said));
        }
    }
    Ok(())
}

/// Decodes a path as the kernel writes it, with `\040` for a space.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}
