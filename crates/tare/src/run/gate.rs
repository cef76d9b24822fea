//! Gates: `--fail-if 'p99 > 5%'`. They decide by intervals, so that noise fails no build.

use std::fmt;

use tare_model::Metric;
use tare_model::plan::PlanParts;
use tare_report::pair::PairDocument;
use tare_report::run::words::overhead;
use tare_report::run::{Bounds, GateResult, Run, RunReport};
use tare_stats::stopping::{Goal, Limit};
use tare_stats::{Estimate, Verdict};

use tare_model::Failure;

#[derive(Clone, Debug, PartialEq)]
pub enum Gate {
    /// The run must end with the requested precision.
    Unresolved,
    Overhead {
        /// `None` stands for all variants.
        variant: Option<String>,
        metric: Metric,
        above: bool,
        percent: f64,
    },
}

impl Gate {
    /// Parses `unresolved`, `p99 > 5%`, `NAME: throughput > 3%`, `cpu < -10%`.
    pub fn parse(text: &str) -> Result<Self, String> {
        let bad = || {
            format!(
                "'{text}' is not a gate; write 'METRIC > 5%', 'VARIANT: METRIC > 5%' or 'unresolved'"
            )
        };
        if text.trim() == "unresolved" {
            return Ok(Self::Unresolved);
        }
        let at = text.rfind(['<', '>']).ok_or_else(bad)?;
        let (left, right) = text.split_at(at);
        let (variant, metric) = match left.rsplit_once(':') {
            Some((variant, metric)) => (Some(variant.trim().to_owned()), metric),
            None => (None, left),
        };
        let number = right[1..].trim().strip_suffix('%').ok_or_else(bad)?;
        let percent = number.trim().parse::<f64>().ok().filter(|n| n.is_finite());
        Ok(Self::Overhead {
            variant,
            metric: Metric::parse(metric.trim())?,
            above: right.starts_with('>'),
            percent: percent.ok_or_else(bad)?,
        })
    }

    /// Returns the limits that these gates check; none if a gate needs every verdict.
    pub fn limits(gates: &[Self], plan: &PlanParts) -> Vec<Limit> {
        let limits: Option<Vec<Limit>> = gates.iter().map(|gate| gate.limit(plan)).collect();
        limits.unwrap_or_default()
    }

    fn limit(&self, plan: &PlanParts) -> Option<Limit> {
        let Self::Overhead { variant, metric, above, percent } = self else { return None };
        let at = |name: &String| plan.variants.iter().position(|variant| variant.name == *name);
        let variant = match variant {
            Some(name) => Some(at(name)?),
            None => None,
        };
        Some(Limit { variant, metric: *metric, above: *above, percent: *percent })
    }

    fn concerns(&self, name: &str, of: Metric, asked: &[Metric]) -> bool {
        match self {
            Self::Unresolved => asked.contains(&of),
            Self::Overhead { variant, metric, .. } => {
                *metric == of && variant.as_ref().is_none_or(|variant| variant == name)
            }
        }
    }

    fn result(&self, outcome: Outcome, seen: String) -> GateResult {
        let (passed, text) = match outcome {
            Outcome::Passed => (Some(true), seen),
            Outcome::Exceeded(text) | Outcome::Unresolved(text) => (Some(false), text),
            Outcome::Undecided(text) | Outcome::Void(text) => (None, text),
        };
        GateResult { gate: self.to_string(), passed, text }
    }

    /// Rejects a gate on an unknown variant or on the baseline, which would never fail. `others`
    /// are the variants that are compared with the baseline.
    pub fn check_names(&self, others: &[&str]) -> Result<(), Failure> {
        if others.is_empty() {
            let text = "--fail-if is about a difference: give a second variant to compare with";
            return Err(Failure::usage(text));
        }
        match self {
            Self::Overhead { variant: Some(name), .. } if !others.contains(&name.as_str()) => {
                let others = others.join(", ");
                let allowed =
                    format!("gates are about what is compared with the baseline: {others}");
                Err(Failure::flag("--fail-if", name, allowed))
            }
            _ => Ok(()),
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unresolved => f.write_str("unresolved"),
            Self::Overhead { variant, metric, above, percent } => {
                let whose = variant.as_ref().map_or(String::new(), |name| format!("{name}: "));
                let sign = if *above { '>' } else { '<' };
                write!(f, "{whose}{} {sign} {percent}%", metric.word())
            }
        }
    }
}

/// Outcome of gates; all but `Passed` describe what was measured.
enum Outcome {
    Passed,
    Exceeded(String),
    /// The interval is too imprecise to decide.
    Undecided(String),
    /// Guards forbid the verdict that a gate needs.
    Void(String),
    /// `--fail-if unresolved` was given and a verdict is unresolved.
    Unresolved(String),
}

impl Outcome {
    fn checked(self) -> Result<(), Failure> {
        match self {
            Self::Passed => Ok(()),
            Self::Exceeded(text) => Err(Failure::gate(format!("gate exceeded: {text}"))),
            Self::Undecided(text) => Err(Failure::unresolved(format!("gate not decided: {text}"))),
            Self::Void(text) => Err(Failure::void(format!("gate is void: {text}"))),
            Self::Unresolved(text) => Err(Failure::unresolved(format!("unresolved: {text}"))),
        }
    }
}

/// Input of gates: a comparison of one run's variants, or a change between two runs.
pub struct GateInput {
    pub variant: String,
    pub metric: Metric,
    pub overhead_percent: Bounds,
    pub ratio: Estimate,
    /// Whether the interval spans results that differ; more rounds do not narrow it.
    pub spans: bool,
    pub verdict: Verdict,
    /// Bounds under sustained load, if they do not confirm the slices.
    pub unconfirmed: Option<Bounds>,
}

/// Checks all gates; of several that fail, exceeded ones decide the exit code. `asked` are the
/// metrics that the run was to resolve.
pub fn judge(gates: &[Gate], asked: &[Metric], report: &RunReport) -> Result<(), Failure> {
    outcome(gates, asked, report).checked()
}

fn outcome(gates: &[Gate], asked: &[Metric], report: &RunReport) -> Outcome {
    let others = report.variants.iter().filter(|variant| !variant.baseline);
    let names: Vec<&str> = others.map(|variant| variant.name.as_str()).collect();
    let all = report.comparisons.iter().map(|c| GateInput {
        variant: c.variant.clone(),
        metric: c.metric,
        overhead_percent: c.overhead_percent,
        ratio: c.ratio,
        spans: c.spans_several(),
        verdict: c.verdict,
        unconfirmed: c.unconfirmed(),
    });
    judge_all(gates, asked, &names, &all.collect::<Vec<_>>(), goal(&report.run))
}

/// Returns the result of each gate, for the report.
pub fn results(gates: &[Gate], asked: &[Metric], report: &RunReport) -> Vec<GateResult> {
    let all = report.comparisons.iter().map(|c| (c.variant.as_str(), c.metric, c.overhead_percent));
    each(gates, asked, &all.collect::<Vec<_>>(), |gate| outcome(gate, asked, report))
}

/// Like [`results`], for the change between two runs.
pub fn results_of_pair(gates: &[Gate], asked: &[Metric], pair: &PairDocument) -> Vec<GateResult> {
    let all = pair.changes.iter().map(|c| (c.variant.as_str(), c.metric, c.overhead_percent));
    each(gates, asked, &all.collect::<Vec<_>>(), |gate| outcome_of_pair(gate, asked, pair))
}

fn each(
    gates: &[Gate],
    asked: &[Metric],
    all: &[(&str, Metric, Bounds)],
    outcome: impl Fn(&[Gate]) -> Outcome,
) -> Vec<GateResult> {
    let seen = |gate: &Gate| {
        let own = all.iter().filter(|(name, metric, _)| gate.concerns(name, *metric, asked));
        let seen = own.map(|(name, metric, bounds)| shown(name, *metric, bounds));
        seen.collect::<Vec<_>>().join(", ")
    };
    let judged =
        gates.iter().map(|gate| gate.result(outcome(std::slice::from_ref(gate)), seen(gate)));
    judged.collect()
}

fn shown(variant: &str, metric: Metric, bounds: &Bounds) -> String {
    format!("{variant} {} {}", metric.word(), overhead(bounds))
}

/// Fails if guards forbid a verdict on a variant.
pub fn judge_void(report: &RunReport) -> Result<(), Failure> {
    let asked = report.comparisons.iter().filter(|c| c.asked);
    let void = asked.filter(|comparison| comparison.verdict == Verdict::Void);
    let mut names: Vec<&str> = void.map(|comparison| comparison.variant.as_str()).collect();
    if let ([only], true) = (&report.variants[..], report.is_single()) {
        names.extend(report.why_void(&only.name).map(|_| only.name.as_str()));
    }
    names.dedup();
    match names.as_slice() {
        [] => Ok(()),
        names => {
            let names = names.join(", ");
            Err(Failure::void(format!("void: no verdict is allowed on {names} (--allow-void)")))
        }
    }
}

/// Checks gates on the change between two runs: a gate fails if a variant became worse, or if that
/// cannot be decided. A gate without a name covers all variants except a baseline that both runs
/// share; a gate can name this baseline, whose change includes drift.
pub fn judge_changes(gates: &[Gate], asked: &[Metric], pair: &PairDocument) -> Result<(), Failure> {
    outcome_of_pair(gates, asked, pair).checked()
}

fn outcome_of_pair(gates: &[Gate], asked: &[Metric], pair: &PairDocument) -> Outcome {
    let all = pair.changes.iter().map(|c| GateInput {
        variant: c.variant.clone(),
        metric: c.metric,
        overhead_percent: c.overhead_percent,
        ratio: c.ratio,
        spans: false,
        verdict: c.verdict,
        unconfirmed: None,
    });
    let all: Vec<GateInput> = all.collect();
    let names: Vec<&str> = pair.judged.iter().map(String::as_str).collect();
    let (a, b) = (goal(&pair.before), goal(&pair.after));
    let of_effect = a.of_effect.max(b.of_effect);
    // The precision of a change combines the precisions of both runs.
    let goal = Goal { precision: a.precision.hypot(b.precision), of_effect, ..a };
    judge_all(gates, asked, &names, &all, goal)
}

/// Checks the names in gates before anything is written.
pub fn check_names_of(gates: &[Gate], pair: &PairDocument) -> Result<(), Failure> {
    let mut names: Vec<&str> = pair.judged.iter().map(String::as_str).collect();
    names.extend(pair.changes.iter().map(|change| change.variant.as_str()));
    names.sort_unstable();
    names.dedup();
    gates.iter().try_for_each(|gate| gate.check_names(&names))
}

/// Returns the precision and tolerance that a run was given.
fn goal(run: &Run) -> Goal {
    let Run { precision, of_effect, tolerance, .. } = *run;
    Goal { precision, of_effect, tolerance }
}

fn judge_all(
    gates: &[Gate],
    asked: &[Metric],
    names: &[&str],
    all: &[GateInput],
    goal: Goal,
) -> Outcome {
    let of = |name: &str, metric: Metric| {
        all.iter().find(|judged| judged.variant == name && judged.metric == metric)
    };
    let (mut failed, mut undecided, mut void) = (Vec::new(), Vec::new(), Vec::new());
    for gate in gates {
        if let Gate::Overhead { variant, metric, above, percent } = gate {
            let named = [variant.as_deref().unwrap_or_default()];
            let wanted = if variant.is_some() { named.as_slice() } else { names };
            for name in wanted {
                let Some(judged) = of(name, *metric) else {
                    let text = format!("{name}: {} was not measured in two rounds", metric.word());
                    // A variant without a good reply fails every gate.
                    let has_replies = of(name, Metric::LatencyP50).is_some();
                    match has_replies || of(name, Metric::Throughput).is_some() {
                        true => undecided.push(text),
                        false => failed.push(text),
                    }
                    continue;
                };
                if judged.verdict == Verdict::Void {
                    let word = metric.word();
                    void.push(format!("{name}: no verdict on {word} is allowed"));
                    continue;
                }
                let broken = violation(judged, *above, *percent);
                if broken.is_none() && is_undecided(judged, *percent, &goal) {
                    let (word, seen) = (metric.word(), overhead(&judged.overhead_percent));
                    undecided.push(format!("{name}: {word} {seen} is too imprecise to tell"));
                }
                failed.extend(broken);
            }
        }
    }
    if !failed.is_empty() {
        return Outcome::Exceeded(failed.join("; "));
    }
    if !void.is_empty() {
        return Outcome::Void(void.join("; "));
    }
    if !undecided.is_empty() {
        return Outcome::Undecided(undecided.join("; "));
    }
    let is_wide = |judged: &GateInput| {
        let is_precise = judged.spans || goal.is_precise(&judged.ratio);
        judged.verdict == Verdict::Unresolved || !is_precise
    };
    let is_unknown = |name: &str| asked.iter().any(|metric| of(name, *metric).is_none_or(is_wide));
    let unknown: Vec<&str> = names.iter().copied().filter(|name| is_unknown(name)).collect();
    if gates.contains(&Gate::Unresolved) && !unknown.is_empty() {
        let percent = (goal.precision * 1e5).round() / 1e3;
        let names = unknown.join(", ");
        return Outcome::Unresolved(format!("no verdict to ± {percent} % on {names}"));
    }
    Outcome::Passed
}

/// Whether the run ended too early to decide: the interval contains the limit and is wider than
/// requested. An interval that contains the limit and is narrow enough passes.
fn is_undecided(judged: &GateInput, percent: f64, goal: &Goal) -> bool {
    let Bounds { lower, upper, .. } = judged.overhead_percent;
    lower <= percent && percent <= upper && !goal.is_precise(&judged.ratio)
}

/// Describes how a limit is exceeded by the whole interval, or by unconfirmed sustained load.
fn violation(judged: &GateInput, above: bool, percent: f64) -> Option<String> {
    let GateInput { variant, metric, overhead_percent, unconfirmed, .. } = judged;
    let beyond = match above {
        true => overhead_percent.lower > percent,
        false => overhead_percent.upper < percent,
    };
    let sign = if above { '>' } else { '<' };
    if let Some(sustained) = unconfirmed
        && !beyond
        && (if above { sustained.point > percent } else { sustained.point < percent })
    {
        let (slices, sustained) = (overhead(overhead_percent), overhead(sustained));
        let metric = metric.word();
        return Some(format!(
            "{variant}: {metric} {slices} in slices is not {sign} {percent} %, but {sustained} \
             under sustained load would be (unconfirmed)"
        ));
    }
    beyond.then(|| {
        let shown = overhead(overhead_percent);
        format!("{variant}: {} {shown} is {sign} {percent} %", metric.word())
    })
}

#[cfg(test)]
mod tests {
    use tare_model::Fault;

    use super::*;

    #[test]
    fn gates_are_read() {
        let gate = |variant: Option<&str>, metric, above, percent| {
            Ok(Gate::Overhead { variant: variant.map(str::to_owned), metric, above, percent })
        };
        for (text, expected) in [
            ("p99 > 5%", gate(None, Metric::LatencyP99, true, 5.0)),
            ("a:b: throughput>3.5 %", gate(Some("a:b"), Metric::Throughput, true, 3.5)),
            ("cpu < -10%", gate(None, Metric::ServerCpu, false, -10.0)),
            ("unresolved", Ok(Gate::Unresolved)),
        ] {
            assert_eq!(Gate::parse(text), expected, "{text}");
            let written = Gate::parse(text).unwrap().to_string();
            assert_eq!(Gate::parse(&written), expected, "{written}");
        }
        for (text, why) in [
            ("p99", "is not a gate; write"),
            ("p99 > 5", "is not a gate; write"),
            ("p99 > x%", "is not a gate; write"),
            ("speed > 5%", "'speed' is not a metric; choose among throughput"),
        ] {
            let error = Gate::parse(text).unwrap_err();
            assert!(error.contains(why), "{text}: {error}");
        }
    }

    fn report() -> RunReport {
        let folder = env!("CARGO_MANIFEST_DIR");
        let path = format!("{folder}/../tare-report/tests/testdata/run.json");
        serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
    }

    #[test]
    fn a_run_is_void_where_a_verdict_that_was_asked_for_is() {
        let mut report = report();
        let asked = report.comparisons.iter_mut().find(|c| c.asked).unwrap();
        asked.verdict = Verdict::Void;
        let other = tare_report::run::Comparison {
            variant: "other".into(),
            verdict: Verdict::Same,
            ..asked.clone()
        };
        let void = judge_void(&report).unwrap_err();
        assert!(matches!(void, Failure { fault: Fault::Void, .. }), "{void}");
        report.comparisons.push(other);
        assert!(judge_void(&report).is_err(), "one of two stands");
        report.comparisons.retain(|comparison| comparison.verdict != Verdict::Void);
        assert!(judge_void(&report).is_ok());
    }

    #[test]
    fn an_interval_across_the_limit_decides_nothing_where_it_is_wider_than_asked() {
        let mut report = report();
        let gates = [Gate::parse("throughput > 4%").unwrap()];
        let outcome = |report: &RunReport| {
            let asked = [Metric::Throughput];
            let outcome = results(&gates, &asked, report)[0].passed;
            (outcome, judge(&gates, &asked, report).err().map(|failure| failure.fault.exit_code()))
        };
        assert_eq!(outcome(&report), (Some(true), None), "it is as precise as asked");
        let own = report.comparisons.iter_mut().find(|c| c.asked).unwrap();
        // As after an interrupted run: +4.0 % ± 15.
        own.overhead_percent = Bounds { point: 4.0, lower: -11.0, upper: 19.0 };
        (own.ratio.lower, own.ratio.upper) = (0.81, 1.11);
        own.verdict = Verdict::Unresolved;
        assert_eq!(outcome(&report), (None, Some(5)));
        let own = report.comparisons.iter_mut().find(|c| c.asked).unwrap();
        own.overhead_percent = Bounds { point: 24.0, lower: 9.0, upper: 39.0 };
        assert_eq!(outcome(&report), (Some(false), Some(1)));
    }
}
