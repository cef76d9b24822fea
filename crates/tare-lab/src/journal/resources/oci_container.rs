//! A container of an OCI runtime, with the runtime's state of it.

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use tare_io::owned;

use crate::journal::prefix::is_ours;
use crate::journal::removal::{Removal, Removed, TIMEOUT};
use crate::machine::commands::{Outcome, run};
use crate::machine::programs;
use crate::places::runtime_command;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OciContainer {
    /// Name or path of the runtime, as in the experiment.
    pub runtime: String,
    pub state: PathBuf,
    pub id: String,
}

impl Removal for OciContainer {
    fn remove(&self) -> Removed {
        let Self { runtime, state, id } = self;
        // Without any state no container runs; state that is left is removed with its folder.
        if !is_ours(id) || !state.join(id).exists() && !has_state(state) {
            return Ok(None);
        }
        let cannot = |why: String| format!("cannot remove container {id}: {why}");
        let state = &owned::check(state).map_err(|error| cannot(error.to_string()))?;
        let program = programs::named(runtime).map_err(cannot)?;
        let root = state.display().to_string();
        let argv =
            runtime_command::command_line(&program, &["--root", &root, "delete", "--force", id]);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        match run(&argv, TIMEOUT) {
            Outcome { worked: true, .. } => Ok(Some(format!("container {id}"))),
            // Runtimes differ in how they report that there is no such container.
            Outcome { said, .. } => {
                let argv = runtime_command::command_line(&program, &["--root", &root, "state", id]);
                let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
                match run(&argv, TIMEOUT).worked {
                    true => Err(format!("cannot remove container {id}: {said}")),
                    false => Ok(None),
                }
            }
        }
    }

    fn ends_with_the_boot(&self) -> bool {
        false
    }
}

fn has_state(state: &Path) -> bool {
    std::fs::read_dir(state).is_ok_and(|mut entries| entries.next().is_some())
}
