//! One output of one tool: its load, its results, and its place.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use tare_model::Metric;

use crate::claim::{Claim, Listed, StatedChange};

/// The tool that made an output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Tool {
    Wrk,
    Wrk2,
    Qperf,
    Fortio,
    K6,
    Oha,
    H2load,
    Ab,
    Hey,
    Iperf3,
    Netperf,
    Unixbench,
    BpftimeBenchmark,
    /// A script's printed summary of many outputs.
    Summary,
    /// A row or column of a table.
    Table,
}

impl Tool {
    pub fn name(self) -> &'static str {
        match self {
            Self::Wrk => "wrk",
            Self::Wrk2 => "wrk2",
            Self::Qperf => "qperf",
            Self::Fortio => "fortio",
            Self::K6 => "k6",
            Self::Oha => "oha",
            Self::H2load => "h2load",
            Self::Ab => "ab",
            Self::Hey => "hey",
            Self::Iperf3 => "iperf3",
            Self::Netperf => "netperf",
            Self::Unixbench => "UnixBench",
            Self::BpftimeBenchmark => "bpftime's benchmark",
            Self::Summary => "a printed summary",
            Self::Table => "a table",
        }
    }

    /// Whether the next request waits only for the last reply, without a pause.
    pub fn is_closed_loop(self) -> bool {
        matches!(self, Self::Wrk | Self::Oha | Self::H2load | Self::Ab | Self::Hey)
    }
}

/// One output, as part of an import.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sample {
    pub variant: String,
    /// Distinguishes outputs of one variant with different loads: "rate 5000", "tcp_lat, 4 KiB";
    /// empty if there is nothing to distinguish.
    pub case: String,
    pub tool: Tool,
    pub source: Source,
    /// Headings above it, outermost first.
    pub headings: Vec<String>,
    /// The command line that seems to have made it.
    pub command: Option<String>,
    /// Whether the command stands right above the output; otherwise it may belong to another one.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_commands_own: bool,
    pub asked: SampleLoad,
    pub seen: SampleResult,
    /// The tool's values in tare's units, by metric key.
    pub values: BTreeMap<String, f64>,
    pub percentiles: Vec<Percentile>,
    /// Values of repetitions by metric key, if the output has all of them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub repeats: BTreeMap<String, Vec<f64>>,
    /// Mean and deviation of repetitions by metric key, if the output has no more.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub moments: BTreeMap<String, Moments>,
    /// The variant's name in headings and labels, without additions that distinguish equal names.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub under: String,
    /// Whether the variant's name contains the output's line number, because nothing shows which
    /// variant the output belongs to, or that it repeats another output.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub by_line: bool,
    /// Stored by earlier versions: first lines of the outputs that were added up to this one.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub added: Vec<u32>,
}

/// A mean, the standard deviation, and the number of values.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Moments {
    pub mean: f64,
    pub sd: f64,
    /// `None` if it is not stated.
    pub n: Option<u32>,
}

/// Where an output stands.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Source {
    pub file: String,
    pub first_line: u32,
    pub last_line: u32,
    /// The lines themselves; if there are very many, only the first ones.
    pub text: String,
}

/// The load, as far as the output or its command line states it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleLoad {
    pub url: Option<String>,
    pub threads: Option<u64>,
    pub connections: Option<u64>,
    pub seconds: Option<f64>,
    pub rate_per_s: Option<f64>,
    pub requests: Option<u64>,
    /// Whether connections were to be kept.
    pub keep: Option<bool>,
    /// Requests that one connection may have in flight; `None` if it may be any number.
    pub at_once: Option<u64>,
}

/// Key in [`SampleResult::other`] of ab's "Time per request".
pub const NS_PER_REQUEST: &str = "ns per request";
/// Key in [`SampleResult::other`] of the sender's sum in iperf3.
pub const SENT: &str = "sent bytes per s";

/// Key in [`SampleResult::other`] that is set if a tool itself calls its results unreliable.
pub const DOUBTS: &str = "says that it is not reliable";

/// Key in [`SampleResult::other`] of the number of a script's failed checks.
pub const CHECKS_FAILED: &str = "checks failed";

/// Results of the load.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct SampleResult {
    pub seconds: Option<f64>,
    pub requests: Option<u64>,
    pub bytes: Option<f64>,
    /// One unit of the last printed digit of `bytes`, if that is coarse.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes_step: Option<f64>,
    /// Whether `bytes` counts only bodies; otherwise it counts whole replies.
    pub bytes_are_bodies: bool,
    /// Bytes of bodies alone, if the tool prints both.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub body_bytes: Option<f64>,
    /// Failures by the tool's own name for them.
    pub errors: BTreeMap<String, u64>,
    pub bad_status: Option<u64>,
    /// Connections that were opened over the run.
    pub opened: Option<u64>,
    /// Average time per exchange that the tool's latency leaves out.
    pub left_out_ns: Option<f64>,
    pub latency_max_ns: Option<f64>,
    /// The percentile with the widest bucket relative to its value.
    pub bucket_of_percent: Option<f64>,
    /// Width of that bucket, inside which the percentile was interpolated.
    pub bucket_ns: Option<f64>,
    /// One unit of the last printed digit of the mean latency, if that is coarse.
    pub step_ns: Option<f64>,
    /// Step of the clock that timed the run, if that is coarse.
    pub clock_s: Option<f64>,
    /// Values that are not a metric of tare, by the tool's name for them.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub other: BTreeMap<String, f64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Percentile {
    /// Between 0 and 100.
    pub percent: f64,
    pub ns: f64,
}

/// An output before it is named; [`crate::assemble`] makes it a [`Sample`].
#[derive(Clone, Debug, PartialEq)]
pub struct Draft {
    pub tool: Tool,
    /// The name that the output itself gives its variant.
    pub own_name: Option<String>,
    /// The case that the output itself states.
    pub own_case: Option<String>,
    /// Headings, labels and comments in a fence, with their levels, outermost first.
    pub headings: Vec<(u8, String)>,
    /// Number that outputs share if only commands stand between them.
    pub passage: u32,
    /// The last line that was typed under these headings.
    pub typed: Option<Typed>,
    /// Whether this is the first output after the last command.
    pub is_first_of_typed: bool,
    /// The command line that seems to have made it.
    pub command: Option<String>,
    pub asked: SampleLoad,
    pub seen: SampleResult,
    pub values: BTreeMap<String, f64>,
    pub percentiles: Vec<Percentile>,
    pub repeats: BTreeMap<String, Vec<f64>>,
    pub moments: BTreeMap<String, Moments>,
    /// One unit of the last digit of a table's values, by metric key.
    pub steps: BTreeMap<String, f64>,
    /// Differences from other outputs that this output states.
    pub against: Vec<StatedChange>,
    pub source: Source,
}

/// A line that somebody typed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Typed {
    pub line: u32,
    pub text: String,
    /// The prompt's host; an output typed at another host is not a repetition.
    pub host: Option<String>,
}

/// Everything found in a file.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct FileContents {
    pub drafts: Vec<Draft>,
    pub unread: Vec<Unread>,
    pub claims: Vec<Claim>,
    /// Overheads that a script printed as a list.
    pub listed: Vec<Listed>,
    /// Lines that state a difference without the values behind it.
    pub unchecked: Vec<u32>,
    /// Rows and columns of tables that are not compared.
    pub left_out: Vec<Unread>,
}

/// Something that looked like an output and could not be read.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unread {
    pub file: String,
    pub line: u32,
    pub why: String,
}

/// Limit of plausible values, above any rate or latency in any of tare's units.
const MOST: f64 = 1e15;

impl Draft {
    /// Returns a second value that the output states for a metric, measured in another way.
    pub fn also(&self, metric: &str) -> Option<f64> {
        let key = match metric {
            key if key == Metric::LatencyMean.key() => NS_PER_REQUEST,
            key if key == Metric::Bandwidth.key() => SENT,
            _ => return None,
        };
        self.seen.other.get(key).copied()
    }

    pub fn new(tool: Tool) -> Self {
        Self {
            tool,
            own_name: None,
            own_case: None,
            headings: Vec::new(),
            passage: 0,
            typed: None,
            is_first_of_typed: false,
            command: None,
            // Without multiplexing, a connection has one request at a time.
            asked: SampleLoad { at_once: Some(1), ..SampleLoad::default() },
            seen: SampleResult::default(),
            values: BTreeMap::new(),
            percentiles: Vec::new(),
            repeats: BTreeMap::new(),
            moments: BTreeMap::new(),
            steps: BTreeMap::new(),
            against: Vec::new(),
            source: Source::default(),
        }
    }

    /// Enters a value, unless it could not have been measured.
    pub fn put(&mut self, metric: Metric, value: f64) {
        if (0.0..=MOST).contains(&value) {
            self.values.insert(metric.key().to_owned(), value);
        }
    }

    /// Enters a mean and its standard deviation, of `n` runs.
    pub fn put_moments(&mut self, metric: Metric, mean: f64, sd: f64, n: Option<u32>) {
        if (0.0..=MOST).contains(&mean) && (0.0..=MOST).contains(&sd) {
            self.moments.insert(metric.key().to_owned(), Moments { mean, sd, n });
        }
    }

    pub fn put_percentile(&mut self, percent: f64, ns: f64) {
        if !((0.0..=MOST).contains(&ns) && (0.0..=100.0).contains(&percent)) {
            return;
        }
        self.percentiles.push(Percentile { percent, ns });
        const KNOWN: [(f64, Metric); 4] = [
            (50.0, Metric::LatencyP50),
            (90.0, Metric::LatencyP90),
            (99.0, Metric::LatencyP99),
            (99.9, Metric::LatencyP999),
        ];
        if let Some((_, metric)) = KNOWN.iter().find(|(known, _)| *known == percent) {
            self.put(*metric, ns);
        }
    }

    /// Adds failures of a kind. Names of kinds are shortened; those equal after that become one.
    pub fn put_errors(&mut self, kind: &str, n: u64) {
        const WORDS: usize = 100;
        if n > 0 {
            let known = self.seen.errors.entry(kind.trim().chars().take(WORDS).collect());
            let known = known.or_default();
            *known = known.saturating_add(n);
        }
    }

    /// Keeps the widest bucket relative to its percentile. Percentiles were interpolated inside
    /// these buckets, each given by its start and end.
    pub fn put_buckets(&mut self, buckets: &[(f64, f64)]) {
        let width = |ns: f64| {
            let found = buckets.iter().find(|(start, end)| (*start..=*end).contains(&ns));
            found.map(|(start, end)| end - start).filter(|width| *width <= MOST)
        };
        let inner = self.percentiles.iter().filter(|p| p.percent < 100.0 && p.ns > 0.0);
        let found = inner.filter_map(|p| Some((p, width(p.ns)?)));
        let worst = found.max_by(|(a, x), (b, y)| (x / a.ns).total_cmp(&(y / b.ns)));
        self.seen.bucket_ns = worst.map(|(_, width)| width);
        self.seen.bucket_of_percent = worst.map(|(p, _)| p.percent);
    }
}

impl Sample {
    pub fn value(&self, metric: Metric) -> Option<f64> {
        self.values.get(metric.key()).copied()
    }

    /// Returns file and lines, as in "results.md:12-20".
    pub fn place(&self) -> String {
        let Source { file, first_line, last_line, .. } = &self.source;
        match first_line == last_line {
            true => format!("{file}:{first_line}"),
            false => format!("{file}:{first_line}-{last_line}"),
        }
    }

    /// Returns the bytes of a reply, on average.
    pub fn reply_bytes(&self) -> Option<f64> {
        let requests = self.seen.requests.filter(|n| *n > 0)?;
        self.seen.bytes.map(|bytes| bytes / requests as f64)
    }

    /// Returns the bytes of a reply without its head, on average.
    pub fn body_bytes(&self) -> Option<f64> {
        let requests = self.seen.requests.filter(|n| *n > 0)?;
        let bodies = self.seen.bytes.filter(|_| self.seen.bytes_are_bodies);
        Some(self.seen.body_bytes.or(bodies)? / requests as f64)
    }

    /// Returns the connections really used: wrk gives each thread the same whole number.
    pub fn connections(&self) -> Option<f64> {
        let connections = self.asked.connections?;
        match (self.tool, self.asked.threads) {
            (Tool::Wrk | Tool::Wrk2, Some(threads)) if threads > 0 => {
                Some((connections / threads * threads) as f64)
            }
            _ => Some(connections as f64),
        }
    }
}
