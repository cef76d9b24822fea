//! Rules about rounds and launches: too few, lost, drifting, of two kinds, with pauses.

use tare_stats::Verdict;
use tare_stats::estimate::mean;
use tare_stats::shape::{ROUNDS_MIN, ROUNDS_MIN_SINGLE, trend, two_modes};
use tare_stats::stopping::max_time_needed;

use crate::evidence::Evidence;
use crate::format::{counted, percent};
use crate::{Code, RunGuard, Severity, guard};

pub(crate) fn few_rounds(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let rounds = evidence.analysis.rounds;
    if rounds >= tare_stats::verdict::ROUNDS_MIN {
        return Vec::new();
    }
    let text = format!(
        "only {rounds} rounds; a verdict needs at least {}",
        tare_stats::verdict::ROUNDS_MIN
    );
    let mut guards = guard(Code::FewRounds, Severity::Note, None, text);
    let elapsed_ns = evidence.digests.iter().map(|digest| digest.elapsed_ns).sum();
    let needed = max_time_needed(rounds, elapsed_ns, evidence.plan.stop.max_time);
    for guard in &mut guards {
        guard.line.cure = needed.map(|needed| format!("allow more time: --max-time {needed}"));
    }
    guards
}

/// The rounds in which a server failed under load do not count, and the others may flatter it.
pub(crate) fn lost_rounds(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let (lost, why) = &evidence.circumstances.lost;
    if *lost == 0 {
        return Vec::new();
    }
    let text = format!(
        "{} lost, and not counted: {}",
        counted(u64::from(*lost), "round was", "rounds were"),
        why.as_deref().unwrap_or("it is not known why")
    );
    guard(Code::LostRounds, Severity::Warn, None, text)
}

pub(crate) fn launches(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let up: Vec<&str> = evidence
        .plan
        .variants
        .iter()
        .filter(|variant| !variant.is_launched())
        .map(|variant| variant.name.as_str())
        .collect();
    let mut guards = Vec::new();
    if !up.is_empty() {
        let text = format!(
            "tare cannot restart {}: identical servers differ by several percent from launch to \
             launch, and this interval covers drift only; let tare start them (--launch \
             {}='command')",
            up.join(", "),
            up[0]
        );
        guards.extend(guard(Code::SingleLaunch, Severity::Note, None, text));
    }
    if evidence.plan.is_exclusive() {
        let text = "variants ran one at a time, as requested: drift of the machine is not \
                    cancelled";
        guards.extend(guard(Code::Exclusive, Severity::Note, None, text.into()));
    }
    guards
}

pub(crate) fn shapes(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let mut guards = drift(evidence);
    for comparison in evidence.analysis.comparisons.iter().filter(|c| c.asked) {
        let name = evidence.name(comparison.variant);
        let word = comparison.metric.word();
        let tolerance = evidence.question.tolerance;
        // Changes smaller than the tolerance do not matter.
        let third = comparison.rounds.len() / 3;
        let end = comparison.rounds.len() - third;
        let moved = mean(&comparison.rounds[end..]) - mean(&comparison.rounds[..third]);
        if let Some(z) = trend(&comparison.rounds, ROUNDS_MIN).filter(|_| moved.abs() > tolerance) {
            let way = if z > 0.0 { "rises" } else { "falls" };
            let text = format!(
                "its ratio of {word} {way} from round to round: it has not settled, and the \
                 interval does not cover the trend"
            );
            guards.extend(guard(Code::Unstable, Severity::Warn, Some(name), text));
        }
        let modes = two_modes(&comparison.rounds);
        if let Some(modes) = modes.filter(|modes| modes.high - modes.low > tolerance) {
            // Positive is worse, as in the table.
            let shown = |log: f64| {
                format!("{:+.1} % of overhead", comparison.metric.overhead_percent(log.exp()))
            };
            let text = format!(
                "its rounds have two modes in {word}: {} in {} of them, {} in the others; the mean \
                 describes neither",
                shown(modes.high),
                percent(modes.high_share),
                shown(modes.low)
            );
            guards.extend(guard(Code::Unstable, Severity::Warn, Some(name), text));
        }
    }
    guards
}

/// A single variant's value moves with the machine's speed, which no other variant cancels.
fn drift(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let moved = evidence.analysis.single.iter().flat_map(|own| {
        let rounds = evidence.digests.iter();
        let logs: Vec<f64> =
            rounds.filter_map(|digest| digest.variants[0].log_ratio(own.metric)).collect();
        let third = logs.len() / 3;
        let by = mean(&logs[logs.len() - third..]) - mean(&logs[..third]);
        let z =
            trend(&logs, ROUNDS_MIN_SINGLE).filter(|_| by.abs() > evidence.question.tolerance)?;
        let way = if z > 0.0 { "rises" } else { "falls" };
        let text = format!(
            "its {} {way} from round to round: the server has not settled, or the machine's speed \
             drifts, which only a second variant would cancel",
            own.metric.word()
        );
        Some(guard(Code::Unstable, Severity::Warn, Some(evidence.name(0)), text))
    });
    moved.flatten().collect()
}

pub(crate) fn pauses(evidence: &Evidence<'_>) -> Vec<RunGuard> {
    let pausing = evidence
        .analysis
        .comparisons
        .iter()
        .filter(|c| c.asked && c.verdict != Verdict::Void)
        .filter_map(|comparison| Some((comparison, comparison.pauses?)));
    let told = pausing.flat_map(|(comparison, total)| {
        let metric = comparison.metric;
        let text = format!(
            "its overhead in {} is {:+.1} % with outliers, but {:+.1} % without them: one of \
             the two servers pauses occasionally, and the interval does not cover that",
            metric.word(),
            metric.overhead_percent(total),
            metric.overhead_percent(comparison.ratio.point)
        );
        guard(Code::Pauses, Severity::Warn, Some(evidence.name(comparison.variant)), text)
    });
    let single = evidence.analysis.single.iter();
    let pausing = single.filter_map(|own| Some((own, own.pauses?)));
    let of_single = pausing.flat_map(|(own, total)| {
        let text = format!(
            "with outliers its {} differs by {:+.1} % from that without them: it pauses \
             occasionally, and the interval does not cover that",
            own.metric.word(),
            (total / own.value.point - 1.0) * 100.0
        );
        guard(Code::Pauses, Severity::Warn, Some(evidence.name(0)), text)
    });
    told.chain(of_single).collect()
}
