//! Draws latency by percentile: 90 %, 99 %, 99.9 % … are equally far apart on the axis.

use plotters::prelude::*;
use tare_model::Distribution;
use tare_model::samples::Series;

use super::page::{self, escape};
use super::plot::{
    Axis, FAINT, FONT, Figure, GRID, SERIES, SMALL, Size, label_room, log_ticks, series_colour,
    series_variable,
};
use crate::format::duration;
use crate::run::document::RunDocument;
use crate::run::table::Table;

/// A variant's curve over the whole run, and the band in which most rounds lie.
struct Curve {
    name: String,
    /// Points of the curve: tail coordinate, and latency in nanoseconds.
    line: Vec<(f64, f64)>,
    /// Points of the band: tail coordinate, then 10th and 90th percentile over rounds, in ns.
    band: Vec<(f64, f64, f64)>,
}

/// Points per decade of the tail.
const PER_DECADE: usize = 12;
const DECADES: usize = 6;
/// Share of rounds cut off at each end of the band.
const BAND_SHARE: f64 = 0.1;

pub fn figure(document: &RunDocument) -> String {
    let series = Series::Headline;
    let names = document.report.variants.iter().map(|variant| variant.name.clone());
    let curves: Vec<Curve> =
        names.enumerate().filter_map(|(at, name)| curve(document, at, name, series)).collect();
    if curves.is_empty() {
        return String::new();
    }
    let what = match (
        document.facts.plan.load.is_open(),
        document.facts.plan.load.has_new_connections(),
    ) {
        (true, _) => "from the moment a request was due",
        (false, true) => "from the start of connecting",
        (false, false) => "from the moment a request was sent",
    };
    let note = format!(
        "Timed {what} to the last byte of its reply. Line: all rounds together. Shaded: where the \
         middle 80 % of rounds lie. A curve ends where the sample does."
    );
    let alt = format!(
        "Latency by percentile of {}; the numbers are in the table below",
        curves.iter().map(|curve| curve.name.as_str()).collect::<Vec<_>>().join(", ")
    );
    let figure = Figure {
        title: "Latency by percentile",
        alt: &alt,
        note: &note,
        numbers: numbers(&curves),
    };
    let drawn = figure.render(
        |size: Size| if size.narrow { 300 } else { 420 },
        |area, canvas| draw(area, canvas, &curves),
    );
    legend(&curves) + &drawn
}

fn draw(
    area: &super::plot::Area<'_>,
    canvas: &mut super::plot::Canvas,
    curves: &[Curve],
) -> super::plot::Drawn {
    let points = || curves.iter().flat_map(|curve| &curve.line);
    let right = points().map(|(x, _)| *x).fold(1.0, f64::max);
    let in_bands = || curves.iter().flat_map(|curve| &curve.band);
    let low = points().map(|(_, ns)| *ns).chain(in_bands().map(|(_, low, _)| *low));
    let low = low.fold(f64::INFINITY, f64::min).max(1.0) * 0.92;
    let high = points().map(|(_, ns)| *ns).chain(in_bands().map(|(_, _, high)| *high));
    let high = high.fold(low * 1.2, f64::max) * 1.08;
    let decades: Vec<f64> = (0..=right.floor() as u32).map(f64::from).collect();
    let label = |ns: f64| duration(ns.round() as u64);
    let marks = log_ticks(low, high);
    let mut chart = ChartBuilder::on(area)
        .margin_top(8)
        .margin_right(18)
        .x_label_area_size(46)
        .y_label_area_size(label_room(&marks, label))
        .build_cartesian_2d(Axis::linear(0.0, right, decades), Axis::log(low, high, marks))?;
    chart
        .configure_mesh()
        .light_line_style(TRANSPARENT)
        .bold_line_style(GRID)
        .axis_style(FAINT)
        .x_desc("percentile (%)")
        .x_label_style((FONT, SMALL).into_font().color(&FAINT))
        .y_label_style((FONT, SMALL).into_font().color(&FAINT))
        .axis_desc_style((FONT, SMALL).into_font().color(&FAINT))
        .x_label_formatter(&|x: &f64| percentile(*x).replace(" %", ""))
        .y_label_formatter(&|ns: &f64| label(*ns))
        .draw()?;
    for (at, curve) in curves.iter().enumerate() {
        let colour = series_colour(at);
        let up = curve.band.iter().map(|(x, _, high)| (*x, *high));
        let down = curve.band.iter().rev().map(|(x, low, _)| (*x, *low));
        let outline: Vec<(f64, f64)> = up.chain(down).collect();
        if outline.len() > 3 {
            // Overlapping bands must not hide the lines.
            let opacity = (0.6 / curves.len() as f64).min(0.15);
            chart.draw_series([Polygon::new(outline, colour.mix(opacity))])?;
        }
    }
    for (at, curve) in curves.iter().enumerate() {
        let style = series_colour(at).stroke_width(2);
        chart.draw_series(LineSeries::new(curve.line.iter().copied(), style))?;
        for (x, ns) in &curve.line {
            let told = format!("{}: {} ≤ {}", curve.name, percentile(*x), duration(*ns as u64));
            canvas.hit(chart.backend_coord(&(*x, *ns)), told);
        }
    }
    Ok(())
}

fn curve(document: &RunDocument, at: usize, name: String, series: Series) -> Option<Curve> {
    let grid: Vec<f64> = (0..=DECADES * PER_DECADE).map(|n| n as f64 / PER_DECADE as f64).collect();
    let all = document.latency(at, series)?;
    let line = quantiles(&all, &grid);
    if line.len() < 2 {
        return None;
    }
    let rounds: Vec<Vec<(f64, f64)>> = document
        .digests
        .iter()
        .filter_map(|digest| digest.variants[at].latency(series))
        .map(|of_round| quantiles(of_round, &grid))
        .collect();
    let band = grid.iter().enumerate().map_while(|(step, x)| {
        let mut values: Vec<f64> =
            rounds.iter().filter_map(|round| round.get(step).map(|(_, ns)| *ns)).collect();
        // Short rounds do not hold the far tail, so the band shows only what all rounds hold.
        if values.len() < rounds.len() || values.len() < 2 {
            return None;
        }
        values.sort_by(f64::total_cmp);
        let cut = (values.len() as f64 * BAND_SHARE) as usize;
        Some((*x, values[cut], values[values.len() - 1 - cut]))
    });
    Some(Curve { name, line, band: band.collect() })
}

/// Returns the latency at each tail coordinate that the sample holds, in one pass. Tail coordinate
/// 0 is the minimum, 1 is 90 %, 2 is 99 % …
fn quantiles(all: &Distribution, grid: &[f64]) -> Vec<(f64, f64)> {
    let mut counts = all.counts().iter();
    let (mut value, mut seen) = (0, 0);
    let total = all.count() as f64;
    let mut found = Vec::new();
    for x in grid {
        let beyond = 10f64.powf(-x);
        // Like `Distribution::holds`, except that the low end is always drawn.
        if total * beyond < 10.0 {
            break;
        }
        let rank = ((total * (1.0 - beyond)).ceil() as u64).max(1);
        while seen < rank {
            let Some((next, n)) = counts.next() else { return found };
            value = *next;
            seen += n;
        }
        found.push((*x, value as f64));
    }
    found
}

/// Formats a tail coordinate: "99.9 %".
fn percentile(x: f64) -> String {
    let percent = 100.0 * (1.0 - 10f64.powf(-x));
    let decimals = x.ceil().max(2.0) as usize - 2;
    format!("{percent:.decimals$} %")
}

fn legend(curves: &[Curve]) -> String {
    let item = |(at, curve): (usize, &Curve)| {
        let colour = series_variable(at);
        let name = escape(&curve.name);
        format!("<span class=\"swatch\" style=\"background:{colour}\"></span>{name}")
    };
    let items: Vec<String> = curves.iter().enumerate().map(item).collect();
    let again = match curves.len() > SERIES {
        true => page::paragraph("Colours are used more than once; pointing at a line names it."),
        false => String::new(),
    };
    page::list("legend", &items) + &again
}

fn numbers(curves: &[Curve]) -> String {
    let asked =
        [(0.5f64, "50 %"), (0.9, "90 %"), (0.99, "99 %"), (0.999, "99.9 %"), (0.9999, "99.99 %")];
    let mut header = vec![String::new()];
    header.extend(asked.map(|(_, title)| title.to_owned()));
    let row = |curve: &Curve| {
        let mut row = vec![curve.name.clone()];
        row.extend(asked.map(|(quantile, _)| {
            let x = -(1.0 - quantile).log10();
            let found =
                curve.line.iter().min_by(|a, b| (a.0 - x).abs().total_cmp(&(b.0 - x).abs()));
            let near = found.filter(|(at, _)| (at - x).abs() < 0.6 / PER_DECADE as f64);
            near.map_or("–".into(), |(_, ns)| duration(*ns as u64))
        }));
        row
    };
    page::table("Latency", &Table { rows: curves.iter().map(row).collect(), header })
}
