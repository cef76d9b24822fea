//! Follows a load: the live line, the time series, and what is written for each interval.

use tare_io::DurationNs;
use tare_io::time::wall_unix_ms;
use tare_load::histogram::Histogram;
use tare_load::{Observer, Progress, Tally};
use tare_report::hdr_log;
use tare_report::load::Interval;

use crate::load::describe::TimeSeries;
use crate::load::live::Live;
use crate::load::outputs::print;

pub struct Watch {
    live: Live,
    series: TimeSeries,
    pub log: IntervalLog,
}

/// The intervals so far, in the forms that are made from each of them.
pub struct IntervalLog {
    pub hdr: String,
    pub ndjson: String,
    /// Latencies of all intervals.
    pub latency: Histogram,
    /// Whether lines of NDJSON go to standard output at once.
    prints: bool,
}

impl Watch {
    /// `length` is how long the load takes, if known. With `prints`, each interval is written to
    /// standard output as a line of JSON.
    pub fn new(length: Option<DurationNs>, interval: DurationNs, prints: bool) -> Self {
        Self {
            live: Live::new(length),
            series: TimeSeries::new(interval),
            log: IntervalLog {
                hdr: hdr_log::head(env!("CARGO_PKG_VERSION"), wall_unix_ms()),
                ndjson: String::new(),
                latency: Histogram::default(),
                prints,
            },
        }
    }

    /// Adds a complete interval.
    pub fn add_row(&mut self, row: &Tally) {
        if !self.log.add(self.series.add(row)) {
            self.log.add(self.series.flush());
        }
    }

    /// Ends the last interval and returns all of them.
    pub fn intervals(&mut self) -> Vec<Interval> {
        self.live.clear();
        self.log.add(self.series.flush());
        std::mem::take(&mut self.series.intervals)
    }
}

impl Observer for Watch {
    fn interval(&mut self, progress: Progress<'_>) {
        self.live.draw(progress.elapsed, progress.interval, progress.total);
        self.log.add(self.series.add(progress.interval));
    }
}

impl IntervalLog {
    /// Adds a completed interval; returns whether there was one.
    fn add(&mut self, interval: Option<(&Interval, &Tally)>) -> bool {
        let Some((interval, tally)) = interval else { return false };
        let line = serde_json::to_string(interval).unwrap_or_default() + "\n";
        if self.prints {
            // The load goes on without its reader.
            let _ = print(&line);
        }
        self.ndjson.push_str(&line);
        self.latency.merge(tally.latency.headline());
        if let Some(histogram) = tally.latency.headline().hdr() {
            self.hdr.push_str(&hdr_log::line(&hdr_log::LoggedInterval {
                start_s: interval.start_ns as f64 / 1e9,
                length_s: (interval.end_ns - interval.start_ns) as f64 / 1e9,
                histogram,
            }));
        }
        true
    }
}
