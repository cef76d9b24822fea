//! Input of guards: a run's plan, its rounds, and their analysis.

use tare_model::plan::PlanParts;
use tare_model::samples::{Counts, Launch, LaunchLoad, MachineUse};
use tare_stats::{Analysis, Question, RoundDigest, analyse};

/// Totals of a variant over the whole run.
pub struct Totals<'a> {
    pub counts: Counts,
    pub launches: Vec<&'a Launch>,
}

/// Facts about a run that its rounds do not contain.
#[derive(Clone, Debug, Default)]
pub struct Circumstances {
    /// Number of CPUs from which the machine's capacity was computed, if known.
    pub cpus: Option<usize>,
    /// Rounds that were lost, and why the first one was.
    pub lost: (u32, Option<String>),
}

pub struct Evidence<'a> {
    pub plan: &'a PlanParts,
    pub circumstances: Circumstances,
    pub question: Question,
    pub digests: &'a [RoundDigest],
    pub totals: Vec<Totals<'a>>,
    pub machine: MachineUse,
    pub analysis: Analysis,
}

impl<'a> Evidence<'a> {
    pub fn new(
        plan: &'a PlanParts,
        digests: &'a [RoundDigest],
        circumstances: Circumstances,
    ) -> Self {
        let totals = (0..plan.variants.len()).map(|variant| {
            let rounds = digests.iter().map(|digest| &digest.variants[variant]);
            let mut counts = Counts::default();
            rounds.clone().for_each(|round| counts.accumulate(&round.counts));
            Totals { counts, launches: rounds.filter_map(|round| round.launch.as_ref()).collect() }
        });
        let mut machine = MachineUse::default();
        digests.iter().for_each(|digest| machine.then(&digest.machine));
        let question = Question::from_plan(plan);
        let analysis = analyse(digests, &question);
        let totals = totals.collect();
        Self { plan, circumstances, question, digests, totals, machine, analysis }
    }

    pub fn name(&self, variant: usize) -> &'a str {
        &self.plan.variants[variant].name
    }

    /// Load and measurements of each launch of a variant outside its slices.
    pub fn loads(&self, variant: usize) -> impl Iterator<Item = &'a LaunchLoad> + Clone {
        self.totals[variant].launches.iter().map(|launch| &launch.load)
    }
}
