//! A run of made-up rounds.

#[path = "../../../tare-guards/tests/made_up/mod.rs"]
mod rounds;

use tare_report::run::from_rounds::RunFacts;

pub use rounds::*;

pub fn facts() -> RunFacts {
    RunFacts {
        id: 7,
        tare_version: "0.1.0".into(),
        started_unix_ms: 1_795_239_600_000,
        command: "tare run it.toml --seed 42".into(),
        stopped_by: "precision".into(),
        machine: serde_json::json!({ "cpus": [0, 1] }),
        plan: plan(),
        found: None,
        lost: (0, None),
    }
}
