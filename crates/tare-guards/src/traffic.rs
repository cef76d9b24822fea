//! Rules about load, be it a single load or a variant's in a run. Each rule is a function with its
//! threshold above it and its code, severity and sentence in it. Audits of other tools' results
//! share thresholds and codes.

use tare_stats::Severity;

use crate::clients_summary::ClientsSummary;
use crate::code::Code;
use crate::format::{count, counted, duration, percent, rate};
use crate::{Doubt, doubt};

/// Facts about a load: over all slices of a variant, or in one stretch.
#[derive(Clone, Debug, Default)]
pub struct Traffic {
    pub is_open: bool,
    /// Requested rate, in open loop.
    pub rate_per_s: f64,
    /// Largest number of connections.
    pub connections: u32,
    /// Largest number of requests in flight.
    /// Requests at a time on each connection.
    pub streams: u32,
    pub most_in_flight: u32,
    pub workers: u32,
    pub new_connections: bool,
    /// Whether sessions should be resumed; `None` if handshakes are not part of the test.
    pub resumes: Option<bool>,

    pub started: u64,
    pub completed: u64,
    pub good: u64,
    /// Failed requests, including those given up after the end.
    pub failed: u64,
    /// Requests that the server did not process and that were sent again.
    pub retried: u64,
    /// Requests given up after the end.
    pub cut: u64,
    /// Name, count and first text of each kind of failure.
    pub errors: Vec<(String, u64, String)>,
    pub status: Vec<(u16, u64)>,
    /// Open loop: requests in the schedule.
    pub due: Option<f64>,
    /// Open loop: requests that ended in time.
    pub ended: u64,
    /// Share by which `due` and `ended` may differ by chance.
    pub chance: f64,
    /// Share of the rate that the baseline reached; set only if all metrics asked for are costs per
    /// request.
    pub baseline_met: Option<f64>,
    /// Mean requests in flight, from throughput and mean latency.
    pub mean_in_flight: f64,
    /// Factor for latencies that extend beyond the measured time.
    pub littles_law_slack: f64,
    /// Kept connections that the server closed.
    pub closed_by_server: u64,
    /// All requests sent.
    pub requests: u64,
    /// Good replies in two pieces about 40 ms apart, which is how long TCP delays acknowledgements.
    pub ack_delayed: u64,
    /// Handshakes that cannot resume because there was no session yet.
    pub first_handshakes: u64,
    pub handshakes_full: u64,
    pub handshakes_resumed: u64,
    /// Share of a CPU that the busiest worker used.
    pub busiest_worker: f64,
    pub clients: Option<ClientsSummary>,
    pub lag_ns_p99: Option<u64>,
    /// Requests that had to wait for a free connection.
    pub waited: u64,
}

/// Applies all rules.
pub fn traffic_doubts(traffic: &Traffic) -> Vec<Doubt> {
    let rules = [
        failed,
        unasked,
        unexpected_status,
        littles_law,
        rate_missed,
        reconnects,
        streams_limited,
        retried,
        delayed_ack,
        client_bound,
        resumed,
        ports,
    ];
    rules.iter().filter_map(|rule| rule(traffic)).collect()
}

/// A result with more failed requests than this share is void.
const FAILED_VOID: f64 = 0.001;

/// Severity of a share of failed requests, or of replies with an error status.
pub fn severity_of_errors(share: f64) -> Severity {
    if share > FAILED_VOID { Severity::Void } else { Severity::Warn }
}

fn failed(traffic: &Traffic) -> Option<Doubt> {
    let mut detail: Vec<String> =
        traffic.errors.iter().map(|(kind, n, why)| format!("{kind} {n}: {why}")).collect();
    if traffic.cut > 0 {
        detail.push(format!("{} given up after the end", count(traffic.cut)));
    }
    of_errors(traffic.failed, traffic.started, "failed", &detail)
}

/// Malformed replies beyond the failed requests: the server sends what nobody asked for.
fn unasked(traffic: &Traffic) -> Option<Doubt> {
    let (_, malformed, why) = traffic.errors.iter().find(|(kind, ..)| kind == "malformed")?;
    let unasked = malformed.saturating_sub(traffic.failed);
    if unasked == 0 {
        return None;
    }
    let share = unasked as f64 / traffic.started.max(1) as f64;
    let text = format!(
        "the server broke the protocol {} apart from the failed requests; first: {why}",
        counted(unasked, "time", "times")
    );
    doubt(Code::Errors, severity_of_errors(share), text)
}

fn unexpected_status(traffic: &Traffic) -> Option<Doubt> {
    let detail = traffic.status.iter().map(|(status, n)| format!("{status}: {}", count(*n)));
    let unexpected = traffic.completed.saturating_sub(traffic.good);
    let what = if unexpected == 1 { "has" } else { "have" };
    let detail: Vec<String> = detail.collect();
    of_errors(unexpected, traffic.completed, &format!("{what} an unexpected status"), &detail)
}

fn of_errors(n: u64, of: u64, what: &str, detail: &[String]) -> Option<Doubt> {
    if n == 0 {
        return None;
    }
    let share = n as f64 / of.max(1) as f64;
    let detail = match detail {
        [] => String::new(),
        all => format!(" ({})", all.join(", ")),
    };
    let text = format!(
        "{} ({}) {what}{detail}; not counted as throughput",
        counted(n, "request", "requests"),
        percent(share),
    );
    doubt(Code::Errors, severity_of_errors(share), text)
}

/// Tolerance for the edges of windows.
const LITTLES_LAW_SLACK: f64 = 1.02;

/// Little's law: no more requests can be in flight than the connections allow. Describes a
/// violation. `room` is a factor for other inaccuracies: latencies that extend beyond the window,
/// rounded digits.
pub fn littles_law_violation(at_once: f64, connections: f64, room: f64) -> Option<String> {
    let broken = at_once > connections * LITTLES_LAW_SLACK * room;
    broken.then(|| {
        format!("throughput × mean latency is {at_once:.1} requests at once on {connections} connections")
    })
}

/// Ends messages about violations that only a wrong clock or a bug in tare explains.
pub const IMPOSSIBLE: &str = "this is impossible";

fn littles_law(traffic: &Traffic) -> Option<Doubt> {
    let text = littles_law_violation(
        traffic.mean_in_flight,
        f64::from(traffic.most_in_flight),
        traffic.littles_law_slack,
    )?;
    doubt(Code::LittlesLaw, Severity::Void, format!("{text}: {IMPOSSIBLE}"))
}

/// An open loop that reaches less than this share of the requested rate was not one.
pub const RATE_MET: f64 = 0.99;
/// Costs per request are comparable if the rates that both variants reached differ by at most this
/// share of the requested rate …
const RATES_ALIKE: f64 = 0.15;
/// … and are at least this share of it.
const RATE_MET_FOR_USE: f64 = 0.5;

fn rate_missed(traffic: &Traffic) -> Option<Doubt> {
    let due = traffic.due.filter(|due| *due > 0.0)?;
    let met = traffic.ended as f64 / due;
    if met >= RATE_MET - traffic.chance {
        return None;
    }
    let lag = traffic.lag_ns_p99.map_or(String::new(), |lag| {
        format!("; requests were sent up to {} late (p99)", duration(lag))
    });
    let text = format!(
        "only {} of the requests due were answered in time: the server cannot keep up with {}/s, \
         or -c {} is too low{lag}",
        percent(met),
        rate(traffic.rate_per_s),
        traffic.connections,
    );
    let is_alike = |baseline: f64| (met - baseline).abs() <= RATES_ALIKE;
    let is_enough = met >= RATE_MET_FOR_USE && traffic.baseline_met.is_some_and(is_alike);
    let severity = if is_enough { Severity::Warn } else { Severity::Void };
    doubt(Code::RateMissed, severity, text)
}

fn reconnects(traffic: &Traffic) -> Option<Doubt> {
    let closed = traffic.closed_by_server;
    if traffic.new_connections || closed == 0 {
        return None;
    }
    let often = match traffic.requests / closed {
        0 => "more often than once a request".to_owned(),
        each => format!("one for every {}", counted(each, "request", "requests")),
    };
    let text = format!(
        "the server closed {}, {often}; reopening them is part of its cost (nginx: \
         keepalive_requests)",
        counted(closed, "kept connection", "kept connections"),
    );
    doubt(Code::Reconnects, Severity::Warn, text)
}

/// A mean concurrency below this share of the requested one is reported.
const FULL: f64 = 0.9;

/// A closed loop on several streams that has fewer requests under way than it may have.
fn streams_limited(traffic: &Traffic) -> Option<Doubt> {
    let most = f64::from(traffic.most_in_flight);
    let is_full = traffic.mean_in_flight >= FULL * most;
    if traffic.is_open || traffic.streams < 2 || traffic.completed == 0 || is_full {
        return None;
    }
    let text = format!(
        "on average only {:.1} of {} requests were under way ({} connections × {} streams): the \
         server allows fewer streams, or closes connections",
        traffic.mean_in_flight, traffic.most_in_flight, traffic.connections, traffic.streams
    );
    doubt(Code::StreamsLimited, Severity::Warn, text)
}

/// Above this share of refused requests, latencies include the second attempts.
const RETRIED: f64 = 0.001;

fn retried(traffic: &Traffic) -> Option<Doubt> {
    let share = traffic.retried as f64 / traffic.started.max(1) as f64;
    if share <= RETRIED {
        return None;
    }
    let text = format!(
        "the server refused {} ({}) without processing them; they were sent again, and their latency \
         counts from the first time",
        counted(traffic.retried, "request", "requests"),
        percent(share)
    );
    doubt(Code::Retried, Severity::Warn, text)
}

/// If more than this share of replies have a pause within them, the pauses are systematic.
const HELD: f64 = 0.05;

fn delayed_ack(traffic: &Traffic) -> Option<Doubt> {
    let share = traffic.ack_delayed as f64 / traffic.good.max(1) as f64;
    if share <= HELD {
        return None;
    }
    let text = format!(
        "{:.0} % of its replies came in two pieces about 40 ms apart: the server waits for an \
         acknowledgement that the client's kernel delays; set TCP_NODELAY on the server, or write \
         head and body at once",
        share * 100.0
    );
    doubt(Code::DelayedAck, Severity::Warn, text)
}

/// Above this share of a CPU, the client may be what is measured.
pub const CLIENT_BUSY: f64 = 0.95;
/// Requests sent later than this after they were due are late, unless many waited for a connection.
const SENT_LATE_NS: u64 = 1_000_000;
/// Share of requests that may wait for a connection without counting as many.
const HARDLY_ANY: f64 = 0.01;

fn client_bound(traffic: &Traffic) -> Option<Doubt> {
    let clients = traffic.clients.as_ref().filter(|clients| clients.each.len() > 1);
    let text = if traffic.is_open {
        // Workers of an open loop poll for due times and are always busy, so the lag decides. Waits
        // for a connection are due to the server; the remaining lag is due to the client.
        let waited = traffic.waited as f64 / traffic.started.max(1) as f64;
        let lag = traffic.lag_ns_p99.filter(|lag| *lag > SENT_LATE_NS && waited < HARDLY_ANY)?;
        let latest = clients.and_then(ClientsSummary::latest);
        let latest = latest.map_or(String::new(), |latest| format!("; {latest}"));
        format!(
            "requests were sent late (lag p99 {}{latest}) though connections were free: the client \
             is short of CPU",
            duration(lag)
        )
    } else if let Some(clients) = clients {
        format!(
            "of the clients that made its load, {} had a worker that was busy nearly all the time: \
             they may be the bottleneck; give them more CPUs, or use more clients",
            clients.busy()?
        )
    } else if traffic.busiest_worker < CLIENT_BUSY {
        return None;
    } else {
        format!(
            "the load's {} was busy {} of the time: the client may be the bottleneck; give it more \
             threads (-t) and CPUs",
            if traffic.workers == 1 { "worker" } else { "busiest worker" },
            percent(traffic.busiest_worker)
        )
    };
    doubt(Code::ClientBound, Severity::Warn, text)
}

/// Share of handshakes that were not of the requested kind.
const RESUMED_SHARE: f64 = 0.02;

fn resumed(traffic: &Traffic) -> Option<Doubt> {
    let all = (traffic.handshakes_full + traffic.handshakes_resumed).max(1) as f64;
    let (wrong, text) = match traffic.resumes? {
        true => {
            let full = traffic.handshakes_full.saturating_sub(traffic.first_handshakes);
            (full, "full although resumption was requested")
        }
        false => (traffic.handshakes_resumed, "resumed although full ones were requested"),
    };
    let share = wrong as f64 / all;
    if share <= RESUMED_SHARE {
        return None;
    }
    let text = format!("{} of its handshakes were {text}", percent(share));
    doubt(Code::Resumed, Severity::Warn, text)
}

/// Requests that failed because no local port was free.
fn ports(traffic: &Traffic) -> Option<Doubt> {
    let (_, n, why) = traffic.errors.iter().find(|(kind, ..)| kind == "no_local_port")?;
    let share = *n as f64 / traffic.started.max(1) as f64;
    doubt(Code::Ports, severity_of_errors(share), why.clone())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twenty connections, all busy, nothing wrong.
    fn clean() -> Traffic {
        Traffic {
            connections: 20,
            most_in_flight: 20,
            workers: 1,
            started: 10_000,
            completed: 10_000,
            good: 10_000,
            ended: 10_000,
            requests: 10_000,
            mean_in_flight: 19.9,
            littles_law_slack: 1.0,
            busiest_worker: 0.6,
            ..Traffic::default()
        }
    }

    #[track_caller]
    fn trips(code: &str, severity: Severity, says: &str, change: impl FnOnce(&mut Traffic)) {
        let mut traffic = clean();
        change(&mut traffic);
        let all = traffic_doubts(&traffic);
        assert_eq!(all.len(), 1, "{all:?}");
        assert!(all[0].code == code && all[0].severity == severity, "{all:?}");
        assert!(all[0].text.contains(says), "{all:?}");
    }

    #[test]
    fn each_rule_sees_its_own_fault() {
        use Severity::{Void, Warn};
        assert_eq!(traffic_doubts(&clean()), []);
        let reset = |n| vec![("reset".to_owned(), n, "connection reset by peer".to_owned())];
        trips("errors", Warn, "10 requests (0.10 %) failed (reset 10: connection reset", |t| {
            (t.failed, t.errors) = (10, reset(10));
        });
        let given_up = "11 requests (0.11 %) failed (11 given up after the end); not counted";
        trips("errors", Void, given_up, |t| (t.failed, t.cut) = (11, 11));
        trips("errors", Void, "have an unexpected status (200: 9,900, 503: 100)", |t| {
            (t.good, t.status) = (9_900, vec![(200, 9_900), (503, 100)]);
        });
        let malformed =
            |n| vec![("malformed".to_owned(), n, "bytes that nobody asked for".to_owned())];
        let stray = "broke the protocol 3 times apart from the failed requests; first: bytes";
        trips("errors", Warn, stray, |t| t.errors = malformed(3));
        trips("errors", Void, "broke the protocol 30 times", |t| t.errors = malformed(30));
        trips("littles-law", Void, "20.5 requests at once on 20 connections", |t| {
            t.mean_in_flight = 20.5
        });
        trips("reconnects", Warn, "closed 20 kept connections, one for every 500 requests", |t| {
            t.closed_by_server = 20;
        });
        trips("client-bound", Warn, "the load's worker was busy 97.0 %", |t| {
            t.busiest_worker = 0.97;
        });
        trips("resumed", Warn, "3.00 % of its handshakes were resumed although", |t| {
            (t.resumes, t.handshakes_full, t.handshakes_resumed) = (Some(false), 97, 3);
        });
        trips("resumed", Warn, "97.0 % of its handshakes were full although", |t| {
            (t.resumes, t.handshakes_full, t.handshakes_resumed) = (Some(true), 97, 3);
        });
        trips("resumed", Warn, "47.0 % of its handshakes were full although", |t| {
            (t.resumes, t.first_handshakes) = (Some(true), 50);
            (t.handshakes_full, t.handshakes_resumed) = (97, 3);
        });
        let no_port = |n| vec![("no_local_port".to_owned(), n, "no free port".to_owned())];
        trips("ports", Warn, "no free port", |t| t.errors = no_port(10));
        trips("ports", Void, "no free port", |t| t.errors = no_port(11));
    }

    #[test]
    fn an_open_loop_is_judged_by_its_schedule_and_its_lag() {
        let open = |t: &mut Traffic, due| {
            (t.is_open, t.due, t.busiest_worker) = (true, Some(due), 1.0);
            (t.rate_per_s, t.lag_ns_p99) = (1000.0, Some(90_000));
        };
        let mut met = clean();
        open(&mut met, 10_050.0);
        assert_eq!(traffic_doubts(&met), []);
        trips("rate-missed", Severity::Void, "only 98.0 % of the requests due", |t| {
            open(t, 10_200.0);
        });
        let about_use = |due: f64, baseline_met, severity| {
            trips("rate-missed", severity, "of the requests due", |t| {
                open(t, due);
                t.baseline_met = Some(baseline_met);
            });
        };
        about_use(12_000.0, 0.85, Severity::Warn);
        about_use(12_000.0, 0.99, Severity::Void);
        about_use(30_000.0, 0.33, Severity::Void);
        let mut random = clean();
        open(&mut random, 10_200.0);
        random.chance = 0.03;
        assert_eq!(traffic_doubts(&random), [], "of random arrivals more may have been expected");
        trips("client-bound", Severity::Warn, "sent late (lag p99 5.00ms)", |t| {
            open(t, 10_000.0);
            t.lag_ns_p99 = Some(5_000_000);
        });
        let mut busy = clean();
        open(&mut busy, 10_000.0);
        (busy.lag_ns_p99, busy.waited) = (Some(5_000_000), 2_000);
        assert_eq!(traffic_doubts(&busy), [], "they waited for a connection, not for the client");
    }

    #[test]
    fn the_law_leaves_room_for_edges_and_no_more() {
        assert_eq!(littles_law_violation(20.3, 20.0, 1.0), None);
        assert!(littles_law_violation(20.5, 20.0, 1.0).is_some());
        assert_eq!(littles_law_violation(20.5, 20.0, 1.01), None);
    }
}
