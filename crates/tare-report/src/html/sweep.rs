//! The page of a sweep: the tables, one curve per variant, and a summary of each value.

use std::collections::BTreeMap;

use plotters::prelude::*;
use tare_model::Metric;
use tare_stats::Estimate;

use super::page::{self, Page, details, escape};
use super::plot::{
    Axis, FAINT, FONT, Figure, GRID, SMALL, Size, label_room, log_ticks, series_colour,
    series_variable, ticks,
};
use super::{about, run};
use crate::run::table::{Table, cell};
use crate::run::words::{answers, capital, noun, on_axis, time};
use crate::sweep::cells::{Sweep, SweepCell};
use crate::sweep::text::{brief, guards, headline, left_out, name, ranges, tables, variants};

pub fn render(sweep: &Sweep) -> String {
    let mut page = Page::new(&name(sweep));
    let how = page::warnings(&brief(sweep)) + &page::evidence(&[told(sweep)]);
    page.opening(&page::answers(&ranges(sweep)), &how);
    page.section("By value", &curves(sweep));
    let all = tables(sweep);
    let shown: String = all.iter().map(|(title, table)| page::table(title, table)).collect();
    let guards = guards(sweep).into_iter().map(|(guard, scope)| about::item(guard, &scope));
    let all: Vec<String> = guards.chain(left_out(sweep).iter().map(|line| escape(line))).collect();
    page.guards("May these numbers be compared?", &page::list("guards", &all));
    page.section("The numbers", &shown);
    let cells: String = sweep.cells.iter().map(short).collect();
    page.section("Each value", &cells);
    if let Some(first) = sweep.cells.first() {
        page.section("How it was measured", &about::facts(&first.report));
    }
    page.finish()
}

/// Describes how much was measured, and what is missing.
fn told(sweep: &Sweep) -> String {
    let void = sweep.cells.iter().filter(|cell| run::is_void(&cell.report)).count();
    let elapsed: u64 = sweep.cells.iter().map(|cell| cell.report.run.elapsed_ms).sum();
    let mut told = format!(
        "{} values of {} variants in {}, all on the same launches.",
        sweep.cells.len(),
        variants(sweep).len(),
        time(elapsed as f64 / 1e3)
    );
    if void > 0 {
        told.push_str(&format!(" In {void} of the values a guard forbids a verdict."));
    }
    if !sweep.missing.is_empty() {
        told.push_str(&format!(" {} could not be measured.", sweep.missing.len()));
    }
    told
}

/// Summarises one value: its answers, overheads and table.
fn short(cell: &SweepCell) -> String {
    let report = &cell.report;
    let inner = page::answers(&answers(report))
        + &run::forests(report)
        + &page::table("Measured", &crate::run::table::table(report))
        + &page::paragraph(&format!("In full: tare report {} --html FILE", report.run.id));
    details(&cell.label(), &inner)
}

/// Cells that differ only in the value of one key, which is the x axis of their figure.
struct CurveGroup<'a> {
    /// Values of the other keys, which all of these cells share: "test tcp_rr"; may be empty.
    rest: String,
    key: String,
    cells: Vec<(f64, &'a SweepCell)>,
    metric: Metric,
}

fn curves(sweep: &Sweep) -> String {
    curve_groups(sweep).iter().map(|along| picture(along, &variants(sweep))).collect()
}

/// Groups cells along the numeric key with the most values.
fn curve_groups(sweep: &Sweep) -> Vec<CurveGroup<'_>> {
    let numbers = |key: &String| {
        let values = sweep.cells.iter().filter_map(|cell| number(cell.values.get(key)?));
        let mut values: Vec<u64> = values.map(f64::to_bits).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let keys: Vec<String> =
        sweep.cells.first().map_or_else(Vec::new, |cell| cell.values.keys().cloned().collect());
    let Some(key) = keys.iter().max_by_key(|key| numbers(key)).filter(|key| numbers(key) > 1)
    else {
        return Vec::new();
    };
    let mut found: BTreeMap<String, CurveGroup<'_>> = BTreeMap::new();
    for cell in &sweep.cells {
        let Some(x) = cell.values.get(key).and_then(|text| number(text)) else { continue };
        let Some(metric) = headline(&cell.report) else { continue };
        let rest = cell.values.iter().filter(|(own, _)| *own != key);
        let rest: Vec<String> = rest.map(|(key, value)| format!("{key} {value}")).collect();
        let along = found.entry(rest.join(", ")).or_insert_with(|| CurveGroup {
            rest: rest.join(", "),
            key: key.clone(),
            cells: Vec::new(),
            metric,
        });
        along.cells.push((x, cell));
    }
    let mut all: Vec<CurveGroup<'_>> =
        found.into_values().filter(|along| along.cells.len() > 1).collect();
    all.iter_mut().for_each(|along| along.cells.sort_by(|a, b| a.0.total_cmp(&b.0)));
    all
}

/// Parses `4096`, `64K`, `1.5M`.
fn number(text: &str) -> Option<f64> {
    let (digits, factor) = match text.chars().last()? {
        'k' | 'K' => (&text[..text.len() - 1], 1024.0),
        'm' | 'M' => (&text[..text.len() - 1], 1024.0 * 1024.0),
        _ => (text, 1.0),
    };
    digits.parse::<f64>().ok().map(|n| n * factor).filter(|n| n.is_finite())
}

fn picture(along: &CurveGroup<'_>, names: &[String]) -> String {
    let metric = along.metric;
    let rest = if along.rest.is_empty() { String::new() } else { format!(" ({})", along.rest) };
    let title = format!("{} by {}{rest}", capital(noun(metric)), along.key.replace('_', " "));
    let value = |cell: &SweepCell, name: &str| {
        cell.report.variant(name).and_then(|variant| variant.metric(metric)).copied()
    };
    let lines: Vec<Vec<(f64, Estimate)>> = names
        .iter()
        .map(|name| along.cells.iter().filter_map(|(x, c)| Some((*x, value(c, name)?))).collect())
        .collect();
    let alt = format!("{title}; the numbers are in the table below");
    let numbers = numbers(&title, along, names, &value);
    let note = "A line a variant; the vertical strokes are 95 % intervals.";
    let figure = Figure { title: &title, alt: &alt, note, numbers };
    let items = names.iter().enumerate().map(|(at, name)| {
        let colour = series_variable(at);
        format!("<span class=\"swatch\" style=\"background:{colour}\"></span>{}", escape(name))
    });
    page::list("legend", &items.collect::<Vec<_>>())
        + &figure.render(
            |size: Size| if size.narrow { 300 } else { 380 },
            |area, canvas| draw(area, canvas, along, names, &lines),
        )
}

fn draw(
    area: &super::plot::Area<'_>,
    canvas: &mut super::plot::Canvas,
    along: &CurveGroup<'_>,
    names: &[String],
    lines: &[Vec<(f64, Estimate)>],
) -> super::plot::Drawn {
    let all = || lines.iter().flatten();
    let xs = || along.cells.iter().map(|(x, _)| *x);
    let (left, right) = (xs().fold(f64::INFINITY, f64::min), xs().fold(0.0, f64::max));
    let low = all().map(|(_, e)| e.lower).fold(f64::INFINITY, f64::min);
    let high = all().map(|(_, e)| e.upper).fold(f64::MIN_POSITIVE, f64::max);
    let x_axis = match left > 0.0 && right / left > SPREAD {
        // Room for the outermost points and their labels.
        true => Axis::log(left * 0.8, right * 1.25, xs().collect()),
        false => {
            let room = ((right - left) * 0.05).max(1e-9);
            Axis::linear(left - room, right + room, xs().collect())
        }
    };
    let y_axis = match low > 0.0 && high / low > SPREAD {
        true => Axis::log(low * 0.8, high * 1.25, log_ticks(low * 0.8, high * 1.25)),
        false => Axis::linear(0.0, high * 1.06, ticks(0.0, high * 1.06, 5)),
    };
    let label = |y: f64| on_axis(along.metric, y);
    let room = label_room(&y_axis.ticks, label);
    let mut chart = ChartBuilder::on(area)
        .margin_top(8)
        .margin_right(18)
        .x_label_area_size(46)
        .y_label_area_size(room)
        .build_cartesian_2d(x_axis, y_axis)?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .x_desc(along.key.replace('_', " "))
        .x_label_style((FONT, SMALL).into_font().color(&FAINT))
        .y_label_style((FONT, SMALL).into_font().color(&FAINT))
        .axis_desc_style((FONT, SMALL).into_font().color(&FAINT))
        .x_label_formatter(&|x: &f64| short_number(*x))
        .y_label_formatter(&|y: &f64| label(*y))
        .draw()?;
    for (at, line) in lines.iter().enumerate() {
        let colour = series_colour(at);
        let points = line.iter().map(|(x, e)| (*x, e.point));
        chart.draw_series(LineSeries::new(points, colour.stroke_width(2)))?;
        for (x, e) in line {
            let ends = vec![(*x, e.lower), (*x, e.upper)];
            chart.draw_series([PathElement::new(ends, colour.stroke_width(2))])?;
            let middle = (*x, e.point);
            chart.draw_series([Circle::new(middle, 4, colour.filled())])?;
            let told = format!(
                "{}, {} {}: {}",
                names[at],
                along.key.replace('_', " "),
                short_number(*x),
                cell(along.metric, Some(e))
            );
            canvas.hit(chart.backend_coord(&middle), told);
        }
    }
    Ok(())
}

/// An axis is logarithmic if the ratio of its ends exceeds this.
const SPREAD: f64 = 20.0;

/// Shortens a number: 262144 is 256Ki, 50000 is 50k.
fn short_number(value: f64) -> String {
    let value = value.round();
    for (unit, word) in [(1_048_576.0, "Mi"), (1024.0, "Ki"), (1e6, "M"), (1e3, "k")] {
        if value >= unit && (value / unit).fract() == 0.0 {
            return format!("{}{word}", value / unit);
        }
    }
    format!("{value}")
}

fn numbers(
    title: &str,
    along: &CurveGroup<'_>,
    names: &[String],
    value: &impl Fn(&SweepCell, &str) -> Option<Estimate>,
) -> String {
    let mut header = vec![String::new()];
    header.extend(names.iter().cloned());
    let row = |(x, own): &(f64, &SweepCell)| {
        let mut row = vec![format!("{} {}", along.key, short_number(*x))];
        row.extend(names.iter().map(|name| {
            value(own, name).map_or("–".into(), |estimate| {
                let half = (estimate.upper - estimate.lower) / 2.0 / estimate.point * 100.0;
                format!("{} ± {half:.1} %", cell(along.metric, Some(&estimate)))
            })
        }));
        row
    };
    page::table(title, &Table { header, rows: along.cells.iter().map(row).collect() })
}
