//! Evidence that a filter is in the path: it refuses one URL, and counts all requests. Also
//! measures the cost of one call without nginx, to compare the measured cost with.

use std::sync::atomic::AtomicBool;

use tare_io::DurationNs;
use tare_model::filters::{FilterKind, FilterSpec};
use tare_model::samples::{Proof, Sent};

use super::caller::{Caller, TRIAL_CALLS, calls_within};
use super::environment;
use super::memory::FilterMemory;
use super::status::{FilterCounts, FilterStatus};
use crate::lab::server::Server;
use crate::layers::{LayerProof, ProofContext};
use tare_model::Failure;

/// Proves the filter of one launch.
#[derive(Debug)]
pub struct FilterProof {
    spec: FilterSpec,
    status: FilterStatus,
    /// Why the filter is not in the path, if that is already known.
    broken: Option<String>,
    before: FilterCounts,
    /// Whether the requested path begins with the prefix.
    accepts: bool,
    call_ns: f64,
}

/// Calls are timed in parts, and their median counts: an interruption spoils only one part.
const PARTS: usize = 5;
const PART: DurationNs = DurationNs::from_us(600);

impl FilterProof {
    /// Requests a path that the filter must refuse. Call this before load, once the server answers.
    pub fn begin(
        spec: &FilterSpec,
        server: &Server,
        status: FilterStatus,
        context: &mut ProofContext<'_>,
    ) -> Result<Self, Failure> {
        let call_ns = call_cost(spec, context)?;
        let ProofContext { path, asker, .. } = context;
        let mut proof = Self {
            spec: spec.clone(),
            status,
            broken: None,
            before: FilterCounts::default(),
            accepts: path.starts_with(&spec.prefix),
            call_ns,
        };
        let never = AtomicBool::new(false);
        let Some(start) = proof.status.read_settled(server, asker.take_sent(), &never) else {
            proof.broken = Some("nginx's module does not answer".into());
            return Ok(proof);
        };
        let answer = asker.ask(&spec.refused_path())?;
        let asked = asker.take_sent();
        let counts = proof.status.read_settled(server, start.seen + asked, &never).unwrap_or(start);
        proof.before = counts;
        let counted = counts.since(start);
        let path = spec.refused_path();
        proof.broken = match answer {
            Err(why) => Some(format!("asked for {path}, which it must refuse: {why}")),
            Ok(_) if spec.filter == FilterKind::Identity => None,
            Ok(probe) if probe.status != 403 => Some(format!(
                "it let {path} through (status {}), which does not begin with {}",
                probe.status, spec.prefix
            )),
            Ok(_) if (counted.accepted, counted.refused) != (0, asked) => Some(format!(
                "it refused {path} {asked} times, and counted {} accepted and {} refused",
                counted.accepted, counted.refused
            )),
            Ok(_) => None,
        };
        Ok(proof)
    }
}

impl LayerProof for FilterProof {
    fn call_ns(&self) -> Option<f64> {
        Some(self.call_ns)
    }

    fn end(self: Box<Self>, server: &Server, sent: Sent) -> Proof {
        let layer = format!("filter {}", self.spec.filter.name());
        let not = |text: String| Proof { layer: layer.clone(), held: false, text };
        if let Some(text) = self.broken {
            return not(text);
        }
        let seen = self.before.seen + sent.requests;
        let Some(after) = self.status.read_settled(server, seen, &AtomicBool::new(false)) else {
            return not("nginx's module does not answer any more".into());
        };
        let counts = after.since(self.before);
        let FilterCounts { seen, accepted, refused } = counts;
        // The filter must have answered every request that the module saw, and correctly.
        let is_as_expected = match (self.spec.filter, self.accepts) {
            (FilterKind::Identity, _) => accepted == 0 && refused == 0,
            (_, true) => accepted == seen && refused == 0,
            (_, false) => accepted == 0 && refused == seen,
        };
        if !sent.fits(seen) || !is_as_expected {
            return not(format!(
                "of {sent} requests nginx's module saw {seen}, and the filter counted {accepted} \
                 accepted and {refused} refused"
            ));
        }
        let text = match self.spec.filter {
            FilterKind::Identity => format!("of {sent} requests nginx's module saw {seen}"),
            _ => format!(
                "{} was refused; of {sent} requests it counted {accepted} accepted and {refused} \
                 refused",
                self.spec.refused_path()
            ),
        };
        Proof { layer, held: true, text }
    }
}

/// Measures the cost of one call, in nanoseconds.
fn call_cost(spec: &FilterSpec, context: &ProofContext<'_>) -> Result<f64, Failure> {
    // Use separate memory: the launch's counters must count only the launch's requests.
    let memory = FilterMemory::create_for(spec, context.state)?;
    let shared = memory.as_ref().map(|memory| memory.name.as_str());
    let mut caller = Caller::start(spec, &environment(spec, shared)?, context.cpus)?;
    let trial = caller.call(spec, context.path, TRIAL_CALLS)?;
    let calls = calls_within(PART, trial.elapsed_ns, TRIAL_CALLS);
    let mut parts = Vec::with_capacity(PARTS);
    for _ in 0..PARTS {
        parts.push(caller.call(spec, context.path, calls)?.elapsed_ns as f64 / calls as f64);
    }
    parts.sort_by(f64::total_cmp);
    Ok(parts[PARTS / 2])
}
