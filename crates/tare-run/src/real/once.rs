//! One load, made once, by clients that are elsewhere, of a server that is up already.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::channel;

use tare_lab::lab::Placed;
use tare_lab::{Lab, LabPlan};
use tare_load::LoadPlan;
use tare_load::measured::Measured;
use tare_model::places::{ClientSpec, PlaceSpec};
use tare_model::samples::Proof;
use tare_model::servers::ServerSpec;

use super::together::Together;
use crate::error::RunError;

pub struct Once {
    pub measured: Measured,
    pub reactor: String,
    pub reactor_note: Option<String>,
    /// Where the clients were, as seen from inside.
    pub proofs: Vec<Proof>,
    /// What could not be removed.
    pub left: Vec<String>,
}

/// Makes the plan's load from `clients`, a place that is made for it and removed.
pub fn load_from(
    clients: &PlaceSpec,
    plan: &LoadPlan,
    state: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<Once, RunError> {
    let placed = Placed {
        name: "load".into(),
        server: ServerSpec::Up,
        fixed: None,
        ip: None,
        layers: Vec::new(),
        place: PlaceSpec::host(),
        client: ClientSpec::Place(clients.clone()),
    };
    let (events, _unread) = channel();
    let mut lab = Lab::open(LabPlan {
        state,
        servers: vec![placed],
        cpus: Vec::new(),
        load_cpus: Vec::new(),
        connections: plan.engine.max_connections,
        exclusive: false,
        place_launches: 1,
        events,
        stop: Arc::clone(stop),
    })?;
    let loaded = load(&mut lab, plan);
    let proofs = lab.proofs(0);
    let left = lab.close();
    match loaded {
        Err(_) if stop.load(Ordering::Relaxed) => Err(RunError::Interrupted),
        Err(error) => Err(error),
        Ok((measured, reactor, reactor_note)) => {
            Ok(Once { measured, reactor, reactor_note, proofs, left })
        }
    }
}

type Loaded = (Measured, String, Option<String>);

fn load(lab: &mut Lab, plan: &LoadPlan) -> Result<Loaded, RunError> {
    let agents = lab.client(0, 1)?;
    let (together, opened) = Together::open(&agents, plan)?;
    let measured = together.slice(plan.stretch, plan.engine.timeout)?;
    together.close()?;
    Ok((measured, opened.reactor, opened.note))
}
