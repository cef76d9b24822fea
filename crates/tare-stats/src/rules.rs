//! When numbers must not be believed: one set of thresholds and sentences for runs, for single
//! loads and for other tools' results.

use crate::Severity;

/// A larger share of failed requests makes a result void.
const ERRORS_VOID: f64 = 0.001;
/// Below this share of the rate that was asked for, an open loop was none.
pub const RATE_MET: f64 = 0.99;
/// Above this share of a CPU, the client may be what is measured.
pub const CLIENT_BUSY: f64 = 0.95;
/// Room for the edges of windows.
const LITTLES_LAW_SLACK: f64 = 1.02;

/// From this share of replies on, a pause in the middle of each is a habit.
const HELD: f64 = 0.05;

/// Replies that came in two pieces, the time of a delayed acknowledgement apart.
pub fn delayed_ack(share: f64) -> Option<String> {
    (share > HELD).then(|| {
        format!(
            "{:.0} % of its replies came in two pieces some 40 ms apart: its socket waits for an \
             acknowledgement that the client's kernel holds back; set TCP_NODELAY there, or write \
             head and body at once",
            share * 100.0
        )
    })
}

/// What failed requests do to a result.
pub fn errors(share: f64) -> Severity {
    if share > ERRORS_VOID { Severity::Void } else { Severity::Warn }
}

/// Little's law: no more requests can be under way than there are connections; what breaks it, in
/// words. `room` is a factor for what else may be in the numbers: latencies that reach out of the
/// window, digits that were rounded.
pub fn littles_law(at_once: f64, connections: f64, room: f64) -> Option<String> {
    let broken = at_once > connections * LITTLES_LAW_SLACK * room;
    broken.then(|| {
        format!("throughput × mean latency is {at_once:.1} requests at once on {connections} connections")
    })
}

/// What it means where nothing but a mistake explains it.
pub const IMPOSSIBLE: &str = "this is impossible";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_law_leaves_room_for_edges_and_no_more() {
        assert_eq!(littles_law(20.3, 20.0, 1.0), None);
        assert!(littles_law(20.5, 20.0, 1.0).unwrap().contains("20.5 requests at once on 20"));
        assert_eq!(littles_law(20.5, 20.0, 1.01), None);
        assert_eq!(delayed_ack(0.05), None);
        assert!(delayed_ack(0.98).unwrap().starts_with("98 % of its replies came in two pieces"));
        assert_eq!((errors(0.001), errors(0.0011)), (Severity::Warn, Severity::Void));
    }
}
