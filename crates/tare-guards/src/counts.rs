//! Rules about what a variant's server counted, lost or logged.

use tare_model::samples::{CountMatch, Launch};

use crate::evidence::Evidence;
use crate::format::{count, counted, percent};
use crate::rules::LoadKind;
use crate::{Code, RunGuard, Severity, guard};

/// Log lines per request beyond the baseline's.
const CHATTY_LINES: f64 = 0.02;
/// A small miscount is rare if at most one in this many launches has one.
const RARE_OF: usize = 10;

pub(crate) fn count_mismatch(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let launches = &evidence.totals[variant].launches;
    let compared = launches.iter().filter_map(|launch| {
        let served = launch.requests_served?;
        match launch.sent().compare(served) {
            CountMatch::Explained => None,
            CountMatch::Few(_) => Some((Severity::Warn, launch, served)),
            CountMatch::Mismatch => Some((Severity::Void, launch, served)),
        }
    });
    let wrong: Vec<(Severity, &&Launch, u64)> = compared.collect();
    let Some((severity, launch, served)) = wrong.iter().max_by_key(|(severity, ..)| *severity)
    else {
        return Vec::new();
    };
    // A miscount in most launches is no accident.
    let is_rare = wrong.len() <= (launches.len() / RARE_OF).max(1);
    let severity = if is_rare { *severity } else { Severity::Void };
    let why = match severity {
        Severity::Void => {
            "another client talks to it, or it is not the server that answers".to_owned()
        }
        _ => {
            let ended = counted(launch.requests_unsure, "request", "requests");
            format!("at most one in a thousand is unexplained; {ended} got no reply")
        }
    };
    let text = format!(
        "the server counted {} requests, but {} were sent to it (launches affected: {}): {why}",
        count(*served),
        count(launch.requests_sent),
        wrong.len()
    );
    guard(Code::CountMismatch, severity, Some(evidence.name(variant)), text)
}

/// Lost datagrams, as a share of all exchanges, or of all datagrams of a stream.
pub(crate) fn lost(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let counts = &evidence.totals[variant].counts;
    if counts.lost == 0 {
        return Vec::new();
    }
    let sent = match LoadKind::by(&evidence.plan.load) {
        LoadKind::Streams => counts.answered + counts.lost,
        _ => counts.started,
    };
    let share = percent(counts.lost as f64 / sent.max(1) as f64);
    let text = format!("{} datagrams ({share}) were lost", count(counts.lost));
    guard(Code::Lost, Severity::Warn, Some(evidence.name(variant)), text)
}

pub(crate) fn chatty(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let lines = |v: usize| {
        let launches = &evidence.totals[v].launches;
        let lines: u64 = launches.iter().map(|launch| launch.log_lines).sum();
        let sent: u64 = launches.iter().map(|launch| launch.requests_sent).sum();
        lines as f64 / sent.max(1) as f64
    };
    let (base, mine) = (lines(evidence.question.baseline), lines(variant));
    if mine <= base + CHATTY_LINES {
        return Vec::new();
    }
    let text = format!(
        "its server writes {mine:.2} log lines per request, the baseline's {base:.2}: the result \
         includes the cost of logging"
    );
    guard(Code::Chatty, Severity::Warn, Some(evidence.name(variant)), text)
}
