//! Overheads with their intervals, a line a variant: zero and the tolerance are drawn.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use tare_stats::Verdict;

use super::page;
use super::plot::{
    Area, BAND, BETTER, Drawn, FAINT, Figure, GRID, INK, LINE, NEUTRAL, SMALL, Size, TEXT, WORSE,
    fitting, fitting_ticks, text, tick_label, wrapped,
};
use crate::run::words::{self, Table, overhead, signed};

/// One line of the picture.
pub struct Row {
    pub name: String,
    pub point: f64,
    pub lower: f64,
    pub upper: f64,
    pub verdict: Verdict,
    /// The verdict in words.
    pub said: &'static str,
}

/// Overheads or changes (the word says which) in one metric, in percent. `tolerance` is in percent
/// too.
pub fn figure(title: &str, word: &str, rows: &[Row], tolerance: Option<f64>) -> String {
    if rows.is_empty() {
        return String::new();
    }
    let alt = alt(title, rows);
    let shaded = tolerance.map_or(String::new(), |tolerance| {
        format!(" Shaded: ± {tolerance} %, which counts as the same.")
    });
    let note = format!(
        "Dot: the estimate. Bar: its interval. Solid line: no {word}; to its right is \
         worse.{shaded}"
    );
    let figure = Figure { title, alt: &alt, note: &note, numbers: numbers(title, word, rows) };
    let height = |size: Size| rows.iter().map(|row| row_height(row, size)).sum::<u32>() + AXIS;
    figure.render(height, |area, canvas| {
        let (width, tall) = area.dim_in_pixel();
        let (low, high) = range(rows, tolerance);
        // Names and numbers stand beside the picture where there is room, else above their bars.
        let (left, right) = match canvas.size.narrow {
            true => (14, width as i32 - 14),
            false => (NAMES as i32, (width - TOLD) as i32),
        };
        let plot = f64::from(right - left);
        let x = |percent: f64| left + ((percent - low) / (high - low) * plot).round() as i32;
        let marks = fitting_ticks(low, high, plot as u32, percent);
        let mut y = 0;
        for row in rows {
            let bottom = y + row_height(row, canvas.size) as i32;
            for (line, at, align) in labels(row, canvas.size, y) {
                text(area, at, &line, align, TEXT, &INK)?;
            }
            let top = bottom - if canvas.size.narrow { BAR as i32 } else { bottom - y };
            if let Some(tolerance) = tolerance {
                let band = [(x(-tolerance), top), (x(tolerance), bottom)];
                area.draw(&Rectangle::new(band, BAND.filled()))?;
            }
            for tick in &marks {
                let line = vec![(x(*tick), top), (x(*tick), bottom)];
                area.draw(&PathElement::new(line, GRID.stroke_width(1)))?;
            }
            let zero = vec![(x(0.0), top), (x(0.0), bottom)];
            area.draw(&PathElement::new(zero, INK.stroke_width(1)))?;
            let middle = (top + bottom) / 2;
            let inside = |percent: f64| x(percent.clamp(low, high));
            let ends = [inside(row.lower), inside(row.upper)];
            let is_cut = [row.lower < low, row.upper > high];
            interval(area, ends, is_cut, middle, &colour(row.verdict))?;
            let at = (inside(row.point), middle);
            area.draw(&Circle::new(at, 4, colour(row.verdict).filled()))?;
            canvas.hit(at, format!("{}: {}", row.name, told(row)));
            y = bottom;
        }
        for tick in &marks {
            tick_label(area, (x(*tick), y + 12), &percent(*tick))?;
        }
        let at = ((left + right) / 2, tall as i32 - 12);
        text(area, at, &format!("{word}; positive is worse"), HPos::Center, SMALL, &FAINT)
    })
}

/// With a cap at each end, or an arrow where it goes on beyond the picture.
fn interval(
    area: &Area<'_>,
    ends: [i32; 2],
    is_cut: [bool; 2],
    middle: i32,
    colour: &RGBColor,
) -> Drawn {
    let line = vec![(ends[0], middle), (ends[1], middle)];
    area.draw(&PathElement::new(line, colour.stroke_width(3)))?;
    for ((end, is_cut), inwards) in ends.into_iter().zip(is_cut).zip([1, -1]) {
        let back = if is_cut { end + inwards * ARROW } else { end };
        let mark = vec![(back, middle - 6), (end, middle), (back, middle + 6)];
        area.draw(&PathElement::new(mark, colour.stroke_width(2)))?;
    }
    Ok(())
}

const ARROW: i32 = 7;
const BAR: u32 = 24;
const AXIS: u32 = 46;
/// Columns of a wide picture.
const NAMES: u32 = 220;
const TOLD: u32 = 212;

fn row_height(row: &Row, size: Size) -> u32 {
    let lines = labels(row, size, 0).iter().map(|(_, (_, y), _)| *y).max().unwrap_or(0) as u32;
    match size.narrow {
        true => lines + LINE / 2 + BAR,
        false => (lines + LINE / 2).max(BAR) + 6,
    }
}

/// What is written of a row, and where, when it begins at `top`.
fn labels(row: &Row, size: Size, top: i32) -> Vec<(String, (i32, i32), HPos)> {
    let line = |at: usize| top + (LINE / 2) as i32 + 3 + (at as u32 * LINE) as i32;
    let told = told(row);
    if !size.narrow {
        let names = wrapped(&row.name, fitting(NAMES - 24, TEXT)).into_iter().enumerate();
        let mut all: Vec<_> =
            names.map(|(at, name)| (name, (NAMES as i32 - 14, line(at)), HPos::Right)).collect();
        let told = wrapped(&told, fitting(TOLD - 16, TEXT)).into_iter().enumerate();
        let left = (size.width - TOLD + 14) as i32;
        all.extend(told.map(|(at, told)| (told, (left, line(at)), HPos::Left)));
        return all;
    }
    let width = fitting(size.width - 28, TEXT);
    let whole = format!("{}:  {told}", row.name);
    let lines = match whole.chars().count() <= width {
        true => vec![whole],
        false => [wrapped(&row.name, width), wrapped(&told, width)].concat(),
    };
    lines.into_iter().enumerate().map(|(at, text)| (text, (14, line(at)), HPos::Left)).collect()
}

fn told(row: &Row) -> String {
    let bounds = crate::run::Bounds { point: row.point, lower: row.lower, upper: row.upper };
    format!("{} %, {}", overhead(&bounds).replace(" % ±", " ±"), row.said)
}

fn colour(verdict: Verdict) -> RGBColor {
    match verdict {
        Verdict::Slower => WORSE,
        Verdict::Faster => BETTER,
        Verdict::Same => INK,
        Verdict::Unresolved | Verdict::Void => NEUTRAL,
    }
}

/// Holds zero, the band, every estimate, and every interval as far as it can be shown beside them:
/// one of two rounds may reach to where no picture goes.
fn range(rows: &[Row], tolerance: Option<f64>) -> (f64, f64) {
    let farthest = rows.iter().map(|row| row.point.abs()).fold(0.0, f64::max);
    let most = (farthest * 3.0).max(100.0);
    let edge = tolerance.unwrap_or(0.5).max(0.05) * 1.3;
    let bounded = |value: f64| value.clamp(-most, most);
    let low = rows.iter().map(|row| bounded(row.lower)).fold(-edge, f64::min);
    let high = rows.iter().map(|row| bounded(row.upper)).fold(edge, f64::max);
    let room = (high - low) * 0.06;
    (low - room, high + room)
}

pub fn percent(value: f64) -> String {
    let rounded = (value * 1000.0).round() / 1000.0;
    let sign = if rounded < 0.0 { "−" } else { "" };
    format!("{sign}{} %", rounded.abs())
}

fn alt(title: &str, rows: &[Row]) -> String {
    let told: Vec<String> = rows.iter().map(|row| format!("{}: {}", row.name, told(row))).collect();
    format!("{title}. {}", told.join("; "))
}

fn numbers(title: &str, word: &str, rows: &[Row]) -> String {
    let row = |row: &Row| {
        let cell = |value: f64| match value.abs() > words::BEYOND {
            true => format!("beyond {} %", signed(words::BEYOND * value.signum())),
            false => format!("{value:+.3} %").replace('-', "−"),
        };
        let cells = [cell(row.point), cell(row.lower), cell(row.upper)];
        let mut all = vec![row.name.clone()];
        all.extend(cells);
        all.push(row.said.into());
        all
    };
    let header = ["", word, "lower", "upper", "verdict"].map(str::to_owned).to_vec();
    page::table(title, &Table { header, rows: rows.iter().map(row).collect() })
}
