//! Draws values of each variant as bars from zero, with the interval at the end.

use plotters::prelude::*;
use tare_model::Metric;
use tare_stats::Estimate;

use super::page;
use super::plot::{
    ACCENT, Figure, GRID, INK, Size, fitting_ticks, heading, heading_height, tick_label,
};
use crate::run::table::{Table, cell};
use crate::run::words::{capital, noun, on_axis};

pub struct Bar {
    pub name: String,
    pub value: Estimate,
}

pub fn figure(metric: Metric, bars: &[Bar]) -> String {
    if bars.is_empty() {
        return String::new();
    }
    let title = match metric {
        Metric::Throughput => "Replies per second".to_owned(),
        _ => capital(noun(metric)),
    };
    let told = |bar: &Bar| format!("{}: {}", bar.name, cell(metric, Some(&bar.value)));
    let all: Vec<String> = bars.iter().map(told).collect();
    let alt = format!("{title}. {}", all.join("; "));
    let better = if metric.more_is_better() { "Longer is better." } else { "Shorter is better." };
    let note = format!("{better} The line at a bar's end is its 95 % interval over rounds.");
    let figure =
        Figure { title: &title, alt: &alt, note: &note, numbers: numbers(&title, metric, bars) };
    let height = |size: Size| {
        bars.iter().map(|bar| heading_height(size, &told(bar)) + BAR).sum::<u32>() + AXIS
    };
    figure.render(height, |area, canvas| {
        let (width, tall) = area.dim_in_pixel();
        let most = bars.iter().map(|bar| bar.value.upper.max(bar.value.point));
        let most = most.filter(|most| most.is_finite()).fold(f64::MIN_POSITIVE, f64::max) * 1.04;
        let (left, bottom) = (8, (tall - AXIS) as i32);
        let room = f64::from(width) - 16.0;
        let x = |value: f64| left + (value.clamp(0.0, most) / most * room).round() as i32;
        let label = |tick: f64| on_axis(metric, tick);
        let marks = fitting_ticks(0.0, most, width - 16, label);
        for tick in &marks {
            tick_label(area, (x(*tick), bottom + 12), &label(*tick))?;
        }
        let mut y = 0;
        for bar in bars {
            y = heading(area, y, &told(bar))?;
            for tick in &marks {
                let line = vec![(x(*tick), y), (x(*tick), y + BAR as i32)];
                area.draw(&PathElement::new(line, GRID.stroke_width(1)))?;
            }
            let end = x(bar.value.point);
            area.draw(&Rectangle::new([(left, y), (end, y + 12)], ACCENT.mix(0.75).filled()))?;
            let whisker = vec![(x(bar.value.lower), y + 6), (x(bar.value.upper), y + 6)];
            area.draw(&PathElement::new(whisker, INK.stroke_width(2)))?;
            canvas.hit((end, y + 6), told(bar));
            y += BAR as i32;
        }
        Ok(())
    })
}

const BAR: u32 = 22;
const AXIS: u32 = 24;

fn numbers(title: &str, metric: Metric, bars: &[Bar]) -> String {
    let header = ["", "value", "lower", "upper", "rounds"].map(str::to_owned).to_vec();
    let row = |bar: &Bar| {
        let of = |point: f64| cell(metric, Some(&Estimate { point, ..bar.value }));
        let Estimate { point, lower, upper, n, .. } = bar.value;
        vec![bar.name.clone(), of(point), of(lower), of(upper), n.to_string()]
    };
    page::table(title, &Table { header, rows: bars.iter().map(row).collect() })
}
