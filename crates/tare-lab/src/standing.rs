//! A place while a run lasts: started when it is first needed, started afresh when that is due.

use std::sync::Arc;

use tare_stats::samples::Proof;

use crate::agent::Agent;
use crate::error::LabError;
use crate::places::{Ground, Place, Restarts};

/// Rounds that every run has before anything is concluded: over these a slow place is started
/// afresh as often as was asked.
const ROUNDS_AT_LEAST: u32 = 20;

#[derive(Debug)]
pub struct Standing {
    pub place: Box<dyn Place>,
    agent: Option<Arc<Agent>>,
    proof: Option<Proof>,
    /// The round in which it was last started, and how often it was.
    started_in: u32,
    pub starts: u32,
    /// As often as a slow one is started over the first rounds.
    launches: u32,
}

impl Standing {
    pub fn new(place: Box<dyn Place>, launches: u32) -> Self {
        Self { place, agent: None, proof: None, started_in: 0, starts: 0, launches }
    }

    /// Its agent, started (afresh) where that is due.
    pub fn up(&mut self, round: u32, ground: &mut Ground<'_>) -> Result<Arc<Agent>, LabError> {
        let alive = self.agent.as_ref().filter(|agent| agent.is_alive());
        if let Some(agent) = alive.filter(|_| !self.is_due(round)) {
            return Ok(agent.clone());
        }
        self.down();
        let agent = Arc::new(self.place.start(ground)?);
        self.proof = Some(self.place.prove(&agent));
        self.agent = Some(agent.clone());
        self.started_in = round;
        self.starts += 1;
        Ok(agent)
    }

    fn is_due(&self, round: u32) -> bool {
        let age = round.saturating_sub(self.started_in);
        match self.place.restarts() {
            Restarts::Never => false,
            Restarts::EachRound => age > 0,
            Restarts::AFewTimes => age >= ROUNDS_AT_LEAST.div_ceil(self.launches.max(1)),
        }
    }

    pub fn down(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.end();
            self.place.stop();
        }
    }

    pub fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    pub fn agent(&self) -> Option<&Arc<Agent>> {
        self.agent.as_ref()
    }
}

impl Drop for Standing {
    fn drop(&mut self) {
        self.down();
    }
}
