//! Runs: what `tare compare` and `tare run` share, from plan to report.
//!
//! [`begin`] enters runs in the store ([`sweep`]: those of a sweep), [`measure`] has the runner
//! measure them, [`conclude`] tells and judges what they found, and [`stored`] makes a report from
//! the store alone.

pub mod aside;
pub mod begin;
pub mod choices;
pub mod command;
mod conclude;
pub mod gate;
pub mod live;
pub mod machine;
pub mod measure;
pub mod places;
pub mod sweep;

use std::path::PathBuf;

use tare_io::Instant;
use tare_report::form::Form;

/// What the user wants done with a run.
pub struct RunOptions {
    pub store: PathBuf,
    /// Forms of the report, and the files they go to.
    pub forms: Vec<(Form, PathBuf)>,
    pub gates: Vec<gate::Gate>,
    pub quiet: bool,
    /// A void variant is no failure.
    pub allows_void: bool,
    /// When the command began: its time limit counts from then on.
    pub began: Instant,
}
