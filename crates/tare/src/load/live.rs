//! The progress line of a load, redrawn in place on the terminal.

use std::io::{IsTerminal, Write};

use tare_io::DurationNs;
use tare_load::Tally;
use tare_model::plain;
use tare_report::format::{count, duration, rate};

/// The progress line; drawn only if standard error is a terminal.
pub struct Live {
    on: bool,
    length: Option<DurationNs>,
}

impl Live {
    /// `length` is how long the run takes, if known.
    pub fn new(length: Option<DurationNs>) -> Self {
        Self { on: std::io::stderr().is_terminal(), length }
    }

    pub fn draw(&self, elapsed: DurationNs, tick: &Tally, total: &Tally) {
        if self.on {
            // The line is erased and written again; the cursor never leaves it.
            let text = line(elapsed, self.length, tick, total);
            // The run continues if standard error is closed.
            let _ = write!(std::io::stderr(), "\r\x1b[2K{}", plain::line(&text));
            let _ = std::io::stderr().flush();
        }
    }

    pub fn clear(&self) {
        if self.on {
            let _ = write!(std::io::stderr(), "\r\x1b[2K");
        }
    }
}

fn line(elapsed: DurationNs, length: Option<DurationNs>, tick: &Tally, total: &Tally) -> String {
    let latency = tick.latency.headline();
    let quantile = |q| match latency.count() {
        0 => "–".to_owned(),
        _ => duration(latency.quantile(q).as_ns()),
    };
    let errors = total.counts.failed + (total.counts.completed - total.counts.good);
    let left = match length {
        Some(length) => {
            let left = length.as_secs_f64() - elapsed.as_secs_f64();
            format!("{:.0} s left", left.max(0.0).ceil())
        }
        None => format!("{} done", count(total.counts.completed)),
    };
    format!(
        "{:>9}/s   p50 {:>7}   p99 {:>7}   {} errors   {left}",
        rate(tick.good_per_s()),
        quantile(0.5),
        quantile(0.99),
        count(errors),
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_model::samples::Counts;

    #[test]
    fn the_line_says_rate_latency_errors_and_time_left() {
        let end = tare_io::Instant::ZERO + DurationNs::from_ms(250);
        let counts = Counts { completed: 1000, good: 1000, ..Counts::default() };
        let mut tick = Tally { end, counts, ..Tally::default() };
        tick.latency.from_sent.record_n(DurationNs::from_us(150), 1000);
        let counts = Counts { failed: 2, completed: 4000, good: 3997, ..Counts::default() };
        let total = Tally { counts, ..tick.clone() };
        let length = Some(DurationNs::from_secs(10));
        assert_eq!(
            line(DurationNs::from_ms(1500), length, &tick, &total),
            "    4,000/s   p50   150µs   p99   150µs   5 errors   9 s left"
        );
        assert!(line(DurationNs::ZERO, None, &tick, &total).ends_with("4,000 done"));
    }
}
