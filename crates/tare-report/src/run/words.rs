//! A run in words and cells: what the terminal and Markdown share.

use tare_model::Metric;
use tare_model::metric::{Phrase, Unit};
use tare_stats::verdict::ROUNDS_MIN;
use tare_stats::{Estimate, Verdict};

use crate::run::exposure::{confirmed, exposed, placed};
use crate::run::{Bounds, Comparison, GateResult, Run, RunReport, Variant};
use crate::units::{self, bytes, counted, digits, duration, rate};
pub use crate::units::{BEYOND, signed};

/// The columns of the table, where any variant has them.
const COLUMNS: [Metric; 15] = [
    Metric::Startup,
    Metric::StartupCpu,
    Metric::Bandwidth,
    Metric::SystemCall,
    Metric::Throughput,
    Metric::LatencyP50,
    Metric::LatencyP99,
    Metric::ServerCpu,
    Metric::LayersCpu,
    Metric::SoftirqCpu,
    Metric::InFlight,
    Metric::ServerRss,
    Metric::LayersRss,
    Metric::IdleCpu,
    Metric::FilterCall,
];

/// Softirq CPU has a column where it is more than this share of CPU per request.
const SOFTIRQ_SHOWN: f64 = 0.02;

/// The table: a header, then a row a variant, all as text.
pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

pub fn table(report: &RunReport) -> Table {
    let asked: Vec<Metric> = asked(report);
    let columns = table_columns(report);
    let mut header = vec![String::new()];
    header.extend(columns.iter().map(Column::title));
    for metric in &asked {
        header.push(match asked.as_slice() {
            [_] => "overhead".to_owned(),
            _ => format!("overhead, {}", metric.word()),
        });
        header.push("verdict".into());
        if is_predicted(report, *metric) {
            header.push("predicted".into());
        }
    }
    let rows = report.variants.iter().map(|variant| {
        let mut row = vec![variant.name.clone()];
        row.extend(columns.iter().map(|column| cell(column.metric, column.of(variant))));
        for metric in &asked {
            let comparison = report.asked_of(&variant.name).find(|c| c.metric == *metric);
            match comparison {
                Some(comparison) => row.extend(verdict_cells(comparison)),
                None if variant.baseline => row.extend(["baseline".into(), String::new()]),
                None => row.extend(["–".into(), String::new()]),
            }
            if is_predicted(report, *metric) {
                let predicted = comparison.and_then(|comparison| comparison.predicted_percent);
                row.push(predicted.map_or(String::new(), |p| format!("{} %", signed(p))));
            }
        }
        row
    });
    Table { rows: rows.collect(), header }
}

/// What is shown of each variant.
pub(crate) fn columns(report: &RunReport) -> Vec<Metric> {
    let has = |metric: Metric| report.variants.iter().any(|v| v.metric(metric).is_some());
    let asked = asked(report);
    let mut columns = COLUMNS.to_vec();
    columns.extend(asked.iter().filter(|metric| !COLUMNS.contains(metric)));
    columns.retain(|metric| has(*metric) && tells(*metric, &asked));
    // Of sidecars it is asked what they take by being there; of servers it is nearly nothing.
    columns.retain(|metric| *metric != Metric::IdleCpu || has(Metric::LayersCpu));
    let is_much = report.variants.iter().any(Variant::has_much_softirq);
    columns.retain(|metric| *metric != Metric::SoftirqCpu || is_much || asked.contains(metric));
    columns
}

impl Variant {
    /// Whether CPU per request leaves out so much that it belongs beside it.
    fn has_much_softirq(&self) -> bool {
        let of = |metric| self.metric(metric).map(|estimate| estimate.point);
        let both = of(Metric::SoftirqCpu).zip(of(Metric::ServerCpu));
        both.is_some_and(|(softirq, cpu)| softirq > cpu * SOFTIRQ_SHOWN)
    }
}

/// A column of the table: a metric of the whole variant, or of one of its hops.
struct Column {
    metric: Metric,
    hop: Option<String>,
}

impl Column {
    fn title(&self) -> String {
        match (&self.hop, self.metric) {
            (None, metric) => metric.row().title.to_owned(),
            (Some(hop), Metric::ServerRss) => format!("{hop} memory"),
            (Some(hop), _) => format!("{hop} CPU"),
        }
    }

    fn of<'a>(&self, variant: &'a Variant) -> Option<&'a Estimate> {
        match &self.hop {
            None => variant.metric(self.metric),
            Some(hop) => variant.metric_of(hop, self.metric),
        }
    }
}

/// Each hop's CPU and memory have columns of their own, beside those of all of them together where
/// there are several.
fn table_columns(report: &RunReport) -> Vec<Column> {
    let hops = hops(report);
    let mut all = Vec::new();
    for metric in columns(report) {
        let of_hop = match metric {
            Metric::LayersCpu => Some(Metric::ServerCpu),
            Metric::LayersRss => Some(Metric::ServerRss),
            _ => None,
        };
        if of_hop.is_none() || hops.len() != 1 {
            all.push(Column { metric, hop: None });
        }
        if let Some(metric) = of_hop {
            all.extend(hops.iter().map(|hop| Column { metric, hop: Some(hop.clone()) }));
        }
    }
    all
}

/// The names of all hops of all variants.
fn hops(report: &RunReport) -> Vec<String> {
    let mut names = Vec::new();
    for hop in report.variants.iter().flat_map(Variant::hops) {
        if !names.contains(&hop.name) {
            names.push(hop.name.clone());
        }
    }
    names
}

/// What a table can do without, first what matters least. The other forms of the report have all.
const SPARE: [&str; 5] = ["memory", "p50", "p99", "call", "predicted"];

/// The columns that a narrow table leaves out, first what matters least; never what was asked for.
pub fn spare(report: &RunReport) -> Vec<String> {
    let of_hops = |metric: Metric| {
        let all = table_columns(report).into_iter();
        let all = all.filter(move |column| column.hop.is_some() && column.metric == metric);
        all.map(|column| column.title())
    };
    let mut all: Vec<String> = match hops(report).len() {
        0 => Vec::new(),
        // Whoever puts a hop before a server asks what the hop itself takes.
        1 => vec!["p50".into()],
        // Without these the sum of several is still there.
        _ => of_hops(Metric::ServerRss).chain(of_hops(Metric::ServerCpu)).collect(),
    };
    all.extend(SPARE.map(str::to_owned));
    let asked: Vec<&str> = asked(report).into_iter().map(|metric| metric.row().title).collect();
    all.retain(|title| !asked.contains(&title.as_str()));
    all
}

/// Whether a column says anything where these are compared.
fn tells(metric: Metric, asked: &[Metric]) -> bool {
    match metric {
        Metric::Bandwidth => asked.contains(&Metric::Bandwidth),
        Metric::Throughput => {
            !asked.contains(&Metric::Bandwidth) && !asked.contains(&Metric::SystemCall)
        }
        Metric::ServerCpu => !asked.contains(&Metric::SystemCall),
        _ => true,
    }
}

/// Whether what one call costs says what any variant's overhead should be.
fn is_predicted(report: &RunReport, metric: Metric) -> bool {
    let mut all = report.comparisons.iter().filter(|c| c.asked && c.metric == metric);
    all.any(|comparison| comparison.predicted_percent.is_some())
}

/// The metrics that were to be resolved.
pub(crate) fn asked(report: &RunReport) -> Vec<Metric> {
    let mut found = Vec::new();
    for comparison in report.comparisons.iter().filter(|c| c.asked) {
        if !found.contains(&comparison.metric) {
            found.push(comparison.metric);
        }
    }
    found
}

fn verdict_cells(comparison: &Comparison) -> [String; 2] {
    let word = verdict_word(comparison.metric, comparison.verdict);
    [
        overhead_of(comparison.metric, comparison.ratio, &comparison.overhead_percent),
        word.to_owned(),
    ]
}

/// A verdict as it is said of that metric: who uses more memory is not slower for it.
pub fn verdict_word(metric: Metric, verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Slower if is_use(metric) => "costs more",
        Verdict::Faster if is_use(metric) => "costs less",
        verdict => verdict.word(),
    }
}

fn is_use(metric: Metric) -> bool {
    metric.row().phrase == Phrase::Costs
}

/// From here on people count in times, not in percent.
const TIMES: f64 = 2.0;

/// How many times worse, in the same direction for all metrics, where that is how it is said.
fn times(metric: Metric, ratio: Estimate) -> Option<Estimate> {
    let worse = if metric.more_is_better() { ratio.map(f64::recip) } else { ratio };
    let is_far = worse.point >= TIMES || worse.point <= 1.0 / TIMES;
    (is_far && worse.lower > 0.0 && worse.upper.is_finite()).then_some(worse)
}

/// `+4.1 % ± 0.9`; `11× (10.6 to 11.4)` beyond a factor of two.
pub fn overhead_of(metric: Metric, ratio: Estimate, bounds: &Bounds) -> String {
    match times(metric, ratio).filter(|times| times.upper <= BEYOND) {
        None => overhead(bounds),
        Some(Estimate { point, lower, upper, .. }) => {
            format!("{}× ({} to {})", factor(point), factor(lower), factor(upper))
        }
    }
}

/// Three digits that count.
fn factor(value: f64) -> String {
    match value {
        v if v < 0.0995 => format!("{v:.3}"),
        v if v < 0.995 => format!("{v:.2}"),
        v if v < 9.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

/// `+4.1 % ± 0.9`.
pub fn overhead(bounds: &Bounds) -> String {
    units::overhead(bounds.point, bounds.lower, bounds.upper)
}

/// A metric's value for people.
pub fn cell(metric: Metric, value: Option<&Estimate>) -> String {
    value.map_or("–".into(), |value| number(metric, value.point))
}

/// A number of that metric for people.
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

/// The same on an axis, where zero needs no digits.
pub fn on_axis(metric: Metric, value: f64) -> String {
    if value == 0.0 { "0".into() } else { number(metric, value) }
}

/// The verdict on each variant, one plain sentence a metric that was asked for.
pub fn sentences(report: &RunReport) -> Vec<String> {
    let others = report.variants.iter().filter(|variant| !variant.baseline);
    let together = unresolved_together(report);
    let skipped = report
        .skipped
        .iter()
        .map(|skipped| format!("{}: skipped: {}", skipped.name, skipped.reason));
    let gates = report.gates.iter().map(GateResult::sentence);
    let each = others.flat_map(|variant| of_variant(report, variant, together.is_none()));
    each.chain(together.clone()).chain(skipped).chain(gates).collect()
}

/// From so many unresolved comparisons on, one sentence tells of all.
const TOGETHER: usize = 3;

/// `7 of 9 comparisons are unresolved at ± 0.50 %: …`
fn unresolved_together(report: &RunReport) -> Option<String> {
    let asked: Vec<&Comparison> = report.comparisons.iter().filter(|c| c.asked).collect();
    let open = |comparison: &&&Comparison| is_merely_unresolved(comparison);
    let unresolved: Vec<&&Comparison> = asked.iter().filter(open).collect();
    if unresolved.len() < TOGETHER {
        return None;
    }
    let names: Vec<String> = unresolved
        .iter()
        .map(|comparison| format!("{} ({})", comparison.variant, comparison.metric.word()))
        .collect();
    let each = unresolved.iter().map(|comparison| comparison.seconds_needed);
    // One without a forecast leaves all without.
    let longest = each.collect::<Option<Vec<f64>>>().map(|all| all.into_iter().fold(0.0, f64::max));
    let longest = longest.filter(|seconds| *seconds <= HOUR);
    let more = longest.map_or(String::new(), |seconds| {
        format!("; resolving all of them takes about {} more", time(seconds))
    });
    Some(format!(
        "{} of {} comparisons are unresolved at ± {} %: {}{more} ({})",
        unresolved.len(),
        asked.len(),
        digits(report.run.tolerance * 100.0),
        names.join(", "),
        flags(report),
    ))
}

/// Unresolved by its own interval, and not because sustained load is not clear.
fn is_merely_unresolved(comparison: &Comparison) -> bool {
    comparison.verdict == Verdict::Unresolved && comparison.unconfirmed().is_none()
}

/// What gives a run more time.
fn flags(report: &RunReport) -> &'static str {
    match report.run.stopped_by.as_str() {
        "rounds" => "--rounds",
        _ => "--precision, --max-time",
    }
}

fn of_variant(report: &RunReport, variant: &Variant, with_unresolved: bool) -> Vec<String> {
    let mut comparisons: Vec<&Comparison> = report.asked_of(&variant.name).collect();
    if comparisons.is_empty() {
        return vec![match report.why_void(&variant.name) {
            Some(guard) => format!("{}: no verdict ({}): {}", variant.name, guard.code, guard.text),
            None => format!("{}: no verdict: there was too little to compare", variant.name),
        }];
    }
    // What sustained load has to say of one is not in the sentence about all.
    comparisons.retain(|comparison| with_unresolved || !is_merely_unresolved(comparison));
    let mut told: Vec<String> =
        comparisons.iter().map(|comparison| sentence(report, variant, comparison)).collect();
    told.dedup();
    told
}

/// The verdict on one metric, with what sustained load says of it.
fn sentence(report: &RunReport, variant: &Variant, comparison: &Comparison) -> String {
    match confirmed(comparison, report.run.tolerance) {
        Some(words) if comparison.verdict != Verdict::Void => {
            format!("{}; {words}", of_slices(report, variant, comparison))
        }
        _ => of_slices(report, variant, comparison),
    }
}

fn of_slices(report: &RunReport, variant: &Variant, comparison: &Comparison) -> String {
    let baseline = report.baseline().map_or("the baseline", |baseline| baseline.name.as_str());
    let name = &variant.name;

    let Bounds { point, lower, upper } = comparison.overhead_percent;
    let interval = format!("{} to {}", digits_signed(lower), digits_signed(upper));
    match comparison.verdict {
        Verdict::Slower | Verdict::Faster => apart(report, variant, comparison, baseline),
        Verdict::Same => format!(
            "{name} and {baseline} are the same in {} within ± {} %: {} % ({interval})",
            noun(comparison.metric),
            // What is not excluded.
            digits(lower.abs().max(upper.abs())),
            signed(point),
        ),
        Verdict::Unresolved => {
            let more = forecast(report, comparison);
            let is_likely = (lower > 0.0 || upper < 0.0) && is_merely_unresolved(comparison);
            let likely = match is_likely && comparison.ratio.n >= ROUNDS_MIN {
                true => ", probably different, but not certain enough for a verdict",
                false => "",
            };
            format!(
                "{name} vs. {baseline}: {} overhead unresolved, {} % ({interval}){likely}{more}",
                noun(comparison.metric),
                signed(point),
            )
        }
        Verdict::Void => match report.why_void(name) {
            Some(guard) => {
                let whose = guard.variant.as_deref().filter(|v| v != name);
                let whose = whose.map_or(String::new(), |v| format!("{v}: "));
                format!("{name}: no verdict ({}): {whose}{}", guard.code, guard.text)
            }
            None => format!("{name}: no verdict"),
        },
    }
}

/// By how much they differ, where they do.
fn apart(report: &RunReport, variant: &Variant, comparison: &Comparison, baseline: &str) -> String {
    let (name, metric) = (variant.name.as_str(), comparison.metric);
    let is_worse = comparison.verdict == Verdict::Slower;
    let by = match times(metric, comparison.ratio) {
        Some(worse) => {
            let times = if is_worse { worse } else { worse.map(f64::recip) };
            let [point, low, high] = [times.point, times.lower, times.upper].map(factor);
            let by = format!("{point} times ({low} to {high})");
            if is_use(metric) {
                let (more, less) = if is_worse { (name, baseline) } else { (baseline, name) };
                return format!("{more} costs {by} the {} of {less}", noun(metric));
            }
            by
        }
        None => {
            let Bounds { point, lower, upper } = comparison.overhead_percent;
            let (low, high) = if is_worse { (lower, upper) } else { (-upper, -lower) };
            let [point, low, high] = [point.abs(), low, high].map(digits);
            format!("{point} % ({low} to {high})")
        }
    };
    let tail = tail(report, variant, metric);
    format!("{name} {} {baseline}{tail}", words(metric, is_worse, &by))
}

/// `; a verdict would take …`
fn forecast(report: &RunReport, comparison: &Comparison) -> String {
    let seconds = comparison.seconds_needed.filter(|seconds| *seconds <= HOUR);
    let more = |seconds| {
        format!("; a verdict would take about {} more ({})", time(seconds), flags(report))
    };
    seconds.map_or(String::new(), more)
}

/// Forecasts further than this are not worth their words.
const HOUR: f64 = 3600.0;

/// "is slower by 3 % than", and the like; `by` is how much.
fn words(metric: Metric, worse: bool, by: &str) -> String {
    let pick = |a: &'static str, b: &'static str| if worse { a } else { b };
    let noun = noun(metric);
    match metric.row().phrase {
        Phrase::Slower => format!("is {by} {} than", pick("slower", "faster")),
        Phrase::Carries => format!("carries {by} {} than", pick("less", "more")),
        Phrase::Costs => format!("costs {by} {} {noun} than", pick("more", "less")),
        Phrase::SlowerIn => format!("is {by} {} in {noun} than", pick("slower", "faster")),
    }
}

pub fn noun(metric: Metric) -> &'static str {
    metric.row().noun
}

/// With its first letter large, for the beginning of a line.
pub(crate) fn capital(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or(String::new(), |c| c.to_uppercase().chain(chars).collect())
}

/// What else a user feels: the tail, in time.
fn tail(report: &RunReport, variant: &Variant, said: Metric) -> String {
    // Rounds that hold a tail may be the fast ones; only the same rounds are compared.
    let p99 = |variant: &Variant| {
        let value = variant.metric(Metric::LatencyP99)?;
        (value.n == report.run.rounds).then_some(value.point)
    };
    let base = report.baseline().and_then(p99);
    match (p99(variant), base) {
        (Some(mine), Some(base)) if said == Metric::Throughput => {
            let sign = if mine >= base { "+" } else { "−" };
            format!("; p99 {sign}{}", duration((mine - base).abs().round() as u64))
        }
        _ => String::new(),
    }
}

fn digits_signed(value: f64) -> String {
    if value < 0.0 { format!("−{}", digits(-value)) } else { digits(value) }
}

pub fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 6000.0 => format!("{:.0} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.0} h", s / 3600.0),
        _ => "days".into(),
    }
}

/// What the numbers are of: the load that launches saw, and the CPUs.
pub fn basis(report: &RunReport) -> Vec<String> {
    std::iter::once(exposed(report)).chain(placed(report)).collect()
}

/// Why it ended, and after how much.
pub fn ending(report: &RunReport) -> String {
    let launches = report.variants.iter().map(|variant| variant.launches).max().unwrap_or(0);
    let (rounds, why) = (rounds_of(&report.run), stopped(&report.run));
    let launches = counted(launches.into(), "launch", "launches");
    format!("{rounds}, {launches}; {why}; seed {}", report.run.seed)
}

/// The same of a run whose variants are not at hand.
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

fn stopped(run: &Run) -> String {
    let mut precision = format!("± {} %", digits(run.precision * 100.0));
    if run.of_effect > 0.0 {
        precision += &format!(", or to {:.0} % of the overhead", run.of_effect * 100.0);
    }
    match run.stopped_by.as_str() {
        "precision" => format!("stopped: all that was asked is known to {precision}"),
        "max-time" => format!("stopped by the time limit before all was known to {precision}"),
        "rounds" => "stopped by --rounds".into(),
        "void" => "stopped: no verdict is allowed".into(),
        "interrupted" => "interrupted".into(),
        "failed" => format!("ended by a failure (why: tare runs --events {})", run.id),
        _ => "killed".into(),
    }
}
