//! Draws overheads with their intervals, one line per variant, with zero and the tolerance.

use plotters::prelude::*;
use plotters::style::text_anchor::HPos;
use tare_model::Metric;
use tare_stats::Verdict;

use super::page;
use super::plot::{
    Area, BAND, BETTER, Drawn, FAINT, Figure, GRID, INK, LINE, NEUTRAL, SMALL, Size, TEXT, WORSE,
    fitting, text, tick_label, wrapped,
};
use super::scale::{Scale, format_times};
use crate::run::Bounds;
use crate::run::table::Table;
use crate::run::words::{self, SIGNS, is_far, overhead_of, sign, signed, verdict_word, worse};

/// One line of the figure.
pub struct Row {
    pub name: String,
    pub bounds: Bounds,
    pub verdict: Verdict,
}

/// Overheads or changes in one metric, one row each.
pub struct Forest {
    /// "overhead" or "change".
    pub word: &'static str,
    pub metric: Metric,
    pub rows: Vec<Row>,
    /// Differences up to this, in percent, count as the same.
    pub tolerance: Option<f64>,
}

pub fn figure(forest: &Forest) -> String {
    let Forest { word, metric, rows, tolerance } = forest;
    if rows.is_empty() {
        return String::new();
    }
    let title = &format!("{} in {}", words::capital(word), words::noun(*metric));
    let alt = alt(title, forest);
    let all: Vec<Bounds> = rows.iter().map(|row| row.bounds).collect();
    let shaded = tolerance.map_or(String::new(), |tolerance| {
        format!(" Shaded: ± {tolerance} %, which counts as the same.")
    });
    let is_broken = Scale::is_broken(*metric, &all);
    let broken =
        if is_broken { " The axis is broken at ∕∕: beyond, it is in times." } else { "" };
    let note = format!(
        "Dot: the estimate. Bar: its interval. Solid line: no {word}; to its right is \
         worse.{shaded}{broken} {SIGNS}."
    );
    let figure = Figure { title, alt: &alt, note: &note, numbers: numbers(title, forest) };
    let told: Vec<String> = rows.iter().map(|row| told(*metric, row)).collect();
    let lines = || rows.iter().zip(&told);
    let height =
        |size: Size| lines().map(|(row, told)| row_height(row, told, size)).sum::<u32>() + AXIS;
    figure.render(height, |area, canvas| {
        let (width, tall) = area.dim_in_pixel();
        // Names and numbers are beside the plot if there is room, else above their bars.
        let (left, right) = match canvas.size.narrow {
            true => (14, width as i32 - 14),
            false => (NAMES as i32, (width - TOLD) as i32),
        };
        let scale = Scale::new(*metric, &all, *tolerance, (left, right));
        let x = |percent: f64| scale.x(percent);
        let ticks = scale.ticks();
        let mut y = 0;
        for (row, told) in lines() {
            let bottom = y + row_height(row, told, canvas.size) as i32;
            for (line, at, align) in labels(row, told, canvas.size, y) {
                text(area, at, &line, align, TEXT, &INK)?;
            }
            let top = bottom - if canvas.size.narrow { BAR as i32 } else { bottom - y };
            if let Some(tolerance) = tolerance {
                let band = [(x(-tolerance), top), (x(*tolerance), bottom)];
                area.draw(&Rectangle::new(band, BAND.filled()))?;
            }
            for tick in &ticks {
                let line = vec![(tick.x, top), (tick.x, bottom)];
                area.draw(&PathElement::new(line, GRID.stroke_width(1)))?;
            }
            let zero = vec![(x(0.0), top), (x(0.0), bottom)];
            area.draw(&PathElement::new(zero, INK.stroke_width(1)))?;
            let middle = (top + bottom) / 2;
            let Bounds { point, lower, upper } = row.bounds;
            let is_cut = [scale.is_cut(lower)[0], scale.is_cut(upper)[1]];
            interval(area, [x(lower), x(upper)], is_cut, middle, &colour(row.verdict))?;
            let at = (x(point), middle);
            area.draw(&Circle::new(at, 4, colour(row.verdict).filled()))?;
            canvas.hit(at, in_words(*metric, row));
            y = bottom;
        }
        for at in scale.breaks() {
            for x in [at - 3, at + 1] {
                let line = vec![(x, y + 7), (x + 4, y - 7)];
                area.draw(&PathElement::new(line, FAINT.stroke_width(1)))?;
            }
        }
        for tick in &ticks {
            tick_label(area, (tick.x, y + 12), &tick.label)?;
        }
        let at = ((left + right) / 2, tall as i32 - 12);
        let times = if scale.has_times() { " (×: so many times worse)" } else { "" };
        let caption = format!("{word}; to the right is worse{times}");
        text(area, at, &caption, HPos::Center, SMALL, &FAINT)
    })
}

/// Draws an interval with a cap at each end, or an arrow where it goes beyond the plot.
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
/// Width of the column of names in a wide figure.
const NAMES: u32 = 220;
/// Width of the column of overheads in a wide figure.
const TOLD: u32 = 212;

fn row_height(row: &Row, told: &str, size: Size) -> u32 {
    let lines =
        labels(row, told, size, 0).iter().map(|(_, (_, y), _)| *y).max().unwrap_or(0) as u32;
    match size.narrow {
        true => lines + LINE / 2 + BAR,
        false => (lines + LINE / 2).max(BAR) + 6,
    }
}

/// Returns the lines of text of a row that begins at `top`, with their positions.
fn labels(row: &Row, told: &str, size: Size, top: i32) -> Vec<(String, (i32, i32), HPos)> {
    let line = |at: usize| top + (LINE / 2) as i32 + 3 + (at as u32 * LINE) as i32;
    if !size.narrow {
        let names = wrapped(&row.name, fitting(NAMES - 24, TEXT)).into_iter().enumerate();
        let mut all: Vec<_> =
            names.map(|(at, name)| (name, (NAMES as i32 - 14, line(at)), HPos::Right)).collect();
        let told = wrapped(told, fitting(TOLD - 16, TEXT)).into_iter().enumerate();
        let left = (size.width - TOLD + 14) as i32;
        all.extend(told.map(|(at, told)| (told, (left, line(at)), HPos::Left)));
        return all;
    }
    let width = fitting(size.width - 28, TEXT);
    let whole = format!("{}:  {told}", row.name);
    let lines = match whole.chars().count() <= width {
        true => vec![whole],
        false => [wrapped(&row.name, width), wrapped(told, width)].concat(),
    };
    lines.into_iter().enumerate().map(|(at, text)| (text, (14, line(at)), HPos::Left)).collect()
}

fn told(metric: Metric, row: &Row) -> String {
    format!("{} {}", sign(row.verdict), overhead_of(metric, &row.bounds))
}

fn colour(verdict: Verdict) -> RGBColor {
    match verdict {
        Verdict::Slower => WORSE,
        Verdict::Faster => BETTER,
        Verdict::Same => INK,
        Verdict::Unresolved | Verdict::Void => NEUTRAL,
    }
}

/// Describes a row for screen readers and tooltips.
fn in_words(metric: Metric, row: &Row) -> String {
    let verdict = verdict_word(metric, row.verdict);
    format!("{}: {}, {verdict}", row.name, overhead_of(metric, &row.bounds))
}

fn alt(title: &str, forest: &Forest) -> String {
    let told: Vec<String> = forest.rows.iter().map(|row| in_words(forest.metric, row)).collect();
    format!("{title}. {}", told.join("; "))
}

fn numbers(title: &str, forest: &Forest) -> String {
    let row = |row: &Row| {
        let Bounds { point, lower, upper } = row.bounds;
        let is_far = is_far(worse(forest.metric, point));
        let cell = |value: f64| match value.abs() > words::BEYOND {
            _ if is_far => format_times(worse(forest.metric, value)),
            true => format!("beyond {} %", signed(words::BEYOND * value.signum())),
            false => format!("{value:+.3} %").replace('-', "−"),
        };
        let mut all = vec![row.name.clone()];
        all.extend([point, lower, upper].map(cell));
        all.push(verdict_word(forest.metric, row.verdict).into());
        all
    };
    let header = ["", forest.word, "lower", "upper", "verdict"].map(str::to_owned).to_vec();
    page::table(title, &Table { header, rows: forest.rows.iter().map(row).collect() })
}
