//! Tests each check on an output with the mistake and on one without.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use tare_import::audit::{Finding, audit};
use tare_import::compare::compare;
use tare_import::{FileDrafts, Import, assemble, read};
use tare_model::Metric;
use tare_stats::Severity;

fn import(text: &str) -> Import {
    let found = read("x.md", text.as_bytes()).unwrap();
    let file = "x.md".to_owned();
    assemble("x", vec![FileDrafts { file, found, ..FileDrafts::default() }])
}

fn files(texts: &[(&str, &str)]) -> Import {
    let files = texts.iter().map(|(name, text)| {
        let found = read(name, text.as_bytes()).unwrap();
        FileDrafts { file: (*name).to_owned(), found, ..FileDrafts::default() }
    });
    assemble("x", files.collect())
}

fn of(import: &Import, code: &str) -> Vec<Finding> {
    audit(import).into_iter().filter(|finding| finding.code == code).collect()
}

#[track_caller]
fn one(import: &Import, code: &str, severity: Severity, text: &str) -> Finding {
    let found = of(import, code);
    let [finding] = found.as_slice() else { panic!("{code}: {found:#?}\n{:#?}", audit(import)) };
    assert_eq!(finding.severity, severity, "{finding:?}");
    assert!(finding.text.contains(text), "{finding:?}");
    finding.clone()
}

/// 10,000 requests/s of 500 bytes at 1 ms on 10 connections: no finding but that it is one run.
fn wrk(url: &str, change: &[(&str, &str)]) -> String {
    let mut text = format!(
        "Running 10s test @ {url}\n  2 threads and 10 connections\n  \
         Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
         Latency     0.99ms    0.10ms   9.00ms   99.00%\n  \
         100000 requests in 10.00s, 47.68MB read\nRequests/sec:  10000.00\n\
         Transfer/sec:      4.77MB\n"
    );
    for (from, to) in change {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

fn two(a: &str, b: &str) -> Import {
    import(&format!("# a\n```\n{a}```\n# b\n```\n{b}```\n"))
}

const URL: &str = "http://h:1/";

#[test]
fn a_clean_pair_is_only_too_few() {
    let clean = two(&wrk(URL, &[]), &wrk(URL, &[("10000.00", "9990.00")]));
    let codes: Vec<&str> = audit(&clean).into_iter().map(|finding| finding.code.word()).collect();
    assert_eq!(codes, ["single-run"]);
    let compared = compare(&clean, &audit(&clean));
    assert!(compared.iter().all(|c| c.verdict.is_none() && c.interval.is_none()));
}

#[test]
fn failures_that_count_as_work() {
    let bad =
        |n| wrk(URL, &[("Requests/sec", &format!("Non-2xx or 3xx responses: {n}\nRequests/sec"))]);
    one(
        &two(&wrk(URL, &[]), &bad(90)),
        "errors",
        Severity::Warn,
        "90 replies have an error status (0.09 %",
    );
    let refused = two(&wrk(URL, &[]), &bad(100_000));
    one(&refused, "errors", Severity::Void, "100000 replies have an error status (100.00 %");
    let voided = compare(&refused, &audit(&refused));
    assert!(voided.iter().all(|c| c.verdict == Some(tare_stats::Verdict::Void)));
}

#[test]
fn more_at_once_than_connections() {
    let corrected = wrk(URL, &[("0.99ms", "1.30ms")]);
    let pair = two(&wrk(URL, &[]), &corrected);
    let finding = one(&pair, "corrected", Severity::Void, "13.0 requests at once on 10");
    assert!(finding.metrics.contains(&Metric::LatencyMean), "{finding:?}");
    assert!(!finding.metrics.contains(&Metric::Throughput), "throughput is not concerned");
    // Other tools do not correct latencies, so this is impossible.
    let ab = "Server Software: x\nConcurrency Level:      4\nTime taken for tests:   2.0 seconds\n\
              Complete requests:      2000\nRequests per second:    1000.00 [#/sec] (mean)\n\
              Time per request:       4.000 [ms] (mean)\n\
              Connection Times (ms)\n              min  mean[+/-sd] median   max\n\
              Total:          1    9   0.1      9      12\n";
    one(&import(ab), "littles-law", Severity::Void, "8.5 requests at once on 4");
    // Fewer requests in flight than connections: the client was the limit.
    let idle = ab.replace("1    9 ", "1    2 ");
    one(
        &import(&idle),
        "client-bound",
        Severity::Warn,
        "only 2.0 of 4 connections had a request in flight",
    );
}

#[test]
fn connections_that_wrk_drops() {
    // Twelve threads have 8 connections each: 96, which 9.6 ms at 10,000/s keep busy.
    let lost = wrk(URL, &[("2 threads and 10", "12 threads and 100"), ("0.99ms", "9.60ms")]);
    let found = of(&two(&lost, &lost), "connections-lost");
    assert_eq!(found.len(), 2);
    assert_eq!(found[0].text, "wrk uses 96 connections, not 100: it has 12 threads");
    assert!(of(&two(&lost, &lost), "corrected").is_empty());
}

#[test]
fn replies_that_differ() {
    let other = |size: &str| two(&wrk(URL, &[]), &wrk(URL, &[("47.68MB", size)]));
    assert!(of(&other("47.70MB"), "unequal-reply").is_empty());
    one(&other("49.00MB"), "unequal-reply", Severity::Warn, "514 bytes per reply; 'a' had 500");
    one(
        &other("4.77MB"),
        "unequal-reply",
        Severity::Void,
        "50 bytes per reply; 'a' had 500: 10.0 times",
    );
}

#[test]
fn loads_that_differ() {
    let other = |from: &str, to: &str| two(&wrk(URL, &[]), &wrk(URL, &[(from, to)]));
    one(
        &other("2 threads", "4 threads"),
        "unequal-load",
        Severity::Warn,
        "4 threads; 'a' had 2 threads",
    );
    one(
        &other("Running 10s", "Running 60s"),
        "unequal-load",
        Severity::Warn,
        "runs of 60 s; 'a' had runs of 10 s",
    );
    one(&other("Running 10s", "Running 60s"), "cut-short", Severity::Warn, "ran for 10.00 of 60 s");
}

#[test]
fn tools_that_differ() {
    let hey = "Summary:
  Total:	10.0 secs
  Slowest:	0.1 secs
  Average:	0.0010 secs
                 Requests/sec:	9000.0

Status code distribution:
  [200]	90000 responses
";
    let import = two(&wrk(URL, &[]), hey);
    one(&import, "different-tools", Severity::Warn, "measured with hey, 'a' with wrk");
}

#[test]
fn commands_that_do_not_fit_their_outputs() {
    let text = |heading: &str, command: &str, url: &str| {
        format!(
            "## {heading}
```
$ wrk -t2 -c10 -d10s {command}
{}```
",
            wrk(url, &[])
        )
    };
    let pair = |b: String| import(&(text("plain", "http://h:9024/x", "http://h:9024/x") + &b));
    let good = pair(text("filter", "http://h:9023/x", "http://h:9023/x"));
    assert!(of(&good, "other-command").is_empty(), "{:#?}", of(&good, "other-command"));
    let pasted = pair(text("filter", "http://h:9023/x", "http://h:9024/x"));
    one(&pasted, "other-command", Severity::Warn, "the document's command asks http://h:9023/x");
    let default_port = "Server Software: x\nServer Hostname: h\nServer Port: 80\nDocument Path: /\n\
                        Concurrency Level: 2\nRequests per second: 5.0 [#/sec] (mean)\n";
    let ab = import(&format!("## a\n```\n$ ab -c 2 -n 9 http://h/\n{default_port}```\n"));
    assert!(of(&ab, "other-command").is_empty(), "80 goes without saying");
    let symbol = pair(text("filter", "http://HOST:PORT/x", "http://h:9023/x"));
    assert!(of(&symbol, "other-command").is_empty());
}

#[test]
fn connections_that_the_server_closed() {
    let fortio = |sockets: u32| {
        format!(
            "{{\"ActualQPS\": 100, \"NumThreads\": 4, \"SocketCount\": {sockets}, \"URL\": \"http://h/\", \
             \"DurationHistogram\": {{\"Avg\": 0.001, \"Count\": 1000}}, \"RetCodes\": {{\"200\": 1000}}}}"
        )
    };
    assert!(of(&import(&fortio(4)), "reconnects").is_empty());
    one(&import(&fortio(40)), "reconnects", Severity::Warn, "40 connections were opened, 4 were");
}

#[test]
fn numbers_that_are_too_coarse() {
    let fortio = "{\"ActualQPS\": 100, \"NumThreads\": 4, \"DurationHistogram\": {\"Avg\": 0.001, \
        \"Count\": 100000, \"Data\": [{\"Start\": 0.001, \"End\": 0.002, \"Count\": 9}], \
        \"Percentiles\": [{\"Percentile\": 99, \"Value\": 0.0015}]}}";
    one(&import(fortio), "coarse", Severity::Note, "p99 (1.500 ms) lies in one 1.000 ms wide");
    // The median is interpolated in a bucket of 1 ms; the tail's buckets are narrow.
    let printed = "Ended after 10s : 5000 calls. qps=500\n\
        Aggregated Function Time : count 5000 avg 8.9e-05 +/- 0.0003 min 9.9e-06 max 0.105 sum 1\n\
        # range, mid point, percentile, count\n>= 9.9e-06 <= 0.001 , 0.0005 , 99.00, 4950\n\
        > 0.1 <= 0.105 , 0.1025 , 100.00, 50\n# target 50% 0.000509\n# target 99.9% 0.1045\n\
        Error cases : count 9 avg 1 +/- 0 min 1 max 1 sum 9\n# target 50% 0.7\nAll done 5000 calls\n";
    let read = import(printed);
    one(&read, "coarse", Severity::Note, "p50 (0.509 ms) lies in one 0.990 ms wide");
    assert_eq!(read.samples[0].value(Metric::LatencyP50), Some(509_000.0));
    // oha's older versions print seconds, with as many digits as hey.
    let oha = "Summary:\n  Success rate:\t1.0\n  Average:\t0.0004 secs\n  Requests/sec:\t9.0\n  \
        50.00% in 0.0003 secs\n";
    one(&import(oha), "coarse", Severity::Note, "in steps of 0.1 ms, up to 0.300 ms");
    let points = "metric_name,timestamp,metric_value\nhttp_reqs,100,1\nhttp_req_duration,104,1\n";
    let finding = one(&import(points), "coarse", Severity::Warn, "5 s to ± 20.0 %");
    assert_eq!(finding.metrics, [Metric::Throughput]);
}

#[test]
fn what_is_no_mistake_is_not_accused() {
    // Ten streams per connection; hey's steps of 0.1 ms; oha's requests cut at the deadline.
    let h2load = "finished in 1.00s, 40000.00 req/s, 1.00MB/s\n\
                  min max mean sd +/- sd\ntime for request: 1us 9ms 990us 1us 99%\nreq/s : 1 1 1 1 1\n";
    let many = import(&format!("## a\n```\n$ h2load -n9 -c4 -m10 http://h/\n{h2load}```\n"));
    assert!(of(&many, "littles-law").is_empty(), "{:#?}", audit(&many));
    let single = import(&format!("## a\n```\n$ h2load -n9 -c4 http://h/\n{h2load}```\n"));
    one(&single, "littles-law", Severity::Void, "39.6 requests at once on 4");
    let hey = "Summary:\n  Total:\t1.0 secs\n  Average:\t0.0001 secs\n  Requests/sec:\t70000.0\n";
    let hey = import(&format!("## a\n```\n$ hey -c 4 -z 1s http://h/\n{hey}```\n"));
    assert!(of(&hey, "littles-law").is_empty(), "{:#?}", audit(&hey));
    let oha = "{\"summary\": {\"requestsPerSec\": 100, \"average\": 0.01}, \"latencyPercentiles\": {}, \
               \"statusCodeDistribution\": {\"200\": 1000}, \
               \"errorDistribution\": {\"aborted due to deadline\": 50}}";
    let oha = import(oha);
    assert!(of(&oha, "errors").is_empty());
    one(&oha, "cut-off", Severity::Note, "50 requests were under way when the time was over");
}

#[test]
fn the_same_numbers_twice_and_points_that_others_lack() {
    let twice = import(&format!("# a\n```\n{0}```\n# b\n```\n{0}```\n", wrk(URL, &[])));
    one(&twice, "same-output", Severity::Void, "has the same numbers as the output at x.md:3-9");
    let at = |n: &str, per_s: &str| {
        let n = format!("{n} connections");
        wrk(URL, &[("10 connections", &n), ("Requests/sec:  10000.00", per_s)])
    };
    let lonely = import(&format!(
        "# a\n```\n{}{}```\n# b\n```\n{}{}```\n",
        at("10", "Requests/sec: 10001"),
        at("20", "Requests/sec: 10002"),
        at("10", "Requests/sec: 10003"),
        at("22", "Requests/sec: 10004"),
    ));
    let text = "'a' (20 connections); 'b' (22 connections)";
    one(&lonely, "no-partner", Severity::Warn, text);
}

/// The usual ways to label what follows.
#[test]
fn every_usual_label_names_its_output() {
    for (a, b) in [
        ("1. Host:", "2. VM:"),
        ("* **Host**", "* **VM**"),
        ("*Host*", "*VM*"),
        ("**Host** (bare metal)", "**VM** (virtio)"),
        ("Host", "VM"),
        ("<details><summary>Host</summary>", "<details><summary>VM</summary>"),
        ("##Host", "##VM"),
        ("<h2>Host</h2>", "<h2>VM</h2>"),
        ("=== Host ===", "=== VM ==="),
        ("Host\n----", "VM\n---"),
        ("## Host\n```wrk -c10 http://h:1/```", "## VM\n```wrk -c10 http://h:1/```"),
        ("## Host\n```\nwithout an end", "## VM"),
    ] {
        let output = wrk(URL, &[]);
        let other = wrk(URL, &[("10000.00", "9000.00")]);
        let text = format!(
            "---\ntitle: x\ndate: 2024-01-05\n---\n# Study\n\n{a}\n\n```\n{output}```\n\n{b}\n\n```\n{other}```\n"
        );
        let import = import(&text);
        assert_eq!(import.variants(), ["Host", "VM"], "{a}: {:#?}", import.unread);
    }
    // Outputs may also be indented, quoted, or printed by a container.
    let output = |per_s: &str| wrk(URL, &[("Requests/sec:  10000.00", per_s)]);
    for prefix in ["    ", "\t", "> ", ">", "wrk_1  | "] {
        let block = |per_s: &str| -> String {
            output(per_s).lines().map(|line| format!("{prefix}{line}\n")).collect()
        };
        let (a, b) = (block("Requests/sec: 10"), block("Requests/sec: 20"));
        let import = import(&format!("# Study\n\n**Host**\n\n{a}\n**VM**\n\n{b}"));
        assert_eq!(import.variants(), ["Host", "VM"], "{prefix:?}");
    }
}

#[test]
fn a_command_in_prose_is_no_command_of_an_output() {
    let text = format!(
        "# Study\nWe use `wrk -t2 -c10 -d10s http://server/` and `wrk2 -R5000 -c10 http://server/`.\n\
         ## Host\n```\n{}```\n## VM\n```\n{}```\n",
        wrk(URL, &[]),
        wrk(URL, &[("Requests/sec:  10000.00", "Requests/sec: 9000.00")])
    );
    let import = import(&text);
    assert_eq!(import.cases(), [""]);
    let codes: Vec<&str> = audit(&import).into_iter().map(|finding| finding.code.word()).collect();
    assert_eq!(codes, ["single-run"]);
}

#[test]
fn files_are_told_apart_by_version_and_folder() {
    let text = wrk(URL, &[]);
    let import = |names: [&str; 2]| {
        let import = files(&[(names[0], &text), (names[1], &text)]);
        import.variants().into_iter().map(str::to_owned).collect::<Vec<_>>()
    };
    assert_eq!(import(["nginx-1.24.txt", "nginx-1.25.txt"]), ["nginx-1.24", "nginx-1.25"]);
    assert_eq!(import(["host/wrk.txt", "vm/wrk.txt"]), ["host/wrk", "vm/wrk"]);
    assert_eq!(import(["a/x.txt", "a/.hidden"]), ["x", ".hidden"]);
}

#[test]
fn what_would_steer_a_terminal_is_taken_out() {
    let fortio = "{\"ActualQPS\": 100, \"Labels\": \"A\\u001b[31mB\\nC\", \"RetCodes\": {\"\\u001b[2J\": 9}, \
                  \"DurationHistogram\": {\"Avg\": 0.001, \"Count\": 1000}}";
    let import = import(fortio);
    assert_eq!(import.variants(), ["A\\u{1b}[31mB\\nC"]);
    assert_eq!(import.samples[0].seen.errors.keys().collect::<Vec<_>>(), ["\\u{1b}[2J"]);
    let broken = read("x", "Running 1s test @ u\nRequests/sec: \u{1b}]0;x\u{7}\n".as_bytes());
    assert!(!broken.unwrap_err().why.contains('\u{1b}'));
}

#[test]
fn tails_beyond_the_sample() {
    let hey = |n: u32| {
        format!(
            "Summary:\n  Total:\t10.0 secs\n  Average:\t0.0100 secs\n  Requests/sec:\t50.0\n\n\
             Latency distribution:\n  50%% in 0.0100 secs\n  99%% in 0.0200 secs\n\n\
             Status code distribution:\n  [200]\t{n} responses\n"
        )
    };
    assert!(of(&import(&hey(1000)), "few-samples").is_empty());
    one(
        &import(&hey(500)),
        "few-samples",
        Severity::Note,
        "only about 5 of 500 requests took longer than p99",
    );
}

#[test]
fn files_of_one_name_are_repetitions_and_connections_a_sweep() {
    let at = |n: &str| wrk(URL, &[("10 connections", &format!("{n} connections"))]);
    let swept = import(&format!(
        "# a\n```\n{}{}```\n# b\n```\n{}{}```\n",
        at("10"),
        at("20"),
        at("10"),
        at("20")
    ));
    assert_eq!(swept.cases(), ["10 connections", "20 connections"]);
    assert_eq!(swept.variants(), ["a", "b"]);
    assert!(of(&swept, "unequal-load").is_empty());
    let one_file = files(&[("a.txt", &wrk(URL, &[])), ("b.txt", &at("20"))]);
    assert_eq!((one_file.cases(), one_file.variants()), (vec![""], vec!["a", "b"]));
    one(&one_file, "unequal-load", Severity::Warn, "20 connections; 'a' had 10 connections");
}

/// Every prefix gives an answer, and never a panic.
#[test]
fn every_prefix_of_every_example_is_answered() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/evidence");
    for entry in std::fs::read_dir(folder).unwrap() {
        let text = std::fs::read(entry.unwrap().path()).unwrap();
        for end in (0..text.len()).step_by(37) {
            if let Ok(found) = read("x", &text[..end]) {
                let file = "x".to_owned();
                let import =
                    assemble("x", vec![FileDrafts { file, found, ..FileDrafts::default() }]);
                let lines = text[..end].iter().filter(|byte| **byte == b'\n').count() + 1;
                for sample in &import.samples {
                    let source = &sample.source;
                    assert!(1 <= source.first_line && source.first_line <= source.last_line);
                    assert!(source.last_line as usize <= lines, "{source:?} of {lines} lines");
                    assert!(!sample.values.is_empty());
                }
                let compared = compare(&import, &audit(&import));
                assert!(compared.iter().all(|c| c.overhead_percent.is_finite()));
            }
        }
    }
}
