//! Other tools' results: the numbers, comparisons as far as possible, and the audit's findings.

use serde::Serialize;
use tare_import::audit::{Finding, audit};
use tare_import::compare::{Compared, Interval, ONE_EACH, compare, runs, values};
use tare_import::{Group, Import, Sample, Tool};
use tare_model::Metric;
use tare_model::metric::Phrase;
use tare_stats::estimate::mean;
use tare_stats::{Severity, Verdict};

use crate::format::bytes;
use crate::formats::{Document, Form};
use crate::html;
use crate::run::Bounds;
use crate::run::table::Table;
use crate::run::words::{noun, number, overhead_of, point_of};

mod csv;
mod text;

pub(crate) use text::about_all;

/// An import with its audit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportDocument {
    pub schema: String,
    /// Number of the import in the store; 0 if it is not stored.
    pub run: i64,
    pub imported_unix_ms: u64,
    pub tare_version: String,
    pub import: Import,
    pub comparisons: Vec<Compared>,
    pub findings: Vec<Finding>,
}

impl ImportDocument {
    pub fn new(import: Import, run: i64, imported_unix_ms: u64, tare_version: &str) -> Self {
        let findings = audit(&import);
        Self {
            schema: "tare.audit/1".into(),
            run,
            imported_unix_ms,
            tare_version: tare_version.to_owned(),
            comparisons: compare(&import, &findings),
            findings,
            import,
        }
    }
}

impl Document for ImportDocument {
    fn kind(&self) -> &'static str {
        "an import"
    }

    fn form(&self, form: Form) -> Option<String> {
        match form {
            Form::Text => Some(text::text(self)),
            // Plain data: serialising it cannot fail.
            Form::Json => Some(serde_json::to_string_pretty(self).unwrap_or_default() + "\n"),
            Form::Markdown => Some(text::markdown(self)),
            Form::Csv => Some(csv::render(self)),
            Form::Html => Some(html::import::render(self)),
            _ => None,
        }
    }
}

/// Metrics that are shown if any variant has them.
const COLUMNS: [Metric; 7] = [
    Metric::Throughput,
    Metric::Bandwidth,
    Metric::LatencyMean,
    Metric::LatencyP50,
    Metric::LatencyP90,
    Metric::LatencyP99,
    Metric::LatencyP999,
];

/// Marks a void value.
pub(crate) const VOID: &str = "†";

/// Explains the marks that occur in the table.
pub(crate) fn footnote(table: &Table) -> Option<String> {
    let cells = || table.rows.iter().flatten();
    let is_marked = cells().any(|cell| cell.ends_with(VOID));
    let is_void = cells().any(|cell| cell == Verdict::Void.word());
    let told = |what: &str| format!("{what}: not to be used, see the findings below");
    match (is_marked, is_void) {
        (true, true) => Some(told(&format!("{VOID} and void"))),
        (true, false) => Some(told(VOID)),
        (false, true) => Some(told("void")),
        (false, false) => None,
    }
}

/// Returns the table, with one row per variant and case.
pub(crate) fn table(document: &ImportDocument) -> Table {
    let import = &document.import;
    let samples = &import.samples;
    let has = |metric: Metric| samples.iter().any(|sample| sample.value(metric).is_some());
    let mut columns: Vec<Metric> = COLUMNS.into_iter().filter(|metric| has(*metric)).collect();
    // Bandwidth has no column if it follows from the number of replies.
    let has_replies = |sample: &Sample| sample.value(Metric::Throughput).is_some();
    let is_of_replies =
        samples.iter().all(|s| has_replies(s) || s.value(Metric::Bandwidth).is_none());
    columns.retain(|metric| *metric != Metric::Bandwidth || !is_of_replies);
    let has_replies = samples.iter().any(|sample| sample.reply_bytes().is_some());
    let all_bodies = samples.iter().all(|sample| sample.seen.bytes_are_bodies);
    let has_index = samples.iter().any(|sample| sample.seen.other.contains_key("index"));
    let mut header = vec![String::new()];
    header.extend(columns.iter().map(|metric| metric_title(document, *metric).to_owned()));
    header.extend(has_index.then(|| "index".to_owned()));
    let of_replies = match (all_bodies, samples.iter().any(|s| s.seen.bytes_are_bodies)) {
        (true, _) => "bytes/reply (body)",
        (false, true) => "bytes/reply",
        (false, false) => "bytes/reply (with headers)",
    };
    header.extend(has_replies.then(|| of_replies.to_owned()));
    header.extend(["runs shown", OVERHEAD, "verdict"].map(str::to_owned));
    let is_mixed = asked_metrics(document).len() > 1;
    let mut rows = Vec::new();
    let cases = import.cases();
    let mut last = "";
    for Group { case, variant, samples: own } in import.groups() {
        // Each case has a row with its name above it.
        let indent = if cases.len() > 1 && !case.is_empty() { "\u{a0}\u{a0}" } else { "" };
        if case != last && !indent.is_empty() {
            let mut row = vec![String::new(); header.len()];
            case.clone_into(&mut row[0]);
            rows.push(row);
        }
        // Results without a case come last, under a heading.
        if case.is_empty() && !last.is_empty() {
            let others = vec![String::new(); header.len() - 1];
            rows.push([vec!["other results".to_owned()], others].concat());
        }
        last = case;
        let mut row = vec![format!("{indent}{variant}")];
        row.extend(columns.iter().map(|metric| {
            let mark = if document.is_void(case, variant, *metric) { VOID } else { "" };
            let cell = cell(&own, *metric);
            if cell == "–" { cell } else { cell + mark }
        }));
        let index = own.iter().find_map(|sample| sample.seen.other.get("index"));
        row.extend(has_index.then(|| index.map_or("–".into(), |index| format!("{index:.1}"))));
        let replies: Vec<f64> = own.iter().filter_map(|sample| sample.reply_bytes()).collect();
        let reply = (!replies.is_empty()).then(|| mean(&replies));
        let bodies = own.iter().any(|sample| sample.seen.bytes_are_bodies);
        let what = if bodies && !all_bodies { " (body)" } else { "" };
        row.extend(
            has_replies
                .then(|| reply.map_or("–".into(), |reply| format!("{}{what}", bytes(reply)))),
        );
        let is_known = own.iter().any(|s| !matches!(s.tool, Tool::Table | Tool::Summary));
        let runs = runs(&own);
        row.push(if is_known || runs > 1 { runs.to_string() } else { "?".into() });
        let compared = document.asked(case, variant);
        row.push(match compared {
            Some(compared) if is_mixed => {
                format!("{}, {}", overhead(compared), metric_title(document, compared.metric))
            }
            Some(compared) => overhead(compared),
            None if document.is_baseline(case, variant) => "baseline".into(),
            None => "–".into(),
        });
        row.push(match compared {
            Some(compared) => verdict(compared),
            None if document.is_all_void(case, variant) => Verdict::Void.word().to_owned(),
            None => String::new(),
        });
        rows.push(row);
    }
    Table { header, rows }
}

/// Heading of the overhead column.
const OVERHEAD: &str = "overhead (+ worse)";

/// Returns a metric's heading: "mean latency", "requests/s".
fn metric_title(document: &ImportDocument, metric: Metric) -> &'static str {
    // UnixBench counts loops, not requests.
    let loops = || document.import.samples.iter().all(|sample| sample.tool == Tool::Unixbench);
    match metric {
        Metric::Throughput if loops() => "loops/s",
        Metric::LatencyMean => "mean latency",
        _ => metric.row().title,
    }
}

/// Returns the metrics in which overheads are shown.
fn asked_metrics(document: &ImportDocument) -> Vec<Metric> {
    let is_asked = |metric: &Metric| {
        document.comparisons.iter().any(|compared| compared.asked && compared.metric == *metric)
    };
    Metric::ALL.into_iter().filter(is_asked).collect()
}

/// Names the baseline and the metric of overheads.
pub(crate) fn compared_with(document: &ImportDocument) -> Option<String> {
    let import = &document.import;
    let metrics = asked_metrics(document);
    let of = match metrics.as_slice() {
        [] => return None,
        [one] if one.more_is_better() => {
            let title = metric_title(document, *one);
            format!("{title} lost (negative: gained; 4× slower or less: a quarter is left)")
        }
        [one] => format!("{} added (negative: saved)", metric_title(document, *one)),
        _ => "latency added at a set rate, else throughput lost".into(),
    };
    let is_everywhere = document.comparisons.iter().all(|own| own.baseline == import.baseline);
    let where_not =
        if is_everywhere { "" } else { "; in cases without it, the first row is the baseline" };
    let baseline = &import.baseline;
    Some(format!(
        "baseline: '{baseline}' (--baseline NAME chooses another){where_not}; overhead: {of}"
    ))
}

/// Returns a variant's name, with its case if there are several.
fn place_name(document: &ImportDocument, case: &str, variant: &str) -> String {
    match document.import.cases().len() {
        1 => format!("'{variant}'"),
        _ if case.is_empty() => format!("'{variant}'"),
        _ => format!("'{variant}' ({case})"),
    }
}

fn cell(samples: &[&Sample], metric: Metric) -> String {
    let values = values(samples, metric);
    if values.is_empty() {
        return "–".into();
    }
    number(metric, mean(&values))
}

pub(crate) fn overhead(compared: &Compared) -> String {
    let (metric, point) = (compared.metric, compared.overhead_percent);
    if compared.interval.is_none() && point == 0.0 {
        return "0 %".into();
    }
    let told = match compared.interval {
        None => point_of(metric, point),
        Some(Interval { lower, upper, .. }) => overhead_of(metric, &Bounds { point, lower, upper }),
    };
    // Without a verdict, a word shows the direction: "3.30×" is worse, "3.30× faster" better.
    let worse = match metric.row().phrase {
        Phrase::Slower | Phrase::SlowerIn => "slower",
        Phrase::Carries => "less",
        Phrase::Costs => "more",
    };
    let is_better = told.contains("× ") && !told.contains("× (");
    if is_better { told } else { told.replace('×', &format!("× {worse}")) }
}

pub(crate) fn verdict(compared: &Compared) -> String {
    compared.verdict.map_or("no verdict".into(), |verdict| verdict.word().to_owned())
}

/// Returns the results of variants with intervals, and why the others have no verdict.
pub(crate) fn sentences(document: &ImportDocument) -> Vec<String> {
    let asked = || document.comparisons.iter().filter(|compared| compared.asked);
    let name = |compared: &Compared| place_name(document, &compared.case, &compared.variant);
    let mut all: Vec<String> = asked().filter_map(|own| with_interval(&name(own), own)).collect();
    let without = asked().filter(|compared| has_no_verdict(compared));
    let mut by_why: Vec<(&str, Vec<String>)> = Vec::new();

    for compared in without {
        let why = match compared.verdict {
            Some(Verdict::Void) => "ruled out by a finding below",
            _ => compared.why.as_deref().unwrap_or("no interval"),
        };
        match by_why.iter_mut().find(|(known, _)| *known == why) {
            Some((_, names)) => names.push(name(compared)),
            None => by_why.push((why, vec![name(compared)])),
        }
    }
    match by_why.as_slice() {
        [(ONE_EACH, _)] if asked().all(has_no_verdict) => {
            all.push(format!("no verdict: {ONE_EACH}"))
        }
        several => all.extend(
            several.iter().map(|(why, names)| format!("no verdict on {}: {why}", listed(names))),
        ),
    }
    all
}

fn has_no_verdict(compared: &Compared) -> bool {
    compared.verdict.is_none_or(|verdict| verdict == Verdict::Void)
}

fn listed(names: &[String]) -> String {
    const SHOWN: usize = 6;
    let more = match names.len() {
        n if n > SHOWN => format!(" and {} more", n - SHOWN),
        _ => String::new(),
    };
    let shown: Vec<&str> = names.iter().take(SHOWN).map(String::as_str).collect();
    shown.join(", ") + &more
}

/// "'filter' against 'none' in throughput: +4.1 % ± 0.9, slower; …".
fn with_interval(name: &str, compared: &Compared) -> Option<String> {
    let (interval, verdict) = compared.interval.zip(compared.verdict)?;
    if has_no_verdict(compared) {
        return None;
    }
    let all = match interval.p_corrected > interval.p {
        true => format!(
            "; with this many comparisons, at least one would in {}",
            chance_text(interval.p_corrected)
        ),
        false => String::new(),
    };
    Some(format!(
        "{name} against '{}', overhead in {}: {}, {}; by chance, two equal servers would differ by this \
         much in {} such studies{all}",
        compared.baseline,
        noun(compared.metric),
        overhead(compared),
        verdict.word(),
        chance_text(interval.p)
    ))
}

/// Formats a probability: "5 of 100", "3 of 1,000", "fewer than 1 of 1,000".
fn chance_text(p: f64) -> String {
    match p {
        p if p < 0.001 => "fewer than 1 of 1,000".into(),
        p if p < 0.0095 => format!("{:.0} of 1,000", p * 1000.0),
        p if p > 0.99 => "nearly all".into(),
        p => format!("{:.0} of 100", p * 100.0),
    }
}

/// Lists what was recognised, and in which lines.
pub fn sources(document: &ImportDocument) -> String {
    let of = |sample: &Sample| {
        let name = place_name(document, &sample.case, &sample.variant);
        let command = sample.command.as_ref().map_or(String::new(), |c| format!("; $ {c}"));
        format!("  {}: {}, {name}{command}\n", sample.place(), sample.tool.name())
    };
    document.import.samples.iter().map(of).collect()
}

pub(crate) fn ending(document: &ImportDocument) -> String {
    let import = &document.import;
    let mut tools: Vec<&str> = import.samples.iter().map(|sample| sample.tool.name()).collect();
    tools.sort_unstable();
    tools.dedup();
    let mut files: Vec<&str> = import.samples.iter().map(|s| s.source.file.as_str()).collect();
    files.sort_unstable();
    files.dedup();
    let outputs = import.samples.len();
    format!(
        "{outputs} output{} ({}) in {}; not measured by tare",
        if outputs == 1 { "" } else { "s" },
        tools.join(", "),
        match files.as_slice() {
            [one] => (*one).to_owned(),
            all => format!("{} files", all.len()),
        }
    )
}

impl ImportDocument {
    /// Whether a finding about this variant itself voids its value.
    fn is_void(&self, case: &str, variant: &str, metric: Metric) -> bool {
        self.findings.iter().any(|finding| {
            finding.severity == Severity::Void
                && finding.variant.as_deref() == Some(variant)
                && finding.case.as_deref().is_none_or(|own| own == case)
                && finding.metrics.contains(&metric)
        })
    }

    /// Whether a finding about this variant itself voids all of its values.
    fn is_all_void(&self, case: &str, variant: &str) -> bool {
        self.findings.iter().any(|finding| {
            finding.severity == Severity::Void
                && finding.variant.as_deref() == Some(variant)
                && finding.case.as_deref().is_none_or(|own| own == case)
                && finding.metrics.is_empty()
        })
    }

    fn is_baseline(&self, case: &str, variant: &str) -> bool {
        let mut own = self.comparisons.iter().filter(|compared| compared.case == case);
        variant == self.import.baseline || own.any(|compared| compared.baseline == variant)
    }

    fn asked(&self, case: &str, variant: &str) -> Option<&Compared> {
        self.comparisons.iter().find(|c| c.asked && c.case == case && c.variant == variant)
    }
}
