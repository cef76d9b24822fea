//! A check in words: one sentence, and a table of few lines.

use tare_model::variant::Skipped;

use super::{CheckDocument, MetricFinding, Outcome};
use crate::format;
use crate::formats::{Document, Form};
use crate::run::Bounds;
use crate::run::markdown::{escape, escaped};
use crate::run::table::{Table, cell};
use crate::run::terminal::{columns, items, prose};
use crate::run::trust::{ValueGuards, Warning, evidence, warnings};
use crate::run::words::{noun, overhead, time};

/// Metrics that a sentence names.
const NAMED: usize = 3;
/// Rows of the table in comments on pull requests.
const ROWS: usize = 5;

impl Outcome {
    pub fn sign(self) -> char {
        match self {
            Self::Worse => '▼',
            Self::NotWorse => '✓',
            Self::Undecided => '?',
            Self::RepliesDiffer | Self::Unfit | Self::Void => '✗',
        }
    }
}

/// The sign of the outcome and the sentence.
pub fn answer(document: &CheckDocument) -> String {
    format!("{} {}", document.outcome.sign(), document.sentence)
}

pub(super) fn sentence(document: &CheckDocument) -> String {
    let [base, head, again] = document.names();
    let own = |finding: &&MetricFinding| finding.outcome == document.outcome;
    let all: Vec<&MetricFinding> = document.findings.iter().filter(own).collect();
    let Some(first) = all.first() else {
        return match missing(document).first() {
            Some(missing) => format!("undecided: {missing}"),
            None => "undecided: nothing was measured".into(),
        };
    };
    let because = first.reason.as_ref().map(|reason| format!(": {reason}")).unwrap_or_default();
    match document.outcome {
        Outcome::RepliesDiffer => {
            format!("{head}'s replies differ from {base}'s{because}")
        }
        Outcome::Unfit if !because.is_empty() => {
            format!("no verdict: the replies of {base} differ from start to start{because}")
        }
        Outcome::Unfit => {
            let again_percent = first.again_percent.as_ref().map_or_else(String::new, overhead);
            format!(
                "no verdict: {base} and {again} are the same server, but differ on this machine by \
                 {again_percent} in {}",
                document.name_of(first)
            )
        }
        Outcome::Void => format!("no verdict: {}{because}", document.name_of(first)),
        Outcome::Worse => {
            let also = match all.len() - 1 {
                0 => String::new(),
                n => {
                    format!(", and {}", format::counted(n as u64, "more metric", "more metrics"))
                }
            };
            let limit = percent(first.limit_percent);
            format!(
                "{head} is worse than {base}: {} (limit {limit}){also}",
                document.change_of(first)
            )
        }
        Outcome::Undecided => {
            // The limit that every undecided metric would keep.
            let held = all.iter().filter_map(|finding| Some(finding.change_percent?.upper));
            let held = held.fold(0.0, f64::max);
            let hint =
                match first.reason.is_none() && held.is_finite() && held > 0.0 && held < 100.0 {
                    true => format!("; it would pass with a limit of {}", percent(up(held))),
                    false => String::new(),
                };
            let limit = percent(first.limit_percent);
            format!(
                "undecided whether {head} is worse than {base} by more than {limit}: {}{because}{hint}",
                document.change_of(first)
            )
        }
        Outcome::NotWorse => {
            let is_shared = all.iter().all(|one| one.limit_percent == first.limit_percent);
            let changes = all.iter().take(NAMED).map(|one| match is_shared {
                true => document.change_of(one),
                false => {
                    format!("{} (limit {})", document.change_of(one), percent(one.limit_percent))
                }
            });
            let changes = changes.collect::<Vec<_>>().join(", ");
            let by = match is_shared {
                true => format!(" by more than {}", percent(first.limit_percent)),
                false => String::new(),
            };
            format!("{head} is not worse than {base}{by}: {changes}")
        }
    }
}

/// Formats a limit: `2 %`, `2.5 %`.
fn percent(limit: f64) -> String {
    format!("{} %", (limit * 100.0).round() / 100.0)
}

/// Rounds a percentage up to one that a person would type.
fn up(percent: f64) -> f64 {
    (percent * 10.0).ceil() / 10.0
}

impl CheckDocument {
    /// The names of the old version, the new version, and the old version's second start.
    pub(crate) fn names(&self) -> [&str; 3] {
        let first = self.documents.first();
        let check = first.and_then(|document| document.facts.plan.check.as_ref());
        let base = first.and_then(|document| document.report.baseline());
        check.zip(base).map_or(["base", "head", "base again"], |(check, base)| {
            [&base.name, &check.head, &check.again]
        })
    }

    /// The metric, its load if that is a rate, and its experiment if there are several.
    pub(crate) fn name_of(&self, finding: &MetricFinding) -> String {
        self.titled(finding, noun(finding.metric))
    }

    fn titled(&self, finding: &MetricFinding, metric: &str) -> String {
        let rate = finding.rate_per_s.map(|rate| format!(" at {}/s", format::rate(rate)));
        let rate = rate.unwrap_or_default();
        match self.name == finding.experiment {
            true => format!("{metric}{rate}"),
            false => format!("{}: {metric}{rate}", finding.experiment),
        }
    }

    /// The metric and its change.
    pub(crate) fn change_of(&self, finding: &MetricFinding) -> String {
        let name = self.name_of(finding);
        match &finding.change_percent {
            Some(bounds) => format!("{name} {}", overhead(bounds)),
            None => format!("{name} was measured in fewer than two launches"),
        }
    }

    /// What the answer rests on.
    pub(crate) fn basis(&self) -> Vec<String> {
        let first = self.documents.first().map(|own| &own.report);
        let mut all: Vec<String> = first.and_then(crate::run::trust::asked).into_iter().collect();
        all.push(format!("took {}", time(self.elapsed_ms as f64 / 1000.0)));
        all.extend(ERRORS.map(str::to_owned));
        all
    }
}

fn title(finding: &MetricFinding) -> &'static str {
    finding.metric.row().title
}

/// All findings, one per row.
pub fn table(document: &CheckDocument) -> Table {
    let [base, head, again] = document.names().map(str::to_owned);
    let header =
        vec![String::new(), base, head, "change (+ = worse)".into(), "limit".into(), again];
    let change = |bounds: Option<&Bounds>| bounds.map_or("–".into(), overhead);
    let row = |finding: &MetricFinding| {
        vec![
            format!("{} {}", finding.outcome.sign(), document.titled(finding, title(finding))),
            cell(finding.metric, finding.base.as_ref()),
            cell(finding.metric, finding.head.as_ref()),
            change(finding.change_percent.as_ref()),
            percent(finding.limit_percent),
            change(finding.again_percent.as_ref()),
        ]
    };
    Table { header, rows: document.findings.iter().map(row).collect() }
}

fn all_warnings(document: &CheckDocument) -> Vec<Warning> {
    let guards: Vec<ValueGuards<'_>> =
        document.documents.iter().map(|own| ValueGuards::new(&own.report.guards)).collect();
    let variants = document.documents.first().map_or(0, |own| own.report.variants.len());
    warnings(&guards, variants)
}

/// The promise of a check, which `tare-stats/tests/check.rs` tests.
const ERRORS: [&str; 2] = [
    "at most 1 % of changes within the limits are called worse",
    "at most 5 % of changes beyond a limit pass",
];

pub(super) fn text(document: &CheckDocument) -> String {
    let mut lines = prose("", &document.name);
    lines.push(String::new());
    lines.extend(prose(&format!("{} ", document.outcome.sign()), &document.sentence));
    let others = missing(document).into_iter().filter(|line| !document.sentence.contains(line));
    lines.extend(others.flat_map(|line| prose("  ", &line)));
    lines.push(String::new());
    if document.findings.is_empty() {
        return lines.join("\n");
    }
    lines.extend(columns(&table(document)));
    lines.push(String::new());
    lines.extend(all_warnings(document).iter().flat_map(|one| prose("", &one.to_string())));
    lines.extend(items("evidence", &document.basis()));
    if let (Some(first), Some(last)) = (document.runs.first(), document.runs.last()) {
        let runs = if first == last { first.to_string() } else { format!("{first}-{last}") };
        let next = [
            format!("tare report {runs} --html report.html"),
            format!("tare report {first} --why"),
        ];
        lines.extend(items("next", &next));
    }
    lines.join("\n") + "\n"
}

fn missing(document: &CheckDocument) -> Vec<String> {
    let described = |one: &Skipped| match document.missing.len() + document.documents.len() {
        1 => one.reason.clone(),
        _ => format!("{}: {}", one.name, one.reason),
    };
    document.missing.iter().map(described).collect()
}

/// A comment for a pull request: a sentence and a short table; details are folded.
pub(super) fn markdown(document: &CheckDocument) -> String {
    // The mark by which `ci/` finds the comment that it updates.
    let mut text = format!("<!-- tare check {} -->\n", escape(&document.name).replace("--", ""));
    text.push_str(&format!("**{}**\n\n", escape(&answer(document))));
    let table = table(document);
    let row = |cells: &[String]| format!("| {} |\n", escaped(cells).join(" | "));
    let whole = |rows: &[Vec<String>]| {
        let rows: String = rows.iter().map(|cells| row(cells)).collect();
        format!("{}|---|---:|---:|---:|---:|---:|\n{rows}", row(&table.header))
    };
    text.push_str(&whole(&table.rows[..table.rows.len().min(ROWS)]));
    text.push_str("\n<details><summary>How this was measured</summary>\n\n");
    if table.rows.len() > ROWS {
        text.push_str(&format!("{}\n", whole(&table.rows[ROWS..])));
    }
    for line in missing(document).into_iter().chain(document.basis()) {
        text.push_str(&format!("- {}\n", escape(&line)));
    }
    for own in &document.documents {
        let report = &own.report;
        let described = format!("{}: {}", report.run.name, evidence(report).join(" · "));
        text.push_str(&format!("- {}\n", escape(&described)));
    }
    for warning in all_warnings(document) {
        text.push_str(&format!("- {}\n", escape(&warning.to_string())));
    }
    for own in &document.documents {
        if let Some(whole) = own.form(Form::Markdown) {
            text.push_str(&format!("\n{whole}"));
        }
    }
    text + "\n</details>\n"
}
