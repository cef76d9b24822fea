//! Draws each round's ratio to the baseline, which shows the effect of each launch.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use tare_model::Metric;
use tare_stats::analyse;

use super::page;
use super::plot::{
    ACCENT, BAND, FAINT, Figure, GRID, INK, SMALL, Size, heading, heading_height, label_room, text,
    ticks,
};
use super::scale::percent;
use crate::run::document::RunDocument;
use crate::run::table::Table;
use crate::run::words::{noun, signed};
use crate::run::{Bounds, Comparison};

/// A variant's rounds.
struct Strip<'a> {
    comparison: &'a Comparison,
    dots: Vec<Dot>,
}

struct Dot {
    round: u32,
    overhead_percent: f64,
    /// Weight in the estimate; 1 if all rounds weigh the same.
    weight: f64,
}

pub fn figure(document: &RunDocument, metric: Metric) -> String {
    let strips = strips(document, metric);
    if strips.is_empty() {
        return String::new();
    }
    let title = format!("Every round, {}", noun(metric));
    let alt = format!("{title}: a dot a round and variant; the numbers are in the table below");
    let launched = document.report.variants.iter().any(|variant| variant.launches > 0);
    let what = match launched {
        true => "one round, in which every server was started afresh",
        false => "one round, on the servers that were up already",
    };
    let note = format!(
        "Dot: {what}; its area is its weight in the estimate. Line: the estimate over all \
         rounds; shaded: its interval.{}",
        if launched { " Two levels of dots are two kinds of launches." } else { "" }
    );
    let figure =
        Figure { title: &title, alt: &alt, note: &note, numbers: numbers(&title, &strips) };
    let height = |size: Size| {
        strips
            .iter()
            .map(|s| heading_height(size, &s.comparison.variant) + STRIP + GAP)
            .sum::<u32>()
            + AXIS
    };
    figure.render(height, |area, canvas| {
        let (width, tall) = area.dim_in_pixel();
        let left = strips.iter().map(left_room).max().unwrap_or(58);
        let last = strips.iter().flat_map(|s| &s.dots).map(|dot| dot.round).max().unwrap_or(0);
        let room = f64::from(width) - f64::from(left) - 12.0;
        let x = |round: f64| left + (round / f64::from(last.max(1)) * room).round() as i32;
        let mut y = 0;
        for strip in &strips {
            y = heading(area, y, &strip.comparison.variant)?;
            draw(area, canvas, strip, y + GAP as i32 / 2, &x, last)?;
            y += (STRIP + GAP) as i32;
        }
        let bottom = (tall - AXIS) as i32;
        for tick in ticks(0.0, f64::from(last), 6).into_iter().filter(|tick| tick.fract() == 0.0) {
            let label = format!("{}", tick as u32 + 1);
            text(area, (x(tick), bottom + 6), &label, HPos::Center, SMALL, &FAINT)?;
        }
        let middle = left + (room / 2.0) as i32;
        text(area, (middle, bottom + 24), "round", HPos::Center, SMALL, &FAINT)
    })
}

const STRIP: u32 = 74;
const GAP: u32 = 20;
const AXIS: u32 = 36;

fn draw(
    area: &super::plot::Area<'_>,
    canvas: &mut super::plot::Canvas,
    strip: &Strip<'_>,
    top: i32,
    x: &impl Fn(f64) -> i32,
    last: u32,
) -> super::plot::Drawn {
    let Bounds { point, lower, upper } = strip.comparison.overhead_percent;
    let (low, high) = range(strip);
    let tall = f64::from(STRIP);
    let y =
        |value: f64| top + ((high - value.clamp(low, high)) / (high - low) * tall).round() as i32;
    let edges = [x(0.0) - 6, x(f64::from(last)) + 6];
    area.draw(&Rectangle::new([(edges[0], y(upper)), (edges[1], y(lower))], BAND.filled()))?;
    for tick in ticks(low, high, 4) {
        let line = vec![(edges[0], y(tick)), (edges[1], y(tick))];
        area.draw(&PathElement::new(line, GRID.stroke_width(1)))?;
        text(area, (edges[0] - 4, y(tick)), &percent(tick), HPos::Right, SMALL, &FAINT)?;
    }
    let zero = vec![(edges[0], y(0.0)), (edges[1], y(0.0))];
    area.draw(&PathElement::new(zero, INK.stroke_width(1)))?;
    let line = vec![(edges[0], y(point)), (edges[1], y(point))];
    area.draw(&PathElement::new(line, ACCENT.stroke_width(1)))?;
    let radius = if strip.dots.len() > 150 { 2.0 } else { 3.0 };
    for Dot { round, overhead_percent, weight } in &strip.dots {
        let at = (x(f64::from(*round)), y(*overhead_percent));
        let radius = (radius * weight.sqrt()).clamp(1.0, 2.0 * radius);
        area.draw(&Circle::new(at, radius.round() as i32, ACCENT.mix(0.75).filled()))?;
        let value = percent((overhead_percent * 100.0).round() / 100.0);
        let told = format!("round {}: {value}, weight {weight:.2}", round + 1);
        canvas.hit(at, told);
    }
    Ok(())
}

/// Returns the room for the labels of a strip's axis.
fn left_room(strip: &Strip<'_>) -> i32 {
    let (low, high) = range(strip);
    label_room(&ticks(low, high, 4), percent) as i32
}

/// Returns the range of an axis that holds zero, the estimate and every round.
fn range(strip: &Strip<'_>) -> (f64, f64) {
    let values = || strip.dots.iter().map(|dot| dot.overhead_percent);
    let point = strip.comparison.overhead_percent.point;
    let low = values().fold(point.min(0.0), f64::min);
    let high = values().fold(point.max(0.0), f64::max);
    let room = ((high - low) * 0.06).max(0.05);
    (low - room, high + room)
}

fn strips(document: &RunDocument, metric: Metric) -> Vec<Strip<'_>> {
    let analysis = analyse(&document.digests, &document.facts.question());
    let of = |comparison| {
        let at = document.report.variants.iter().position(|v| {
            let comparison: &Comparison = comparison;
            v.name == comparison.variant
        })?;
        let shares = analysis.comparisons.iter().find(|c| c.variant == at && c.metric == metric);
        let mut shares = shares.map_or(&[][..], |c| &c.shares).iter();
        let all = shares.len() as f64;
        let dots = document.digests.iter().enumerate().filter_map(|(round, digest)| {
            let ratio = digest.variants[at].log_ratio(metric)?.exp();
            let weight = shares.next().map_or(1.0, |share| share * all);
            let overhead_percent = metric.overhead_percent(ratio);
            Some(Dot { round: round as u32, overhead_percent, weight })
        });
        Some(Strip { comparison, dots: dots.collect() })
    };
    let all = document.report.comparisons.iter().filter(|c| c.metric == metric);
    all.filter_map(of).filter(|strip| !strip.dots.is_empty()).collect()
}

/// Lists the quartiles of the rounds of each variant.
fn numbers(title: &str, strips: &[Strip<'_>]) -> String {
    let header = ["", "rounds", "least", "25 %", "50 %", "75 %", "most"];
    let row = |strip: &Strip<'_>| {
        let mut values: Vec<f64> = strip.dots.iter().map(|dot| dot.overhead_percent).collect();
        values.sort_by(f64::total_cmp);
        let at = |share: f64| {
            let index = ((values.len() - 1) as f64 * share).round() as usize;
            format!("{} %", signed(values[index]))
        };
        let mut row = vec![strip.comparison.variant.clone(), values.len().to_string()];
        row.extend([0.0, 0.25, 0.5, 0.75, 1.0].map(at));
        row
    };
    let rows = strips.iter().map(row).collect();
    page::table(title, &Table { header: header.map(str::to_owned).to_vec(), rows })
}
