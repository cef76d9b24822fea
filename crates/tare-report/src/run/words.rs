//! A run in sentences and tables, shared by text and Markdown.

use tare_guards::Code;
use tare_model::Metric;
use tare_model::metric::{Phrase, Unit};
use tare_stats::Verdict;
use tare_stats::stopping::Goal;
use tare_stats::verdict::ROUNDS_MIN;

use crate::format::{self, bytes, counted, digits, duration, rate};
pub use crate::format::{BEYOND, signed};
use crate::run::exposure::{exposure_sentence, placed, time_sentence};
use crate::run::{Bounds, Comparison, GateResult, Run, RunReport, Variant};

/// Returns the word for a verdict on a metric: using more memory is not "slower".
pub fn verdict_word(metric: Metric, verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower if is_use(metric) => "costs more",
        Verdict::Faster if is_use(metric) => "costs less",
        verdict => verdict.word(),
    }
}

fn is_use(metric: Metric) -> bool {
    metric.is_use()
}

/// From this factor on, overheads are shown as factors (2.00×), not in percent.
pub(crate) const TIMES: f64 = 2.0;

/// Returns how many times worse an overhead is, in the same direction for all metrics.
pub(crate) fn worse(metric: Metric, percent: f64) -> f64 {
    let share = percent / 100.0;
    match metric.more_is_better() {
        false => 1.0 + share,
        // No throughput is left.
        true if share >= 1.0 => f64::INFINITY,
        true => (1.0 - share).recip(),
    }
}

/// Converts a factor (how many times worse) to an overhead in percent.
pub(crate) fn percent_of(metric: Metric, times: f64) -> f64 {
    let ratio = if metric.more_is_better() { times.recip() } else { times };
    metric.overhead_percent(ratio)
}

/// Whether a factor is large enough to be shown as a factor, not in percent.
pub(crate) fn is_far(times: f64) -> bool {
    times >= TIMES || times <= TIMES.recip()
}

/// Returns an overhead as a factor (times worse); `None` if it is shown in percent.
fn times(metric: Metric, bounds: &Bounds) -> Option<Bounds> {
    let [point, lower, upper] =
        [bounds.point, bounds.lower, bounds.upper].map(|percent| worse(metric, percent).max(0.0));
    is_far(point).then_some(Bounds { point, lower, upper })
}

/// Inverts factors: how many times worse becomes how many times better.
fn turned(times: Bounds) -> Bounds {
    Bounds { point: times.point.recip(), lower: times.upper.recip(), upper: times.lower.recip() }
}

/// Formats an overhead: `+4.1 % ± 0.9`; beyond a factor of two, `3.30× faster (3.12 to 3.51)`.
pub fn overhead_of(metric: Metric, bounds: &Bounds) -> String {
    match times(metric, bounds) {
        None => overhead(bounds),
        Some(times) => {
            let ([_, lower, upper], by) = by_times(metric, times);
            format!("{by} ({lower} to {upper})")
        }
    }
}

/// Formats an overhead without its interval.
pub fn point_of(metric: Metric, percent: f64) -> String {
    let times = times(metric, &Bounds { point: percent, lower: percent, upper: percent });
    times.map_or_else(|| format!("{} %", signed(percent)), |times| by_times(metric, times).1)
}

/// Returns factors above one, and the estimate in words.
fn by_times(metric: Metric, times: Bounds) -> ([String; 3], String) {
    if times.point >= 1.0 {
        let all = factors(times);
        let by = format!("{}×", all[0]);
        return (all, by);
    }
    let better = match metric.row().phrase {
        Phrase::Slower | Phrase::SlowerIn => "faster",
        Phrase::Carries => "more",
        Phrase::Costs => "less",
    };
    let all = factors(turned(times));
    let by = format!("{}× {better}", all[0]);
    (all, by)
}

/// Formats the estimate and the ends of its interval, with enough digits to tell them apart.
fn factors(times: Bounds) -> [String; 3] {
    let Bounds { point, lower, upper } = times;
    let written = [point, lower, upper].map(factor);
    let is_apart = written[0] != written[1] && written[0] != written[2];
    match is_apart || lower == upper || point >= 1000.0 {
        true => written,
        false => [point, lower, upper].map(|value| factor_to(value, 1)),
    }
}

/// Formats a factor to three significant digits.
pub(crate) fn factor(value: f64) -> String {
    factor_to(value, 0)
}

/// Formats a factor with `more` further digits.
fn factor_to(value: f64, more: usize) -> String {
    let decimals = match value {
        v if v > BEYOND => return format!("{BEYOND:.0} or more"),
        v if v < 0.0005 => return "0".to_owned(),
        v if v < 0.9995 => 3,
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.0$}", decimals + more)
}

/// Formats an overhead in percent: `+4.1 % ± 0.9`.
pub fn overhead(bounds: &Bounds) -> String {
    format::overhead(bounds.point, bounds.lower, bounds.upper)
}

/// Formats a number in the unit of a metric.
pub fn number(metric: Metric, value: f64) -> String {
    match metric.row().unit {
        Unit::Rate => rate(value),
        Unit::BytesPerSecond => format!("{}/s", bytes(value)),
        Unit::Bytes => bytes(value),
        Unit::ShortTime if value < 1000.0 => format!("{value:.1}ns"),
        Unit::Number => format!("{value:.3}"),
        Unit::Time | Unit::ShortTime => duration(value.round() as u64),
    }
}

/// Like [`number`], for an axis, where zero needs no digits.
pub fn on_axis(metric: Metric, value: f64) -> String {
    if value == 0.0 { "0".into() } else { number(metric, value) }
}

/// A sentence of the answer: a verdict, or another statement about a variant.
#[derive(Clone, Debug, PartialEq)]
pub struct Answer {
    pub verdict: Option<Verdict>,
    pub text: String,
}

impl Answer {
    pub(crate) fn new(text: String) -> Self {
        Self { verdict: None, text }
    }

    /// Returns the sign of the verdict, if there is one.
    pub(crate) fn sign(&self) -> Option<char> {
        self.verdict.map(sign)
    }
}

/// Explanation of the signs.
pub(crate) const SIGNS: &str = "▼ worse, ▲ better, = the same, ? unresolved, ✗ void";

pub fn sign(verdict: Verdict) -> char {
    match verdict {
        Verdict::Slower => '▼',
        Verdict::Faster => '▲',
        Verdict::Same => '=',
        Verdict::Unresolved => '?',
        Verdict::Void => '✗',
    }
}

/// From this many comparisons on, those with the same verdict share a sentence.
const TOGETHER: usize = 4;

/// Returns the verdicts, variants without one, and the results of gates.
pub fn answers(report: &RunReport) -> Vec<Answer> {
    let own = || report.comparisons.iter().filter(|comparison| comparison.asked);
    let mut all: Vec<Answer> = match own().count() >= TOGETHER {
        true => report.asked().into_iter().flat_map(|metric| together(report, metric)).collect(),
        false => own().map(|comparison| alone(report, comparison)).collect(),
    };
    // If a run ended with its gates, their results are the answer; unresolved verdicts were not
    // pursued.
    if !report.gates.is_empty() && report.run.stopped_by == "gates" {
        all.retain(|answer| answer.verdict != Some(Verdict::Unresolved));
    }
    if let ([only], true) = (&report.variants[..], report.is_single()) {
        all.extend(values(report, only));
    }
    let others = report.variants.iter().filter(|variant| !variant.baseline);
    let untold = others.filter(|variant| report.asked_of(&variant.name).next().is_none());
    all.extend(untold.map(|variant| {
        let why = why_no_verdict(report, &variant.name);
        Answer::new(format!("{}: no verdict: {why}", variant.name))
    }));
    let skipped = report.skipped.iter().map(|one| format!("{}: skipped: {}", one.name, one.reason));
    let gates = report.gates.iter().map(GateResult::sentence);
    all.extend(skipped.chain(gates).map(Answer::new));
    // A void variant is reported once, however many metrics were requested.
    all.dedup();
    all
}

/// Returns the answers as plain sentences.
pub fn sentences(report: &RunReport) -> Vec<String> {
    answers(report).into_iter().map(|answer| answer.text).collect()
}

/// Returns the requested values of a variant that is compared with nothing.
fn values(report: &RunReport, only: &Variant) -> Vec<Answer> {
    let name = &only.name;
    if report.why_void(name).is_some() {
        let text = format!("{name} is void: {}", why_no_verdict(report, name));
        return vec![Answer { verdict: Some(Verdict::Void), text }];
    }
    let (goal, stop) = (Goal::from_plan(&report.plan.parts), &report.plan.parts.stop);
    let told = |metric: &Metric| {
        let unresolved = |text| Answer { verdict: Some(Verdict::Unresolved), text };
        let Some(value) = only.metric(*metric) else {
            return unresolved(format!("{name}: {} was not measured", metric.word()));
        };
        let [point, lower, upper] =
            [value.point, value.lower, value.upper].map(|value| number(*metric, value));
        let what = match (metric.row().unit, metric.row().title) {
            (Unit::Rate, title) => format!("{point} {title}"),
            (_, title) => format!("{title} {point}"),
        };
        if value.n < ROUNDS_MIN {
            let rounds = counted(value.n.into(), "round", "rounds");
            return unresolved(format!("{name}: {what}; too little for an interval ({rounds})"));
        }
        let text = format!("{name}: {what} ({lower} to {upper})");
        // With a limit on rounds, no precision was requested.
        if goal.knows(value) || stop.rounds.is_some() {
            return Answer::new(text);
        }
        unresolved(format!("{text}; not known to ± {} %", shortest(goal.precision * 100.0)))
    };
    stop.metrics.iter().map(told).collect()
}

/// Formats a number as a person writes it: `2`, `0.5`, `0.001`.
fn shortest(percent: f64) -> String {
    format!("{}", (percent * 1e6).round() / 1e6)
}

fn baseline_of(report: &RunReport) -> &str {
    report.baseline().map_or("the baseline", |baseline| baseline.name.as_str())
}

/// Returns briefly why a variant has no verdict, and names another variant that is the cause.
fn why_no_verdict(report: &RunReport, variant: &str) -> String {
    let Some(guard) = report.why_void(variant) else {
        return "there was too little to compare".into();
    };
    let brief = || guard.code.brief().map_or(guard.text.as_str(), |brief| brief.seen);
    let seen = guard.line.seen.as_deref().unwrap_or_else(brief);
    match guard.variant.as_deref().filter(|whose| *whose != variant) {
        Some(whose) => format!("{whose}: {seen}"),
        None => seen.to_owned(),
    }
}

/// All verdicts, in the order in which they are reported.
pub(crate) const VERDICTS: [Verdict; 5] =
    [Verdict::Slower, Verdict::Faster, Verdict::Same, Verdict::Unresolved, Verdict::Void];

/// Returns one sentence per verdict, with the variants that have it.
fn together(report: &RunReport, metric: Metric) -> Vec<Answer> {
    let of_verdict = |verdict: Verdict| {
        let own = report.comparisons.iter().filter(|c| c.asked && c.metric == metric);
        let mut own: Vec<&Comparison> = own.filter(|c| c.verdict == verdict).collect();
        if own.is_empty() {
            return None;
        }
        if matches!(verdict, Verdict::Slower | Verdict::Faster) {
            let point = |c: &Comparison| c.overhead_percent.point.abs();
            own.sort_by(|a, b| point(b).total_cmp(&point(a)));
        }
        let names: Vec<String> = own.iter().map(|c| named(report, c)).collect();
        let between = if names.iter().any(|name| name.contains(',')) { "; " } else { ", " };
        let text = format!("{}: {}", shared(report, metric, verdict), names.join(between));
        Some(Answer { verdict: Some(verdict), text: text + &forecast(&own) })
    };
    VERDICTS.into_iter().filter_map(of_verdict).collect()
}

/// Describes what comparisons of one verdict have in common.
fn shared(report: &RunReport, metric: Metric, verdict: Verdict) -> String {
    let baseline = baseline_of(report);
    let is_one_of_some = report.asked().len() > 1;
    let of_metric = if is_one_of_some { format!(" in {}", noun(metric)) } else { String::new() };
    match verdict {
        Verdict::Slower | Verdict::Faster => {
            let is_worse = verdict == Verdict::Slower;
            let rate = match metric.row().phrase {
                Phrase::Slower if is_worse => ", fewer requests/s",
                Phrase::Slower => ", more requests/s",
                _ => "",
            };
            words(metric, is_worse, "", baseline) + rate
        }
        Verdict::Same => {
            format!("the same as {baseline}{of_metric} {}", within(report.run.tolerance))
        }
        Verdict::Unresolved => format!("unresolved against {baseline}{of_metric}"),
        Verdict::Void => format!("void{of_metric}"),
    }
}

/// Names a variant among others with the same verdict.
fn named(report: &RunReport, comparison: &Comparison) -> String {
    let name = &comparison.variant;
    match comparison.verdict {
        Verdict::Slower | Verdict::Faster => {
            let by = match times(comparison.metric, &comparison.overhead_percent) {
                Some(times) if comparison.verdict == Verdict::Slower => {
                    format!("{} times", factor(times.point))
                }
                Some(times) => format!("{} times", factor(times.point.recip())),
                None => format!("{} %", digits(comparison.overhead_percent.point.abs())),
            };
            format!("{name} {by}")
        }
        Verdict::Void => format!("{name} ({})", why_no_verdict(report, name)),
        _ => name.clone(),
    }
}

/// Returns the tolerance of "the same": `within ± 2 %`.
pub(crate) fn within(tolerance: f64) -> String {
    format!("within ± {} %", digits(tolerance * 100.0))
}

/// Returns the verdict on one variant in one metric.
fn alone(report: &RunReport, comparison: &Comparison) -> Answer {
    let (name, baseline, metric) = (&comparison.variant, baseline_of(report), comparison.metric);
    let bounds = comparison.overhead_percent;
    let of_metric = in_metric(metric);
    let text = match comparison.verdict {
        Verdict::Slower | Verdict::Faster | Verdict::Same => {
            let text = comparison_sentence(
                name,
                baseline,
                metric,
                &bounds,
                comparison.verdict,
                report.run.tolerance,
            );
            match (comparison.spans_several(), text.strip_suffix(')')) {
                (true, Some(text)) => format!("{text}, depending on how it is loaded)"),
                _ => text,
            }
        }
        Verdict::Unresolved => {
            let slept = comparison.by_sleepers.as_ref().filter(|slept| slept.differs);
            let seen = match (comparison.unconfirmed(), slept) {
                (Some(sustained), _) => format!(
                    "{}, but {} under sustained load",
                    overhead_of(metric, &bounds),
                    overhead_of(metric, &sustained)
                ),
                (None, Some(slept)) => format!(
                    "{} with clients that poll, but {} with clients that sleep",
                    overhead_of(metric, &slept.polled_percent),
                    overhead_of(metric, &slept.overhead_percent)
                ),
                (None, None) => overhead_of(metric, &bounds),
            };
            let more = forecast(&[comparison]);
            let is_short = report.guards.iter().any(|guard| guard.code == Code::FewRounds);
            match is_short && comparison.unconfirmed().is_none() {
                true => {
                    let launches = launches_of(report);
                    format!(
                        "{name} against {baseline}{of_metric} is unresolved after {launches}: \
                         {seen} so far"
                    )
                }
                false => {
                    format!("{name} against {baseline}{of_metric} is unresolved: {seen}{more}")
                }
            }
        }
        Verdict::Void => {
            format!("{name} against {baseline} is void: {}", why_no_verdict(report, name))
        }
    };
    Answer { verdict: Some(comparison.verdict), text }
}

/// Returns " in CPU per request"; empty for throughput, which "slower" implies.
pub(crate) fn in_metric(metric: Metric) -> String {
    match metric {
        Metric::Throughput => String::new(),
        _ => format!(" in {}", noun(metric)),
    }
}

/// Describes that two variants are the same, or by how much they differ.
pub(crate) fn comparison_sentence(
    name: &str,
    baseline: &str,
    metric: Metric,
    bounds: &Bounds,
    verdict: Verdict,
    tolerance: f64,
) -> String {
    let Bounds { point, lower, upper } = *bounds;
    if verdict == Verdict::Same {
        return format!(
            "{name} is the same as {baseline}{} {} (overhead {} to {} %)",
            in_metric(metric),
            within(tolerance),
            signed(lower),
            signed(upper)
        );
    }
    let is_worse = verdict == Verdict::Slower;
    let (by, range) = match times(metric, bounds) {
        Some(times) => {
            let times = if is_worse { times } else { turned(times) };
            let [point, low, high] = factors(times);
            let (by, range) = (format!("{point} times"), format!("{low} to {high}"));
            // Some readers take "3 times more" as four times as much.
            if is_use(metric) && is_worse {
                let noun = noun(metric);
                return format!("{name} costs {by} as much {noun} as {baseline} ({range})");
            }
            if metric.row().phrase == Phrase::Slower && !is_worse {
                return format!("{name} is {by} as fast as {baseline} ({range})");
            }
            (by, range)
        }
        None => {
            let (low, high) = if is_worse { (lower, upper) } else { (-upper, -lower) };
            let [point, low, high] = [point.abs(), low, high].map(digits);
            (format!("{point} %"), format!("{low} to {high} %"))
        }
    };
    // 36 % fewer requests is not 36 % more time, but 56 %.
    if metric.row().phrase == Phrase::Slower && !is_far(worse(metric, point)) {
        let (word, more) = if is_worse { ("slower", "fewer") } else { ("faster", "more") };
        return format!("{name} is {word} than {baseline}: {by} {more} requests/s ({range})");
    }
    format!("{name} {} ({range})", differs(metric, is_worse, &by, baseline))
}

/// Returns the text after a variant's name: "is 3 % slower than none".
pub(crate) fn differs(metric: Metric, worse: bool, by: &str, baseline: &str) -> String {
    let verb = words(metric, worse, by, baseline);
    let has_verb = is_use(metric) || metric.row().phrase == Phrase::Carries;
    if has_verb { verb } else { format!("is {verb}") }
}

/// Returns `; about 2 min more would tell`, for comparisons that only need more slices.
fn forecast(comparisons: &[&Comparison]) -> String {
    let open = comparisons.iter().filter(|c| is_merely_unresolved(c));
    let each: Option<Vec<f64>> = open.map(|comparison| comparison.seconds_needed).collect();
    // If one comparison has no forecast, none is shown.
    let longest = each.unwrap_or_default().into_iter().fold(0.0, f64::max);
    match longest > 0.0 && longest <= HOUR {
        true => format!("; about {} more would tell", time(longest)),
        false => String::new(),
    }
}

/// Whether a comparison is unresolved because of its interval, not because of sustained load.
fn is_merely_unresolved(comparison: &Comparison) -> bool {
    comparison.verdict == Verdict::Unresolved && comparison.unconfirmed().is_none()
}

/// Longest forecast that is shown, in seconds.
const HOUR: f64 = 3600.0;

/// Returns "3 % slower than none", and the like; `by` may be empty.
fn words(metric: Metric, worse: bool, by: &str, baseline: &str) -> String {
    let pick = |a: &'static str, b: &'static str| if worse { a } else { b };
    let noun = noun(metric);
    let by = if by.is_empty() { String::new() } else { format!("{by} ") };
    match metric.row().phrase {
        Phrase::Slower => format!("{by}{} than {baseline}", pick("slower", "faster")),
        Phrase::Carries => format!("carries {by}{} than {baseline}", pick("less", "more")),
        Phrase::Costs => format!("costs {by}{} {noun} than {baseline}", pick("more", "less")),
        Phrase::SlowerIn => {
            format!("{by}{} in {noun} than {baseline}", pick("slower", "faster"))
        }
    }
}

pub fn noun(metric: Metric) -> &'static str {
    metric.row().noun
}

/// Capitalises the first letter, for the beginning of a line.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.0} h", s / 3600.0),
        _ => "days".into(),
    }
}

/// Describes the basis of the numbers: the load on launches, and the CPUs.
pub fn basis(report: &RunReport) -> Vec<String> {
    let exposure = std::iter::once(exposure_sentence(report));
    exposure.chain(time_sentence(report)).chain(placed(report)).collect()
}

/// Describes why the run ended, and after how many rounds and launches.
pub fn ending(report: &RunReport) -> String {
    let (rounds, why) = (rounds_of(&report.run), stopped(&report.run));
    format!("{rounds}, {}; {why}; seed {}", launches_of(report), report.run.seed)
}

fn launches_of(report: &RunReport) -> String {
    let most = report.variants.iter().map(|variant| variant.launches).max().unwrap_or(0);
    match most {
        // Servers that were already running are not launched.
        0 => counted(report.run.rounds.into(), "round", "rounds"),
        most => counted(most.into(), "launch", "launches"),
    }
}

/// Like [`ending`], for a run without its variants.
pub(crate) fn ending_of(run: &Run) -> String {
    format!("{}; {}; seed {}", rounds_of(run), stopped(run), run.seed)
}

fn rounds_of(run: &Run) -> String {
    format!(
        "{} of {} of {} each in {}",
        counted(run.rounds.into(), "round", "rounds"),
        counted(run.slices_per_round.into(), "slice", "slices"),
        duration(run.slice_ns),
        time(run.elapsed_ms as f64 / 1000.0)
    )
}

/// Returns why the run ended early, if it did; the caller appends the time.
pub(crate) fn stopped_early(run: &Run) -> Option<String> {
    Some(match run.stopped_by.as_str() {
        "precision" | "void" => return None,
        "gates" => "gates decided after".into(),
        "exceeded" => "limit exceeded after".into(),
        "max-time" => "out of time after".into(),
        "screen" => "ended early by --screen after".into(),
        "rounds" => "stopped by --rounds after".into(),
        "interrupted" => "interrupted after".into(),
        "failed" => format!("{} after", failed(run)),
        _ => "killed after".into(),
    })
}

fn failed(run: &Run) -> String {
    format!("ended by a failure (why: tare runs --events {})", run.id)
}

fn stopped(run: &Run) -> String {
    let mut precision = format!("± {} %", digits(run.precision * 100.0));
    if run.of_effect > 0.0 {
        precision += &format!(", or to {:.0} % of the overhead", run.of_effect * 100.0);
    }
    match run.stopped_by.as_str() {
        "gates" => "stopped: every gate is decided".into(),
        "exceeded" => "stopped: a limit of the check is exceeded".into(),
        "precision" => format!("stopped: all that was asked is known to {precision}"),
        "max-time" => format!("stopped by the time limit before all was known to {precision}"),
        "screen" => "stopped by --screen: --max-time is too short to decide this check".into(),
        "rounds" => "stopped by --rounds".into(),
        "void" => "stopped: no verdict is allowed".into(),
        "interrupted" => "interrupted".into(),
        "failed" => failed(run),
        _ => "killed".into(),
    }
}
