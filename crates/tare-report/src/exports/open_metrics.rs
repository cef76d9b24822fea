//! OpenMetrics text: what was found, as gauges with the run and the variant as labels, for a push
//! gateway or a file that a collector reads.

use std::collections::BTreeMap;
use std::fmt::Write;

use tare_stats::Verdict;

use crate::guards::Severity;
use crate::run::{RunReport, Variant};

pub fn render(report: &RunReport) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = write(report, &mut text);
    text + "# EOF\n"
}

fn write(report: &RunReport, text: &mut String) -> std::fmt::Result {
    let run = &report.run;
    let of_run = format!("run=\"{}\",experiment=\"{}\"", run.id, escape(&run.name));
    family(text, "tare_run", "info", "The run.")?;
    let version = escape(&run.tare_version);
    writeln!(text, "tare_run_info{{{of_run},version=\"{version}\",seed=\"{}\"}} 1", run.seed)?;
    family(text, "tare_run_started_seconds", "gauge", "When it began, in Unix time.")?;
    writeln!(text, "tare_run_started_seconds{{{of_run}}} {}", seconds(run.started_unix_ms))?;
    family(text, "tare_rounds", "gauge", "Rounds that it rests on.")?;
    writeln!(text, "tare_rounds{{{of_run}}} {}", run.rounds)?;
    let labels = |variant: &Variant| format!("{of_run},variant=\"{}\"", escape(&variant.name));

    family(text, "tare_value", "gauge", "A metric's value, and the bounds of its interval.")?;
    for variant in &report.variants {
        for (key, value) in &variant.metrics {
            let of = format!("{},metric=\"{key}\"", labels(variant));
            for (bound, number) in
                [("point", value.point), ("lower", value.lower), ("upper", value.upper)]
            {
                writeln!(text, "tare_value{{{of},bound=\"{bound}\"}} {number}")?;
            }
        }
    }
    family(text, "tare_overhead_percent", "gauge", "Positive where the variant is worse.")?;
    for c in &report.comparisons {
        let of = format!(
            "{of_run},variant=\"{}\",baseline=\"{}\",metric=\"{}\"",
            escape(&c.variant),
            escape(&c.baseline),
            c.metric.key()
        );
        let bounds = c.overhead_percent;
        for (bound, number) in
            [("point", bounds.point), ("lower", bounds.lower), ("upper", bounds.upper)]
        {
            writeln!(text, "tare_overhead_percent{{{of},bound=\"{bound}\"}} {number}")?;
        }
    }
    verdicts(report, &of_run, text)?;
    family(text, "tare_requests", "gauge", "Requests in slices.")?;
    for variant in &report.variants {
        writeln!(text, "tare_requests{{{}}} {}", labels(variant), variant.requests)?;
    }
    family(text, "tare_errors", "gauge", "Requests that failed, by kind.")?;
    for variant in &report.variants {
        for (kind, n) in &variant.errors {
            writeln!(text, "tare_errors{{{},kind=\"{}\"}} {n}", labels(variant), escape(kind))?;
        }
    }
    guards(report, &of_run, text)
}

fn verdicts(report: &RunReport, of_run: &str, text: &mut String) -> std::fmt::Result {
    family(text, "tare_verdict", "stateset", "What may be said; one of the states is 1.")?;
    const ALL: [Verdict; 5] =
        [Verdict::Slower, Verdict::Faster, Verdict::Same, Verdict::Unresolved, Verdict::Void];
    for c in report.comparisons.iter().filter(|c| c.asked) {
        for verdict in ALL {
            writeln!(
                text,
                "tare_verdict{{{of_run},variant=\"{}\",metric=\"{}\",tare_verdict=\"{}\"}} {}",
                escape(&c.variant),
                c.metric.key(),
                verdict.word(),
                u8::from(verdict == c.verdict)
            )?;
        }
    }
    Ok(())
}

fn guards(report: &RunReport, of_run: &str, text: &mut String) -> std::fmt::Result {
    family(text, "tare_guard", "gauge", "Guards that tripped.")?;
    let mut counts: BTreeMap<(&str, &str, &str), u32> = BTreeMap::new();
    for guard in &report.guards {
        let severity = match guard.severity {
            Severity::Note => "note",
            Severity::Warn => "warn",
            Severity::Void => "void",
        };
        let whom = guard.variant.as_deref().unwrap_or_default();
        *counts.entry((whom, &guard.code, severity)).or_default() += 1;
    }
    for ((variant, code, severity), n) in counts {
        let (variant, code) = (escape(variant), escape(code));
        writeln!(
            text,
            "tare_guard{{{of_run},variant=\"{variant}\",code=\"{code}\",severity=\"{severity}\"}} {n}"
        )?;
    }
    Ok(())
}

fn family(text: &mut String, name: &str, kind: &str, help: &str) -> std::fmt::Result {
    writeln!(text, "# TYPE {name} {kind}\n# HELP {name} {help}")
}

fn seconds(unix_ms: u64) -> f64 {
    unix_ms as f64 / 1e3
}

/// A label's value: as the format has it, and without what would end the line.
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
