//! Procedures in words and tables.

use tare_model::steps::StepKind;
use tare_stats::{Estimate, Verdict};

use super::{StepsReport, StepsStep, StepsVariant};
use crate::exports::csv::quote;
use crate::format::{bytes, counted};
use crate::run::markdown::{escape, escaped};
use crate::run::table::Table;
use crate::run::terminal::columns;
use crate::run::words::signed;

pub fn heading(report: &StepsReport) -> String {
    report.name.clone()
}

/// Formats seconds: `3.42 s`, `410 ms`, `24:27 min`.
pub fn seconds(s: f64) -> String {
    match s {
        s if s < 1.0 => format!("{:.0} ms", s * 1e3),
        s if s < 100.0 => format!("{s:.2} s"),
        s => format!("{}:{:02} min", s as u64 / 60, s as u64 % 60),
    }
}

fn cell(value: Option<Estimate>) -> String {
    value.map_or("–".into(), |value| seconds(value.point))
}

/// Returns times and changes, one row per procedure; `None` if steps were only counted.
pub fn times_table(report: &StepsReport) -> Option<Table> {
    let words = [
        "",
        "time",
        "interval",
        "difference",
        "change",
        "verdict",
        "doing",
        "waiting",
        "longest way",
        "CPU time",
    ];
    let row = |variant: &StepsVariant| {
        vec![
            variant.name.clone(),
            cell(variant.total_s),
            variant.total_s.map_or("–".into(), |total| {
                format!("{} to {}", seconds(total.lower), seconds(total.upper))
            }),
            variant.difference_s.map_or(String::new(), |difference| {
                let sign = if difference.point < 0.0 { "−" } else { "+" };
                let of = |s: f64| seconds(s.abs());
                format!("{sign}{} ± {}", of(difference.point), of(difference.half_width()))
            }),
            match (&variant.change_percent, variant.baseline) {
                (_, true) => "baseline".into(),
                (Some(change), _) => range(change),
                (None, _) => "–".into(),
            },
            variant.verdict.map_or(String::new(), |verdict| verdict.word().to_owned()),
            cell(variant.doing_s),
            cell(variant.waiting_s),
            cell(variant.critical_s),
            cell(variant.cpu_s),
        ]
    };
    let header = words.map(str::to_owned).to_vec();
    let rows = report.variants.iter().map(row).collect();
    (!is_counted(report)).then_some(Table { header, rows })
}

/// Returns the counts of steps, commands and values, one row per procedure.
pub fn units_table(report: &StepsReport) -> Table {
    let words = ["", "steps", "commands", "objects", "lines", "values", "images"];
    let row = |variant: &StepsVariant| {
        vec![
            variant.name.clone(),
            variant.units.all_steps().to_string(),
            variant.units.commands.to_string(),
            variant.objects.map_or("–".into(), |n| format!("{:.0}", n.point)),
            variant.units.lines.to_string(),
            variant.units.values.to_string(),
            images(variant),
        ]
    };
    let header = words.map(str::to_owned).to_vec();
    Table { header, rows: report.variants.iter().map(row).collect() }
}

/// Formats images: `4, 2 pulled: 61.2 MB`.
fn images(variant: &StepsVariant) -> String {
    let Some((used, pulled)) = variant.images.zip(variant.pulled) else { return "–".into() };
    let bytes = match variant.pulled_bytes {
        Some(n) if n.point > 0.0 => format!(": {}", bytes(n.point)),
        _ => String::new(),
    };
    format!("{:.0}, {:.0} pulled{bytes}", used.point, pulled.point)
}

fn range(change: &Estimate) -> String {
    format!("{} % ({} to {})", signed(change.point), signed(change.lower), signed(change.upper))
}

/// Returns the number of steps of each kind, one row per procedure.
fn kinds_table(report: &StepsReport) -> Table {
    let mut header = vec![String::new()];
    header.extend(StepKind::ALL.iter().map(|kind| kind.word().to_owned()));
    header.push("of these by hand".into());
    let row = |variant: &StepsVariant| {
        let of = |kind: &StepKind| variant.units.steps.get(kind.word()).copied().unwrap_or(0);
        let mut row = vec![variant.name.clone()];
        row.extend(StepKind::ALL.iter().map(|kind| of(kind).to_string()));
        row.push(variant.units.manual.to_string());
        row
    };
    Table { header, rows: report.variants.iter().map(row).collect() }
}

/// Returns the tables that cover all procedures.
fn tables(report: &StepsReport) -> Vec<Table> {
    let units = [units_table(report), kinds_table(report)];
    times_table(report).into_iter().chain(units).collect()
}

pub fn steps_table(variant: &StepsVariant) -> Table {
    let words = ["", "kind", "median", "shortest", "longest", "retries", "on the longest way"];
    let row = |step: &StepsStep| {
        vec![
            step.name.clone(),
            if step.manual { format!("{}, by hand", step.kind) } else { step.kind.clone() },
            seconds(step.took_s),
            seconds(step.shortest_s),
            seconds(step.longest_s),
            step.retries.to_string(),
            format!("{:.0} %", step.critical * 100.0),
        ]
    };
    let mut header = words.map(str::to_owned).to_vec();
    let mut rows: Vec<Vec<String>> = variant.steps.iter().map(row).collect();
    // If steps were only counted, there are no times.
    let columns = if variant.repetitions == 0 { 2 } else { header.len() };
    header.truncate(columns);
    rows.iter_mut().for_each(|cells| cells.truncate(columns));
    Table { header, rows }
}

/// Whether steps were only counted.
fn is_counted(report: &StepsReport) -> bool {
    report.repetitions.is_empty() && report.failed.is_none()
}

/// Returns the results as sentences.
pub fn sentences(report: &StepsReport) -> Vec<String> {
    if is_counted(report) {
        return vec!["Counted in the files; nothing was carried out.".to_owned()];
    }
    let base = report.variants.iter().find(|variant| variant.baseline);
    let base_name = base.map_or("", |variant| &variant.name);
    let mut told: Vec<String> = Vec::new();
    for variant in report.variants.iter().filter(|variant| !variant.baseline) {
        let name = &variant.name;
        let Some((change, verdict)) = variant.change_percent.zip(variant.verdict) else {
            told.push(format!("{name}: no repetition beside one of {base_name}"));
            continue;
        };
        told.push(match verdict {
            Verdict::Slower => {
                format!("{name} takes longer than {base_name}: {}", range(&change))
            }
            Verdict::Faster => {
                format!("{name} takes less time than {base_name}: {}", range(&change))
            }
            Verdict::Same => format!(
                "{name} takes as long as {base_name} within ± {} %: {}",
                report.tolerance * 100.0,
                range(&change)
            ),
            Verdict::Unresolved | Verdict::Void => {
                format!("{name} against {base_name}: unresolved: {}", range(&change))
            }
        });
    }
    told.extend(report.variants.iter().filter(|variant| variant.recorded_s > 0.0).map(|variant| {
        format!(
            "{}: {} of its time is what persons were once seen to take, and was not measured here",
            variant.name,
            seconds(variant.recorded_s)
        )
    }));
    told.extend(report.skipped.iter().map(|one| format!("{}: skipped: {}", one.name, one.why)));
    told.extend(report.failed.clone());
    told
}

fn footer(report: &StepsReport) -> String {
    let n = report.variants.iter().map(|variant| variant.repetitions).min().unwrap_or(0);
    if is_counted(report) {
        return String::new();
    }
    let ended = if report.interrupted { "; interrupted" } else { "" };
    format!(
        "{} of each, in random order within a round, each from a clean state; intervals are over \
         repetitions, 95 %; seed {}{ended}",
        counted(u64::from(n), "repetition", "repetitions"),
        report.seed
    )
}

pub fn text(report: &StepsReport) -> String {
    let mut lines = vec![heading(report), String::new()];
    for table in tables(report) {
        lines.extend(columns(&table));
        lines.push(String::new());
    }
    lines.extend(sentences(report));
    for variant in &report.variants {
        lines.extend([String::new(), format!("{}, step by step", variant.name)]);
        lines.extend(columns(&steps_table(variant)));
    }
    lines.extend([String::new(), footer(report)]);
    lines.join("\n").trim_end().to_owned() + "\n"
}

pub fn markdown(report: &StepsReport) -> String {
    let mut text = format!("## {}\n\n", escape(&heading(report)));
    let row = |cells: &[String]| format!("| {} |\n", escaped(cells).join(" | "));
    let push = |text: &mut String, table: &Table| {
        text.push_str(&row(&table.header));
        text.push_str(&format!("|---|{}\n", "---:|".repeat(table.header.len() - 1)));
        table.rows.iter().for_each(|cells| text.push_str(&row(cells)));
        text.push('\n');
    };
    tables(report).iter().for_each(|table| push(&mut text, table));
    for line in sentences(report) {
        text.push_str(&format!("- {}\n", escape(&line)));
    }
    for variant in &report.variants {
        text.push_str(&format!("\n### {}\n\n", escape(&variant.name)));
        push(&mut text, &steps_table(variant));
    }
    text + &footer(report) + "\n"
}

/// Writes one row per step of each repetition.
pub fn csv(report: &StepsReport) -> String {
    let mut text = "variant,round,step,kind,started_s,took_s,tries,objects,recorded\n".to_owned();
    for one in &report.repetitions {
        let Some(variant) = report.variants.get(one.variant as usize) else { continue };
        for (step, timed) in variant.steps.iter().zip(&one.steps) {
            let s = |ns: u64| (ns as f64 / 1e9).to_string();
            let cells = [
                quote(&variant.name),
                one.round.to_string(),
                quote(&step.name),
                step.kind.clone(),
                s(timed.started_ns),
                s(timed.took_ns),
                timed.tries.to_string(),
                timed.objects.to_string(),
                timed.recorded.to_string(),
            ];
            text.push_str(&(cells.join(",") + "\n"));
        }
    }
    text
}
