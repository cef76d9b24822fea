//! k6's CSV: a line a point (`--out csv`), of any length; or a summary, a line a metric.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read};

use hdrhistogram::Histogram;

use super::k6::draft;
use crate::numbers::plain;
use crate::sample::{Draft, Source};
use crate::source::Trouble;
use crate::text::kept;

const POINTS: &[u8] = b"metric_name,timestamp,metric_value";
const SUMMARY: &str = "metric_name,avg,";
/// A line of a point is some hundred bytes.
const LINE_MAX: u64 = 64 << 10;
/// More scenarios than these are tags gone wrong.
const SCENARIOS_MAX: usize = 1000;

pub fn is_points(head: &[u8]) -> bool {
    head.strip_prefix(b"\xef\xbb\xbf").unwrap_or(head).starts_with(POINTS)
}

/// One scenario while its points come.
struct Scenario {
    /// http_req_duration in nanoseconds, to three digits; its mean, least and most are exact.
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

/// Memory does not grow with the file.
pub fn read_points(reader: impl Read, file: &str) -> Result<Vec<Draft>, Trouble> {
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    let mut columns = Columns::default();
    let mut scenarios: BTreeMap<String, Scenario> = BTreeMap::new();
    let mut vus = 0.0f64;
    let mut at = 0usize;
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
            .map_err(|_| Trouble::at(at, "is no text: it holds bytes that are not UTF-8"))?;
        let text = text.trim_end_matches(['\n', '\r']);
        if at == 1 {
            columns = Columns::of(text.trim_start_matches('\u{feff}'));
            continue;
        }
        if text.is_empty() {
            continue;
        }
        let fields = fields(text);
        let broken = |what: &str| Trouble::at(at, format!("a point of k6's CSV without {what}"));
        let value = fields.get(2).and_then(|v| plain(v)).ok_or_else(|| broken("a number as metric_value"))?;
        let time = fields.get(1).and_then(|v| plain(v)).ok_or_else(|| broken("a number as timestamp"))?;
        let name = fields[0].as_str();
        if name == "vus_max" {
            vus = vus.max(value);
            continue;
        }
        let scenario = columns.scenario.and_then(|at| fields.get(at)).cloned().unwrap_or_default();
        let is_request = name.starts_with("http_req") || name == "data_received";
        if !is_request || (!scenarios.contains_key(&scenario) && scenarios.len() >= SCENARIOS_MAX) {
            continue;
        }
        let own = match scenarios.entry(scenario) {
            std::collections::btree_map::Entry::Occupied(own) => own.into_mut(),
            std::collections::btree_map::Entry::Vacant(free) => {
                let new = Scenario::new(time);
                free.insert(new.ok_or_else(|| broken("room for a histogram"))?)
            }
        };
        own.add(name, value, time);
    }
    // data_received has no scenario where no request has one.
    scenarios.retain(|_, own| own.requests > 0);
    if scenarios.is_empty() {
        return Err(Trouble::at(at.max(1), "ends, and held no http_reqs of k6's"));
    }
    let alone = scenarios.len() == 1;
    let drafts = scenarios.into_iter().map(|(name, own)| {
        let mut draft = own.draft(vus).map_err(|why| Trouble::at(1, why))?;
        draft.own_name = (!alone).then_some(name);
        draft.source = Source {
            file: file.to_owned(),
            first_line: 1,
            last_line: at as u32,
            text: format!("({at} lines of k6's points)"),
        };
        Ok(draft)
    });
    drafts.collect()
}

#[derive(Default)]
struct Columns {
    scenario: Option<usize>,
}

impl Columns {
    fn of(header: &str) -> Self {
        Self { scenario: header.split(',').position(|name| name == "scenario") }
    }
}

impl Scenario {
    fn new(time: f64) -> Option<Self> {
        // 1 ns to an hour.
        let latency = Histogram::new_with_bounds(1, 3_600_000_000_000, 3).ok()?;
        Some(Self {
            latency,
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
            "http_reqs" => self.requests += value.max(0.0) as u64,
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
        // Time stamps are whole seconds: a run takes up to one more than they say.
        let seconds = self.last_s - self.first_s + 1.0;
        let timed = self.timed.max(1) as f64;
        let mut duration = BTreeMap::from([
            ("avg".to_owned(), self.sum_ms / timed),
            ("max".to_owned(), self.most_ms),
        ]);
        for percent in [50.0, 90.0, 95.0, 99.0, 99.9] {
            let ns = self.latency.value_at_percentile(percent);
            duration.insert(format!("p({percent})"), ns as f64 / 1e6);
        }
        let one = |key: &str, value: f64| BTreeMap::from([(key.to_owned(), value)]);
        let metrics = BTreeMap::from([
            ("http_reqs".to_owned(), one("count", self.requests as f64)),
            ("http_req_duration".to_owned(), duration),
            ("http_req_failed".to_owned(), one("passes", self.failed as f64)),
            ("data_received".to_owned(), one("count", self.bytes)),
            ("http_req_blocked".to_owned(), one("avg", self.blocked_ms / timed)),
            ("vus_max".to_owned(), one("value", vus)),
        ]);
        let mut draft = draft(&metrics, Some(seconds))?;
        draft.asked.connections = draft.asked.connections.filter(|n| *n > 0);
        draft.seen.clock_s = Some(1.0);
        // Bytes come without a scenario: where there are several, nobody knows whose.
        draft.seen.bytes = draft.seen.bytes.filter(|bytes| *bytes > 0.0);
        Ok(draft)
    }
}

/// `None` where it is no summary.
pub fn read_summary(text: &str, file: &str) -> Option<Result<Vec<Draft>, Trouble>> {
    let header = text.lines().next()?;
    header.starts_with(SUMMARY).then(|| summary(text, header, file))
}

fn summary(text: &str, header: &str, file: &str) -> Result<Vec<Draft>, Trouble> {
    const LINES_MAX: usize = 100_000;
    let columns: Vec<&str> = header.split(',').collect();
    // Variants are tags of metrics: http_req_duration{variant:runc}.
    let mut variants: Vec<(String, BTreeMap<String, BTreeMap<String, f64>>)> = Vec::new();
    for (at, line) in text.lines().enumerate().skip(1).take(LINES_MAX) {
        if line.trim().is_empty() {
            continue;
        }
        let fields = fields(line);
        let (metric, variant) = match fields[0].split_once("{variant:") {
            Some((metric, rest)) => (metric, rest.trim_end_matches('}').to_owned()),
            None => (fields[0].as_str(), String::new()),
        };
        let mut values = BTreeMap::new();
        for (column, field) in columns.iter().zip(&fields).skip(1).filter(|(_, f)| !f.is_empty()) {
            let value = plain(field).ok_or_else(|| {
                let field: String = field.chars().take(40).collect();
                Trouble::at(at + 1, format!("'{field}' is no number for k6's '{column}'"))
            })?;
            values.insert((*column).to_owned(), value);
        }
        let known = variants.iter().position(|(name, _)| *name == variant);
        let own = known.unwrap_or_else(|| {
            variants.push((variant, BTreeMap::new()));
            variants.len() - 1
        });
        variants[own].1.insert(metric.to_owned(), values);
    }
    let lines: Vec<&str> = text.lines().collect();
    let drafts = variants.into_iter().filter(|(_, metrics)| metrics.contains_key("http_reqs"));
    let drafts = drafts.map(|(name, metrics)| {
        let mut draft = draft(&metrics, None).map_err(|why| Trouble::at(1, why))?;
        let vus = metrics.get("vus").and_then(|vus| vus.get("value")).map(|n| *n as u64);
        draft.asked.connections = draft.asked.connections.or(vus);
        draft.own_name = (!name.is_empty()).then_some(name);
        draft.source = Source {
            file: file.to_owned(),
            first_line: 1,
            last_line: lines.len() as u32,
            text: kept(&lines),
        };
        Ok(draft)
    });
    let drafts: Vec<Draft> = drafts.collect::<Result<_, Trouble>>()?;
    match drafts.is_empty() {
        true => Err(Trouble::at(1, "is k6's summary without 'http_reqs'")),
        false => Ok(drafts),
    }
}

/// The cells of a line; quoted ones may hold commas. Never none.
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
