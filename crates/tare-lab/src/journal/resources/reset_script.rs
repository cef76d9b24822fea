//! A script that undoes a procedure. tare wrote it into a folder of its own.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_io::owned;

use crate::journal::prefix::has_our_name;
use crate::journal::removal::{Removal, Removed};
use crate::machine::commands::run;

/// The script is run only if nobody else could have written it, and only from tare's folders.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResetScript {
    pub path: PathBuf,
    /// Name of the procedure that it undoes, for messages.
    pub procedure: String,
    pub within_ns: u64,
}

impl Removal for ResetScript {
    fn remove(&self) -> Removed {
        let Self { path, procedure, within_ns } = self;
        if !path.parent().is_some_and(has_our_name) || !path.exists() {
            return Ok(None);
        }
        let what = format!("what procedure '{procedure}' had done");
        let real = owned::check(path).map_err(|why| format!("{what}: {why}; it was left"))?;
        if real != Path::new(path) {
            return Err(format!("{what}: {} is a link; it was left", path.display()));
        }
        let argv = ["/bin/sh", &path.display().to_string()];
        match run(&argv, DurationNs::from_ns(*within_ns)) {
            done if done.worked => Ok(Some(what)),
            done => Err(format!("{what} is not taken back: {}", done.said)),
        }
    }

    fn ends_with_the_boot(&self) -> bool {
        false
    }
}
