//! HTTP/2 from the user's side.

use tare_report::load::LoadReport;
use tare_target::behaviour::{Behaviour, Http2Behaviour};
use tare_target::stats::Counter;

use crate::runs::Desk;
use crate::util::{Server, load_json, tare};

fn server(http2: Http2Behaviour) -> Server {
    Server::start(Behaviour { http2: Some(http2), ..Behaviour::default() })
}

fn codes(report: &LoadReport) -> Vec<String> {
    report.guards.iter().map(|guard| guard.code.to_string()).collect()
}

#[test]
fn output_shows_version_and_streams() {
    let server = server(Http2Behaviour::default());
    let load = |more: &[&str]| {
        tare(&[&["load", &server.url(), "--http2", "-n", "500"], more].concat()).success()
    };
    let told = load(&["-c", "3", "--streams", "5"]);
    assert!(told.stdout.contains("3 kept connections × 5 streams, HTTP/2,"), "{}", told.story());
    let told = load(&["-c", "3", "--rate", "20k", "--no-hpack-table"]);
    assert!(told.stdout.contains("3 kept connections, HTTP/2,"), "{}", told.story());
    load(&["--new-connections", "-X", "POST", "-b", "some text"]);
    assert_eq!(server.target.stats.get(Counter::Requests), 1500);
    assert_eq!(server.target.stats.get(Counter::BadRequests), 0);
    let report = load_json(&[&server.url(), "--http2", "--streams", "2", "-n", "10"]);
    assert_eq!((report.asked.protocol.as_str(), report.asked.streams), ("2", 2));
}

#[test]
fn refusals_limits_and_goaway_are_reported() {
    let refusing = Http2Behaviour { refuse_rate: 0.05, ..Http2Behaviour::default() };
    let refusing = server(refusing);
    let report = load_json(&[&refusing.url(), "--http2", "--streams", "8", "-n", "3000"]);
    assert_eq!((report.requests.good, report.requests.failed), (3000, 0));
    assert!(report.requests.retried > 50, "{:?}", report.requests);
    assert!(codes(&report).contains(&"retried".to_owned()), "{:?}", codes(&report));

    let limited = server(Http2Behaviour { streams: vec![2], ..Http2Behaviour::default() });
    let report = load_json(&[&limited.url(), "--http2", "--streams", "8", "-n", "3000"]);
    assert!(codes(&report).contains(&"streams-limited".to_owned()), "{:?}", codes(&report));

    let behaviour = Behaviour {
        http2: Some(Http2Behaviour::default()),
        close_after: Some(100),
        ..Behaviour::default()
    };
    let leaving = Server::start(behaviour);
    let report = load_json(&[&leaving.url(), "--http2", "--streams", "8", "-n", "3000"]);
    assert_eq!((report.requests.good, report.requests.failed), (3000, 0));
    assert!(codes(&report).contains(&"reconnects".to_owned()), "{:?}", codes(&report));
}

#[test]
fn a_server_of_the_other_version_is_reported_in_one_line() {
    let (one, two) = (Server::start(Behaviour::default()), server(Http2Behaviour::default()));
    let tls = Server::with_tls(Behaviour::default());
    tare(&["load", &one.url(), "--http2", "-n", "10"])
        .fails(4, "does not speak HTTP/2 on this port");
    tare(&["load", &tls.url(), "-k", "--http2", "-n", "10"])
        .fails(4, "does not speak HTTP/2 on this port");
    tare(&["load", &two.url(), "-n", "10"]).fails(4, "the server speaks only HTTP/2: use --http2");
    for (words, why) in [
        (&["--streams", "4"][..], "--http2"),
        (&["--http2", "--http1.1"], "cannot be used with"),
        (&["--http2", "--streams", "0"], "0 is not in 1..=10000"),
        (&["--http2", "-H", "Connection: close"], "is not allowed in HTTP/2"),
        (
            &["--http2", "--new-connections", "--streams", "2"],
            "each connection carries one request",
        ),
    ] {
        tare(&[&["load", &two.url(), "-n", "1"], words].concat()).fails(2, why);
    }
}

#[test]
fn variants_may_divide_the_same_requests_among_streams() {
    let desk = Desk::new("http2-variants");
    let experiment = |load: &str| {
        format!(
            "name = \"streams\"\n[load]\nconnections = 6\nthreads = 1\n\
             [stop]\nrounds = 1\nmax_time = \"60s\"\n[slices]\nwindow = \"5ms\"\ncycles = 2\n\
             [server.one]\ntarget = {{}}\n[server.two]\ntarget = {{ http2 = true }}\n\
             [[variant]]\nname = \"one\"\nserver = \"one\"\nbaseline = true\n\
             [[variant]]\nname = \"two\"\nserver = \"two\"\nmay_differ = [\"headers\"]\n\
             load = {load}\n"
        )
    };
    let good = experiment("{ http = \"2\", connections = 2, streams = 3 }");
    let path = desk.file("streams.toml", &good);
    let path = path.to_str().unwrap();
    let ran = desk.tare(&["run", path, "-q"]).measured();
    let words = "6 connections; two: 2 connections × 3 streams, HTTP/2";
    assert!(ran.stdout.contains(words), "{}", ran.story());
    assert!(!ran.stdout.contains("replies differ"), "{}", ran.story());
    for (load, why) in [
        ("{ http = \"3\" }", "variant 'two': http = \"3\": write \"1.1\" or \"2\""),
        ("{ streams = 3 }", "variant 'two': streams goes with http = \"2\""),
        ("{ rate = 3 }", "unknown key 'rate'; known are connections, http, streams"),
    ] {
        desk.file("streams.toml", &experiment(load));
        desk.tare(&["run", path, "--dry-run"]).fails(2, why);
    }
}
