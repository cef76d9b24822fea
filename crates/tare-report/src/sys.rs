//! Results of `tare sys`, as data (`tare.sys/1`), as text, and in UnixBench's format.

use serde::{Deserialize, Serialize};
use tare_stats::Estimate;

use crate::format::{count, duration, rate};
use crate::run::table::Table;
use crate::run::terminal::columns;

pub const SCHEMA: &str = "tare.sys/1";

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SysReport {
    pub schema: String,
    pub seed: u64,
    pub interrupted: bool,
    /// Slices of each call in each launch.
    pub slices: u64,
    pub slice_ns: u64,
    /// Number of processes that make calls at the same time.
    pub copies: u32,
    pub calls: Vec<SysCall>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SysCall {
    pub call: String,
    pub what: String,
    pub launches: u32,
    pub made: u64,
    pub elapsed_ns: u64,
    /// Nanoseconds per call; `n` is the number of launches.
    pub ns: Option<Estimate>,
    /// Calls per second of all copies together.
    pub per_s: Option<Estimate>,
    /// Why the call could not be made.
    pub failed: Option<String>,
}

impl SysReport {
    pub fn json(&self) -> String {
        // Plain data: serialising it cannot fail.
        serde_json::to_string_pretty(self).unwrap_or_default() + "\n"
    }
}

pub fn render(report: &SysReport) -> String {
    let header = ["", "per call", "interval", "per s", "what it is"].map(str::to_owned).to_vec();
    let rows = report.calls.iter().map(|call| {
        let of = |text: Option<String>| text.unwrap_or_else(|| "–".into());
        let what = match &call.failed {
            Some(why) => format!("failed: {why}"),
            None => call.what.clone(),
        };
        vec![
            call.call.clone(),
            of(call.ns.map(|ns| nanoseconds(ns.point))),
            of(call.ns.map(|ns| format!("{} to {}", nanoseconds(ns.lower), nanoseconds(ns.upper)))),
            of(call.per_s.map(|per_s| rate(per_s.point))),
            what,
        ]
    });
    let table = Table { rows: rows.collect(), header };
    let launches = report.calls.iter().map(|call| call.launches).max().unwrap_or(0);
    let copies = match report.copies {
        1 => String::new(),
        n => format!(", {n} processes at a time"),
    };
    format!(
        "{}\n\n{} launches, {} slices of {} of each call in each{copies}; intervals are over \
         launches, 95 %; seed {}{}\n",
        columns(&table).join("\n"),
        count(u64::from(launches)),
        count(report.slices),
        duration(report.slice_ns),
        report.seed,
        if report.interrupted { "; interrupted" } else { "" },
    )
}

fn nanoseconds(ns: f64) -> String {
    match ns {
        ns if ns < 1000.0 => format!("{ns:.1}ns"),
        ns => duration(ns.round() as u64),
    }
}

/// Loops per second of the system-call mix on a SPARCstation 20-61; they make an index of 10.
const UNIXBENCH_BASELINE: f64 = 15_000.0;
const UNIXBENCH_NAME: &str = "System Call Overhead";

/// Returns the line and the index that UnixBench's `Run syscall` prints. A loop makes five calls:
/// dup, close, getpid, getuid, umask.
pub fn unixbench(report: &SysReport) -> String {
    let mix = report.calls.iter().find(|call| call.call == "mix");
    let Some((mix, per_s)) = mix.and_then(|mix| Some((mix, mix.per_s?.point))) else {
        return String::new();
    };
    let index = per_s / UNIXBENCH_BASELINE * 10.0;
    let seconds = mix.elapsed_ns as f64 / 1e9 / f64::from(mix.launches.max(1));
    let seconds = seconds / f64::from(report.copies);
    let time = format!("({seconds:.1} s, {} samples)", mix.launches);
    format!(
        "\n{UNIXBENCH_NAME:<40} {per_s:>12.1} lps   {time}\n\n{:<40} {:>12} {:>12} {:>8}\n\
         {UNIXBENCH_NAME:<40} {UNIXBENCH_BASELINE:>12.1} {per_s:>12.1} {index:>8.1}\n{:>75}\n\
         {:<66} {index:>8.1}\n",
        "System Benchmarks Partial Index",
        "BASELINE",
        "RESULT",
        "INDEX",
        "========",
        "System Benchmarks Index Score (Partial Only)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report(per_s: f64) -> SysReport {
        let estimate = |point: f64| Estimate {
            point,
            lower: point * 0.99,
            upper: point * 1.01,
            level: 0.95,
            n: 20,
        };
        SysReport {
            schema: SCHEMA.into(),
            seed: 7,
            interrupted: false,
            slices: 40,
            slice_ns: 2_000_000,
            copies: 1,
            calls: vec![SysCall {
                call: "mix".into(),
                what: "a pass".into(),
                launches: 20,
                made: 1000,
                elapsed_ns: 2_000_000_000,
                ns: Some(estimate(1e9 / per_s)),
                per_s: Some(estimate(per_s)),
                failed: None,
            }],
        }
    }

    /// The indices are those that were published for these loops per second.
    #[test]
    fn the_index_is_unixbenchs() {
        let text = unixbench(&report(18_750_490.3));
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[1],
            "System Call Overhead                       18750490.3 lps   (0.1 s, 20 samples)"
        );
        assert_eq!(
            lines[4],
            "System Call Overhead                          15000.0   18750490.3  12500.3"
        );
        assert_eq!(
            lines[6],
            "System Benchmarks Index Score (Partial Only)                        12500.3"
        );
        assert!(unixbench(&report(19_818_118.3)).contains(" 13212.1\n"));
    }
}
