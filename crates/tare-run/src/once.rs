//! One load, made once by clients elsewhere, on a server that is already up.

use std::path::Path;

use tare_lab::lab::Deployment;
use tare_lab::world::{LoadSource, MakeLoad as _, World as _};
use tare_lab::{Halt, HaltReason, Lab, LabPlan};
use tare_load::measured::Measured;
use tare_load::{LoadPlan, Stretch};
use tare_model::Failure;
use tare_model::clients::Clients;
use tare_model::places::PlaceSpec;
use tare_model::plan::VariantId;
use tare_model::samples::Proof;
use tare_model::servers::ServerSpec;

pub struct Once {
    /// Includes the opening of connections.
    pub measured: Measured,
    /// The intervals of each client, or why they could not be fetched. Each begins at its offset
    /// from the start of that client's load.
    pub intervals: Result<Vec<Measured>, Failure>,
    pub made_by: LoadSource,
    /// Evidence of where the clients ran, as seen from inside their places.
    pub proofs: Vec<Proof>,
    /// What could not be removed.
    pub left: Vec<String>,
}

/// Makes the plan's load from `clients`. Their places are made for it and removed.
pub fn load_from(
    clients: Clients,
    plan: &LoadPlan,
    state: &Path,
    halt: &Halt,
) -> Result<Once, Failure> {
    let deployment = Deployment {
        name: "load".into(),
        server: ServerSpec::External,
        endpoint: plan.engine.endpoint.clone(),
        fixed: None,
        ip: None,
        layers: Vec::new(),
        place: PlaceSpec::host(),
        clients,
    };
    let mut lab = Lab::open(LabPlan {
        state,
        servers: vec![deployment],
        cpus: Vec::new(),
        load_cpus: Vec::new(),
        connections: plan.engine.max_connections,
        exclusive: false,
        place_launches: 1,
        halt: halt.clone(),
    })?;
    let loaded = load(&mut lab, plan);
    let proofs = lab.placement(VariantId(0)).proofs;
    let left = lab.close();
    match loaded {
        Err(_) if halt.reason() == Some(HaltReason::Interrupted) => Err(Failure::interrupted()),
        Err(error) => Err(error),
        Ok((measured, intervals, made_by)) => {
            Ok(Once { measured, intervals, made_by, proofs, left })
        }
    }
}

type Loaded = (Measured, Result<Vec<Measured>, Failure>, LoadSource);

fn load(lab: &mut Lab, plan: &LoadPlan) -> Result<Loaded, Failure> {
    let clients = lab.clients(VariantId(0), 1)?;
    let mut load = lab.load();
    let made_by = load.open(&clients, plan)?;
    let mut measured = load.slice(Stretch { hands_over: true, ..plan.stretch })?;
    if let Some(opening) = load.opening() {
        measured.counts.add_opening(&opening.counts);
    }
    // The results are valid without the intervals.
    let intervals = load.intervals();
    load.close()?;
    Ok((measured, intervals, made_by))
}
