//! Other tools' results: the numbers, what they say of each other as far as they can, and what
//! speaks against them.

use serde::Serialize;
use tare_import::audit::{Finding, audit};
use tare_import::compare::{Compared, Interval, compare, runs, values};
use tare_import::{Group, Import, Sample, Tool};
use tare_model::Metric;
use tare_model::metric::Phrase;
use tare_stats::estimate::mean;
use tare_stats::{Severity, Verdict};

use crate::form::{Document, Form};
use crate::html;
use crate::run::Bounds;
use crate::run::words::{Table, noun, number, overhead_of, point_of};
use crate::units::bytes;

mod csv;
mod text;

pub(crate) use text::about_all;

/// An import with its audit.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct ImportDocument {
    pub schema: String,
    /// Its number in its store; zero where it is in none.
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
            // Plain data: nothing in it can fail to be written.
            Form::Json => Some(serde_json::to_string_pretty(self).unwrap_or_default() + "\n"),
            Form::Markdown => Some(text::markdown(self)),
            Form::Csv => Some(csv::render(self)),
            Form::Html => Some(html::import::render(self)),
            _ => None,
        }
    }
}

/// What is shown of each variant, where any has it.
const COLUMNS: [Metric; 7] = [
    Metric::Throughput,
    Metric::Bandwidth,
    Metric::LatencyMean,
    Metric::LatencyP50,
    Metric::LatencyP90,
    Metric::LatencyP99,
    Metric::LatencyP999,
];

/// Stands at a value that is void.
pub(crate) const VOID: &str = "†";

/// What the mark means, where it stands.
pub(crate) fn footnote(table: &Table) -> Option<String> {
    let marked = table.rows.iter().flatten().any(|cell| cell.ends_with(VOID));
    marked.then(|| format!("{VOID} void: see the findings"))
}

/// A row a variant and case.
pub(crate) fn table(document: &ImportDocument) -> Table {
    let import = &document.import;
    let samples = &import.samples;
    let has = |metric: Metric| samples.iter().any(|sample| sample.value(metric).is_some());
    let columns: Vec<Metric> = COLUMNS.into_iter().filter(|metric| has(*metric)).collect();
    let has_replies = samples.iter().any(|sample| sample.reply_bytes().is_some());
    let all_bodies = samples.iter().all(|sample| sample.seen.bytes_are_bodies);
    let has_index = samples.iter().any(|sample| sample.seen.other.contains_key("index"));
    let mut header = vec![String::new()];
    // UnixBench counts loops, not requests.
    let loops = samples.iter().all(|sample| sample.tool == Tool::Unixbench);
    header.extend(columns.iter().map(|metric| match (metric, loops) {
        (Metric::Throughput, true) => "per s".to_owned(),
        _ => metric.row().title.to_owned(),
    }));
    header.extend(has_index.then(|| "index".to_owned()));
    header.extend(has_replies.then(|| "bytes/reply".to_owned()));
    header.extend(["runs", "overhead", "verdict"].map(str::to_owned));
    let mut rows = Vec::new();
    for Group { case, variant, samples: own } in import.groups() {
        let mut row = vec![place_name(document, case, variant)];
        row.extend(columns.iter().map(|metric| {
            let mark = if document.is_void(case, variant, *metric) { VOID } else { "" };
            cell(&own, *metric) + mark
        }));
        let index = own.iter().find_map(|sample| sample.seen.other.get("index"));
        row.extend(has_index.then(|| index.map_or("–".into(), |index| format!("{index:.1}"))));
        let reply = own.iter().find_map(|sample| sample.reply_bytes());
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
            _ if variant == import.baseline => "baseline".into(),
            Some(compared) => overhead(compared),
            None => "–".into(),
        });
        row.push(compared.map_or(String::new(), verdict));
        rows.push(row);
    }
    Table { header, rows }
}

/// A variant's name, with its case where there are several.
fn place_name(document: &ImportDocument, case: &str, variant: &str) -> String {
    match document.import.cases().len() {
        1 => variant.to_owned(),
        _ if case.is_empty() => variant.to_owned(),
        _ => format!("{case}: {variant}"),
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
    let told = match compared.interval {
        None => point_of(metric, point),
        Some(Interval { lower, upper, .. }) => overhead_of(metric, &Bounds { point, lower, upper }),
    };
    // Where no verdict says it: "3.30×" is worse, "3.30× faster" better.
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

/// What may be said of each variant, one sentence each.
pub(crate) fn sentences(document: &ImportDocument) -> Vec<String> {
    let asked = document.comparisons.iter().filter(|compared| compared.asked);
    let of = |compared: &Compared| {
        let case = match (compared.case.is_empty(), document.import.cases().len()) {
            (false, 2..) => format!(" ({})", compared.case),
            _ => String::new(),
        };
        // A sign alone may be read as that of the values.
        let sense = match compared.interval.is_some() || overhead(compared).contains('×') {
            true => "",
            false if compared.overhead_percent < 0.0 => ", which is better",
            false => ", which is worse",
        };
        let head = format!(
            "{} against {}, overhead in {}{case}: {}{sense}",
            compared.variant,
            compared.baseline,
            noun(compared.metric),
            overhead(compared)
        );
        let chance = compared.interval.map_or(String::new(), |interval| {
            let all = match interval.p_corrected > interval.p {
                true => format!(
                    " (with this many comparisons, at least one would in {})",
                    of_100(interval.p_corrected)
                ),
                false => String::new(),
            };
            let own = of_100(interval.p);
            format!(
                "; two equal servers would differ by this much by chance in {own} such studies{all}"
            )
        });
        let end = match (compared.verdict, &compared.why) {
            (None, Some(why)) => format!("; no verdict: {why}"),
            (None, None) => "; no verdict".into(),
            (Some(Verdict::Void), Some(why)) => format!("; void: {why}"),
            (Some(verdict), Some(why)) => format!("{chance}; {}: {why}", verdict.word()),
            (Some(verdict), None) => format!("{chance}; {}", verdict.word()),
        };
        head + &end
    };
    asked.map(of).collect()
}

/// "5 of 100", "3 of 1,000", "fewer than 1 of 1,000".
fn of_100(p: f64) -> String {
    match p {
        p if p < 0.001 => "fewer than 1 of 1,000".into(),
        p if p < 0.0095 => format!("{:.0} of 1,000", p * 1000.0),
        p if p > 0.99 => "nearly all".into(),
        p => format!("{:.0} of 100", p * 100.0),
    }
}

/// What was recognised, and in which lines.
pub fn sources(document: &ImportDocument) -> String {
    let of = |sample: &Sample| {
        let name = place_name(document, &sample.case, &sample.variant);
        let command = sample.command.as_ref().map_or(String::new(), |c| format!("; $ {c}"));
        format!("  {}: {}, '{name}'{command}\n", sample.place(), sample.tool.name())
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
    let baseline = match import.variants().len() {
        0 | 1 => String::new(),
        _ => format!("baseline: '{}' (--baseline NAME chooses another)\n", import.baseline),
    };
    format!(
        "{baseline}{outputs} output{} of {} in {}; imported, not measured by tare",
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

    fn asked(&self, case: &str, variant: &str) -> Option<&Compared> {
        self.comparisons.iter().find(|c| c.asked && c.case == case && c.variant == variant)
    }
}
