//! Changes between two runs of the same question, at different times or on different machines.
//!
//! Rounds of different runs are not paired. Drift between runs changes a variant's own values, but
//! not its ratio to the baseline that ran beside it. A variant's change is therefore that of its
//! ratio; only a baseline's change is that of its values. Rounds have the same weights as in their
//! run's own report.

use tare_model::Metric;

use crate::analysis::{intervals, with_systematic};
use crate::estimate::{Estimate, sidak};
use crate::round_digest::RoundDigest;
use crate::verdict::Verdict;
use crate::weighted::{Mean, Round};
use crate::welch::Difference;

/// Indices of the same variant in the earlier and the later run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Match {
    pub before: usize,
    pub after: usize,
    /// Whether to compare ratios to each run's baseline; otherwise values are compared.
    pub relative: bool,
}

#[derive(Clone, Debug, PartialEq)]
pub struct ChangeQuestion {
    pub matches: Vec<Match>,
    /// Metrics that decide.
    pub metrics: Vec<Metric>,
    pub tolerance: f64,
    pub level: f64,
}

#[derive(Clone, Debug, PartialEq)]
pub struct Change {
    /// Index of its match.
    pub at: usize,
    pub metric: Metric,
    pub asked: bool,
    /// Ratio of the later run to the earlier; `n` is that of the run with fewer rounds.
    pub ratio: Estimate,
    pub overhead_percent: Estimate,
    pub verdict: Verdict,
}

pub fn changes(
    before: &[RoundDigest],
    after: &[RoundDigest],
    question: &ChangeQuestion,
) -> Vec<Change> {
    let mut found = Vec::new();
    for (at, pair) in question.matches.iter().enumerate() {
        for metric in Metric::ALL {
            let mean = |digests: &[RoundDigest], variant: usize| -> Option<Mean> {
                let of = |digest: &RoundDigest| {
                    let round = &digest.variants[variant];
                    match pair.relative {
                        true => round.weighable(metric),
                        false => Some(Round::from_value(round.value(metric)?.ln())),
                    }
                };
                Mean::from_rounds(&digests.iter().filter_map(of).collect::<Vec<_>>())
            };
            let both = mean(before, pair.before).zip(mean(after, pair.after));
            found.extend(both.map(|(a, b)| (at, metric, Difference::of_weighted(&a, &b))));
        }
    }
    let is_asked = |metric: Metric| question.metrics.contains(&metric);
    let family = |wanted: bool| found.iter().filter(|(_, m, _)| is_asked(*m) == wanted).count();
    let levels = [sidak(question.level, family(false)), sidak(question.level, family(true))];
    let change = |(at, metric, difference): (usize, Metric, Difference)| {
        let asked = is_asked(metric);
        let level = levels[usize::from(asked)];
        // Each run stopped when it looked precise, and each has its own systematic error.
        let both = intervals([level; 2], |level| difference.interval(level));
        let [ratio, surer] = both.map(|log| with_systematic(with_systematic(log)).from_log());
        let [overhead_percent, surer] =
            [ratio, surer].map(|ratio| ratio.map(|ratio| metric.overhead_percent(ratio)));
        let verdict = Verdict::from_overhead(&overhead_percent, &surer, question.tolerance);
        Change { at, metric, asked, ratio, overhead_percent, verdict }
    };
    found.into_iter().map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::round_digest::digests;
    use tare_io::Random;
    use tare_model::samples::{Counts, Round, Slice};

    /// A run on a machine of this speed, with this cost of the second variant.
    fn run(random: &mut Random, rounds: u32, speed: f64, cost: f64) -> Vec<RoundDigest> {
        let mut normal = || (0..12).map(|_| random.uniform()).sum::<f64>() - 6.0;
        let round = |index| {
            // Variation that a round's slices share, and variation of each launch.
            let shared = speed * (1.0 + 0.05 * normal());
            let slices = [0, 1].map(|variant| {
                let own = shared * (1.0 + 0.02 * normal());
                let good = if variant == 0 { own } else { own * (1.0 - cost) };
                let counts =
                    Counts { window_ns: 1_000_000_000, good: good as u64, ..Counts::default() };
                Slice { variant, counts, ..Slice::default() }
            });
            Round { index, cycles: 1, slices: slices.into(), ..Round::default() }
        };
        digests(&(0..rounds).map(round).collect::<Vec<_>>(), 2, 0)
    }

    fn question(relative: bool) -> ChangeQuestion {
        let at = usize::from(relative);
        ChangeQuestion {
            matches: vec![Match { before: at, after: at, relative }],
            metrics: vec![Metric::Throughput],
            tolerance: 0.02,
            level: 0.95,
        }
    }

    #[test]
    fn a_slower_machine_is_no_change_of_a_ratio() {
        let mut random = Random::stream(3, "change", 0);
        let (mut called, mut covered) = (0, 0);
        for _ in 0..300 {
            let before = run(&mut random, 40, 100_000.0, 0.10);
            let after = run(&mut random, 25, 70_000.0, 0.10);
            let found = changes(&before, &after, &question(true));
            let change = found.iter().find(|c| c.metric == Metric::Throughput).unwrap();
            called += u32::from(matches!(change.verdict, Verdict::Slower | Verdict::Faster));
            covered += u32::from(change.overhead_percent.covers(0.0));
            let values = changes(&before, &after, &question(false));
            assert_eq!(values[0].verdict, Verdict::Slower, "the baseline itself is slower");
        }
        assert!(called <= 8, "{called} of 300 called a change");
        assert!(covered >= 278, "{covered} of 300 cover none");
    }

    #[test]
    fn a_cost_that_was_added_is_found() {
        let mut random = Random::stream(4, "change", 0);
        let (mut found, mut covered) = (0, 0);
        for _ in 0..200 {
            let before = run(&mut random, 60, 100_000.0, 0.10);
            let after = run(&mut random, 60, 130_000.0, 0.145);
            let all = changes(&before, &after, &question(true));
            let change = all.iter().find(|c| c.metric == Metric::Throughput).unwrap();
            found += u32::from(change.verdict == Verdict::Slower);
            // Relative throughput fell from 0.9 to 0.855, a loss of 5 %.
            covered += u32::from(change.overhead_percent.covers(5.0));
        }
        assert!(found >= 190 && covered >= 184, "{found} found and {covered} covered, of 200");
    }
}
