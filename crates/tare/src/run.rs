//! Runs, from plan to report; shared by `tare compare` and `tare run`.
//!
//! [`begin`] enters runs in the store, [`measure`] measures them and makes their reports from the
//! store, and [`conclude`] writes the reports and checks the gates. [`sweep`] does this for sweeps, [`check`]
//! for checks of changes.

pub mod aside;
pub mod begin;
pub mod check;
pub mod choices;
pub mod command;
mod conclude;
pub mod cpus_and_folders;
pub mod gate;
pub mod live;
pub mod machine;
pub mod measure;
pub mod sweep;

use std::path::PathBuf;

use tare_io::Instant;
use tare_report::formats::Form;

/// Options of a run that are not in its plan.
pub struct RunOptions {
    pub store: PathBuf,
    /// Forms of the report, and the files they go to.
    pub forms: Vec<(Form, PathBuf)>,
    pub gates: Vec<gate::Gate>,
    pub quiet: bool,
    /// Whether the command succeeds even if a verdict is void.
    pub allows_void: bool,
    /// Start of the command, from which its time limit counts.
    pub began: Instant,
}
