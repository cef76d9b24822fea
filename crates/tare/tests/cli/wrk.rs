//! `tare wrk`, also through links: output that parsers of the originals read, and unchanged
//! scripts. The amount of load per second is not tested here.

use tare_target::behaviour::Behaviour;
use tare_target::stats::Counter;

use crate::util::{Folder, Ran, Server, command, ran, tare};

/// Output as people's scripts parse it: labels, columns, units.
struct Parsed {
    latency_us: Vec<f64>,
    per_thread: Vec<f64>,
    requests: u64,
    per_s: f64,
    transfer: f64,
    distribution: Vec<(f64, f64)>,
}

fn number(text: &str) -> f64 {
    let digits = text.find(|c: char| c.is_ascii_alphabetic() || c == '%').unwrap_or(text.len());
    let (value, unit) = text.split_at(digits);
    let scale = match unit {
        "" | "us" | "%" | "B" => 1.0,
        "ms" | "k" => 1e3,
        "s" | "M" => 1e6,
        "m" => 60e6,
        "KB" => 1024.0,
        "MB" => 1024.0 * 1024.0,
        "GB" => 1024.0 * 1024.0 * 1024.0,
        _ => panic!("unit {unit:?} in {text:?}"),
    };
    value.parse::<f64>().unwrap_or_else(|_| panic!("{text:?}")) * scale
}

fn parse(ran: &Ran) -> Parsed {
    let find = |label: &str| {
        let line = ran.stdout.lines().find(|line| line.trim_start().starts_with(label));
        line.unwrap_or_else(|| panic!("{label:?} is missing\n{}", ran.story())).trim()
    };
    let row =
        |label: &str| find(label)[label.len()..].split_whitespace().map(number).collect::<Vec<_>>();
    let count = ran.stdout.lines().find(|line| line.contains(" requests in ")).unwrap();
    let lines = ran.stdout.lines().skip_while(|line| !line.contains("Latency Distribution"));
    let distribution = lines
        .skip(1)
        .map_while(|line| {
            let (percent, value) = line.trim().split_once('%')?;
            Some((percent.parse().ok()?, number(value.trim())))
        })
        .collect();
    Parsed {
        latency_us: row("Latency  "),
        per_thread: row("Req/Sec"),
        requests: count.split_whitespace().next().unwrap().parse().unwrap(),
        per_s: row("Requests/sec:")[0],
        transfer: row("Transfer/sec:")[0],
        distribution,
    }
}

fn linked(name: &str, args: &[&str]) -> Ran {
    let folder = Folder::new(&format!("link-{name}-{:?}", std::thread::current().id()));
    let link = folder.file(name);
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_tare"), &link).unwrap();
    ran(command(link).args(args))
}

fn check(parsed: &Parsed, server: &Server) {
    assert_eq!((parsed.latency_us.len(), parsed.per_thread.len()), (4, 4));
    assert!(parsed.requests > 0 && parsed.requests <= server.target.stats.get(Counter::Requests));
    assert!(parsed.per_s > 0.0 && parsed.transfer > parsed.per_s * 612.0);
    assert!(parsed.latency_us[0] <= parsed.latency_us[2], "mean ≤ max");
}

#[test]
fn through_a_link_named_wrk() {
    let server = Server::start(Behaviour::default());
    let ran = linked("wrk", &["-t2", "-c50", "-d1s", "--latency", &server.url()]).measured();
    let parsed = parse(&ran);
    check(&parsed, &server);
    let percents: Vec<_> = parsed.distribution.iter().map(|(percent, _)| *percent).collect();
    assert_eq!(percents, [50.0, 75.0, 90.0, 99.0]);
    assert!(ran.stdout.starts_with(&format!(
        "Running 1s test @ {}\n  2 threads and 50 connections\n",
        server.url()
    )));
}

#[test]
fn through_a_link_named_wrk2() {
    let server = Server::start(Behaviour::default());
    let ran =
        linked("wrk2", &["-t2", "-c100", "-d1", "-R1k", "-L", "-U", &server.url()]).measured();
    let parsed = parse(&ran);
    check(&parsed, &server);
    let percents: Vec<_> = parsed.distribution.iter().map(|(percent, _)| *percent).collect();
    assert_eq!(percents, [50.0, 75.0, 90.0, 99.0, 99.9, 99.99, 99.999, 100.0]);
    // The spectrum: rising values, percentiles and counts, up to all.
    let rows: Vec<Vec<f64>> = ran
        .stdout
        .lines()
        .skip_while(|line| !line.contains("1/(1-Percentile)"))
        .skip(2)
        .take_while(|line| !line.starts_with('#'))
        .map(|line| line.split_whitespace().map(|word| word.parse().unwrap()).collect())
        .collect();
    assert!(
        rows.windows(2).all(|w| w[0][0] <= w[1][0] && w[0][1] <= w[1][1] && w[0][2] <= w[1][2])
    );
    assert_eq!((rows[0][1], rows.last().unwrap()[1]), (0.0, 1.0));
    assert_eq!(rows.last().unwrap()[2], parsed.requests as f64);
    assert_eq!(ran.stdout.matches("#[Mean    =").count(), 2, "-U adds a second spectrum");
    linked("wrk2", &["-c1", "-t1", &server.url()]).fails(2, "wrk2 needs a rate: give -R");
}

#[test]
fn what_wrk_hides_is_said_on_standard_error() {
    let behaviour = Behaviour { error_rate: 0.5, close_after: Some(100), ..Default::default() };
    let server = Server::start(behaviour);
    let ran = tare(&["wrk", "-t1", "-c2", "-d1", &server.url()]).measured();
    assert!(ran.stdout.contains("  Non-2xx or 3xx responses: "), "{}", ran.story());
    assert!(
        ran.stderr.contains("are errors (status 400 and above), though Requests/sec counts them")
    );
    assert!(ran.stderr.contains("tare: warning reconnects: the server closed "), "{}", ran.story());
    let server = Server::start(Behaviour { reset_rate: 0.5, ..Default::default() });
    let ran = tare(&["wrk", "-t1", "-c2", "-d1", &server.url()]).measured();
    assert!(ran.stdout.contains("  Socket errors: connect 0, read "), "{}", ran.story());
    assert!(ran.stderr.contains(") failed (reset "), "{}", ran.story());
}

fn script(name: &str, server: &Server, more: &[&str]) -> Ran {
    let path = format!("{}/tests/cli/lua/{name}.lua", env!("CARGO_MANIFEST_DIR"));
    let url = server.url();
    let args = [&["wrk", "-t2", "-c4", "-d1", "-s", &path, &url], more].concat();
    tare(&args).measured()
}

#[test]
fn scripts_run_unchanged() {
    let server = || Server::start(Behaviour::default());
    let requests = |server: &Server| server.target.stats.get(Counter::Requests);

    let one = server();
    let ran = script("addr", &one, &[]);
    let told = format!("thread addr: {}", one.address());
    assert_eq!(ran.stdout.matches(&told).count(), 2, "{}", ran.story());

    let one = server();
    let ran = script("auth", &one, &[]);
    let with_token: u64 =
        ran.stdout.lines().find_map(|l| l.strip_prefix("with token: ")).unwrap().parse().unwrap();
    assert!(with_token > 0, "{}", ran.story());

    let one = server();
    assert!(parse(&script("counter", &one, &[])).requests > 0);

    let one = server();
    // Four connections with 10 to 50 ms per request make at most 400 requests in a second; without
    // the delay there would be ten times more.
    let requests_of_delay = parse(&script("delay", &one, &[])).requests;
    assert!((1..1000).contains(&requests_of_delay), "{requests_of_delay}");

    let one = server();
    let parsed = parse(&script("pipeline", &one, &[]));
    assert!(requests(&one) % 3 == 0 && parsed.requests <= requests(&one));

    let one = server();
    assert!(parse(&script("post", &one, &[])).requests > 0);
    assert!(one.target.stats.get(Counter::ReceivedBytes) / requests(&one) > 120, "bodies arrived");

    let one = server();
    let ran = script("report", &one, &[]);
    let parsed = parse(&ran);
    let bytes = ran.stdout.lines().find(|l| l.starts_with("summary\ttrue\t")).unwrap();
    assert!(bytes.starts_with(&format!("summary\ttrue\t{}\t", parsed.requests)), "{}", ran.story());
    for line in ["errors\t0\t0\t0\t0\t0", "rising\ttrue", "counted\ttrue\ttrue\ttrue", "rate\ttrue"]
    {
        assert!(ran.stdout.lines().any(|l| l == line), "{line}\n{}", ran.story());
    }

    let one = server();
    let ran = script("setup", &one, &["--", "some", "args"]);
    for line in [
        format!("thread 1 created, args {} some args", one.url()),
        format!("thread 2 created, args {} some args", one.url()),
        "all responses seen\ttrue".to_owned(),
    ] {
        assert!(ran.stdout.lines().any(|l| l == line), "{line}\n{}", ran.story());
    }

    let one = server();
    let ran = tare(&[
        "wrk",
        "-t2",
        "-c2",
        "-d60",
        "-s",
        concat!(env!("CARGO_MANIFEST_DIR"), "/tests/cli/lua/stop.lua"),
        &one.url(),
    ])
    .measured();
    let n = parse(&ran).requests;
    assert!((200..=204).contains(&n), "two threads of a hundred: {n}");
}

#[test]
fn broken_scripts_say_where() {
    let server = Server::start(Behaviour::default());
    let folder = Folder::new("broken-lua");
    for (text, message) in [
        ("function request( return end", "script: syntax error: "),
        ("error('at once')", "at once"),
        (
            "function request() return 'nonsense' end",
            "request() does not give a whole HTTP request",
        ),
        (
            "local n = 0; function request() n = n + 1; if n > 5 then error('later') end; return wrk.format() end",
            "later",
        ),
        ("function done() local x = nil; x.y = 1 end", "attempt to index local 'x'"),
        (
            "function setup(thread) thread:set('f', function() end) end",
            "cannot transfer 'function' to thread",
        ),
    ] {
        let path = folder.file("broken.lua");
        std::fs::write(&path, text).unwrap();
        let ran = tare(&["wrk", "-t1", "-c1", "-d1", "-s", path.to_str().unwrap(), &server.url()]);
        assert_eq!(ran.code, Some(2), "{text}\n{}", ran.story());
        assert!(
            ran.stderr.lines().any(|l| l.starts_with("tare: ") && l.contains(message)),
            "{text}\n{}",
            ran.story()
        );
    }
}
