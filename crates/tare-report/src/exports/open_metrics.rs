//! Writes results as OpenMetrics text: gauges with labels for the run and the variant, for a push
//! gateway or a file that a collector reads.

use std::collections::BTreeMap;

use tare_stats::Verdict;

use super::Part;
use crate::load::guards::Severity;
use crate::run::{Bounds, Comparison, RunReport, Variant};

/// Metric families; each is written in one piece with the samples of all runs.
const FAMILIES: [Family; 9] = [
    Family { name: "tare_run", kind: "info", help: "The run.", of: info },
    Family {
        name: "tare_run_started_seconds",
        kind: "gauge",
        help: "When it began, in Unix time.",
        of: started,
    },
    Family { name: "tare_rounds", kind: "gauge", help: "Rounds that it rests on.", of: rounds },
    Family {
        name: "tare_value",
        kind: "gauge",
        help: "A metric's value, and the bounds of its interval.",
        of: values,
    },
    Family {
        name: "tare_overhead_percent",
        kind: "gauge",
        help: "Positive where the variant is worse.",
        of: overheads,
    },
    Family {
        name: "tare_verdict",
        kind: "stateset",
        help: "What may be said; one of the states is 1.",
        of: verdicts,
    },
    Family { name: "tare_requests", kind: "gauge", help: "Requests in slices.", of: requests },
    Family {
        name: "tare_errors",
        kind: "gauge",
        help: "Requests that failed, by kind.",
        of: errors,
    },
    Family { name: "tare_guard", kind: "gauge", help: "Guards that tripped.", of: guards },
];

struct Family {
    name: &'static str,
    kind: &'static str,
    help: &'static str,
    of: fn(&RunReport) -> Vec<Sample>,
}

/// Labels and a value.
type Sample = (Vec<(&'static str, String)>, String);

pub fn render(parts: &[Part<'_>]) -> String {
    let mut text = String::new();
    for Family { name, kind, help, of } in FAMILIES {
        text.push_str(&format!("# TYPE {name} {kind}\n# HELP {name} {help}\n"));
        // Only the kind `info` has a suffix in the names of its samples.
        let suffix = if kind == "info" { "_info" } else { "" };
        for part in parts {
            for (labels, value) in of(&part.document.report) {
                let labels = labels_of_run(part).into_iter().chain(labels);
                let labels: Vec<String> =
                    labels.map(|(key, text)| format!("{key}=\"{}\"", escape(&text))).collect();
                text.push_str(&format!("{name}{suffix}{{{}}} {value}\n", labels.join(",")));
            }
        }
    }
    text + "# EOF\n"
}

fn labels_of_run<'a>(part: &Part<'a>) -> Vec<(&'a str, String)> {
    let run = &part.document.report.run;
    let mut labels = vec![("run", run.id.to_string()), ("experiment", part.name())];
    labels.extend(part.values.iter().map(|(key, value)| (key.as_str(), value.clone())));
    labels
}

fn info(report: &RunReport) -> Vec<Sample> {
    let run = &report.run;
    let labels = vec![("version", run.tare_version.clone()), ("seed", run.seed.to_string())];
    vec![(labels, "1".into())]
}

fn started(report: &RunReport) -> Vec<Sample> {
    vec![(Vec::new(), (report.run.started_unix_ms as f64 / 1e3).to_string())]
}

fn rounds(report: &RunReport) -> Vec<Sample> {
    vec![(Vec::new(), report.run.rounds.to_string())]
}

fn values(report: &RunReport) -> Vec<Sample> {
    let mut samples = Vec::new();
    for variant in &report.variants {
        for (key, value) in &variant.metrics {
            let of = [("variant", variant.name.clone()), ("metric", key.clone())];
            samples.extend(bounds(&of, [value.point, value.lower, value.upper]));
        }
    }
    samples
}

fn overheads(report: &RunReport) -> Vec<Sample> {
    let of = |c: &Comparison| {
        let labels = [
            ("variant", c.variant.clone()),
            ("baseline", c.baseline.clone()),
            ("metric", c.metric.key().to_owned()),
        ];
        let Bounds { point, lower, upper, .. } = c.overhead_percent;
        bounds(&labels, [point, lower, upper])
    };
    report.comparisons.iter().flat_map(of).collect()
}

fn bounds(labels: &[(&'static str, String)], values: [f64; 3]) -> Vec<Sample> {
    let of = |(bound, value): (&str, f64)| {
        let bound = ("bound", bound.to_owned());
        (labels.iter().cloned().chain([bound]).collect(), value.to_string())
    };
    ["point", "lower", "upper"].into_iter().zip(values).map(of).collect()
}

fn verdicts(report: &RunReport) -> Vec<Sample> {
    const ALL: [Verdict; 5] =
        [Verdict::Slower, Verdict::Faster, Verdict::Same, Verdict::Unresolved, Verdict::Void];
    let of = |c: &Comparison| {
        let (variant, metric, found) = (c.variant.clone(), c.metric.key().to_owned(), c.verdict);
        ALL.map(|verdict| {
            let labels = vec![
                ("variant", variant.clone()),
                ("metric", metric.clone()),
                ("tare_verdict", verdict.word().to_owned()),
            ];
            (labels, u8::from(verdict == found).to_string())
        })
    };
    report.comparisons.iter().filter(|c| c.asked).flat_map(of).collect()
}

fn requests(report: &RunReport) -> Vec<Sample> {
    let of =
        |variant: &Variant| (vec![("variant", variant.name.clone())], variant.requests.to_string());
    report.variants.iter().map(of).collect()
}

fn errors(report: &RunReport) -> Vec<Sample> {
    let mut samples = Vec::new();
    for variant in &report.variants {
        for (kind, n) in &variant.errors {
            let labels = vec![("variant", variant.name.clone()), ("kind", kind.clone())];
            samples.push((labels, n.to_string()));
        }
    }
    samples
}

fn guards(report: &RunReport) -> Vec<Sample> {
    let mut counts: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
    for guard in &report.guards {
        let severity = match guard.severity {
            Severity::Note => "note",
            Severity::Warn => "warn",
            Severity::Void => "void",
        };
        let whom = guard.variant.as_deref().unwrap_or_default();
        *counts.entry((whom, guard.code.word(), severity)).or_default() += 1;
    }
    let of = |((variant, code, severity), n): ((&str, &str, &str), u32)| {
        let labels = [("variant", variant), ("code", code), ("severity", severity)];
        (labels.map(|(key, text)| (key, text.to_owned())).to_vec(), n.to_string())
    };
    counts.into_iter().map(of).collect()
}

/// Escapes a label's value; control characters become spaces.
fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '\\' => escaped.push_str("\\\\"),
            '"' => escaped.push_str("\\\""),
            '\n' => escaped.push_str("\\n"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
