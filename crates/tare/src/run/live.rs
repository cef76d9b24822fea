//! Progress of a run: a table on a terminal, otherwise a line every few seconds.

mod plot;

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};

use tare_io::system::terminal_size;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_model::{Metric, plain};
use tare_report::run::from_rounds::{RunFacts, build};
use tare_report::run::table::{spare, table};
use tare_report::run::terminal::fitted;
use tare_report::run::words::{overhead, time};
use tare_report::run::{Bounds, Comparison, RunReport};
use tare_run::observer::{Event, Observer};
use tare_run::schedule::CellId;
use tare_stats::stopping::max_time_needed;
use tare_stats::{RoundDigest, Verdict};

use self::plot::{Interval, forest};
use crate::load::outputs::print_stderr;
use crate::paint::coloured_for;

pub struct LiveTable {
    /// Facts of the runs, one per cell.
    facts: Vec<RunFacts>,
    style: Style,
    next: Instant,
    /// Lines on the terminal that the next drawing replaces.
    drawn: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Style {
    Table,
    Lines,
    Silent,
}

const TABLE_EVERY: DurationNs = DurationNs::from_ms(300);
const LINE_EVERY: DurationNs = DurationNs::from_secs(5);
/// Drawing takes at most 1 / this of the time.
const DRAWING_SHARE: u64 = 100;

impl LiveTable {
    pub fn new(facts: Vec<RunFacts>, quiet: bool) -> Self {
        let style = match (quiet, std::io::stderr().is_terminal()) {
            (true, _) => Style::Silent,
            (false, true) => Style::Table,
            (false, false) => Style::Lines,
        };
        let first = if style == Style::Lines { LINE_EVERY } else { DurationNs::ZERO };
        Self { facts, style, next: monotonic_now() + first, drawn: 0 }
    }

    /// Announces what the run waits for before its first round.
    fn begin(&mut self, text: &str) {
        if self.style != Style::Silent {
            print_stderr(&format!("tare: {text} …\n"));
            // The table replaces this line.
            self.drawn = usize::from(self.style == Style::Table);
        }
    }

    fn show(&mut self, cell: CellId, digests: &[RoundDigest]) {
        let now = monotonic_now();
        if self.style == Style::Silent || now < self.next {
            return;
        }
        let report = build(&self.facts[cell.0], digests);
        let rounds = self.facts[cell.0].plan.stop.rounds;
        let is_sweep = self.facts.len() > 1;
        // The run continues if standard error is closed.
        let mut err = std::io::stderr().lock();
        let every = match self.style {
            Style::Table => {
                let mut lines = frame(&report, rounds);
                if is_sweep {
                    lines.insert(0, format!("  {}", report.run.name));
                }
                let text = plain::lines(&lines.join("\n")).into_owned() + "\n";
                let text = coloured_for(&text, true);
                let _ = write!(err, "{}{}{text}", taskbar(share_done(&report)), self.erase());
                self.drawn = lines.len();
                TABLE_EVERY
            }
            _ => {
                let name = if is_sweep { format!("{}: ", report.run.name) } else { String::new() };
                let _ = writeln!(err, "{}", plain::line(&line(&report, &name, rounds)));
                LINE_EVERY
            }
        };
        let cost = monotonic_now().since(now).as_ns() * DRAWING_SHARE;
        self.next = now + every.max(DurationNs::from_ns(cost));
    }

    /// Prints above the table that a round is lost.
    fn show_loss(&mut self, round: u32, why: &str) {
        if self.style == Style::Silent {
            return;
        }
        let text = format!("tare: round {} is lost: {why}", round + 1);
        let _ = writeln!(std::io::stderr(), "{}{}", self.erase(), plain::line(&text));
        self.drawn = 0;
    }

    /// Erases the table; the report follows.
    fn end(&mut self) {
        if self.style == Style::Table {
            let _ = write!(std::io::stderr(), "{}{}", taskbar(None), self.erase());
            self.drawn = 0;
        }
    }

    /// Returns the escape sequence that erases the table.
    fn erase(&self) -> String {
        if self.drawn == 0 { String::new() } else { format!("\x1b[{}A\r\x1b[J", self.drawn) }
    }
}

impl Observer for LiveTable {
    fn on_event(&mut self, event: &Event<'_>) {
        match event {
            Event::Waiting(text) => self.begin(text),
            Event::EstimateChanged { cell, digests } => self.show(*cell, digests),
            Event::RoundLost { round, why } => self.show_loss(*round, why),
            Event::Ended => self.end(),
            Event::RoundStarted { .. } | Event::Up { .. } | Event::SliceDone { .. } => {}
        }
    }
}

fn frame(report: &RunReport, rounds: Option<u32>) -> Vec<String> {
    let (columns, rows) = terminal_size().unwrap_or(SIZE);
    // A wrapped line would make the count of drawn lines wrong.
    let width = usize::from(columns) - 1;
    let table = fitted(table(report), width, &spare(report));
    let graver = report.guards.iter().filter(|guard| guard.code != "few-rounds");
    let guards = graver.take(GUARDS_SHOWN).map(|guard| {
        let whom = guard.variant.as_ref().map_or(String::new(), |name| format!("{name}: "));
        format!("  {}: {whom}{}", guard.code, guard.text)
    });
    let below: Vec<String> = [String::new(), format!("  {}", progress(report, rounds))]
        .into_iter()
        .chain(guards)
        .collect();
    // Lines that have left the screen cannot be erased. A sweep has one more.
    let free = usize::from(rows).saturating_sub(table.len() + below.len() + 2);
    let plot = Some(plotted(report)).filter(|plot| plot.len() <= free).unwrap_or_default();
    let lines = table.into_iter().chain(plot).chain(below);
    lines.map(|line| line.chars().take(width).collect()).collect()
}

/// Draws the intervals that the run is to narrow.
fn plotted(report: &RunReport) -> Vec<String> {
    let asked = || report.comparisons.iter().filter(|c| c.asked);
    let metrics: BTreeSet<Metric> = asked().map(|comparison| comparison.metric).collect();
    let intervals = asked().filter_map(|comparison| {
        let Bounds { lower, point, upper } = comparison.overhead_percent;
        let name = match metrics.len() {
            1 => comparison.variant.clone(),
            _ => format!("{}, {}", comparison.variant, comparison.metric.word()),
        };
        (upper - lower < KNOWN_PERCENT).then_some(Interval { name, lower, point, upper })
    });
    let intervals: Vec<Interval> = intervals.collect();
    if intervals.is_empty() {
        return Vec::new();
    }
    let tolerance = report.plan.parts.stop.tolerance * 100.0;
    std::iter::once(String::new()).chain(forest(&intervals, tolerance)).collect()
}

/// Returns the share of the run's time that is over: of what verdicts still need, as far as known.
fn share_done(report: &RunReport) -> Option<f64> {
    let spent = report.run.elapsed_ms as f64 / 1000.0;
    let most = report.plan.parts.stop.max_time.as_secs_f64();
    let needed = report.run.seconds_needed.map_or(most, |needed| (spent + needed).min(most));
    (needed > 0.0).then(|| (spent / needed).min(1.0))
}

/// Returns the sequence (OSC 9;4) by which some terminals show progress in their tab or taskbar;
/// `None` removes it. Others show such sequences as messages.
fn taskbar(share: Option<f64>) -> String {
    let is = |name: &str, known: &[&str]| {
        std::env::var(name).is_ok_and(|value| known.is_empty() || known.contains(&value.as_str()))
    };
    let shows = is("WT_SESSION", &[])
        || is("ConEmuANSI", &["ON"])
        || is("TERM_PROGRAM", &["WezTerm", "ghostty"]);
    match share {
        _ if !shows => String::new(),
        Some(share) => format!("\x1b]9;4;1;{:.0}\x07", share * 100.0),
        None => "\x1b]9;4;0;0\x07".into(),
    }
}

const GUARDS_SHOWN: usize = 3;
/// Columns and rows of a terminal that does not say.
const SIZE: (u16, u16) = (80, 24);

fn line(report: &RunReport, name: &str, rounds: Option<u32>) -> String {
    let asked: Vec<&Comparison> = report.comparisons.iter().filter(|c| c.asked).collect();
    let words = |c: &Comparison| {
        let (metric, verdict) = (c.metric.word(), c.verdict.word());
        let bounds = &c.overhead_percent;
        // After two rounds, intervals are still too wide to show.
        let seen = match bounds.upper - bounds.lower < KNOWN_PERCENT {
            true => overhead(bounds),
            false => "not known yet,".into(),
        };
        format!("{} {metric} {seen} {verdict}", c.variant)
    };
    let told = if asked.len() <= TOLD_ALL {
        asked.iter().map(|comparison| words(comparison)).collect::<Vec<_>>().join(", ")
    } else {
        let half = |c: &&&Comparison| c.overhead_percent.upper - c.overhead_percent.lower;
        let widest = asked.iter().max_by(|a, b| half(a).total_cmp(&half(b)));
        let decided = asked.iter().filter(|c| c.verdict != Verdict::Unresolved).count();
        let widest = widest.map_or(String::new(), |comparison| words(comparison));
        format!("{decided} of {} resolved; widest: {widest}", asked.len())
    };
    let colon = if told.is_empty() { "" } else { ": " };
    format!("tare: {name}{}{colon}{told}", progress(report, rounds))
}

const KNOWN_PERCENT: f64 = 1000.0;

/// With more comparisons than this, a line shows only how many are resolved, and the one with the
/// widest interval.
const TOLD_ALL: usize = 4;

/// Returns `round 12, 9 s, about 20 s more`, or `round 2 of 6, 2 s` with a limit on rounds.
fn progress(report: &RunReport, rounds: Option<u32>) -> String {
    let run = &report.run;
    let spent = time(run.elapsed_ms as f64 / 1000.0);
    let elapsed_ns = run.elapsed_ms.saturating_mul(1_000_000);
    if let Some(needed) = max_time_needed(run.rounds, elapsed_ns, report.plan.parts.stop.max_time) {
        return format!("round {}, {spent}; a verdict needs --max-time {needed}", run.rounds);
    }
    match (rounds, run.seconds_needed) {
        (Some(most), _) => format!("round {} of {most}, {spent}", run.rounds),
        (None, Some(seconds)) if run.rounds > 2 && seconds < 0.5 => {
            format!("round {}, {spent}, for sustained load", run.rounds)
        }
        (None, Some(seconds)) if run.rounds > 1 => {
            format!("round {}, {spent}, about {} more", run.rounds, time(seconds))
        }
        (None, _) => format!("round {}, {spent}", run.rounds),
    }
}
