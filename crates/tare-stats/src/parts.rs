//! The cost of each part of a variant: its server and every hop before it.

use tare_model::metric::Observed;
use tare_model::samples::{Counts, Launch, LaunchPart};
use tare_model::{Distribution, Metric};

use crate::analysis::over_rounds;
use crate::estimate::Estimate;
use crate::round_digest::{RoundDigest, VariantRound};

/// Costs of one part, over rounds.
#[derive(Clone, Debug, PartialEq)]
pub struct PartCosts {
    pub name: String,
    pub place: String,
    /// Metrics of what the part used, per request that the variant answered.
    pub metrics: Vec<(Metric, Estimate)>,
}

/// All parts of a variant, in the order of its launches; empty where tare meters nothing.
pub fn parts(digests: &[RoundDigest], variant: usize, level: f64) -> Vec<PartCosts> {
    let rounds: Vec<&VariantRound> = digests.iter().map(|d| &d.variants[variant]).collect();
    let known = rounds.iter().find_map(|round| {
        let launch = round.launch.as_ref()?;
        (!launch.parts.is_empty()).then_some(&launch.parts)
    });
    let found = known.into_iter().flatten().map(|part| {
        let of_rounds: Vec<Vec<Option<f64>>> =
            rounds.iter().filter_map(|round| values(round, &part.name)).collect();
        let metrics = Metric::ALL.into_iter().filter_map(|metric| {
            let values = of_rounds.iter().filter_map(|values| values[metric as usize]);
            Some((metric, over_rounds(values, level)?))
        });
        let LaunchPart { name, place, .. } = part.clone();
        PartCosts { name, place, metrics: metrics.collect() }
    });
    found.collect()
}

/// One round's values of the part of that name, indexed as [`Metric::ALL`].
fn values(round: &VariantRound, name: &str) -> Option<Vec<Option<f64>>> {
    const NO_LATENCIES: &[(tare_model::samples::Series, Distribution)] = &[];
    let parts = &round.launch.as_ref()?.parts;
    let at = parts.iter().position(|part| part.name == name)?;
    let rss_bytes = parts[at].rss_bytes;
    let usage = round.used.as_ref();
    let used = usage.and_then(|usage| match at + 1 == parts.len() {
        true => Some(usage.server()),
        false => usage.hops.get(at).copied(),
    });
    // Only the part's usage is given: all other counts belong to the whole variant.
    let (counts, launch) = (Counts::default(), Launch { rss_bytes, ..Launch::default() });
    let observed = Observed {
        counts: &counts,
        used: used.map(Into::into),
        paid: round.replies_charged,
        latencies: NO_LATENCIES,
        launch: Some(&launch),
    };
    Some(Metric::ALL.map(|metric| metric.number(&observed)).to_vec())
}

#[cfg(test)]
mod tests {
    use tare_model::counters::{Counter, Counters};
    use tare_model::samples::{Round, Slice};
    use tare_model::usage::Usage;

    use super::*;
    use crate::round_digest::digest;

    #[test]
    fn each_part_has_its_own_cost_and_memory_and_nothing_that_is_the_variants() {
        let cpu = |ns: u64| Counters::default().with(Counter::Cpu, ns);
        let part = |name: &str, rss: u64| LaunchPart {
            name: name.into(),
            place: "netns".into(),
            rss_bytes: Some(rss),
            ..LaunchPart::default()
        };
        let launch = Launch {
            parts: vec![part("proxy nginx", 5), part("server", 7)],
            rss_bytes: Some(12),
            startup_ns: Some(9),
            ..Launch::default()
        };
        let counts = Counts { window_ns: 1_000, good: 10, answered: 10, ..Counts::default() };
        let used = Some(Usage::of_parts(cpu(100), vec![cpu(300)]));
        let slices = vec![Slice { counts, used, ..Slice::default() }];
        let round = Round { cycles: 1, launches: vec![launch], slices, ..Round::default() };
        let digests = [digest(&round, 1, 0), digest(&round, 1, 0)];
        let found = parts(&digests, 0, 0.95);
        let point = |part: usize| {
            let metrics = found[part].metrics.iter();
            metrics.map(|(metric, value)| (*metric, value.point.round())).collect::<Vec<_>>()
        };
        assert_eq!((&*found[0].name, &*found[1].name), ("proxy nginx", "server"));
        assert_eq!(point(0), [(Metric::ServerCpu, 30.0), (Metric::ServerRss, 5.0)]);
        assert_eq!(point(1), [(Metric::ServerCpu, 10.0), (Metric::ServerRss, 7.0)]);
        assert!(parts(&[digest(&Round::default(), 1, 0)], 0, 0.95).is_empty());
    }
}
