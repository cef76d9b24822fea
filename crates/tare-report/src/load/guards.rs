//! What a run of load says against itself: each guard looks at one thing, in one sentence.

use serde::{Deserialize, Serialize};

pub use tare_stats::Severity;
use tare_stats::rules::{self, CLIENT_BUSY, IMPOSSIBLE, RATE_MET};

use crate::load::LoadReport;
use crate::units::{count, counted, percent, rate};
use tare_guards::clients::ClientsFound;
use tare_guards::sentences::{busy_clients, closed_by_server, sent_late};

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Guard {
    pub code: String,
    pub severity: Severity,
    pub text: String,
}

/// The guards that a run of load trips, gravest first.
pub fn of_load(report: &LoadReport) -> Vec<Guard> {
    let checks = [
        littles_law,
        rate_missed,
        errors,
        statuses,
        reconnects,
        delayed_ack,
        client_bound,
        ports,
        resumed,
        unsent,
        connections_busy,
    ];
    let mut guards: Vec<Guard> = checks.iter().filter_map(|check| check(report)).collect();
    guards.sort_by_key(|guard| std::cmp::Reverse(guard.severity as u8));
    guards
}

fn guard(code: &str, severity: Severity, text: String) -> Option<Guard> {
    Some(Guard { code: code.into(), severity, text })
}

/// More requests under way than there were connections: impossible, so the clock or we are wrong.
fn littles_law(report: &LoadReport) -> Option<Guard> {
    let series = report.latency.from_sent.as_ref()?;
    let at_once = report.throughput_per_s * series.ns_mean as f64 / 1e9;
    let connections = f64::from(report.asked.max_connections);
    // Requests carried in from the warm-up bring latency that they spent before the window.
    let carried = 1.0 + series.ns_mean as f64 / report.elapsed_ns.max(1) as f64;
    let text = rules::littles_law(at_once, connections, carried)?;
    guard("littles-law", Severity::Void, format!("{text}: {IMPOSSIBLE}"))
}

fn rate_missed(report: &LoadReport) -> Option<Guard> {
    let due = report.asked.due_requests.filter(|_| !report.interrupted)?;
    let answered = report.requests.completed + report.requests.failed;
    // What is in flight at the end is not missed: it was sent in time.
    let met = (answered + report.requests.unfinished_drained) as f64 / due.max(1.0);
    if met >= RATE_MET {
        return None;
    }
    let text = format!(
        "only {} of the requests due were answered: the server (or -c {}) cannot keep up with {}/s",
        percent(met),
        report.asked.max_connections,
        rate(report.asked.rate_per_s.unwrap_or_default()),
    );
    guard("rate-missed", Severity::Void, text)
}

fn errors(report: &LoadReport) -> Option<Guard> {
    let failed = report.requests.failed + report.requests.unfinished_cut;
    let malformed = report.errors.get("malformed").map_or(0, |error| error.count);
    if malformed > failed {
        let text = format!("the server broke HTTP {} times: see errors", count(malformed));
        return guard("errors", Severity::Void, text);
    }
    if failed == 0 {
        return None;
    }
    let share = failed as f64 / report.requests.started.max(1) as f64;
    let severity = rules::errors(share);
    let failed = counted(failed, "request", "requests");
    let text = format!("{failed} failed ({})", percent(share));
    guard("errors", severity, text)
}

fn statuses(report: &LoadReport) -> Option<Guard> {
    let unexpected = report.requests.completed - report.requests.good;
    if unexpected == 0 {
        return None;
    }
    let text = format!(
        "{} replies ({}) have an unexpected status and do not count as throughput",
        count(unexpected),
        percent(unexpected as f64 / report.requests.completed.max(1) as f64),
    );
    guard("unexpected-status", Severity::Void, text)
}

fn reconnects(report: &LoadReport) -> Option<Guard> {
    let closed = report.connections.closed_by_server;
    if report.asked.new_connections || closed == 0 {
        return None;
    }
    let text = format!("the server {}", closed_by_server(closed, report.requests.completed));
    guard("reconnects", Severity::Warn, text)
}

fn delayed_ack(report: &LoadReport) -> Option<Guard> {
    let held = report.requests.held as f64 / report.requests.good.max(1) as f64;
    guard("delayed-ack", Severity::Warn, rules::delayed_ack(held)?)
}

fn client_bound(report: &LoadReport) -> Option<Guard> {
    if report.asked.pacing == "open" {
        // Polling for due times keeps an open-loop worker busy; its lag is what tells.
        let lag = report.latency.send_lag.as_ref()?.ns_p99?;
        // Waiting for a connection is the server's doing; what is left would be the client's.
        let waited = report.requests.waited as f64 / report.requests.started.max(1) as f64;
        if lag <= 1_000_000 || waited >= 0.01 {
            return None;
        }
        let latest = report.clients.as_ref().and_then(ClientsFound::latest);
        let text = sent_late(lag, latest);
        return guard("client-bound", Severity::Warn, text);
    }
    if let Some(clients) = report.clients.as_ref().filter(|clients| clients.each.len() > 1) {
        return guard("client-bound", Severity::Warn, busy_clients(&clients.busy()?));
    }
    let share = report.client.busiest_worker_share;
    if share < CLIENT_BUSY {
        return None;
    }
    let text = format!(
        "a worker was busy {} of the time: the client may be what is measured; give it more \
         threads (-t) and CPUs",
        percent(share),
    );
    guard("client-bound", Severity::Warn, text)
}

fn ports(report: &LoadReport) -> Option<Guard> {
    let error = report.errors.get("no_local_port")?;
    guard("ports", Severity::Void, error.first.clone())
}

fn resumed(report: &LoadReport) -> Option<Guard> {
    let connections = &report.connections;
    let text = match (report.asked.tls_resume, connections) {
        (false, c) if c.handshakes_resumed > 0 => {
            format!("{} handshakes were resumed unasked", count(c.handshakes_resumed))
        }
        (true, c) if c.handshakes_full > c.handshakes_resumed && c.opened > 1 => format!(
            "only {} of {} handshakes were resumed, though asked for: the server refuses",
            count(c.handshakes_resumed),
            count(c.handshakes_full + c.handshakes_resumed),
        ),
        _ => return None,
    };
    guard("resumed", Severity::Warn, text)
}

fn connections_busy(report: &LoadReport) -> Option<Guard> {
    let waited = report.requests.waited;
    // One waiter in a thousand is what any hiccup makes.
    if waited * 1000 <= report.requests.started {
        return None;
    }
    let text = format!(
        "{} requests ({}) waited for a connection to be free; their wait is in 'from due', not in \
         'from sent'",
        count(waited),
        percent(waited as f64 / report.requests.started.max(1) as f64),
    );
    guard("connections-busy", Severity::Note, text)
}

fn unsent(report: &LoadReport) -> Option<Guard> {
    let unsent = report.requests.unfinished_unsent;
    if unsent == 0 {
        return None;
    }
    let text = format!(
        "{} requests were due but never sent, every connection being busy; latencies do not hold \
         them, and are too good",
        count(unsent),
    );
    guard("unsent", Severity::Warn, text)
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
        of_load(&report).into_iter().map(|guard| (guard.code, guard.severity)).collect()
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
        trips("unexpected-status", Void, |r| r.requests.good -= 5);
        trips("reconnects", Warn, |r| r.connections.closed_by_server = 20);
        trips("delayed-ack", Warn, |r| r.requests.held = r.requests.good / 2);
        trips("client-bound", Warn, |r| r.client.busiest_worker_share = 0.97);
        trips("littles-law", Void, |r| {
            r.latency.from_sent.as_mut().unwrap().ns_mean = 2_100_000; // 21 at once on 20
        });
        trips("resumed", Warn, |r| r.connections.handshakes_resumed = 1);
        trips("ports", Void, |r| {
            let first = "no ports".to_owned();
            r.errors.insert("no_local_port".into(), crate::load::ErrorCount { count: 1, first });
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
