//! Guards of a single load: those of every load, and those that only `tare load` has.

use std::cmp::Reverse;

use tare_guards::traffic::{Traffic, traffic_doubts};
use tare_guards::{Code, Doubt, doubt};
pub use tare_stats::Severity;

use crate::format::{count, percent};
use crate::load::LoadReport;

/// Returns the guards that a load trips, gravest first.
pub fn load_doubts(report: &LoadReport) -> Vec<Doubt> {
    let mut guards = traffic_doubts(&traffic(report));
    guards.extend([unsent(report), connections_busy(report)].into_iter().flatten());
    guards.sort_by_key(|guard| (Reverse(guard.severity), guard.code.family()));
    guards
}

fn traffic(report: &LoadReport) -> Traffic {
    let LoadReport { asked, requests, connections, .. } = report;
    let mean_ns = report.latency.from_sent.as_ref().map_or(0, |series| series.ns_mean) as f64;
    let errors = report.errors.iter();
    let errors = errors.map(|(kind, error)| (kind.clone(), error.count, error.first.clone()));
    let status = report.status.iter();
    let status = status.filter_map(|(status, n)| Some((status.parse().ok()?, *n)));
    let handshakes = asked.tls && asked.new_connections;
    Traffic {
        is_open: asked.pacing == "open",
        rate_per_s: asked.rate_per_s.unwrap_or_default(),
        connections: asked.max_connections,
        streams: asked.streams,
        most_in_flight: asked.max_connections.saturating_mul(asked.streams),
        workers: asked.workers,
        new_connections: asked.new_connections,
        resumes: handshakes.then_some(asked.tls_resume),
        started: requests.started,
        completed: requests.completed,
        good: requests.good,
        failed: requests.failed + requests.unfinished_cut,
        retried: requests.retried,
        cut: requests.unfinished_cut,
        errors: errors.collect(),
        status: status.collect(),
        // With random arrivals, only requests that arrived were due.
        due: asked
            .due_requests
            .filter(|_| !report.interrupted)
            .map(|due| if asked.poisson { requests.started as f64 } else { due }),
        chance: 0.0,
        baseline_met: None,
        // Requests in flight at the end were sent in time, so they are not missed.
        ended: requests.completed + requests.failed + requests.unfinished_drained,
        mean_in_flight: report.throughput_per_s * mean_ns / 1e9,
        // The latency of requests carried over from the warm-up began before the window.
        littles_law_slack: 1.0 + mean_ns / report.elapsed_ns.max(1) as f64,
        closed_by_server: connections.closed_by_server,
        requests: requests.completed,
        ack_delayed: requests.held,
        first_handshakes: u64::from(asked.max_connections),
        handshakes_full: connections.handshakes_full,
        handshakes_resumed: connections.handshakes_resumed,
        busiest_worker: report.client.busiest_worker_share,
        clients: report.clients.clone(),
        lag_ns_p99: report.latency.send_lag.as_ref().and_then(|lag| lag.ns_p99),
        waited: requests.waited,
    }
}

fn connections_busy(report: &LoadReport) -> Option<Doubt> {
    let waited = report.requests.waited;
    // Any hiccup makes one request in a thousand wait.
    if waited * 1000 <= report.requests.started {
        return None;
    }
    let text = format!(
        "{} requests ({}) waited for a connection to be free; their wait is in 'from due', not in \
         'from sent'",
        count(waited),
        percent(waited as f64 / report.requests.started.max(1) as f64),
    );
    doubt(Code::ConnectionsBusy, Severity::Note, text)
}

fn unsent(report: &LoadReport) -> Option<Doubt> {
    let unsent = report.requests.unfinished_unsent;
    if unsent == 0 {
        return None;
    }
    let text = format!(
        "{} requests were due but never sent, every connection being busy; latencies do not hold \
         them, and are too good",
        count(unsent),
    );
    doubt(Code::Unsent, Severity::Warn, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::tests::report;

    fn codes(change: impl FnOnce(&mut LoadReport)) -> Vec<(String, Severity)> {
        let mut report = report();
        report.requests.failed = 0;
        report.connections.closed_by_server = 0;
        change(&mut report);
        let found = load_doubts(&report).into_iter();
        found.map(|guard| (guard.code.word().to_owned(), guard.severity)).collect()
    }

    #[track_caller]
    fn trips(code: &str, severity: Severity, change: impl FnOnce(&mut LoadReport)) {
        assert_eq!(codes(change), [(code.to_owned(), severity)]);
    }

    #[test]
    fn a_clean_run_trips_nothing() {
        assert_eq!(codes(|_| {}), []);
    }

    #[test]
    fn each_guard_sees_its_own_fault() {
        use Severity::{Void, Warn};
        trips("errors", Warn, |r| r.requests.failed = 1);
        trips("errors", Void, |r| r.requests.failed = 100);
        trips("errors", Warn, |r| r.requests.good -= 5);
        trips("errors", Void, |r| r.requests.good -= 500);
        trips("reconnects", Warn, |r| r.connections.closed_by_server = 20);
        trips("delayed-ack", Warn, |r| r.requests.held = r.requests.good / 2);
        trips("client-bound", Warn, |r| r.client.busiest_worker_share = 0.97);
        trips("littles-law", Void, |r| {
            r.latency.from_sent.as_mut().unwrap().ns_mean = 2_100_000; // 21 at once on 20
        });
        trips("resumed", Warn, |r| {
            (r.asked.tls, r.asked.new_connections) = (true, true);
            r.connections.handshakes_resumed = 1;
        });
        trips("ports", Void, |r| {
            let first = "no ports".to_owned();
            r.errors.insert("no_local_port".into(), crate::load::ErrorCount { count: 100, first });
        });
        trips("rate-missed", Void, |r| r.asked.due_requests = Some(30_000.0));
        trips("unsent", Warn, |r| r.requests.unfinished_unsent = 3);
        trips("connections-busy", Severity::Note, |r| r.requests.waited = 100);
    }

    #[test]
    fn an_open_loop_is_judged_by_its_lag() {
        let open = |r: &mut LoadReport, lag_ns| {
            r.asked.pacing = "open".into();
            r.client.busiest_worker_share = 1.0;
            let mut lag = r.latency.from_sent.clone().unwrap();
            lag.ns_p99 = Some(lag_ns);
            r.latency.send_lag = Some(lag);
        };
        assert_eq!(codes(|r| open(r, 90_000)), []);
        trips("client-bound", Severity::Warn, |r| open(r, 5_000_000));
        trips("connections-busy", Severity::Note, |r| {
            open(r, 5_000_000);
            r.requests.waited = 2_000;
        });
    }
}
