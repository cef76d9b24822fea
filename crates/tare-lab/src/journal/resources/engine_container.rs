//! A container of an engine.

use std::time::Duration;

use serde::{Deserialize, Serialize};
use tare_model::places::ENGINES;

use crate::journal::prefix::is_ours;
use crate::journal::removal::{Removal, Removed, TIMEOUT, removed};
use crate::machine::commands::{self, run};
use crate::machine::programs;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EngineContainer {
    pub engine: String,
    pub name: String,
}

impl Removal for EngineContainer {
    fn remove(&self) -> Removed {
        let Self { engine, name } = self;
        let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
        if !is_ours(name) || !name.chars().all(plain) || !ENGINES.contains(&engine.as_str()) {
            return Ok(None);
        }
        let program = programs::named(engine)
            .map_err(|why| format!("cannot remove container {name}: {why}"))?;
        let program = program.display().to_string();
        // Its processes were killed a moment ago; while they end, its mounts are busy.
        for _ in 0..BUSY_CHECKS {
            let removed = remove_once(&program, name);
            if removed.is_ok() || commands::is_stopped() {
                return removed;
            }
            std::thread::park_timeout(BUSY_CHECK);
        }
        remove_once(&program, name)
    }

    fn ends_with_the_boot(&self) -> bool {
        false
    }
}

const BUSY_CHECKS: u32 = 10;
const BUSY_CHECK: Duration = Duration::from_millis(200);

fn remove_once(program: &str, name: &str) -> Removed {
    let listed = run(&[program, "ps", "-aq", "--filter", &format!("name=^{name}$")], TIMEOUT);
    if listed.worked && listed.out.trim().is_empty() {
        return Ok(None);
    }
    removed(run(&[program, "rm", "--force", name], TIMEOUT), format!("container {name}"))
}
