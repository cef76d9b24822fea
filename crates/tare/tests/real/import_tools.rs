//! Real tools on a real server: an import holds what the tool printed.

use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::runs::Desk;
use crate::util::{Server, str};
use crate::wait::until;

/// A server, and a desk for imports.
struct Bench {
    server: Server,
    desk: Desk,
}

/// One of a tool's two output streams.
enum Printed {
    Output,
    Errors,
}

/// One output as imported.
struct Read(Value);

impl Bench {
    fn new(name: &str) -> Self {
        Self { server: Server::start(Default::default()), desk: Desk::new(name) }
    }

    /// Runs a tool to its end; returns what it prints.
    fn run(&self, program: &str, args: &[&str]) -> String {
        self.run_for(Printed::Output, program, args)
    }

    fn run_for(&self, printed: Printed, program: &str, args: &[&str]) -> String {
        let peers = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/peers/bin");
        let built = peers.join(program);
        let program = if built.exists() { built } else { program.into() };
        let output = Command::new(&program).args(args).current_dir(&self.desk.folder.0).output();
        let output = output.unwrap_or_else(|error| {
            panic!("{}: {error}; 'make setup' installs it", program.display())
        });
        assert!(output.status.success(), "{output:?}");
        let bytes = match printed {
            Printed::Output => output.stdout,
            Printed::Errors => output.stderr,
        };
        String::from_utf8_lossy(&bytes).into_owned()
    }

    fn import(&self, name: &str, text: &str) -> Vec<Read> {
        let path = self.desk.file(name, text);
        self.import_file(str(&path))
    }

    fn import_file(&self, path: &str) -> Vec<Read> {
        let told = self.desk.tare(&["import", path, "--json", "-"]).success().stdout;
        let audit: Value = serde_json::from_str(&told).unwrap();
        audit["import"]["samples"].as_array().unwrap().iter().cloned().map(Read).collect()
    }
}

impl Read {
    fn value(&self, key: &str) -> f64 {
        self.0["values"][key].as_f64().unwrap_or_else(|| panic!("no {key} in {}", self.0))
    }

    fn seen(&self, key: &str) -> f64 {
        self.0["seen"][key].as_f64().unwrap_or_else(|| panic!("no {key} in {}", self.0))
    }

    #[track_caller]
    fn is(&self, tool: &str) -> &Self {
        assert_eq!(self.0["tool"], tool);
        self
    }

    fn percentile(&self, percent: f64) -> f64 {
        let all = self.0["percentiles"].as_array().unwrap();
        let found = all.iter().find(|p| p["percent"] == percent);
        found.unwrap_or_else(|| panic!("no p{percent} in {}", self.0))["ns"].as_f64().unwrap()
    }
}

/// Returns the words after a label, wherever it is.
fn after<'a>(text: &'a str, label: &str) -> Vec<&'a str> {
    let (_, rest) = text.split_once(label).unwrap_or_else(|| panic!("no {label} in {text}"));
    rest.lines().next().unwrap().split_whitespace().collect()
}

/// The value agrees with the digits that the tool printed.
#[track_caller]
fn prints(value: f64, printed: &str) {
    let digits =
        printed.trim_end_matches(|c: char| c.is_alphabetic() || c == '%' || c == ',' || c == 'µ');
    let unit = printed[digits.len()..].trim_end_matches(',');
    let scale = match unit {
        "us" | "µs" => 1e3,
        "ms" => 1e6,
        "s" => 1e9,
        _ => 1.0,
    };
    let expected: f64 = digits.parse::<f64>().unwrap() * scale;
    assert!((value - expected).abs() <= expected.abs() * 1e-9, "{value} is not {printed}");
}

#[test]
fn wrk() {
    let bench = Bench::new("tool-wrk");
    let url = bench.server.url();
    let text = bench.run("wrk", &["-t2", "-c8", "-d1s", "--latency", &url]);
    let read = bench.import("wrk.txt", &text);
    let [read] = read.as_slice() else { panic!("{text}") };
    read.is("wrk");
    prints(read.value("throughput_per_s"), after(&text, "Requests/sec:")[0]);
    prints(read.value("latency_ns_mean"), after(&text, "    Latency ")[0]);
    prints(read.value("latency_ns_p50"), after(&text, " 50%")[0]);
    prints(read.value("latency_ns_p99"), after(&text, " 99%")[0]);
    let (before, rest) = text.split_once(" requests in ").unwrap();
    prints(read.seen("requests"), before.split_whitespace().last().unwrap());
    prints(read.seen("seconds") * 1e9, rest.split(',').next().unwrap());
    assert_eq!(read.0["asked"]["url"], url.as_str());
    assert_eq!(
        (read.0["asked"]["threads"].as_u64(), read.0["asked"]["connections"].as_u64()),
        (Some(2), Some(8))
    );
    // The target sends 612 bytes of body and 87 of headers; wrk prints three digits.
    let reply = read.seen("bytes") / read.seen("requests");
    assert!((reply / 699.0 - 1.0).abs() < 0.01, "{reply}");
}

/// No package of wrk2 exists, so this is tare's own, tested against wrk2's description.
#[test]
fn wrk2_by_tares_own_hand() {
    let bench = Bench::new("tool-wrk2");
    let ran = bench.desk.tare(&["wrk", "-t1", "-c4", "-d1s", "-R500", "-L", &bench.server.url()]);
    let text = ran.success().stdout;
    let read = bench.import("wrk2.txt", &text);
    let [read] = read.as_slice() else { panic!("{text}") };
    prints(read.is("wrk2").value("throughput_per_s"), after(&text, "Requests/sec:")[0]);
    prints(read.value("latency_ns_p99_9"), after(&text, " 99.900%")[0]);
    prints(read.percentile(99.999), after(&text, " 99.999%")[0]);
}

#[test]
fn ab() {
    let bench = Bench::new("tool-ab");
    let text = bench.run("ab", &["-n", "2000", "-c", "4", "-k", &bench.server.url()]);
    let read = bench.import("ab.txt", &text);
    let [read] = read.as_slice() else { panic!("{text}") };
    prints(read.is("ab").value("throughput_per_s"), after(&text, "Requests per second:")[0]);
    prints(read.value("latency_ns_mean") / 1e6, after(&text, "Total:   ")[1]);
    prints(read.seen("requests"), after(&text, "Complete requests:")[0]);
    prints(read.seen("bytes"), after(&text, "Total transferred:")[0]);
    prints(read.seen("seconds"), after(&text, "Time taken for tests:")[0]);
    prints(read.percentile(99.0) / 1e6, after(&text, "  99%")[0]);
    assert_eq!(read.0["asked"]["connections"], 4);
    assert_eq!(read.0["asked"]["keep"], true);
    assert_eq!(read.0["asked"]["url"], bench.server.url());
}

#[test]
fn h2load() {
    let bench = Bench::new("tool-h2load");
    let text = bench.run("h2load", &["--h1", "-n2000", "-c4", "-t2", &bench.server.url()]);
    let read = bench.import("h2load.txt", &text);
    let [read] = read.as_slice() else { panic!("{text}") };
    let finished = after(&text, "finished in ");
    prints(read.is("h2load").value("throughput_per_s"), finished[1]);
    prints(read.seen("seconds") * 1e9, finished[0]);
    prints(read.value("latency_ns_mean"), after(&text, "time for request:")[2]);
    prints(read.seen("latency_max_ns"), after(&text, "time for request:")[1]);
    assert_eq!((read.seen("requests"), read.seen("bytes")), (2000.0, 2000.0 * 699.0));
    assert_eq!(
        (read.0["asked"]["threads"].as_u64(), read.0["asked"]["connections"].as_u64()),
        (Some(2), Some(4))
    );
}

#[test]
fn hey() {
    let bench = Bench::new("tool-hey");
    let text = bench.run("hey", &["-n", "2000", "-c", "4", &bench.server.url()]);
    let read = bench.import("hey.txt", &text);
    let [read] = read.as_slice() else { panic!("{text}") };
    prints(read.is("hey").value("throughput_per_s"), after(&text, "Requests/sec:")[0]);
    prints(read.value("latency_ns_mean") / 1e9, after(&text, "Average:")[0]);
    prints(read.value("latency_ns_p99") / 1e9, after(&text, "99%% in")[0]);
    prints(read.seen("latency_max_ns") / 1e9, after(&text, "Slowest:")[0]);
    prints(read.seen("bytes"), after(&text, "Total data:")[0]);
    assert_eq!(read.seen("requests"), 2000.0);
}

#[test]
fn oha() {
    let bench = Bench::new("tool-oha");
    let url = bench.server.url();
    let text =
        bench.run("oha", &["-n", "2000", "-c", "4", "--no-tui", "--output-format", "json", &url]);
    let theirs: Value = serde_json::from_str(&text).unwrap();
    let read = bench.import("oha.json", &text);
    let [read] = read.as_slice() else { panic!("{text}") };
    let s = |value: &Value| value.as_f64().unwrap() * 1e9;
    assert_eq!(
        read.is("oha").value("throughput_per_s"),
        theirs["summary"]["requestsPerSec"].as_f64().unwrap()
    );
    assert_eq!(read.value("latency_ns_mean"), s(&theirs["summary"]["average"]));
    assert_eq!(read.value("latency_ns_p99_9"), s(&theirs["latencyPercentiles"]["p99.9"]));
    assert_eq!((read.seen("requests"), read.seen("bytes")), (2000.0, 2000.0 * 612.0));
}

#[test]
fn oha_as_it_prints() {
    let bench = Bench::new("tool-oha-text");
    let text = bench.run("oha", &["-n", "2000", "-c", "4", "--no-tui", &bench.server.url()]);
    let read = bench.import("oha.txt", &text);
    let [read] = read.as_slice() else { panic!("{text}") };
    let time = |label: &str| after(&text, label)[..2].concat();
    prints(read.is("oha").value("throughput_per_s"), after(&text, "Requests/sec:")[0]);
    prints(read.value("latency_ns_mean"), &time("Average:"));
    prints(read.value("latency_ns_p99_9"), &time("99.90% in"));
    prints(read.percentile(99.99), &time("99.99% in"));
    prints(read.seen("latency_max_ns"), &time("Slowest:"));
    prints(read.seen("seconds") * 1e9, &time("Total:"));
    // It prints three digits.
    let reply = read.seen("bytes") / read.seen("requests");
    assert!((reply / 612.0 - 1.0).abs() < 0.01, "{reply}");
    assert_eq!((read.seen("requests"), read.seen("bad_status")), (2000.0, 0.0));
}

#[test]
fn fortio() {
    let bench = Bench::new("tool-fortio");
    let url = bench.server.url();
    bench.run(
        "fortio",
        &["load", "-c", "4", "-qps", "400", "-t", "1s", "-json", "fortio.json", &url],
    );
    let path = bench.desk.folder.file("fortio.json");
    let theirs: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    let read = bench.import_file(str(&path));
    let [read] = read.as_slice() else { panic!("{theirs}") };
    assert_eq!(read.is("fortio").value("throughput_per_s"), theirs["ActualQPS"].as_f64().unwrap());
    let histogram = &theirs["DurationHistogram"];
    assert_eq!(read.value("latency_ns_mean"), histogram["Avg"].as_f64().unwrap() * 1e9);
    let last = histogram["Percentiles"].as_array().unwrap().last().unwrap();
    assert_eq!(read.value("latency_ns_p99_9"), last["Value"].as_f64().unwrap() * 1e9);
    assert_eq!(read.seen("requests"), histogram["Count"].as_f64().unwrap());
    assert_eq!(read.seen("opened"), 4.0);
    assert_eq!(
        (read.0["asked"]["rate_per_s"].as_f64(), read.0["asked"]["connections"].as_u64()),
        (Some(400.0), Some(4))
    );
    assert_eq!(read.0["asked"]["url"], url);
}

#[test]
fn fortio_as_it_prints() {
    let bench = Bench::new("tool-fortio-text");
    let url = bench.server.url();
    let args = ["load", "-c", "2", "-qps", "100", "-n", "60", &url];
    // It prints its report, and its log, to standard error.
    let text = bench.run_for(Printed::Errors, "fortio", &args);
    // As a log, and as people paste it: fenced, without the log's lines.
    let plain: Vec<&str> = text.lines().filter(|line| !line.starts_with('{')).collect();
    let pasted = format!("## host\n\n```\n{}\n```\n", plain.join("\n"));
    for (name, pasted) in [("fortio.log", &text), ("fortio.md", &pasted)] {
        let read = bench.import(name, pasted);
        let [read] = read.as_slice() else { panic!("{text}") };
        let ended = after(&text, "\nEnded after ");
        let per_s = ended[4].strip_prefix("qps=").unwrap();
        prints(read.is("fortio").value("throughput_per_s"), per_s);
        let time = after(&text, "Aggregated Function Time :");
        prints(read.value("latency_ns_mean") / 1e9, time[3]);
        prints(read.seen("latency_max_ns") / 1e9, time[9]);
        // If it fell behind, it first prints how long it slept, in the same form.
        let (_, function) = text.split_once("Aggregated Function Time :").unwrap();
        prints(read.value("latency_ns_p50") / 1e9, after(function, "# target 50%")[0]);
        prints(read.value("latency_ns_p99_9") / 1e9, after(function, "# target 99.9%")[0]);
        prints(read.seen("seconds") * 1e9, ended[0]);
        prints(read.seen("bytes"), after(&text, "Response Body/Total Sizes :")[11]);
        assert_eq!((read.seen("requests"), read.seen("bad_status")), (60.0, 0.0));
        assert_eq!(read.seen("opened"), 2.0);
        let asked = |key: &str| read.0["asked"][key].as_f64();
        assert_eq!(
            (asked("rate_per_s"), asked("connections"), asked("requests")),
            (Some(100.0), Some(2.0), Some(60.0))
        );
        assert_eq!(read.0["asked"]["url"], url);
    }
}

const SCRIPT: &str = "import http from 'k6/http';
export const options = { vus: 2, iterations: 500,
  thresholds: { http_req_duration: ['p(95)<60000'] },
  summaryTrendStats: ['avg', 'min', 'med', 'max', 'p(90)', 'p(95)', 'p(99)'] };
export default function () { http.get(__ENV.URL); }
";

/// All four formats, from two runs.
#[test]
fn k6() {
    let bench = Bench::new("tool-k6");
    bench.desk.file("plain.js", SCRIPT);
    let handle =
        "export function handleSummary(data) { return { 'handle.json': JSON.stringify(data) }; }\n";
    bench.desk.file("handle.js", &format!("{SCRIPT}{handle}"));
    let url = format!("URL={}", bench.server.url());
    let flags = ["run", "-q", "--no-usage-report", "-e", &url];
    let k6 = |more: &[&str]| bench.run("k6", &[&flags[..], more].concat());
    let printed = k6(&["--summary-export", "export.json", "--out", "csv=points.csv", "plain.js"]);
    k6(&["--new-machine-readable-summary", "--summary-export", "new.json", "plain.js"]);
    k6(&["handle.js"]);
    let file = |name: &str| bench.desk.folder.file(name);
    let json = |name: &str| -> Value {
        serde_json::from_str(&std::fs::read_to_string(file(name)).unwrap()).unwrap()
    };
    let one = |name: &str| bench.import_file(str(&file(name))).into_iter().next().unwrap();
    let check = |name: &str, duration: &Value, p95: &str| {
        let read = one(name);
        let ms = |key: &str| duration[key].as_f64().unwrap() * 1e6;
        assert_eq!(read.is("k6").value("latency_ns_mean"), ms("avg"), "{name}");
        assert_eq!(read.value("latency_ns_p50"), ms("med"), "{name}");
        assert_eq!(read.percentile(95.0), ms(p95), "{name}");
        assert_eq!(read.seen("latency_max_ns"), ms("max"), "{name}");
        assert_eq!(read.seen("requests"), 500.0, "{name}");
        read
    };
    let export = json("export.json");
    let old = check("export.json", &export["metrics"]["http_req_duration"], "p(95)");
    assert_eq!(
        old.value("throughput_per_s"),
        export["metrics"]["http_reqs"]["rate"].as_f64().unwrap()
    );
    assert_eq!(old.seen("bytes"), export["metrics"]["data_received"]["count"].as_f64().unwrap());
    // The printed summary has fewer digits.
    let text = bench.import("printed.txt", &printed);
    let [text] = text.as_slice() else { panic!("{printed}") };
    let close = |a: f64, b: f64, within: f64| assert!((a / b - 1.0).abs() < within, "{a} {b}");
    close(text.is("k6").value("latency_ns_mean"), old.value("latency_ns_mean"), 0.01);
    close(text.percentile(95.0), old.percentile(95.0), 0.01);
    close(text.value("throughput_per_s"), old.value("throughput_per_s"), 1e-6);
    close(text.seen("bytes"), old.seen("bytes"), 0.01);
    assert_eq!(text.seen("requests"), 500.0);
    let handled = json("handle.json");
    check("handle.json", &handled["metrics"]["http_req_duration"]["values"], "p(95)");
    let new = json("new.json");
    let metrics = new["results"]["metrics"].as_array().unwrap();
    let duration = metrics.iter().find(|one| one["name"] == "http_req_duration").unwrap();
    check("new.json", &duration["values"], "p95");
    // The points are from the same run as the export; k6's quantiles have three digits.
    let points = one("points.csv");
    close(points.value("latency_ns_mean"), old.value("latency_ns_mean"), 1e-3);
    close(points.seen("latency_max_ns"), old.seen("latency_max_ns"), 1e-3);
    assert_eq!(points.seen("requests"), 500.0);
    // k6 interpolates between the two values around the median, tare takes one of them.
    close(points.value("latency_ns_p50"), old.value("latency_ns_p50"), 0.05);
}

#[test]
fn iperf3() {
    let bench = Bench::new("tool-iperf3");
    let port = free_port().to_string();
    let mut server = Command::new("iperf3")
        .args(["-s", "-1", "-p", &port])
        .stdout(Stdio::null())
        .spawn()
        .expect("make setup installs iperf3");
    wait_for(&port);
    let text = bench.run("iperf3", &["-c", "127.0.0.1", "-p", &port, "-t", "1", "-J"]);
    let _ = server.wait();
    let theirs: Value = serde_json::from_str(&text).unwrap();
    let read = bench.import("iperf3.json", &text);
    let [read] = read.as_slice() else { panic!("{text}") };
    let bits = theirs["end"]["sum_received"]["bits_per_second"].as_f64().unwrap();
    assert_eq!(read.is("iperf3").value("bandwidth_bytes_per_s"), bits / 8.0);
    assert_eq!(read.seen("bytes"), theirs["end"]["sum_received"]["bytes"].as_f64().unwrap());
    assert_eq!(read.0["asked"]["url"], format!("tcp://127.0.0.1:{port}"));
}

#[test]
fn qperf() {
    let bench = Bench::new("tool-qperf");
    let port = free_port().to_string();
    let mut server = Command::new("qperf")
        .args(["-lp", &port])
        .stdout(Stdio::null())
        .spawn()
        .expect("make setup installs qperf");
    wait_for(&port);
    let text = bench.run(
        "qperf",
        &[
            "127.0.0.1",
            "-lp",
            &port,
            "-t",
            "1",
            "-oo",
            "msg_size:1:4K:*4096",
            "-vu",
            "tcp_bw",
            "tcp_lat",
        ],
    );
    let _ = server.kill();
    let _ = server.wait();
    let read = bench.import("qperf.txt", &text);
    let cases: Vec<&str> = read.iter().map(|read| read.0["case"].as_str().unwrap()).collect();
    assert_eq!(cases, ["tcp_bw, 1 B", "tcp_bw, 4 KiB", "tcp_lat, 1 B", "tcp_lat, 4 KiB"], "{text}");
    let latency = after(text.rsplit_once("tcp_lat:").unwrap().1, "latency   =");
    prints(read[3].value("latency_ns_mean"), &latency.concat());
    let bandwidth = after(&text, "bw        =");
    let factor = match bandwidth[1] {
        "KB/sec" => 1e3,
        "MB/sec" => 1e6,
        "GB/sec" => 1e9,
        other => panic!("{other}"),
    };
    prints(read[0].value("bandwidth_bytes_per_s") / factor, bandwidth[0]);
}

fn free_port() -> u16 {
    std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port()
}

/// Waits until a server listens, without connecting: `-1` allows only one connection.
fn wait_for(port: &str) {
    let wanted = format!(":{:04X} ", port.parse::<u16>().unwrap());
    until("somebody listens", || {
        let tables = ["/proc/net/tcp", "/proc/net/tcp6"].map(std::fs::read_to_string);
        let listens = |text: &String| {
            text.lines().any(|line| line.contains(&wanted) && line.contains(" 0A "))
        };
        tables.iter().flatten().any(listens)
    });
}
