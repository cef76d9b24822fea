//! Writes k6's summary as a table: one row per metric, times in milliseconds. The variant and a
//! sweep's values are tags of the metric, like k6's sub-metrics:
//! `http_req_duration{variant:runc,connections:10}`.

use tare_model::Distribution;
use tare_model::samples::Series;

use super::Part;
use super::csv::quote;
use crate::run::document::RunDocument;

pub const HEADER: &str = "metric_name,avg,count,fails,min,med,max,p(95),p(99),passes,rate,value\n";

/// A row; fields that a metric does not have stay empty.
#[derive(Default)]
struct Row {
    avg: Option<f64>,
    count: Option<f64>,
    fails: Option<f64>,
    min: Option<f64>,
    med: Option<f64>,
    max: Option<f64>,
    p95: Option<f64>,
    p99: Option<f64>,
    passes: Option<f64>,
    rate: Option<f64>,
    value: Option<f64>,
}

pub fn render(parts: &[Part<'_>]) -> String {
    HEADER.to_owned() + &parts.iter().map(rows).collect::<String>()
}

fn rows(part: &Part<'_>) -> String {
    let tags: String = part.values.iter().map(|(key, value)| format!(",{key}:{value}")).collect();
    let mut text = String::new();
    for (at, variant) in part.document.report.variants.iter().enumerate() {
        for (name, row) in metrics(part.document, at) {
            let name = format!("{name}{{variant:{}{tags}}}", variant.name);
            text.push_str(&row.line(&name));
        }
    }
    text
}

fn metrics(document: &RunDocument, variant: usize) -> Vec<(&'static str, Row)> {
    let counts = document.counts(variant);
    let seconds = (counts.window_ns as f64 / 1e9).max(f64::MIN_POSITIVE);
    let counter =
        |n: u64| Row { count: Some(n as f64), rate: Some(n as f64 / seconds), ..Row::default() };
    let mut all = Vec::new();
    // With new connections the headline is the whole exchange, which k6 calls an iteration.
    let headline = match document.facts.plan.load.has_new_connections() {
        true => "iteration_duration",
        false => "http_req_duration",
    };
    let series = [
        (headline, Series::Headline),
        ("http_req_connecting", Series::Connect),
        ("http_req_tls_handshaking", Series::Handshake),
        ("http_req_waiting", Series::FirstByte),
    ];
    for (name, series) in series {
        let found = document.latency(variant, series);
        all.extend(found.filter(|d| d.count() > 0).map(|found| (name, Row::trend(&found))));
    }
    let failed = counts.failed + (counts.completed - counts.good.min(counts.completed));
    // In `http_req_failed`, k6 counts failed requests as passes.
    let failures = Row {
        passes: Some(failed as f64),
        fails: Some(counts.good as f64),
        rate: Some(failed as f64 / ((failed + counts.good) as f64).max(1.0)),
        ..Row::default()
    };
    let connections = f64::from(document.facts.plan.load.connections);
    all.extend([
        // k6 counts failed requests too.
        ("http_reqs", counter(counts.completed + counts.failed)),
        ("http_req_failed", failures),
        // Counts only the bodies of these requests; other byte counts include the edges of slices.
        ("data_received", counter(counts.body_bytes)),
        ("vus", Row { value: Some(connections), ..Row::default() }),
    ]);
    all
}

impl Row {
    fn trend(found: &Distribution) -> Self {
        let ms = |ns: Option<u64>| ns.map(|ns| ns as f64 / 1e6);
        Self {
            avg: found.mean_ns().map(|ns| ns / 1e6),
            min: ms(found.counts().first().map(|(ns, _)| *ns)),
            med: ms(found.quantile(0.5)),
            max: ms(Some(found.max_ns())),
            p95: ms(found.quantile(0.95)),
            p99: ms(found.quantile(0.99)),
            ..Self::default()
        }
    }

    fn line(&self, name: &str) -> String {
        let Self { avg, count, fails, min, med, max, p95, p99, passes, rate, value } = self;
        let cells = [avg, count, fails, min, med, max, p95, p99, passes, rate, value];
        let cells = cells.map(|cell| cell.map_or(String::new(), |cell| format!("{cell}")));
        format!("{},{}\n", quote(name), cells.join(","))
    }
}
