//! Guards about what servers do with their connections.

use tare_stats::estimate::median;

use crate::evidence::Evidence;
use crate::format::percent;
use crate::{Code, RunGuard, Severity, guard};

/// If a quarter of the connections got more than this share of the replies, it is no accident.
const FAVOURED: f64 = 0.4;
/// Replies that each connection needs in a slice; the first ones get one more than the last.
const REPLIES_A_SLICE: u64 = 3;
/// Replies that each connection needs in a launch.
const REPLIES_A_LAUNCH: u64 = 30;

/// Kept connections stay with the worker that accepted them, and some workers have more than
/// others.
pub(crate) fn uneven_workers(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    // An open loop takes connections in turn.
    if evidence.plan.load.is_open() {
        return Vec::new();
    }
    let launches = evidence.totals[variant].launches.iter().map(|launch| &launch.load);
    let seen = launches.filter_map(|load| {
        let least = (REPLIES_A_SLICE * u64::from(load.rests)).max(REPLIES_A_LAUNCH);
        load.favoured.filter(|seen| seen.of_replies >= least * u64::from(seen.of_connections))
    });
    let seen: Vec<_> = seen.collect();
    let shares: Vec<f64> = seen.iter().map(|seen| seen.share()).collect();
    let Some(one) = seen.first().filter(|_| median(&shares) > FAVOURED) else {
        return Vec::new();
    };
    let text = format!(
        "{} of its {} connections got {} of the replies: its workers have unequal shares of the \
         connections, by chance, and that affects the result (--reconnect-each slice reopens them \
         more often)",
        one.connections,
        one.of_connections,
        percent(median(&shares)),
    );
    guard(Code::UnevenWorkers, Severity::Warn, Some(evidence.name(variant)), text)
}
