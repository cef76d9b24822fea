//! A load as text.

use std::fmt::Write;

use tare_model::load::HTTP_2;

use crate::clients_summary::ClientsSummary;
use crate::format::{bytes, count, counted, duration, percent, rate};
use crate::load::guards::Severity;
use crate::load::{Bar, LoadReport, Series, Stage};

const BAR_WIDTH: usize = 40;

pub fn render(report: &LoadReport) -> String {
    let mut text = String::new();
    // Writing to a String cannot fail.
    let _ = write_report(&mut text, report);
    text
}

fn write_report(out: &mut String, report: &LoadReport) -> std::fmt::Result {
    let asked = &report.asked;
    writeln!(out, "{} {}", asked.method, asked.url)?;
    writeln!(out, "{}", how(report))?;
    if let Some(note) = &asked.reactor_note {
        writeln!(out, "epoll instead of io_uring: {note}")?;
    }
    if let Some(clients) = &report.clients {
        writeln!(out, "{}", made_by(clients))?;
    }
    writeln!(out)?;
    let interrupted = if report.interrupted { ", interrupted" } else { "" };
    let seconds = report.elapsed_ns as f64 / 1e9;
    row(out, "throughput", &format!("{}/s", rate(report.throughput_per_s)))?;
    let good = report.requests.good;
    let mut text = format!("{} good in {seconds:.2} s{interrupted}", count(good));
    // If nothing worked, show the reason.
    let most = report.errors.values().max_by_key(|error| error.count);
    if let (0, Some(error)) = (good, most) {
        let _ = write!(text, "; {} failed: {}", count(error.count), error.first);
    }
    row(out, "requests", &text)?;
    if let (Some(due), Some(per_s)) = (asked.due_requests, asked.rate_per_s) {
        let met = (report.requests.completed + report.requests.unfinished_drained) as f64;
        let share = percent((met / due.max(1.0)).min(1.0));
        let text = match report.stages.is_empty() {
            true => format!("{share} of {}/s asked", rate(per_s)),
            false => format!("{share} of the requests that were due"),
        };
        row(out, "achieved", &text)?;
    }
    for (n, stage) in report.stages.iter().enumerate() {
        row(out, &format!("stage {}", n + 1), &in_words(stage))?;
    }
    let per_s = |n: u64| bytes(n as f64 / seconds.max(1e-9));
    let text = format!(
        "{}/s received ({}/s of it bodies), {}/s sent",
        per_s(report.bytes.received),
        per_s(report.bytes.body),
        per_s(report.bytes.sent)
    );
    row(out, "transfer", &text)?;
    write_latencies(out, report)?;
    write_bars(out, &report.latency.bars)?;
    writeln!(out)?;
    write_ends(out, report)?;
    write_guards(out, report)
}

/// Describes which clients made the load, and how evenly.
fn made_by(clients: &ClientsSummary) -> String {
    let seen: Vec<&str> = clients.each.iter().filter_map(|c| c.seen.as_deref()).collect();
    if let [seen] = seen[..] {
        return format!("from {seen}");
    }
    let (least, most) = clients.spread();
    let good = match most {
        0 => "none has a good reply".into(),
        _ => format!("good replies of each: {} to {}", count(least), count(most)),
    };
    let mut text = format!(
        "from {} clients, begun within {} (clocks known to ± {}); {good}",
        clients.each.len(),
        duration(clients.start_skew_ns_p99),
        duration(clients.clock_error_ns),
    );
    for (at, seen) in seen.iter().enumerate() {
        text += &format!("\n  {}: {seen}", at + 1);
    }
    text
}

/// Describes a stage: `10.0s at 1,000/s: 999/s good`.
fn in_words(stage: &Stage) -> String {
    let asked = match stage.from_per_s == stage.to_per_s {
        true => format!("at {}/s", rate(stage.from_per_s)),
        false => format!("from {}/s to {}/s", rate(stage.from_per_s), rate(stage.to_per_s)),
    };
    let good =
        stage.good_per_s.map_or("not reached".into(), |good| format!("{}/s good", rate(good)));
    format!("{} {asked}: {good}", duration(stage.end_ns - stage.start_ns))
}

fn how(report: &LoadReport) -> String {
    let asked = &report.asked;
    let pacing = match asked.rate_per_s {
        None => "closed loop".to_owned(),
        Some(per_s) => {
            let law = if asked.poisson { "Poisson" } else { "even" };
            match report.stages.len() {
                0 => format!("open loop, {}/s {law}", rate(per_s)),
                n => {
                    let stages = counted(n as u64, "stage", "stages");
                    format!("open loop, {stages} up to {}/s, {law}", rate(per_s))
                }
            }
        }
    };
    let http = match (asked.protocol.as_str(), asked.streams) {
        (HTTP_2, 1) => ", HTTP/2",
        (HTTP_2, n) => &format!(" × {} streams, HTTP/2", count(n.into())),
        _ => "",
    };
    let connections = match (asked.new_connections, asked.max_connections > asked.connections) {
        (true, _) => {
            format!("a new connection each, {} at a time", count(asked.connections.into()))
        }
        (false, false) => format!("{} kept connections", count(asked.connections.into())),
        (false, true) => {
            format!("{} to {} kept connections", asked.connections, asked.max_connections)
        }
    };
    let tls = match (asked.tls, asked.tls_resume) {
        (false, _) => "",
        (true, false) => ", TLS",
        (true, true) => ", TLS resumed",
    };
    let threads =
        if asked.workers == 1 { "1 thread" } else { &format!("{} threads", asked.workers) };
    let polls = if asked.polls { ", polling" } else { "" };
    format!(
        "{pacing}, {connections}{http}{tls}, {threads} on {}{polls}, seed {}",
        asked.reactor, asked.seed
    )
}

fn row(out: &mut String, name: &str, text: &str) -> std::fmt::Result {
    writeln!(out, "  {name:<12} {text}")
}

fn write_latencies(out: &mut String, report: &LoadReport) -> std::fmt::Result {
    let latency = &report.latency;
    let total = if report.asked.new_connections { "total" } else { "latency" };
    let rows = match report.asked.pacing.as_str() {
        "open" => vec![
            ("from due", &latency.from_due),
            ("from sent", &latency.from_sent),
            ("send lag", &latency.send_lag),
        ],
        _ => vec![(total, &latency.from_sent)],
    };
    let phases =
        [("connect", &latency.connect), ("TLS", &latency.tls), ("first byte", &latency.first_byte)];
    let rows: Vec<(&str, &Series)> = rows
        .into_iter()
        .chain(phases)
        .filter_map(|(name, series)| Some((name, series.as_ref()?)))
        .collect();
    let Some((_, widest)) = rows.first() else { return Ok(()) };
    write!(out, "\n  {:<12}", "")?;
    for (name, _) in widest.percentiles() {
        write!(out, " {name:>8}")?;
    }
    writeln!(out, " {:>8} {:>8}", "mean", "max")?;
    for (name, series) in rows {
        write!(out, "  {name:<12}")?;
        for (_, ns) in series.percentiles() {
            write!(out, " {:>8}", duration(ns))?;
        }
        writeln!(out, " {:>8} {:>8}", duration(series.ns_mean), duration(series.ns_max))?;
    }
    Ok(())
}

fn write_bars(out: &mut String, bars: &[Bar]) -> std::fmt::Result {
    let total: u64 = bars.iter().map(|bar| bar.count).sum();
    let most = bars.iter().map(|bar| bar.count).max().unwrap_or(0);
    if total == 0 {
        return Ok(());
    }
    writeln!(out)?;
    for bar in bars {
        let width = bar.count as f64 / most as f64 * BAR_WIDTH as f64;
        let share = percent(bar.count as f64 / total as f64);
        writeln!(
            out,
            "  ≤ {:<10} {:<BAR_WIDTH$} {share:>8}",
            duration(bar.ns_up_to),
            block(width)
        )?;
    }
    Ok(())
}

/// Returns a bar this many characters wide, to an eighth; values above zero are visible.
fn block(width: f64) -> String {
    let eighths = ["", "▏", "▎", "▍", "▌", "▋", "▊", "▉"];
    let (whole, part) = (width.floor() as usize, ((width.fract()) * 8.0) as usize);
    let tip = if whole == 0 && part == 0 && width > 0.0 { "▏" } else { eighths[part] };
    format!("{}{tip}", "█".repeat(whole))
}

fn write_ends(out: &mut String, report: &LoadReport) -> std::fmt::Result {
    let connections = &report.connections;
    let mut text = format!("{} opened", count(connections.opened));
    for (n, what) in [
        (connections.not_opened, "could not be opened"),
        (connections.closed_by_server, "closed by the server"),
        (connections.closed_by_client, "closed by tare"),
    ] {
        if n > 0 {
            let _ = write!(text, ", {} {what}", count(n));
        }
    }
    row(out, "connections", &text)?;
    if report.asked.tls {
        let (full, resumed) = (connections.handshakes_full, connections.handshakes_resumed);
        row(out, "handshakes", &format!("{} full, {} resumed", count(full), count(resumed)))?;
    }
    let statuses: Vec<_> =
        report.status.iter().map(|(status, n)| format!("{status}: {}", count(*n))).collect();
    row(out, "statuses", &if statuses.is_empty() { "none".into() } else { statuses.join(", ") })?;
    for (kind, error) in &report.errors {
        let text = format!("{} {}: {}", count(error.count), kind.replace('_', " "), error.first);
        row(out, "errors", &text)?;
    }
    let requests = &report.requests;
    if requests.unfinished > 0 {
        let mut text = format!("{} at the end:", count(requests.unfinished));
        for (n, what) in [
            (requests.unfinished_drained, "answered later"),
            (requests.unfinished_cut, "given up"),
            (requests.unfinished_unsent, "never sent"),
        ] {
            if n > 0 {
                let _ = write!(text, " {} {what},", count(n));
            }
        }
        let oldest = duration(requests.unfinished_oldest_ns);
        row(out, "unfinished", &format!("{text} the oldest after {oldest}"))?;
    }
    let busy = percent(report.client.busiest_worker_share);
    let mut text = match report.client.cpu_ns_per_request {
        Some(ns) => format!("{} CPU per request, busiest thread {busy} busy", duration(ns as u64)),
        None => format!("busiest thread {busy} busy, polling for due times included"),
    };
    if let Some(linger) = report.asked.reap_linger_ns {
        let _ = write!(text, "; replies reaped in batches, {} late at most", duration(linger));
    }
    row(out, "client", &text)
}

fn write_guards(out: &mut String, report: &LoadReport) -> std::fmt::Result {
    for (at, guard) in report.guards.iter().enumerate() {
        if at == 0 {
            writeln!(out)?;
        }
        let word = match guard.severity {
            Severity::Note => "note",
            Severity::Warn => "warning",
            Severity::Void => "VOID",
        };
        writeln!(out, "  {word} {}: {}", guard.code, guard.text)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::load::guards;
    use crate::load::tests::{report, series};

    #[test]
    fn stages_show_what_each_was_given() {
        let mut report = report();
        (report.asked.pacing, report.asked.rate_per_s) = ("open".into(), Some(2000.0));
        report.asked.due_requests = Some(20_000.0);
        let asked = |start: u64, end: u64, from_per_s, to_per_s| {
            let (start_ns, end_ns) = (start * 500_000_000, end * 500_000_000);
            let stage = Stage { start_ns, end_ns, from_per_s, to_per_s, good_per_s: None };
            stage.measured(&report.intervals)
        };
        let stages = vec![asked(0, 3, 1000.0, 1000.0), asked(3, 4, 0.0, 2000.0)];
        report.stages = stages.into_iter().chain([asked(4, 9, 1.0, 1.0)]).collect();
        let text = render(&report);
        for line in [
            "open loop, 3 stages up to 2,000/s, even, 20 kept connections",
            "achieved     100.0 % of the requests that were due",
            "stage 1      1.50s at 1,000/s: ",
            "stage 2      500ms from 0.00/s to 2,000/s: ",
            "stage 3      2.50s at 1.00/s: not reached",
        ] {
            assert!(text.contains(line), "{line}:\n{text}");
        }
    }

    #[test]
    fn closed_loop() {
        let mut report = report();
        report.guards = guards::load_doubts(&report);
        let expected = "\
GET http://localhost:8080/
closed loop, 20 kept connections, 1 thread on io_uring, seed 42

  throughput   10,000/s
  requests     20,000 good in 2.00 s
  transfer     8.50 MB/s received (6.12 MB/s of it bodies), 800 kB/s sent

                    p50      p75      p90      p95      p99    p99.9     mean      max
  latency         144µs    288µs    432µs    576µs    720µs   1.30ms    145µs   2.88ms

  ≤ 100µs      █████████████▎                             20.0 %
  ≤ 200µs      ████████████████████████████████████████   60.0 %
  ≤ 500µs      █████████████▎                             20.0 %
  ≤ 1.00ms     ▏                                          0.05 %

  connections  21 opened, 1 closed by the server
  statuses     200: 20,000
  errors       1 reset: connection reset by peer
  unfinished   20 at the end: 20 answered later, the oldest after 1.30ms
  client       5.50µs CPU per request, busiest thread 5.50 % busy; replies reaped in batches, 50.0µs late at most

  warning errors: 1 request (< 0.01 %) failed (reset 1: connection reset by peer); not counted as throughput
  warning reconnects: the server closed 1 kept connection, one for every 20,000 requests; reopening them is part of its cost (nginx: keepalive_requests)
";
        assert_eq!(render(&report), expected);
    }

    #[test]
    fn open_loop_and_new_connections_show_their_series() {
        let mut report = report();
        report.asked.pacing = "open".into();
        report.asked.rate_per_s = Some(10_000.0);
        report.asked.due_requests = Some(20_000.0);
        report.asked.new_connections = true;
        report.latency.headline = "from_due".into();
        report.latency.from_due = Some(series(20_000, 150_000));
        report.latency.send_lag = Some(series(20_000, 1_000));
        report.latency.connect = Some(series(20_000, 40_000));
        report.client.cpu_ns_per_request = None;
        let text = render(&report);
        for line in [
            "open loop, 10,000/s even, a new connection each, 20 at a time, 1 thread on io_uring, seed 42",
            "  achieved     100.0 % of 10,000/s asked",
            "  from due        150µs    300µs    450µs    600µs    750µs   1.35ms    151µs   3.00ms",
            "  send lag       1.00µs   2.00µs   3.00µs   4.00µs   5.00µs   9.00µs   2.00µs   20.0µs",
            "  connect        40.0µs   80.0µs    120µs    160µs    200µs    360µs   41.0µs    800µs",
        ] {
            assert!(text.lines().any(|l| l == line), "{line}\nis not in\n{text}");
        }
    }

    #[test]
    fn every_number_in_the_text_comes_from_the_report() {
        // A changed digit of the report must change the text.
        let mut changed = report();
        changed.throughput_per_s += 1.0;
        assert_ne!(render(&changed), render(&report()));
        let mut changed = report();
        changed.latency.from_sent.as_mut().unwrap().ns_p99 = Some(721_000);
        assert_ne!(render(&changed), render(&report()));
    }
}
