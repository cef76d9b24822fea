//! Follows a load: the live line, the time series, the histogram log.

use tare_io::DurationNs;
use tare_io::time::wall_unix_ms;
use tare_load::{Observer, Progress, Tally};
use tare_report::hdr_log;
use tare_report::load::Interval;

use crate::load::describe::TimeSeries;
use crate::load::live::Live;

pub struct Watch {
    live: Live,
    series: TimeSeries,
    pub hdr_log: String,
}

impl Watch {
    /// `length` is how long the load takes, if known.
    pub fn new(length: Option<DurationNs>, interval: DurationNs) -> Self {
        Self {
            live: Live::new(length),
            series: TimeSeries::new(interval),
            hdr_log: hdr_log::head(env!("CARGO_PKG_VERSION"), wall_unix_ms()),
        }
    }

    /// Adds a complete interval.
    pub fn add_row(&mut self, row: &Tally) {
        if !log(&mut self.hdr_log, self.series.add(row)) {
            log(&mut self.hdr_log, self.series.flush());
        }
    }

    /// Ends the last interval and returns all of them.
    pub fn intervals(&mut self) -> Vec<Interval> {
        self.live.clear();
        log(&mut self.hdr_log, self.series.flush());
        std::mem::take(&mut self.series.intervals)
    }
}

impl Observer for Watch {
    fn interval(&mut self, progress: Progress<'_>) {
        self.live.draw(progress.elapsed, progress.interval, progress.total);
        log(&mut self.hdr_log, self.series.add(progress.interval));
    }
}

/// Logs a completed interval; returns whether there was one.
fn log(log: &mut String, interval: Option<(&Interval, &Tally)>) -> bool {
    if let Some((interval, tally)) = interval
        && let Some(histogram) = tally.latency.headline().hdr()
    {
        log.push_str(&hdr_log::line(&hdr_log::LoggedInterval {
            start_s: interval.start_ns as f64 / 1e9,
            length_s: (interval.end_ns - interval.start_ns) as f64 / 1e9,
            histogram,
        }));
    }
    interval.is_some()
}
