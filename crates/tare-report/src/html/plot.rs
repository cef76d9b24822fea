//! Draws figures as SVG with the `plotters` crate, once for wide pages and once for narrow ones.
//! Figures use the page's own colours, so they follow its theme, and their points have tooltips.

use std::error::Error;

use plotters::coord::Shift;
use plotters::coord::ranged1d::{DefaultFormatting, KeyPointHint, Ranged};
use plotters::prelude::*;
use plotters::style::text_anchor::{HPos, Pos, VPos};
use serde_json::json;

use super::page::{details, escape};

pub type Area<'a> = DrawingArea<SVGBackend<'a>, Shift>;
pub type Drawn = Result<(), Box<dyn Error>>;

/// Width of a figure; pages scale it a little to fit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Size {
    pub width: u32,
    pub narrow: bool,
}

const WIDE: Size = Size { width: 860, narrow: false };
const NARROW: Size = Size { width: 350, narrow: true };

pub const FONT: &str = "sans-serif";
/// Plotters draws text at 1 / 1.24 of the size asked for.
pub const TEXT: f64 = 13.0 * 1.24;
pub const SMALL: f64 = 11.5 * 1.24;

/// Placeholder colours; `in_page_colours` replaces them with the page's own.
pub const INK: RGBColor = RGBColor(0, 0, 1);
pub const FAINT: RGBColor = RGBColor(0, 0, 2);
pub const GRID: RGBColor = RGBColor(0, 0, 3);
pub const BAND: RGBColor = RGBColor(0, 0, 4);
pub const WORSE: RGBColor = RGBColor(0, 0, 5);
pub const BETTER: RGBColor = RGBColor(0, 0, 6);
pub const NEUTRAL: RGBColor = RGBColor(0, 0, 7);
pub const ACCENT: RGBColor = RGBColor(0, 0, 8);
const FIRST_SERIES: u8 = 16;
/// Number of distinct colours; further series use them again.
pub const SERIES: usize = 10;

pub fn series_colour(at: usize) -> RGBColor {
    RGBColor(0, 0, FIRST_SERIES + (at % SERIES) as u8)
}

/// Returns the colour of a series as a variable of the page's style.
pub fn series_variable(at: usize) -> String {
    format!("var(--c{})", FIRST_SERIES as usize + at % SERIES)
}

/// A point with a tooltip, in the figure's own pixels.
pub struct Hit {
    pub at: (i32, i32),
    pub text: String,
}

/// One figure while it is drawn.
pub struct Canvas {
    pub size: Size,
    pub hits: Vec<Hit>,
}

impl Canvas {
    pub fn hit(&mut self, at: (i32, i32), text: impl Into<String>) {
        self.hits.push(Hit { at, text: text.into() });
    }
}

/// A figure's title, its contents in words, and the numbers behind it as markup.
pub struct Figure<'a> {
    pub title: &'a str,
    pub alt: &'a str,
    /// How to read the figure.
    pub note: &'a str,
    pub numbers: String,
}

impl Figure<'_> {
    /// Renders both sizes: `height` returns the height for a size, and `draw` draws the figure.
    pub fn render(
        &self,
        height: impl Fn(Size) -> u32,
        draw: impl Fn(&Area<'_>, &mut Canvas) -> Drawn,
    ) -> String {
        let one = |size: Size| {
            let mut canvas = Canvas { size, hits: Vec::new() };
            let mut svg = String::new();
            let area =
                SVGBackend::with_string(&mut svg, (size.width, height(size))).into_drawing_area();
            let drawn = draw(&area, &mut canvas).and_then(|()| Ok(area.present()?));
            drop(area);
            match drawn {
                Ok(()) => self.markup(&svg, &canvas),
                Err(error) => format!("<p>(this picture could not be drawn: {error})</p>"),
            }
        };
        let (wide, narrow) = (one(WIDE), one(NARROW));
        let numbers = match self.numbers.is_empty() {
            true => String::new(),
            false => details("The numbers in this picture", &self.numbers),
        };
        let note = match self.note.is_empty() {
            true => String::new(),
            false => format!("<span class=\"note\">{}</span>", escape(self.note)),
        };
        format!(
            "<figure><figcaption>{}{note}</figcaption>\n{wide}{narrow}{numbers}</figure>\n",
            escape(self.title)
        )
    }

    fn markup(&self, svg: &str, canvas: &Canvas) -> String {
        let class = if canvas.size.narrow { "narrow" } else { "wide" };
        let label = format!("<svg role=\"img\" aria-label=\"{}\" ", escape(self.alt));
        let svg = in_page_colours(svg).replacen("<svg ", &label, 1);
        let hits: Vec<_> =
            canvas.hits.iter().map(|hit| json!([hit.at.0, hit.at.1, hit.text])).collect();
        // A name must not end the script that holds it.
        let hits = json!(hits).to_string().replace('<', "\\u003c");
        format!(
            "<div class=\"plot {class}\" tabindex=\"0\">{svg}\
             <script type=\"application/json\">{hits}</script></div>\n"
        )
    }
}

/// Replaces placeholders: `#00000A` becomes `var(--c10)`.
fn in_page_colours(svg: &str) -> String {
    let mut text = String::with_capacity(svg.len());
    let mut rest = svg;
    const MARK: &str = "\"#0000";
    while let Some(at) = rest.find(MARK) {
        let (before, after) = rest.split_at(at);
        text.push_str(before);
        let digits = after.get(MARK.len()..MARK.len() + 2).unwrap_or_default();
        match u8::from_str_radix(digits, 16) {
            Ok(number) if after[MARK.len() + 2..].starts_with('"') => {
                text.push_str(&format!("\"var(--c{number})\""));
                rest = &after[MARK.len() + 3..];
            }
            _ => {
                text.push_str(MARK);
                rest = &after[MARK.len()..];
            }
        }
    }
    text + rest
}

/// Draws a line of text at a pixel.
pub fn text(
    area: &Area<'_>,
    at: (i32, i32),
    text: &str,
    align: HPos,
    size: f64,
    colour: &RGBColor,
) -> Drawn {
    let style = (FONT, size).into_font().color(colour).pos(Pos::new(align, VPos::Center));
    Ok(area.draw(&Text::new(text.to_owned(), at, style))?)
}

/// Height of a line of text.
pub const LINE: u32 = 18;

/// Draws text at the left edge, in as many lines as it needs; returns the position below it.
pub fn heading(area: &Area<'_>, y: i32, told: &str) -> Result<i32, Box<dyn Error>> {
    let mut y = y;
    for line in heading_lines(area.dim_in_pixel().0, told) {
        text(area, (HEADING_LEFT, y + LINE as i32 / 2), &line, HPos::Left, TEXT, &INK)?;
        y += LINE as i32;
    }
    Ok(y)
}

pub fn heading_height(size: Size, told: &str) -> u32 {
    heading_lines(size.width, told).len() as u32 * LINE
}

const HEADING_LEFT: i32 = 6;

fn heading_lines(width: u32, told: &str) -> Vec<String> {
    wrapped(told, fitting(width - 2 * HEADING_LEFT as u32, TEXT))
}

/// Breaks text into lines of at most `width` characters, between words where possible.
pub fn wrapped(text: &str, width: usize) -> Vec<String> {
    let mut lines = vec![String::new()];
    for word in text.split_whitespace() {
        let mut word: Vec<char> = word.chars().collect();
        // There is always a last line: one is pushed above, and none is taken away.
        while let Some(line) = lines.last_mut() {
            let used = line.chars().count();
            let room = width.saturating_sub(if used == 0 { 0 } else { used + 1 });
            if word.len() <= room {
                line.push_str(if used > 0 { " " } else { "" });
                line.extend(&word);
                break;
            }
            if used == 0 {
                line.extend(word.drain(..width.max(1)));
            }
            lines.push(String::new());
        }
    }
    lines.retain(|line| !line.is_empty());
    lines
}

/// Returns roughly how many characters of this size fit into this many pixels.
pub fn fitting(pixels: u32, size: f64) -> usize {
    (f64::from(pixels) / (size / 1.24 * 0.56)) as usize
}

/// An axis with exactly these ticks, linear or logarithmic.
pub struct Axis {
    pub low: f64,
    pub high: f64,
    pub ticks: Vec<f64>,
    pub log: bool,
}

impl Axis {
    pub fn linear(low: f64, high: f64, ticks: Vec<f64>) -> Self {
        Self { low, high, ticks, log: false }
    }

    /// Both ends must be above zero.
    pub fn log(low: f64, high: f64, ticks: Vec<f64>) -> Self {
        Self { low, high, ticks, log: true }
    }
}

impl Ranged for Axis {
    type FormatOption = DefaultFormatting;
    type ValueType = f64;

    fn map(&self, value: &f64, (from, to): (i32, i32)) -> i32 {
        let place = |v: f64| if self.log { v.max(f64::MIN_POSITIVE).log10() } else { v };
        let (low, high) = (place(self.low), place(self.high));
        let share = (place(*value) - low) / (high - low);
        from + (share * f64::from(to - from)).round() as i32
    }

    fn key_points<Hint: KeyPointHint>(&self, hint: Hint) -> Vec<f64> {
        if hint.weight().allow_light_points() { Vec::new() } else { self.ticks.clone() }
    }

    fn range(&self) -> std::ops::Range<f64> {
        self.low..self.high
    }
}

/// Returns round numbers with labels that fit side by side into these pixels.
pub fn fitting_ticks(low: f64, high: f64, pixels: u32, label: impl Fn(f64) -> String) -> Vec<f64> {
    let fits = |marks: &Vec<f64>| {
        let widest = marks.iter().map(|mark| label(*mark).chars().count()).max().unwrap_or(0);
        marks.len() * (widest + 2) <= fitting(pixels, SMALL)
    };
    (1..8).rev().map(|wanted| ticks(low, high, wanted)).find(fits).unwrap_or_default()
}

/// Returns the room that labels of these ticks need beside an axis.
pub fn label_room(marks: &[f64], label: impl Fn(f64) -> String) -> u32 {
    let widest = marks.iter().map(|mark| label(*mark).chars().count()).max().unwrap_or(0);
    (widest as f64 * SMALL / 1.24 * 0.62).ceil() as u32 + 16
}

/// Draws a label under its tick, moved inwards at an edge.
pub fn tick_label(area: &Area<'_>, at: (i32, i32), label: &str) -> Drawn {
    let (width, _) = area.dim_in_pixel();
    let half = (label.chars().count() as f64 * SMALL / 1.24 * 0.31).ceil() as i32 + 1;
    let x = at.0.clamp(half, (width as i32 - half).max(half));
    text(area, (x, at.1), label, HPos::Center, SMALL, &FAINT)
}

/// Returns about `wanted` round numbers from `low` to `high`.
pub fn ticks(low: f64, high: f64, wanted: usize) -> Vec<f64> {
    let span = (high - low).max(f64::MIN_POSITIVE);
    let rough = span / wanted.max(1) as f64;
    let magnitude = 10f64.powf(rough.log10().floor());
    let steps = [1.0, 2.0, 2.5, 5.0, 10.0];
    let step = steps.iter().map(|s| s * magnitude).find(|s| *s >= rough).unwrap_or(rough);
    let first = (low / step).ceil() as i64;
    let last = (high / step).floor() as i64;
    (first..=last.min(first + 100)).map(|n| n as f64 * step).collect()
}

/// Returns powers of ten from `low` to `high`, with multiples of them if there are few.
pub fn log_ticks(low: f64, high: f64) -> Vec<f64> {
    let decades = (high / low).log10();
    let factors: &[f64] = match decades {
        d if d > 4.0 => &[1.0],
        d if d > 1.2 => &[1.0, 3.0],
        d if d > 0.5 => &[1.0, 2.0, 3.0, 5.0, 7.0],
        _ => return ticks(low, high, 5),
    };
    let (first, last) = (low.log10().floor() as i32, high.log10().ceil() as i32);
    let all = (first..=last).flat_map(|e| factors.iter().map(move |f| f * 10f64.powi(e)));
    all.filter(|tick| (low..=high).contains(tick)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn colours_become_the_pages() {
        assert_eq!(
            in_page_colours("<a fill=\"#00000A\" stroke=\"#0000001\" x=\"#0000"),
            "<a fill=\"var(--c10)\" stroke=\"#0000001\" x=\"#0000"
        );
    }

    #[test]
    fn text_is_wrapped_between_words_and_within_long_ones() {
        assert_eq!(wrapped("one two three", 7), ["one two", "three"]);
        assert_eq!(wrapped("abcdefghij k", 4), ["abcd", "efgh", "ij k"]);
        assert_eq!(wrapped("", 4), Vec::<String>::new());
    }

    #[test]
    fn ticks_are_round_and_within() {
        assert_eq!(ticks(-2.3, 9.8, 5), [0.0, 2.5, 5.0, 7.5]);
        assert_eq!(ticks(0.0, 100.0, 4), [0.0, 25.0, 50.0, 75.0, 100.0]);
        let close = |a: &[f64], b: &[f64]| a.iter().zip(b).all(|(a, b)| (a / b - 1.0).abs() < 1e-9);
        let got = log_ticks(80.0, 12_000.0);
        assert!(close(&got, &[100.0, 300.0, 1000.0, 3000.0, 10_000.0]) && got.len() == 5);
    }
}
