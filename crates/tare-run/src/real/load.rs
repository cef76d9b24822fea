//! Who makes the load: this process, or an agent in another place. One lane a variant; only one is
//! under load at a time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use tare_lab::agent::Agent;
use tare_lab::agent::protocol::{LaneLife, Probed, Request};
use tare_load::measured::Measured;
use tare_load::probe::Prober;
use tare_load::session::Session;
use tare_load::{LoadPlan, Stretch};
use tare_model::plain;
use tare_model::samples::{NUMBER_MAX, Probe};

use crate::error::RunError;
use crate::lab::Load;
use crate::real::together::Together;

/// The clients of one variant, who make its load together; none is this process.
pub type Client = Vec<Arc<Agent>>;

pub struct RealLoad {
    session: Session,
    prober: Prober,
    /// Requests that agents' probes sent since this was last looked at.
    sent_by_agents: u64,
    lanes: Vec<Lane>,
}

enum Lane {
    /// Its number in this process's session.
    Here(usize),
    There(Together),
}

impl RealLoad {
    pub(super) fn start(
        workers: u32,
        cpus: &[usize],
        stop: &Arc<AtomicBool>,
    ) -> Result<Self, RunError> {
        let session = Session::start(workers, cpus, stop)?;
        let prober = Prober::new(stop)?;
        Ok(Self { session, prober, sent_by_agents: 0, lanes: Vec::new() })
    }
}

impl Load for RealLoad {
    type Client = Client;

    fn open(&mut self, lanes: &[(&Client, &LoadPlan)]) -> Result<Vec<String>, RunError> {
        self.lanes.clear();
        let mut here = Vec::new();
        let mut said = Vec::new();
        for (client, plan) in lanes {
            self.lanes.push(match client {
                agents if agents.is_empty() => {
                    here.push(*plan);
                    Lane::Here(here.len() - 1)
                }
                agents => {
                    let (together, opened) = Together::open(agents, plan)?;
                    let note = opened.note.as_deref();
                    said.push(in_words(&opened.reactor, note) + &together.words());
                    Lane::There(together)
                }
            });
        }
        if !here.is_empty() {
            let opened = self.session.open(&here)?;
            let polls = here.iter().any(|plan| plan.engine.wait.polls);
            let polls = if polls { ", polling" } else { "" };
            said.push(in_words(opened.how, opened.note.as_deref()) + polls);
        }
        said.dedup();
        Ok(said)
    }

    fn slice(
        &mut self,
        lane: usize,
        plan: &LoadPlan,
        stretch: Stretch,
    ) -> Result<Measured, RunError> {
        match &self.lanes[lane] {
            Lane::Here(lane) => Ok(Measured::of(plan, &self.session.slice(*lane, stretch)?)),
            Lane::There(together) => together.slice(stretch, plan.engine.timeout),
        }
    }

    fn close(&mut self) -> Result<Vec<LaneLife>, RunError> {
        let here = match self.lanes.iter().any(|lane| matches!(lane, Lane::Here(_))) {
            true => self.session.close()?,
            false => Vec::new(),
        };
        let lives = self.lanes.drain(..).map(|lane| match lane {
            Lane::Here(lane) => Ok(LaneLife::of_workers(&here, lane)),
            Lane::There(together) => together.close(),
        });
        lives.collect()
    }

    fn ask(&mut self, client: &Client, plan: &LoadPlan) -> Result<Result<Probe, String>, RunError> {
        let Some(agent) = client.first() else { return Ok(self.prober.ask(plan)?) };
        let request = Request::Probe { plan: Box::new((*plan).clone()) };
        let probed: Probed = agent.ask(request)?;
        self.sent_by_agents += probed.sent.min(NUMBER_MAX);
        let why = || plain::short(&probed.why, WHY_CHARS_MAX);
        Ok(probed.probe.map(Probe::bounded).ok_or_else(why))
    }

    fn take_sent(&mut self) -> u64 {
        self.prober.take_sent() + std::mem::take(&mut self.sent_by_agents)
    }
}

const WHY_CHARS_MAX: usize = 500;

fn in_words(reactor: &str, note: Option<&str>) -> String {
    let why = note.map_or(String::new(), |note| format!(" ({note})"));
    format!("load by {reactor}{why}")
}
