//! A place during a run: started when first needed, and started afresh when due.

use std::sync::Arc;
use std::sync::mpsc::Sender;

use tare_io::DurationNs;
use tare_model::samples::Proof;

use crate::agent::Agent;
use crate::event::Event;
use crate::executor::Target;
use crate::lab::server::Starting;
use crate::lab::site::Site;
use crate::launch::injected::Injected;
use crate::machine::cgroup::Cgroup;
use crate::machine::processes;
use crate::meters::metering::MeterSource;
use crate::meters::probe::{Probe as _, ProcessFiles};
use crate::meters::probes::Accounting;
use crate::places::{LabResources, Place, PlaceContext, Restarts};
use tare_model::Failure;

/// The first rounds of a run, over which a slow place is started `launches` times; many runs have
/// no more rounds.
const FIRST_ROUNDS: u32 = 6;

#[derive(Debug)]
pub struct PlaceInstance {
    pub place: Box<dyn Place>,
    cgroup: Option<Cgroup>,
    /// The CPU time of its control group.
    accounting: Option<Accounting>,
    agent: Option<Arc<Agent>>,
    proof: Option<Proof>,
    /// The round of its last start.
    started_in: u32,
    /// The number of starts so far.
    pub starts: u32,
    /// Starts of a slow place over the first rounds.
    launches: u32,
    /// The place's name in the run's log, and the channel for its events.
    log: (String, Sender<Event>),
}

impl PlaceInstance {
    pub fn new(
        place: Box<dyn Place>,
        cgroup: Option<Cgroup>,
        launches: u32,
        context: &PlaceContext,
    ) -> Self {
        let log = (context.who.clone(), context.events.clone());
        let (agent, proof, started_in, starts) = (None, None, 0, 0);
        let accounting = cgroup.as_ref().and_then(|group| Accounting::attach(&group.cpu_files()));
        Self { place, cgroup, accounting, agent, proof, started_in, starts, launches, log }
    }

    /// Begins to start the place if it is not up or a fresh start is due.
    pub fn begin(&mut self, round: u32, resources: &mut LabResources<'_>) -> Result<(), Failure> {
        if self.is_up(round, resources) {
            return Ok(());
        }
        self.end_old();
        self.place.begin(resources)
    }

    /// Ends the place if it is up, so that the next start begins from nothing.
    pub fn tear_down(&mut self) {
        if self.agent.is_some() {
            self.end_old();
        }
    }

    fn is_up(&self, round: u32, resources: &LabResources<'_>) -> bool {
        self.agent.as_ref().is_some_and(|agent| agent.is_alive())
            && !self.is_due(round)
            && self.place.fits(resources.clusters)
    }

    fn end_old(&mut self) {
        if let Some(why) = self.agent.as_ref().and_then(|agent| agent.loss_within(DurationNs::ZERO))
        {
            self.note(format!("{why}; it is started afresh"));
        }
        self.down();
    }

    /// Returns the place's agent. Starts the place first if it is not up or a fresh start is due.
    pub fn up(
        &mut self,
        round: u32,
        resources: &mut LabResources<'_>,
    ) -> Result<Arc<Agent>, Failure> {
        if let Some(agent) = self.agent.as_ref().filter(|_| self.is_up(round, resources)) {
            return Ok(agent.clone());
        }
        self.end_old();
        let agent = Arc::new(self.place.start(resources)?);
        self.proof = Some(self.place.prove(&agent));
        self.agent = Some(agent.clone());
        self.started_in = round;
        self.starts += 1;
        Ok(agent)
    }

    fn note(&self, text: String) {
        let (who, events) = &self.log;
        let unix_ms = tare_io::time::wall_unix_ms();
        let _ = events.send(Event { unix_ms, who: who.clone(), text });
    }

    fn is_due(&self, round: u32) -> bool {
        if round == self.started_in {
            return false;
        }
        let age = round.saturating_sub(self.started_in);
        match self.place.restarts() {
            Restarts::Never => false,
            Restarts::EachRound => age > 0,
            // Starts become ever rarer: a long run should not be spent on starting machines.
            Restarts::AFewTimes if self.starts >= self.launches => {
                round >= 2 * self.started_in.max(FIRST_ROUNDS / 2)
            }
            Restarts::AFewTimes => age >= FIRST_ROUNDS.div_ceil(self.launches.max(1)),
        }
    }

    pub fn down(&mut self) {
        if let Some(agent) = self.agent.take() {
            agent.end();
            self.place.stop();
        }
    }

    /// Returns how a server or hop is started in the place; `agent` is the place's own.
    pub fn starting<'a>(
        &self,
        agent: &Arc<Agent>,
        who: &'a str,
        cpus: &[usize],
        here: &Site,
    ) -> Starting<'a> {
        let metered_here = self.cgroup.clone().filter(|_| self.place.is_metered_from_here());
        let from_here = metered_here.map(|cgroup| {
            let target = Target::Group { cgroup, leader: agent.pid().unwrap_or_default() };
            MeterSource { site: here.clone(), target }
        });
        Starting {
            site: Site::There(agent.clone()),
            who,
            cpus: if self.place.has_our_cpus() { cpus.to_vec() } else { Vec::new() },
            cgroup: None,
            metered: from_here.or_else(|| self.place.metered_by()),
        }
    }

    /// Returns the CPU time used in the place; `None` without a control group on this machine.
    pub fn cpu_ns(&self) -> Option<u64> {
        let nobody = ProcessFiles::default();
        self.accounting.as_ref()?.cpu_ns(&nobody.look())
    }

    /// Returns the CPU time of all that runs in it; `None` if some of it is in other control groups.
    pub fn all_cpu_ns(&self) -> Option<u64> {
        self.cpu_ns().filter(|_| self.place.is_metered_from_here())
    }

    /// Returns the processes on this machine that belong to it.
    pub fn processes(&self) -> Vec<u32> {
        let tree = self.agent.iter().filter_map(|agent| agent.pid());
        let tree = tree.flat_map(processes::tree);
        tree.chain(self.cgroup.iter().flat_map(Cgroup::processes)).collect()
    }

    /// Returns whether it may have processes on this machine that cannot be recognised.
    pub fn has_helpers_unseen(&self) -> bool {
        self.place.has_helpers() && (self.cgroup.is_none() || !self.place.is_metered_from_here())
    }

    pub fn proof(&self) -> Option<&Proof> {
        self.proof.as_ref()
    }

    /// Returns the site that makes load in the place; `None` if the place is not up.
    pub fn site(&self) -> Option<Site> {
        self.agent.clone().map(Site::There)
    }

    /// Returns the sidecar that a mesh injected into the place.
    pub fn injected(&self) -> Option<Injected> {
        self.place.injected(self.agent.as_ref()?)
    }

    pub fn agent(&self) -> Option<&Arc<Agent>> {
        self.agent.as_ref()
    }
}

impl Drop for PlaceInstance {
    fn drop(&mut self) {
        self.down();
    }
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, Ipv4Addr};

    use super::*;

    /// A place that is never started; only its restart rule is used.
    #[derive(Debug)]
    struct Paper(Restarts);

    impl Place for Paper {
        fn start(&mut self, _ground: &mut LabResources<'_>) -> Result<Agent, Failure> {
            Err(Failure::environment("made of paper"))
        }
        fn prove(&self, _agent: &Agent) -> Proof {
            Proof::default()
        }
        fn address(&self) -> IpAddr {
            Ipv4Addr::LOCALHOST.into()
        }
        fn restarts(&self) -> Restarts {
            self.0
        }
    }

    fn starts(restarts: Restarts, launches: u32) -> Vec<u32> {
        let log = (String::new(), std::sync::mpsc::channel().0);
        let place = Box::new(Paper(restarts));
        let mut instance = PlaceInstance {
            accounting: None,
            place,
            cgroup: None,
            agent: None,
            proof: None,
            started_in: 0,
            starts: 0,
            launches,
            log,
        };
        let mut rounds = vec![0];
        instance.starts = 1;
        for round in 0..130 {
            if instance.is_due(round) {
                rounds.push(round);
                instance.started_in = round;
                instance.starts += 1;
            }
        }
        rounds
    }

    #[test]
    fn slow_places_are_restarted_a_few_times_and_then_rarely() {
        assert_eq!(starts(Restarts::AFewTimes, 3), [0, 2, 4, 8, 16, 32, 64, 128]);
        assert_eq!(starts(Restarts::AFewTimes, 1), [0, 6, 12, 24, 48, 96]);
        assert_eq!(starts(Restarts::Never, 3), [0]);
        assert_eq!(starts(Restarts::EachRound, 3).len(), 130);
    }
}
