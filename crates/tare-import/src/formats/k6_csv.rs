//! k6's CSV: points (`--out csv`), one per line, in any number; or a summary, one metric per line.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use hdrhistogram::Histogram;

use super::k6::{Metrics, draft};
use crate::block::kept;
use crate::numbers::plain;
use crate::sample::{Draft, Source};
use crate::trouble::Trouble;

const POINTS: &[u8] = b"metric_name,timestamp,metric_value";
const SUMMARY: &str = "metric_name,avg,";
/// Most bytes of a line; a point takes some hundred.
const LINE_MAX: u64 = 64 << 10;
/// Most scenarios: more are a mistake in tags, and each takes up to 280 KB.
const SCENARIOS_MAX: usize = 200;

/// Most bytes of a scenario's name, which is in every line of a report.
const NAME_BYTES_MAX: usize = 500;

pub fn is_points(head: &[u8]) -> bool {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).starts_with(POINTS)
}

/// Running totals of one scenario.
struct Scenario {
    /// http_req_duration in nanoseconds, to three digits; its mean and maximum are kept exactly.
    latency: Histogram<u64>,
    sum_ms: f64,
    most_ms: f64,
    timed: u64,
    requests: u64,
    failed: u64,
    bytes: f64,
    blocked_ms: f64,
    first_s: f64,
    last_s: f64,
}

/// State of reading a file of points.
#[derive(Default)]
struct Points {
    /// Column of the scenario.
    scenario_column: Option<usize>,
    scenarios: BTreeMap<String, Scenario>,
    vus: f64,
}

/// Reads points; memory does not grow with the file.
pub fn read_points(reader: impl Read, file: &str) -> Result<Vec<Draft>, Trouble> {
    let mut reader = BufReader::new(reader);
    let (mut points, mut line, mut at) = (Points::default(), Vec::new(), 0usize);
    loop {
        line.clear();
        let read = reader.by_ref().take(LINE_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(|e| Trouble::at(at + 1, format!("cannot be read: {e}")))?;
        if read == 0 {
            break;
        }
        at += 1;
        if read as u64 == LINE_MAX && line.last() != Some(&b'\n') {
            return Err(Trouble::at(at, "is longer than any line of k6's CSV (64 KiB)"));
        }
        let text = std::str::from_utf8(&line)
            .map_err(|_| Trouble::at(at, "is not text: it contains bytes that are not UTF-8"))?;
        let text = text.trim_end_matches(['\n', '\r']).trim_start_matches('\u{feff}');
        if at == 1 {
            points.scenario_column = text.split(',').position(|name| name == "scenario");
        } else if !text.is_empty() {
            points.see(text).map_err(|why| Trouble::at(at, why))?;
        }
    }
    points.drafts(file, at)
}

impl Points {
    fn see(&mut self, line: &str) -> Result<(), String> {
        let fields = fields(line);
        let number = |at: usize, what: &str| {
            let found = fields.get(at).and_then(|field| plain(field));
            found.ok_or_else(|| format!("a point of k6's CSV without a number as {what}"))
        };
        let (time, value) = (number(1, "timestamp")?, number(2, "metric_value")?);
        let name = fields[0].as_str();
        if name == "vus_max" {
            self.vus = self.vus.max(value);
        }
        if !name.starts_with("http_req") && name != "data_received" {
            return Ok(());
        }
        let scenario = self.scenario_column.and_then(|at| fields.get(at));
        let scenario = scenario.map_or("", String::as_str);
        if !self.scenarios.contains_key(scenario) {
            if scenario.len() > NAME_BYTES_MAX {
                return Err(format!("a scenario's name has more than {NAME_BYTES_MAX} bytes"));
            }
            if self.scenarios.len() >= SCENARIOS_MAX {
                return Err(format!("more than {SCENARIOS_MAX} scenarios"));
            }
            self.scenarios.insert(scenario.to_owned(), Scenario::new(time)?);
        }
        if let Some(own) = self.scenarios.get_mut(scenario) {
            own.add(name, value, time);
        }
        Ok(())
    }

    fn drafts(mut self, file: &str, lines: usize) -> Result<Vec<Draft>, Trouble> {
        // Data points may lack a scenario although requests have one.
        self.scenarios.retain(|_, own| own.requests > 0);
        if self.scenarios.is_empty() {
            return Err(Trouble::at(lines.max(1), "ends, and held no http_reqs of k6's"));
        }
        let alone = self.scenarios.len() == 1;
        let drafts = self.scenarios.into_iter().map(|(name, own)| {
            let mut draft = own.draft(self.vus).map_err(|why| Trouble::at(1, why))?;
            draft.own_name = (!alone).then_some(name);
            draft.source = Source {
                file: file.to_owned(),
                first_line: 1,
                last_line: u32::try_from(lines).unwrap_or(u32::MAX),
                text: format!("({lines} lines of k6's points)"),
            };
            Ok(draft)
        });
        drafts.collect()
    }
}

impl Scenario {
    fn new(time: f64) -> Result<Self, String> {
        // From 1 ns to 1 h.
        let latency = Histogram::new_with_bounds(1, 3_600_000_000_000, 3);
        Ok(Self {
            latency: latency.map_err(|error| error.to_string())?,
            sum_ms: 0.0,
            most_ms: 0.0,
            timed: 0,
            requests: 0,
            failed: 0,
            bytes: 0.0,
            blocked_ms: 0.0,
            first_s: time,
            last_s: time,
        })
    }

    fn add(&mut self, name: &str, value: f64, time: f64) {
        self.first_s = self.first_s.min(time);
        self.last_s = self.last_s.max(time);
        match name {
            "http_reqs" => self.requests = self.requests.saturating_add(value.max(0.0) as u64),
            "http_req_failed" => self.failed += u64::from(value > 0.0),
            "data_received" => self.bytes += value,
            "http_req_blocked" => self.blocked_ms += value,
            "http_req_duration" => {
                self.latency.saturating_record((value * 1e6).max(1.0) as u64);
                self.sum_ms += value;
                self.most_ms = self.most_ms.max(value);
                self.timed += 1;
            }
            _ => {}
        }
    }

    fn draft(&self, vus: f64) -> Result<Draft, String> {
        // Time stamps are whole seconds: a run takes up to 1 s more than they show.
        let seconds = self.last_s - self.first_s + 1.0;
        let timed = self.timed.max(1) as f64;
        let mut metrics = Metrics::default();
        metrics.put("http_req_duration", "avg", self.sum_ms / timed);
        metrics.put("http_req_duration", "max", self.most_ms);
        for percent in [50.0, 90.0, 95.0, 99.0, 99.9] {
            let ns = self.latency.value_at_percentile(percent);
            metrics.put("http_req_duration", &format!("p({percent})"), ns as f64 / 1e6);
        }
        metrics.put("http_reqs", "count", self.requests as f64);
        metrics.put("http_req_failed", "passes", self.failed as f64);
        metrics.put("data_received", "count", self.bytes);
        metrics.put("http_req_blocked", "avg", self.blocked_ms / timed);
        metrics.put("vus_max", "value", vus);
        let mut draft = draft(&metrics, Some(seconds))?;
        draft.asked.connections = draft.asked.connections.filter(|n| *n > 0);
        draft.seen.clock_s = Some(1.0);
        // k6 counts bytes without a scenario, so they are unknown if there are several.
        draft.seen.bytes = draft.seen.bytes.filter(|bytes| *bytes > 0.0);
        Ok(draft)
    }
}

/// Reads a summary; `None` if it is not one.
pub fn read_summary(text: &str, file: &str) -> Option<Result<Vec<Draft>, Trouble>> {
    let header = text.lines().next()?;
    header.starts_with(SUMMARY).then(|| summary(text, header, file))
}

fn summary(text: &str, header: &str, file: &str) -> Result<Vec<Draft>, Trouble> {
    let columns: Vec<&str> = header.split(',').collect();
    // Variants are tags of metrics: http_req_duration{variant:runc}.
    let mut variants: Vec<(String, Metrics)> = Vec::new();
    for (at, line) in text.lines().enumerate().skip(1) {
        if line.trim().is_empty() {
            continue;
        }
        let fields = fields(line);
        let (metric, variant) = match fields[0].split_once("{variant:") {
            Some((metric, rest)) => (metric, rest.trim_end_matches('}').to_owned()),
            None => (fields[0].as_str(), String::new()),
        };
        let known = variants.iter().position(|(name, _)| *name == variant);
        if known.is_none() && variants.len() >= SCENARIOS_MAX {
            return Err(Trouble::at(at + 1, format!("more than {SCENARIOS_MAX} variants")));
        }
        let own = known.unwrap_or_else(|| {
            variants.push((variant, Metrics::default()));
            variants.len() - 1
        });
        for (column, field) in columns.iter().zip(&fields).skip(1).filter(|(_, f)| !f.is_empty()) {
            let value = plain(field).ok_or_else(|| {
                let field: String = field.chars().take(40).collect();
                Trouble::at(at + 1, format!("'{field}' is not a number for k6's '{column}'"))
            })?;
            variants[own].1.put(metric, column, value);
        }
    }
    let (lines, many) = (text.lines().collect::<Vec<&str>>(), variants.len());
    let has_requests = |metrics: &Metrics| metrics.get("http_reqs", &["count", "rate"]).is_some();
    let drafts = variants.into_iter().filter(|(_, metrics)| has_requests(metrics));
    let drafts = drafts.map(|(name, metrics)| {
        let mut draft = draft(&metrics, None).map_err(|why| Trouble::at(1, why))?;
        let vus = metrics.get("vus", &["value"]).map(|n| n as u64);
        draft.asked.connections = draft.asked.connections.or(vus);
        draft.own_name = (!name.is_empty()).then_some(name);
        draft.source = Source {
            file: file.to_owned(),
            first_line: 1,
            last_line: lines.len() as u32,
            text: kept(&lines, many),
        };
        Ok(draft)
    });
    let drafts: Vec<Draft> = drafts.collect::<Result<_, Trouble>>()?;
    match drafts.is_empty() {
        true => Err(Trouble::at(1, "is k6's summary without 'http_reqs'")),
        false => Ok(drafts),
    }
}

/// Returns the cells of a line, at least one; quoted cells may contain commas.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let (mut quoted, mut chars) = (false, line.chars().peekable());
    while let Some(c) = chars.next() {
        match c {
            '"' if quoted && chars.peek() == Some(&'"') => {
                chars.next();
                fields.last_mut().into_iter().for_each(|field| field.push('"'));
            }
            '"' => quoted = !quoted,
            ',' if !quoted => fields.push(String::new()),
            c => fields.last_mut().into_iter().for_each(|field| field.push(c)),
        }
    }
    fields
}
