//! Guards about the places that variants ran in.

use tare_model::layers;

use crate::clients_summary::ClientsSummary;
use crate::evidence::Evidence;
use crate::format::{duration, percent};
use crate::{Code, RunGuard, Severity, guard};

pub fn emulated(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    if !evidence.totals[variant].launches.iter().any(|launch| launch.emulated) {
        return Vec::new();
    }
    let text = "its VM was emulated, without hardware virtualization: its cost is that of the \
                emulator, many times a real machine's";
    guard(Code::Emulated, Severity::Warn, Some(evidence.name(variant)), text.into())
}

/// How often the place of its server was started.
pub fn place_launches(evidence: &Evidence<'_>, variant: usize) -> u32 {
    starts(evidence.totals[variant].launches.iter().map(|launch| launch.place_starts))
}

/// Adds up the starts of a place. Each launch stores how often its place had been started by then;
/// a resumed run starts counting again.
fn starts(told: impl Iterator<Item = u32>) -> u32 {
    let (parts, last) = told.fold((0u32, 0u32), |(parts, last), starts| match starts < last {
        true => (parts.saturating_add(last), starts),
        false => (parts, starts),
    });
    parts.saturating_add(last)
}

/// Places that outlive launches: the server's and its hops'.
pub fn kept(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let plan = &evidence.plan.variants[variant];
    let launches = &evidence.totals[variant].launches;
    let of_server = ("server".to_owned(), &plan.place, place_launches(evidence, variant));
    let of_hops = layers::hops(&plan.layers).into_iter().filter_map(|hop| {
        let place = plan.layers[hop.layer].facts().place()?;
        let parts = launches.iter().flat_map(|launch| &launch.parts);
        let own = parts.filter(|part| part.name == hop.name).map(|part| part.place_starts);
        let starts = starts(own);
        Some((hop.name, place, starts))
    });
    let fresh = launches.iter().filter(|launch| launch.fresh).count();
    let times = |n: usize| if n == 1 { "once".to_owned() } else { format!("{n} times") };
    let all = std::iter::once(of_server).chain(of_hops);
    let kept = all.filter(|(_, place, starts)| {
        *starts > 0 && (*starts as usize) < fresh && !place.facts().is_always_the_same()
    });
    let told = kept.flat_map(|(name, place, starts)| {
        let text = format!(
            "its {name} was started {}, its place ({}) {}: the interval covers differences between \
             starts of the {name} better than those between starts of the place",
            times(fresh),
            place.name(),
            times(starts as usize)
        );
        guard(Code::PlaceLaunches, Severity::Note, Some(evidence.name(variant)), text)
    });
    told.collect()
}

/// How evenly several clients made a variant's load.
pub fn clients(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let Some(together) = &evidence.totals[variant].counts.together else { return Vec::new() };
    let found = ClientsSummary::new(together);
    let (least, most) = found.spread();
    let late = found.each.iter().map(|client| client.late_ns_max).max().unwrap_or(0);
    let text = format!(
        "its load came from {} clients, which started 99 % of slices within {} of each other (clock \
         error up to ± {}); the latest start was {} late; the busiest client got {} more replies \
         than the least busy one",
        found.each.len(),
        duration(found.start_skew_ns_p99),
        duration(found.clock_error_ns),
        duration(late),
        percent(most as f64 / least.max(1) as f64 - 1.0)
    );
    guard(Code::Clients, Severity::Note, Some(evidence.name(variant)), text)
}
