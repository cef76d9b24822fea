//! The only way to create a temporary folder: its name cannot be guessed, nobody else can replace
//! it or access it, and it is in the journal before it is created.

use std::path::{Path, PathBuf};

use tare_io::owned;

use crate::journal::Journal;
use crate::journal::prefix::PREFIX;
use crate::journal::resources::Folder;
use tare_model::Failure;

/// Makes a folder of mode 0700 below `$TMPDIR` (or /tmp).
pub fn folder(journal: &Journal) -> Result<PathBuf, Failure> {
    folder_in(&above()?, journal)
}

/// Creates a temporary folder below `above`, to which nobody else must be able to write.
pub fn folder_in(above: &Path, journal: &Journal) -> Result<PathBuf, Failure> {
    let random = owned::random_name()
        .map_err(|error| Failure::environment(format!("no random name can be made: {error}")))?;
    let path = above.join(format!("{PREFIX}{random}"));
    journal.record_before_create(Folder(path.clone()))?;
    owned::make_new_folder(&path).map_err(|error| Failure::file("make", &path, error))?;
    Ok(path)
}

/// Returns the real path of `$TMPDIR` or /tmp; an error if servers' configurations cannot hold it.
fn above() -> Result<PathBuf, Failure> {
    let asked = std::env::temp_dir();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/._-+".contains(c);
    if !asked.is_absolute() || !asked.to_string_lossy().chars().all(plain) {
        return Err(Failure::usage(format!(
            "TMPDIR={asked:?}: write an absolute path of letters, digits and / . _ - +, which \
             servers' configurations can hold"
        )));
    }
    let real = owned::check(&asked).map_err(|error| {
        Failure::environment(format!(
            "no temporary folder can be made: {error}; set TMPDIR to a folder that only you can \
             write to, or that is sticky as /tmp is"
        ))
    })?;
    if !real.is_dir() {
        let text = format!("TMPDIR={}: it is not a folder", asked.display());
        return Err(Failure::usage(text));
    }
    match real.to_string_lossy().chars().all(plain) {
        true => Ok(real),
        false => Err(Failure::usage(format!(
            "TMPDIR={}: it leads to {}, a path that servers' configurations cannot hold",
            asked.display(),
            real.display()
        ))),
    }
}
