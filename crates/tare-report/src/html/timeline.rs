//! Draws the run slice by slice, one strip per variant, with steal and failed requests.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;

use super::page;
use super::plot::{
    ACCENT, FAINT, Figure, GRID, LINE, SMALL, Size, WORSE, heading, heading_height, text,
};
use crate::format::{count, percent};
use crate::run::Variant;
use crate::run::document::RunDocument;
use crate::run::table::Table;
use crate::run::words::noun;
use crate::timeline::{Mark, metric_of};

/// Slices that share a column of pixels.
#[derive(Clone, Copy, Default)]
struct Column {
    low: f32,
    high: f32,
    any: bool,
    failed: u64,
}

/// One variant's slices.
struct Strip<'a> {
    name: String,
    marks: Vec<&'a Mark>,
    median: f32,
}

pub fn figure(document: &RunDocument) -> String {
    let metric = metric_of(&document.report.asked());
    let strips = strips(document);
    if strips.iter().all(|strip| strip.marks.is_empty()) {
        return String::new();
    }
    let machines = document.digests.iter().map(|digest| &digest.machine);
    let steal: Vec<f64> =
        machines.map(|used| used.steal_ns as f64 / used.capacity_ns.max(1) as f64).collect();
    let title = format!("The run, slice by slice: {}", noun(metric));
    let alt = format!("{title}; failures and steal are in the table below");
    let range = range(&strips);
    let note = format!(
        "Each strip is one variant from the run's beginning to its end, from {:.1} to {:.1} times \
         its median slice (the line); what lies beyond is drawn at the edge. Red marks below: \
         slices with failed requests. Above: CPU time that the hypervisor took, by round.",
        range.0, range.1
    );
    let numbers = numbers(&strips, &steal);
    let figure = Figure { title: &title, alt: &alt, note: &note, numbers };
    let height = |size: Size| {
        STEAL
            + LINE
            + strips.iter().map(|s| heading_height(size, &s.name) + STRIP + GAP).sum::<u32>()
    };
    figure.render(height, |area, canvas| {
        let (width, _) = area.dim_in_pixel();
        let most = steal.iter().copied().fold(0.0, f64::max);
        let told = match most {
            0.0 => "no CPU time was stolen".into(),
            most => format!("steal, at most {}", percent(most)),
        };
        text(area, (4, LINE as i32 / 2), &told, HPos::Left, SMALL, &FAINT)?;
        let base = (LINE + STEAL - 4) as i32;
        area.draw(&PathElement::new(vec![(4, base), (width as i32 - 4, base)], GRID))?;
        let each = f64::from(width - 8) / steal.len().max(1) as f64;
        for (round, share) in steal.iter().enumerate().filter(|(_, share)| **share > 0.0) {
            let left = 4 + (round as f64 * each) as i32;
            let right = 4 + ((round + 1) as f64 * each).ceil() as i32;
            let tall = (share / STEAL_FULL).min(1.0) * f64::from(STEAL - 8);
            let bar = [(left, base - tall.ceil() as i32), (right.max(left + 1), base)];
            area.draw(&Rectangle::new(bar, WORSE.filled()))?;
        }
        let mut y = (STEAL + LINE) as i32;
        for strip in &strips {
            y = heading(area, y, &strip.name)?;
            draw(area, canvas, strip, y, range)?;
            y += (STRIP + GAP) as i32;
        }
        Ok(())
    })
}

const STRIP: u32 = 44;
const GAP: u32 = 12;
const STEAL: u32 = 30;
/// Share of CPU time that a bar of steal shows at its full height.
const STEAL_FULL: f64 = 0.1;

fn draw(
    area: &super::plot::Area<'_>,
    canvas: &mut super::plot::Canvas,
    strip: &Strip<'_>,
    top: i32,
    (low, high): (f32, f32),
) -> super::plot::Drawn {
    let width = canvas.size.width - 8;
    let columns = columns(strip, (width / 2) as usize);
    let each = f64::from(width) / columns.len().max(1) as f64;
    let tall = STRIP as f32;
    let y = |ratio: f32| top + ((high - ratio.clamp(low, high)) / (high - low) * tall) as i32;
    let line = vec![(4, y(1.0)), (4 + width as i32, y(1.0))];
    area.draw(&PathElement::new(line, FAINT.stroke_width(1)))?;
    for (at, column) in columns.iter().enumerate() {
        let left = 4 + (at as f64 * each) as i32;
        let right = (4 + ((at + 1) as f64 * each) as i32 - 1).max(left + 1);
        if column.any {
            let (high, low) = (y(column.high), y(column.low).max(y(column.high) + 2));
            let bar = [(left, high), (right, low)];
            area.draw(&Rectangle::new(bar, ACCENT.mix(0.7).filled()))?;
        }
        if column.failed > 0 {
            let mark = [(left - 1, top + tall as i32), (right + 1, top + tall as i32 + 6)];
            area.draw(&Rectangle::new(mark, WORSE.filled()))?;
            let told = format!("{}: {} failed", strip.name, count(column.failed));
            canvas.hit((left, top + tall as i32 + 3), told);
        }
    }
    Ok(())
}

/// Returns the range of nearly all slices, relative to each strip's median. All strips share it, so
/// that they can be compared.
fn range(strips: &[Strip<'_>]) -> (f32, f32) {
    let ratios = strips.iter().filter(|strip| strip.median > 0.0).flat_map(|strip| {
        strip.marks.iter().filter_map(move |mark| Some(mark.value? / strip.median))
    });
    let mut ratios: Vec<f32> = ratios.collect();
    ratios.sort_by(f32::total_cmp);
    let at = |share: f64| ratios.get(((ratios.len().max(1) - 1) as f64 * share) as usize);
    let low = at(0.01).copied().unwrap_or(0.5).min(0.8);
    let high = at(0.99).copied().unwrap_or(1.5).max(1.2);
    ((low * 10.0).floor() / 10.0, ((high * 10.0).ceil() / 10.0).min(10.0))
}

/// Groups slices into columns; neighbours share one if there are more slices than columns.
fn columns(strip: &Strip<'_>, most: usize) -> Vec<Column> {
    let n = strip.marks.len();
    let mut columns = vec![Column::default(); n.min(most.max(1))];
    let wide = columns.len();
    for (at, mark) in strip.marks.iter().enumerate() {
        let column = &mut columns[at * wide / n];
        column.failed += mark.failed;
        let Some(value) = mark.value.filter(|_| strip.median > 0.0) else { continue };
        let ratio = value / strip.median;
        column.low = if column.any { column.low.min(ratio) } else { ratio };
        column.high = if column.any { column.high.max(ratio) } else { ratio };
        column.any = true;
    }
    columns
}

fn strips(document: &RunDocument) -> Vec<Strip<'_>> {
    let of = |(at, variant): (usize, &'_ Variant)| {
        let marks = document.timeline.marks.iter().filter(|mark| mark.variant as usize == at);
        let marks: Vec<&Mark> = marks.collect();
        let mut values: Vec<f32> = marks.iter().filter_map(|mark| mark.value).collect();
        values.sort_by(f32::total_cmp);
        let median = values.get(values.len() / 2).copied().unwrap_or(0.0);
        Strip { name: variant.name.clone(), marks, median }
    };
    document.report.variants.iter().enumerate().map(of).collect()
}

fn numbers(strips: &[Strip<'_>], steal: &[f64]) -> String {
    let header = ["", "slices", "with failures", "failed requests"].map(str::to_owned).to_vec();
    let row = |strip: &Strip<'_>| {
        let with = strip.marks.iter().filter(|mark| mark.failed > 0).count();
        let failed: u64 = strip.marks.iter().map(|mark| mark.failed).sum();
        let cells = [strip.marks.len() as u64, with as u64, failed].map(count);
        std::iter::once(strip.name.clone()).chain(cells).collect()
    };
    let table = Table { header, rows: strips.iter().map(row).collect() };
    let stolen = steal.iter().filter(|share| **share > 0.0).count();
    let most = steal.iter().copied().fold(0.0, f64::max);
    let told = format!(
        "CPU time was stolen in {stolen} of {} rounds, at most {} of a round's.",
        steal.len(),
        percent(most)
    );
    page::table("Slices", &table) + &page::paragraph(&told)
}
