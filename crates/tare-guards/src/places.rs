//! What a run says of the places that its variants ran in.

use crate::clients::ClientsFound;
use crate::evidence::Evidence;
use crate::units::{duration, percent};
use crate::{RunGuard, Severity, guard};

pub fn emulated(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    if !evidence.totals[variant].launches.iter().any(|launch| launch.emulated) {
        return Vec::new();
    }
    let text = "its machine was emulated, not run by the hardware: its cost is the emulator's, \
                many times a real machine's";
    guard("emulated", Severity::Warn, Some(evidence.name(variant)), text.into())
}

/// How often its place was started: launches say how often by then, and a resumed run begins to
/// count anew.
pub fn place_launches(evidence: &Evidence<'_>, variant: usize) -> u32 {
    let starts = evidence.totals[variant].launches.iter().map(|launch| launch.place_starts);
    let (parts, last) = starts.fold((0u32, 0u32), |(parts, last), starts| match starts < last {
        true => (parts.saturating_add(last), starts),
        false => (parts, starts),
    });
    parts.saturating_add(last)
}

/// A place that stays while its servers come and go.
pub fn kept(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let launches = evidence.totals[variant].launches.iter().filter(|launch| launch.fresh).count();
    let starts = place_launches(evidence, variant);
    let place = evidence.plan.variants[variant].place.facts();
    if starts == 0 || starts as usize >= launches || place.is_always_the_same() {
        return Vec::new();
    }
    let place = place.name();
    let times = |n: usize| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let text = format!(
        "its server was started {}, its place ({place}) {}: what a start of the place changes is \
         covered less well than what a start of the server does",
        times(launches),
        times(starts as usize)
    );
    guard("place-launches", Severity::Note, Some(evidence.name(variant)), text)
}

/// How evenly several clients made a variant's load.
pub fn clients(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let Some(together) = &evidence.totals[variant].counts.together else { return Vec::new() };
    let found = ClientsFound::of(together);
    let (least, most) = found.spread();
    let late = found.each.iter().map(|client| client.late_ns_max).max().unwrap_or(0);
    let text = format!(
        "its load came from {} clients, which began 99 of 100 slices within {} of each other, by \
         clocks known to ± {}; a client began at most {} late; the busiest got {} more replies than \
         the least busy",
        found.each.len(),
        duration(found.start_skew_ns_p99),
        duration(found.clock_error_ns),
        duration(late),
        percent(most as f64 / least.max(1) as f64 - 1.0)
    );
    guard("clients", Severity::Note, Some(evidence.name(variant)), text)
}
