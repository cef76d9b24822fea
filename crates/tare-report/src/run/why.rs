//! All guards, ratios and proofs of a run, with figures: `--why`.

use crate::format::BEYOND;
use crate::run::exposure::confirmed;
use crate::run::table::table;
use crate::run::terminal::{columns, prose};
use crate::run::words::{basis, ending, noun, overhead_of, sentences, verdict_word};
use crate::run::{Bounds, Comparison, RunGuard, RunReport, Variant};

pub fn render(report: &RunReport) -> String {
    let mut text = format!("{}\n\n", report.run.name);
    let mut section = |title: &str, items: Vec<String>| {
        if !items.is_empty() {
            text.push_str(&format!("{title}\n"));
            for item in items {
                text.push_str(&format!("{}\n", prose("- ", &item).join("\n")));
            }
            text.push('\n');
        }
    };
    let of = |asked: bool| {
        let is_known = |c: &&Comparison| {
            let Bounds { lower, upper, .. } = c.overhead_percent;
            c.asked || (upper - lower) / 2.0 <= BEYOND
        };
        let own = report.comparisons.iter().filter(move |c| c.asked == asked).filter(is_known);
        own.map(|comparison| compared(report, comparison)).collect::<Vec<String>>()
    };
    section("The answer", sentences(report));
    section("What was asked for", of(true));
    section("What was measured beside", of(false));
    section("Guards", report.guards.iter().map(guard).collect());
    section("Proofs", report.variants.iter().flat_map(proofs).collect());
    section("Evidence", basis(report).into_iter().chain([ending(report)]).collect());
    text + &columns(&table(report)).join("\n") + "\n"
}

fn compared(report: &RunReport, comparison: &Comparison) -> String {
    let Comparison { variant, baseline, metric, overhead_percent, verdict, .. } = comparison;
    let shown = overhead_of(*metric, overhead_percent);
    let mut text = format!("{variant} against {baseline}, {}: {shown}", noun(*metric));
    if comparison.asked {
        text += &format!(", {}", verdict_word(*metric, *verdict));
    }
    match confirmed(comparison, report.run.tolerance) {
        Some(sustained) => format!("{text}; {sustained}"),
        None => text,
    }
}

fn guard(guard: &RunGuard) -> String {
    let whom = guard.variant.as_ref().map_or(String::new(), |name| format!("{name}: "));
    let (severity, family) = (guard.severity.word(), guard.code.family().words());
    format!("{severity} {} ({family}): {whom}{}", guard.code, guard.text)
}

fn proofs(variant: &Variant) -> impl Iterator<Item = String> {
    variant.proofs.iter().map(|proof| format!("{}: {proof}", variant.name))
}
