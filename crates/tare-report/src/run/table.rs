//! The table of a run: its columns, and which of them a narrow terminal leaves out.

use tare_model::Metric;
use tare_stats::Estimate;
use tare_stats::Verdict;

use crate::run::words::{number, overhead_of, signed, verdict_word};
use crate::run::{Comparison, RunReport, Variant};

/// Metrics that have a column if any variant has a value for them.
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

/// Softirq CPU has a column if it exceeds this share of CPU per request.
const SOFTIRQ_SHOWN: f64 = 0.02;

/// A table: a header and one row per variant, all as text.
pub struct Table {
    pub header: Vec<String>,
    pub rows: Vec<Vec<String>>,
}

pub fn table(report: &RunReport) -> Table {
    let mut asked = report.asked();
    if report.is_single() {
        asked.clear();
    }
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
        row.extend(columns.iter().map(|column| cell(column.metric, column.value(variant))));
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

/// Returns the metrics that are shown for each variant.
pub(crate) fn columns(report: &RunReport) -> Vec<Metric> {
    let has = |metric: Metric| report.variants.iter().any(|v| v.metric(metric).is_some());
    let asked = report.asked();
    let mut columns = COLUMNS.to_vec();
    columns.extend(asked.iter().filter(|metric| !COLUMNS.contains(metric)));
    columns.retain(|metric| has(*metric) && deserves_column(*metric, &asked));
    // Idle CPU is of interest for sidecars; for servers it is nearly zero.
    columns.retain(|metric| *metric != Metric::IdleCpu || has(Metric::LayersCpu));
    let is_much = report.variants.iter().any(Variant::has_much_softirq);
    columns.retain(|metric| *metric != Metric::SoftirqCpu || is_much || asked.contains(metric));
    columns
}

impl Variant {
    /// Whether softirq CPU is too large to leave out.
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

    fn value<'a>(&self, variant: &'a Variant) -> Option<&'a Estimate> {
        match &self.hop {
            None => variant.metric(self.metric).filter(|known| {
                // Slow rounds have too few replies for a p99; it would describe only the fast ones.
                let all = variant
                    .metric(Metric::LatencyP50)
                    .filter(|_| self.metric == Metric::LatencyP99);
                all.is_none_or(|all| all.n <= known.n)
            }),
            Some(hop) => variant.metric_of(hop, self.metric),
        }
    }
}

/// Each hop has columns for its CPU and memory; several hops also have columns for their sum.
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

fn hops(report: &RunReport) -> Vec<String> {
    let mut names = Vec::new();
    for hop in report.variants.iter().flat_map(Variant::hops) {
        if !names.contains(&hop.name) {
            names.push(hop.name.clone());
        }
    }
    names
}

/// Columns that a table can leave out, least important first. Other formats have them all.
const SPARE: [&str; 5] = ["memory", "p50", "p99", "call", "predicted"];

/// Returns the columns that a narrow table leaves out, least important first; never requested ones.
pub fn spare(report: &RunReport) -> Vec<String> {
    let of_hops = |metric: Metric| {
        let all = table_columns(report).into_iter();
        let all = all.filter(move |column| column.hop.is_some() && column.metric == metric);
        all.map(|column| column.title())
    };
    let mut all: Vec<String> = match hops(report).len() {
        0 => Vec::new(),
        // With a single hop, its own use of resources is of interest.
        1 => vec!["p50".into()],
        // The sums over all hops remain.
        _ => of_hops(Metric::ServerRss).chain(of_hops(Metric::ServerCpu)).collect(),
    };
    all.extend(SPARE.map(str::to_owned));
    let last = [Metric::IdleCpu, Metric::LayersRss].map(|metric| metric.row().title.to_owned());
    all.extend(last);
    let asked: Vec<&str> = report.asked().into_iter().map(|metric| metric.row().title).collect();
    all.retain(|title| !asked.contains(&title.as_str()));
    all
}

/// Whether a metric deserves a column, given the requested metrics.
fn deserves_column(metric: Metric, asked: &[Metric]) -> bool {
    match metric {
        Metric::Bandwidth => asked.contains(&Metric::Bandwidth),
        Metric::Throughput => {
            !asked.contains(&Metric::Bandwidth) && !asked.contains(&Metric::SystemCall)
        }
        Metric::ServerCpu => !asked.contains(&Metric::SystemCall),
        _ => true,
    }
}

/// Whether any variant's overhead is predicted from the cost of a call.
fn is_predicted(report: &RunReport, metric: Metric) -> bool {
    let mut all = report.comparisons.iter().filter(|c| c.asked && c.metric == metric);
    all.any(|comparison| comparison.predicted_percent.is_some())
}

fn verdict_cells(comparison: &Comparison) -> [String; 2] {
    let word = verdict_word(comparison.metric, comparison.verdict);
    let overhead = match comparison.verdict {
        // A void overhead is not shown: guards say why, and JSON has the number.
        Verdict::Void => "–".to_owned(),
        _ => overhead_of(comparison.metric, &comparison.overhead_percent),
    };
    [overhead, word.to_owned()]
}

/// Formats a metric's value, or a dash.
pub fn cell(metric: Metric, value: Option<&Estimate>) -> String {
    value.map_or("–".into(), |value| number(metric, value.point))
}
