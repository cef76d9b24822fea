//! The page of procedures: a chart of steps over time for each.

use super::page::{Page, escape, paragraph, sentences as told, table};
use crate::run::table::Table;
use crate::steps::{
    StepsReport, StepsStep, StepsVariant, heading, seconds, sentences, steps_table, times_table,
    units_table,
};

pub fn render(report: &StepsReport) -> String {
    let mut page = Page::new(&heading(report));
    page.opening(&told(&sentences(report)), "");
    if let Some(times) = times_table(report) {
        let caption = "Means over repetitions, with 95 % intervals";
        page.section("What each takes", &table(caption, &unbroken(times)));
    }
    page.section("What each asks", &table("", &unbroken(units_table(report))));
    if !report.repetitions.is_empty() {
        let longest = report.variants.iter().map(end_s).fold(0.0, f64::max);
        let charts: String = report.variants.iter().map(|one| chart(one, longest)).collect();
        page.section("Step by step", &charts);
    }
    for variant in &report.variants {
        page.section(
            &format!("The steps of {}", variant.name),
            &table("", &unbroken(steps_table(variant))),
        );
    }
    page.finish()
}

/// Keeps a number and its unit on one line.
fn unbroken(mut table: Table) -> Table {
    for cell in table.rows.iter_mut().flatten() {
        if cell.starts_with(|c: char| c.is_ascii_digit()) && cell.matches(' ').count() == 1 {
            *cell = cell.replace(' ', "\u{a0}");
        }
    }
    table
}

/// Returns the end of the steps that were measured here, in seconds.
fn end_s(variant: &StepsVariant) -> f64 {
    let measured = variant.steps.iter().filter(|step| !is_recorded(variant, step));
    measured.map(|step| step.started_s + step.took_s).fold(0.0, f64::max)
}

fn is_recorded(variant: &StepsVariant, step: &StepsStep) -> bool {
    step.manual && variant.recorded_s > 0.0
}

/// Draws a procedure's steps; all procedures share one time scale.
fn chart(variant: &StepsVariant, longest: f64) -> String {
    let share = |s: f64| 100.0 * s / longest.max(1e-9);
    let bar = |step: &StepsStep| {
        let recorded = is_recorded(variant, step);
        let class = match (recorded, step.waiting) {
            (true, _) => "recorded",
            (_, true) => "waiting",
            _ => "doing",
        };
        let took = if recorded { 0.0 } else { step.took_s };
        let time = seconds(step.took_s);
        let critical = if step.critical > 0.5 { ", on the longest way" } else { "" };
        format!(
            "<li><span class=\"step\">{name}</span><span class=\"lane\"><span class=\"bar {class}\" \
             style=\"left:{left:.3}%;width:{width:.3}%\" title=\"{name}: {time} ({kind}{critical})\">\
             </span></span><span class=\"took\">{time}</span></li>\n",
            name = escape(&step.name),
            kind = escape(&step.kind),
            left = share(step.started_s),
            width = share(took),
        )
    };
    let bars: String = variant.steps.iter().map(bar).collect();
    let total =
        variant.total_s.map_or(String::new(), |total| format!(": {}", seconds(total.point)));
    format!(
        "<figure class=\"gantt\"><figcaption>{}{total}<span class=\"note\">medians, from 0 to {}; \
         filled is doing, striped is waiting</span></figcaption>\n<ol>\n{bars}</ol></figure>\n{}",
        escape(&variant.name),
        seconds(longest),
        match variant.recorded_s > 0.0 {
            true => paragraph(&format!(
                "Steps of persons have no bar: {} of their time was recorded elsewhere.",
                seconds(variant.recorded_s)
            )),
            false => String::new(),
        },
    )
}
