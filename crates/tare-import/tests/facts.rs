//! Findings state what is seen, and do not accuse. Each document has a fault that was once missed,
//! or none where one was once reported.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod common;

use tare_import::audit::{Finding, audit, by_kind};
use tare_model::Metric;
use tare_stats::Severity;

use common::{import, of, one};

/// 10,000 requests/s of 500 bytes at 1 ms on 10 connections, for 10 s.
fn wrk(port: u16, changes: &[(&str, &str)]) -> String {
    let mut text = format!(
        "Running 10s test @ http://h:{port}/\n  2 threads and 10 connections\n  \
         Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
         Latency     0.99ms    0.10ms   9.00ms   99.00%\n  Latency Distribution\n     \
         50%    0.90ms\n     90%    1.10ms\n     99%    2.00ms\n  \
         100000 requests in 10.00s, 47.68MB read\nRequests/sec:  10000.00\n\
         Transfer/sec:      4.77MB\n"
    );
    for (from, to) in changes {
        assert!(text.contains(from), "{from}");
        text = text.replace(from, to);
    }
    text
}

fn section(heading: &str, command: &str, output: &str) -> String {
    let command = if command.is_empty() { String::new() } else { format!("$ {command}\n") };
    format!("## {heading}\n\n```\n{command}{output}```\n\n")
}

#[test]
fn a_histogram_of_connecting_is_none_of_replies() {
    let connecting = "Connection time histogram (s) : count 8 avg 4.7e-05 +/- 0 min 4e-05 max 0.0002 \
                      sum 0.0004\n# range, mid point, percentile, count\n\
                      >= 4e-05 <= 0.0002 , 0.0001 , 100.00, 8\n# target 50% 0.000137\n";
    let replies = "Aggregated Function Time : count 40 avg 0.002 +/- 0.001 min 0.001 max 0.004 sum 0.08\n\
                   # range, mid point, percentile, count\n>= 0.001 <= 0.004 , 0.0025 , 100.00, 40\n\
                   # target 50% 0.0025\n";
    let end = "Sockets used: 8\nCode 200 : 40 (100.0 %)\nAll done 40 calls (plus 8 warmup) 2.000 ms avg, 99.0 qps\n";
    let ended = "Ended after 1s : 40 calls. qps=99\n";
    let both = import(&format!("{ended}{replies}{connecting}{end}"));
    let tail = import(&format!("{connecting}{end}"));
    for found in [&both, &tail] {
        assert_eq!(found.samples.len(), 1);
        assert_eq!(found.samples[0].value(Metric::LatencyMean), Some(2e6), "{:?}", found.samples);
    }
    assert_eq!(both.samples[0].value(Metric::LatencyP50), Some(2.5e6));
    assert_eq!(tail.samples[0].value(Metric::LatencyP50), None);
}

#[test]
fn an_output_under_a_heading_that_is_not_its_own() {
    let run = |n: u32, port: u16| {
        format!(
            "### Run {n}\n\n```\n{}```\n\n",
            wrk(port, &[("10000.00", &format!("{}.5", 9000 + n))])
        )
    };
    let right =
        format!("## plain\n\n{}{}## filter\n\n{}{}", run(1, 1), run(2, 1), run(3, 2), run(4, 2));
    assert!(of(&import(&right), "wrong-heading").is_empty());
    let wrong = format!(
        "## plain\n\n{}{}{}## filter\n\n{}{}",
        run(1, 1),
        run(2, 1),
        run(3, 2),
        run(4, 2),
        run(5, 2)
    );
    let found = import(&wrong);
    let finding = one(
        &found,
        "wrong-heading",
        "it stands under 'plain', and its address h:2 is that of 'filter'",
    );
    assert!(finding.text.ends_with("that of its own heading is h:1"), "{finding:?}");
    assert!(finding.means.starts_with("either the output stands under the wrong heading, or"));
    // The misplaced output is not pooled with the runs of its heading.
    let plain: Vec<usize> = found.groups().iter().map(|group| group.samples.len()).collect();
    assert_eq!(plain, [2, 1, 2], "{:?}", found.variants());
    // Both headings have the same two servers, as headings of tools would.
    let tools = format!("## first\n\n{}{}## second\n\n{}", run(1, 1), run(2, 2), run(3, 1));
    assert!(of(&import(&tools), "wrong-heading").is_empty());
}

#[test]
fn outputs_that_are_not_of_the_command_above_them() {
    let ab = "Server Software: x\nConcurrency Level:      1\nTime taken for tests:   2.0 seconds\n\
              Complete requests:      2000\nRequests per second:    1000.00 [#/sec] (mean)\n";
    let other = import(&section("a", "ab -n 2000 -c 100 http://h:1/", ab));
    one(&other, "other-command", "asks for 100 connections, but the output says 1");
    let other = import(&section("a", "wrk -t4 -c10 -d10s http://h:1/", &wrk(1, &[])));
    one(&other, "other-command", "asks for 4 threads, but the output says 2");
    let other = import(&section("a", "wrk -t2 -c10 -d30s http://h:1/", &wrk(1, &[])));
    one(&other, "other-command", "asks for 30 s, but the output says 10 s");
    let minutes = [("Running 10s", "Running 2m"), ("in 10.00s", "in 90.00s")];
    for (command, changes) in [
        ("wrk -t2 -c10 -d10 http://h:1/", &[][..]),
        ("for i in 1 2; do wrk -t2 -c10 -d10s http://h:1/; done", &[]),
        // wrk prints whole minutes.
        ("wrk -t2 -c10 -d90s http://h:1/", &minutes),
    ] {
        let own = import(&section("a", command, &wrk(1, changes)));
        assert!(of(&own, "other-command").is_empty(), "{:#?}", audit(&own));
        assert!(of(&own, "cut-short").is_empty(), "{:#?}", audit(&own));
    }
    // A command belongs to the output right below it, and perhaps to no other.
    let below = section("a", "wrk -t2 -c10 -d10s http://h:1/", &wrk(1, &[]))
        + "With 400 connections:\n\n```\n"
        + &wrk(1, &[("10 connections", "400 connections")])
        + "```\n";
    assert!(of(&import(&below), "other-command").is_empty());
}

#[test]
fn numbers_that_no_measurement_gives() {
    let found = import(&section("a", "", &wrk(1, &[("90%    1.10ms", "90%    2.10ms")])));
    let finding = one(&found, "impossible", "p90 (2.100 ms) is above p99 (2.000 ms)");
    assert!(finding.severity == Severity::Void && !finding.metrics.contains(&Metric::Throughput));
    let hey = "Summary:\n  Total:\t1.0 secs\n  Slowest:\t0.0010 secs\n  Average:\t0.0050 secs\n  \
               Requests/sec:\t200.0\n";
    one(&import(hey), "impossible", "the slowest (1.000 ms) is below the mean (5.000 ms)");
    assert!(of(&import(&section("a", "", &wrk(1, &[]))), "impossible").is_empty());
}

#[test]
fn runs_that_are_too_short_or_not_alike() {
    let h2load = "finished in 240.00ms, 4000.00 req/s, 1.00MB/s\n\
                  requests: 960 total, 960 started, 960 done, 960 succeeded, 0 failed, 0 errored, 0 timeout\n";
    one(&import(h2load), "short-run", "ran for less than 2 s: 0.24 s at line 1");
    let pair = |command: &str, changes: &[(&str, &str)]| {
        import(
            &(section("a", "wrk -t2 -c10 -d10s http://h:1/", &wrk(1, &[]))
                + &section("b", command, &wrk(1, changes))),
        )
    };
    let longer =
        [("Running 10s", "Running 15s"), ("in 10.00s", "in 15.00s"), ("10000.00", "9990.00")];
    one(
        &pair("wrk -t2 -c10 -d15s http://h:1/", &longer),
        "unequal-load",
        "runs of 15 s; 'a' had runs of 10 s",
    );
    let script = pair("wrk -t2 -c10 -d10s -s x.lua http://h:1/", &[("10000.00", "9990.00")]);
    assert!(of(&script, "unequal-load").is_empty(), "one has no script that is known");
    let ab = |n: u32| {
        format!(
            "Server Software: x\nConcurrency Level:      10\nTime taken for tests:   2.0 seconds\n\
             Complete requests:      {n}\nRequests per second:    {}.00 [#/sec] (mean)\n",
            n / 2
        )
    };
    let of_n = |n: u32| format!("ab -n {n} -c 10 http://h:1/");
    let counts = section("a", &of_n(10_000), &ab(10_000)) + &section("b", &of_n(1000), &ab(1000));
    one(&import(&counts), "unequal-load", "1000 requests; 'a' had 10000 requests");
}

#[test]
fn what_timed_out_is_no_fault_of_the_client() {
    // 5 of 10 connections got replies; the others timed out.
    let starving = [
        ("0.99ms ", "0.50ms "),
        ("Requests/sec", "Socket errors: connect 0, read 0, write 0, timeout 35\nRequests/sec"),
    ];
    let found = import(&section("a", "", &wrk(1, &starving)));
    assert!(of(&found, "client-bound").is_empty(), "{:#?}", audit(&found));
    let errors = one(&found, "errors", "35 × timeout");
    assert!(!errors.means.contains("client"), "{errors:?}");
    let idle = import(&section("a", "", &wrk(1, &[("0.99ms ", "0.50ms ")])));
    let told = one(&idle, "client-bound", "only 5.0 of 10 connections had a request in flight");
    assert!(told.means.starts_with("possible causes: a fixed rate"), "{told:?}");
    let missed = "Running 10s test @ http://h:1/\n  2 threads and 10 connections\n  \
                  Thread calibration: mean lat.: 1.2ms, rate sampling interval: 10ms\n  \
                  Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
                  Latency     1.00ms    0.10ms   9.00ms   99.00%\n  9000 requests in 10.00s, 4.77MB read\n  \
                  Socket errors: connect 0, read 0, write 0, timeout 377\nRequests/sec:    900.00\n\
                  Transfer/sec:      0.48MB\n";
    let missed = import(&section("a", "wrk2 -t2 -c10 -d10s -R1000 http://h:1/", missed));
    let told = one(&missed, "rate-missed", "reached 900 of 1000 requests/s");
    assert!(told.means.contains("replies that never came"), "{told:?}");
    assert!(!told.means.contains("queue"), "{told:?}");
}

#[test]
fn shares_are_of_what_they_are_counted_in() {
    let k6 = "     dropped_iterations.............: 7450   124/s\n     \
              http_req_duration..............: avg=2ms min=1ms med=2ms max=9ms p(90)=3ms p(95)=4ms\n     \
              http_reqs......................: 257550 4292/s\n     \
              iterations.....................: 2550   42/s\n";
    one(&import(k6), "errors", "7450 × dropped iterations (74.50 % of all)");
    let ab = "Server Software: x\nConcurrency Level:      10\nTime taken for tests:   2.0 seconds\n\
              Complete requests:      2000\nFailed requests:        1000\n   \
              (Connect: 0, Receive: 0, Length: 1000, Exceptions: 0)\n\
              Requests per second:    1000.00 [#/sec] (mean)\n";
    let told = one(&import(ab), "errors", "1000 replies differ in length from the first (50.00 %");
    assert_eq!(told.severity, Severity::Warn, "pages may be of several lengths");
    let broken = ab.replace("Receive: 0, Length: 1000", "Receive: 1, Length: 999");
    let told = one(&import(&broken), "errors", "999 × length, 1 × receive (50.00 % of all)");
    assert!(told.means.starts_with("ab counts failed requests in its throughput"), "{told:?}");
}

#[test]
fn replies_are_known_as_well_as_their_bytes_are_printed() {
    let pair = |size: &str| {
        let other = [("47.68MB", size), ("10000.00", "9990.00")];
        import(&(section("a", "", &wrk(1, &[])) + &section("b", "", &wrk(1, &other))))
    };
    assert!(of(&pair("0.05GB"), "unequal-reply").is_empty(), "50 MB to ± 5 MB");
    one(&pair("0.10GB"), "unequal-reply", "1074 bytes per reply; 'a' had 500");
}

#[test]
fn endpoints_that_are_what_is_compared_are_no_mistake() {
    let at = |name: &str, path: &str, per_s: &str| {
        section(name, "", &wrk(1, &[("h:1/", &format!("h:1/{path}")), ("10000.00", per_s)]))
    };
    let design = import(&(at("a", "text", "10000.00") + &at("b", "json", "9000.00")));
    assert!(of(&design, "unequal-load").is_empty(), "{:#?}", audit(&design));
    let mixed =
        at("a", "text", "10000.00") + &at("b", "text", "9000.00") + &at("c", "json", "8000.00");
    one(&import(&mixed), "unequal-load", "/json; 'a' had /text");
}

#[test]
fn findings_of_a_kind_are_told_once() {
    let text: String = ["a", "b", "c", "d"]
        .iter()
        .enumerate()
        .map(|(n, name)| {
            section(name, "", &wrk(1, &[("100000 requests", &format!("90{n} requests"))]))
        })
        .collect();
    let found = audit(&import(&text));
    let few: Vec<&Finding> = found.iter().filter(|finding| finding.code == "few-samples").collect();
    assert_eq!(few.len(), 4);
    let kinds = by_kind(&found);
    let kind = kinds.iter().find(|kind| kind[0].code == "few-samples").unwrap();
    assert_eq!(kind.len(), 4);
    assert_eq!(kind[3].line(), Some(few[3].line().unwrap()));
    assert_eq!(kinds.iter().map(Vec::len).sum::<usize>(), found.len());
}

#[test]
fn differences_in_tables_that_nothing_gives_are_counted() {
    let text = format!(
        "# Study\n\nIt is 30–50× faster than before.\n\n{}About 12 % slower, 12500 times the old one.\n\n\
         | | req/s | overhead |\n|---|---|---|\n| a | 100 | |\n| b | 80 | 20 % |\n| c | – | 33 % |\n",
        section("a", "", &wrk(1, &[]))
    );
    let found = import(&text);
    one(&found, "unchecked", "percentages or factors in 1 line could not be checked (line 27)");
    assert!(of(&found, "wrong-change").is_empty());
}

#[test]
fn overheads_of_printed_summaries_are_computed_again() {
    let text = |percent: &str| {
        format!(
            "{}\n== compare.py a.txt b.txt ==\nBaseline mean: 1.117 ms\nVariant mean:  1.247 ms\n\
             Overhead vs baseline: {percent}%\n",
            section("a", "", &wrk(1, &[]))
        )
    };
    assert!(of(&import(&text("11.6")), "wrong-change").is_empty());
    one(
        &import(&text("16.1")),
        "wrong-change",
        "where 'Baseline mean' and 'Variant mean' give 11.6 %",
    );
    assert_eq!(import(&text("11.6")).samples.len(), 1, "it is no output of its own");
}

#[test]
fn what_a_table_has_and_is_not_compared_is_told() {
    let text = "| | a, with TLS | b, with TLS |\n|---|---|---|\n| QPS | 100 | 90 |\n| Total | 10 s | 11 s |\n\
                | Slowest | 12 ms | 14 ms |\n| 99 <sup>th</sup> percentile | 3 ms | 4 ms |\n";
    let found = import(text);
    one(
        &found,
        "not-compared",
        "of the document's table, not shown above: row 'Total', row 'Slowest'",
    );
    assert_eq!(found.cases(), [""]);
    assert_eq!(found.samples[0].value(Metric::LatencyP99), Some(3e6));
    assert_eq!(found.samples[0].value(Metric::LatencyMean), None);
}

#[test]
fn one_bad_element_of_a_file_is_told_with_its_place() {
    let one = |label: &str, qps: u32| {
        format!(
            "  {{\"Labels\": \"{label}\", \"ActualQPS\": {qps}, \"DurationHistogram\": {{\"Avg\": 0.001, \
             \"Count\": 1000}}}}"
        )
    };
    let text = format!(
        "[\n{},\n{},\n{},\n]\n",
        one("a", 100),
        one("b", 90).replace("}}", ""),
        one("c", 80)
    );
    let found = import(&text);
    assert_eq!(found.variants(), ["a", "c"]);
    let unread = &found.unread;
    assert!(unread.len() == 1 && unread[0].line == 3, "{unread:?}");
    assert!(unread[0].why.contains("(element 2 of 3)"), "{unread:?}");
}

/// A server's name, its port, and replacements in its output.
type Server<'a> = (&'a str, u16, &'a [(&'a str, &'a str)]);

/// Makes one output for each server; no two are equal.
fn runs(sections: &[(&str, &[Server<'_>])]) -> String {
    let mut text = String::new();
    for (n, (title, servers)) in sections.iter().enumerate() {
        text += &format!("## {title}\n\n");
        for (at, (server, port, changes)) in servers.iter().enumerate() {
            let own = format!("{}.{n}", 9000 + at);
            let output = wrk(*port, &[changes, &[("10000.00", own.as_str())][..]].concat());
            text += &format!("#### {server}\n\n```\n{output}```\n\n");
        }
    }
    text
}

#[test]
fn sections_that_hold_the_same_servers_name_variants_of_their_own() {
    const SMALL: &[(&str, &str)] = &[("47.68MB", "9.54MB")];
    let text = runs(&[
        ("Small pages", &[("nginx", 1, SMALL), ("caddy", 2, SMALL)]),
        ("Large pages", &[("nginx", 1, &[]), ("caddy", 2, &[])]),
    ]);
    let found = import(&text);
    assert_eq!(
        found.variants(),
        [
            "Small pages / nginx",
            "Small pages / caddy",
            "Large pages / nginx",
            "Large pages / caddy"
        ]
    );
    // Unequal work is reported; which of them to compare is left to the reader.
    assert_eq!(of(&found, "unequal-reply").len(), 2);
}

#[test]
fn a_test_that_several_share_is_a_case_and_that_of_one_a_mistake() {
    const JSON: &[(&str, &str)] = &[("/\n  2", "/json\n  2"), ("47.68MB", "9.54MB")];
    const MANY: &[(&str, &str)] = &[("10 connections", "40 connections"), ("0.99ms", "3.99ms")];
    let at = |own: &[Server<'static>]| {
        let text: String = own
            .iter()
            .enumerate()
            .map(|(n, (title, port, changes))| {
                let own = format!("{}.5", 9000 + n);
                let output = wrk(*port, &[changes, &[("10000.00", own.as_str())][..]].concat());
                section(title, "", &output)
            })
            .collect();
        import(&text)
    };
    let paths = at(&[("a", 1, &[]), ("b", 2, &[]), ("a, json", 1, JSON), ("b, json", 2, JSON)]);
    assert_eq!(paths.cases(), ["/", "/json"]);
    assert!(of(&paths, "unequal-load").is_empty() && of(&paths, "unequal-reply").is_empty());
    let many = at(&[("a", 1, &[]), ("b", 2, &[]), ("c", 1, MANY), ("d", 2, MANY)]);
    assert_eq!((many.cases(), of(&many, "unequal-load").len()), (vec![""], 2));
    let mistaken = at(&[("a", 1, &[]), ("b", 2, &[]), ("c", 3, MANY)]);
    assert_eq!(mistaken.cases(), [""]);
    assert_eq!(
        one(&mistaken, "unequal-load", "40 connections; 'a' had 10 connections").variant.unwrap(),
        "c"
    );
    let alone = at(&[("a", 1, &[]), ("b", 2, MANY), ("c", 3, MANY)]);
    assert_eq!(of(&alone, "unequal-load").len(), 2, "the baseline is part of no other test");
}

#[test]
fn who_names_outputs_of_two_sections_compares_them() {
    let text = runs(&[
        ("Before", &[("nginx", 1, &[]), ("caddy", 2, &[])]),
        ("After", &[("nginx", 1, &[]), ("caddy", 2, &[])]),
    ]);
    let found = tare_import::read("x.md", text.as_bytes()).unwrap();
    let lines: Vec<u32> = found.drafts.iter().map(|draft| draft.source.first_line).collect();
    let given_at = [(lines[0], "before".to_owned()), (lines[2], "after".to_owned())].into();
    let file = tare_import::FileDrafts { file: "x.md".into(), given_at, found, given: None };
    let found = tare_import::assemble("x", vec![file]);
    let place = |at: usize| (found.samples[at].variant.as_str(), found.samples[at].case.as_str());
    assert_eq!((place(0), place(2)), (("before", ""), ("after", "")));
    assert_eq!(place(3), ("After / caddy", ""));
}

#[test]
fn a_script_of_k6_may_ask_for_refusals() {
    let k6 = |failed: u32| {
        format!(
            "     checks.........................: 99.00% ✓ 990      ✗ {failed}\n     \
             http_req_duration..............: avg=2ms min=1ms med=2ms max=9ms p(90)=3ms p(95)=4ms\n     \
             http_req_failed................: 10.00% ✓ 100      ✗ 900\n     \
             http_reqs......................: 1000 100/s\n     \
             vus_max........................: 50     min=38        max=50\n"
        )
    };
    let expected =
        one(&import(&k6(0)), "errors", "100 requests failed or had an error status (10.00 %");
    assert_eq!(expected.severity, Severity::Warn, "{expected:?}");
    assert!(expected.means.contains("checks passed"), "{expected:?}");
    let failed = import(&k6(10));
    assert_eq!(one(&failed, "errors", "100 requests failed").severity, Severity::Void);
    assert_eq!(failed.samples[0].asked.connections, None, "it added VUs as it needed them");
}

#[test]
fn of_replies_that_differ_by_their_headers_the_bodies_count() {
    let ab = |total: u32, html: u32, per_s: u32| {
        format!(
            "Server Software: x\nConcurrency Level:      10\nTime taken for tests:   20.0 seconds\n\
             Complete requests:      1000\nTotal transferred:      {total} bytes\n\
             HTML transferred:       {html} bytes\n\
             Requests per second:    {per_s}.00 [#/sec] (mean)\n"
        )
    };
    let pair =
        |b: String| import(&(section("a", "", &ab(250_000, 100_000, 50)) + &section("b", "", &b)));
    let headers = one(&pair(ab(300_000, 100_000, 49)), "unequal-reply", "300 bytes per reply");
    assert_eq!(headers.severity, Severity::Note, "{headers:?}");
    let bodies = one(&pair(ab(350_000, 200_000, 49)), "unequal-reply", "350 bytes per reply");
    assert_eq!(bodies.severity, Severity::Void, "{bodies:?}");
}

#[test]
fn more_requests_of_one_than_of_another_are_no_equal_load() {
    let ab = |n: u32, per_s: u32| {
        format!(
            "Server Software: x\nConcurrency Level:      10\nTime taken for tests:   20.0 seconds\n\
             Complete requests:      {n}\nRequests per second:    {per_s}.00 [#/sec] (mean)\n"
        )
    };
    let pair =
        |n: u32| import(&(section("a", "", &ab(10_000, 500)) + &section("b", "", &ab(n, 501))));
    one(&pair(1000), "unequal-load", "1000 requests; 'a' had 10000 requests");
    assert!(of(&pair(10_021), "unequal-load").is_empty(), "a time may have ended it");
}

#[test]
fn one_rate_of_all_is_no_case_and_latencies_are_compared_at_a_rate() {
    let at = |name: &str, rate: u32, mean: &str| {
        let command = format!("wrk2 -t2 -c10 -d10s -R{rate} http://h:1/");
        let per_s = format!("{}.5", rate - 1);
        section(name, &command, &wrk(1, &[("0.99ms", mean), ("10000.00", &per_s)]))
    };
    let asked = |text: &str| {
        let found = import(text);
        let compared = tare_import::compare::compare(&found, &audit(&found));
        let own = compared.into_iter().find(|compared| compared.asked).unwrap();
        (found.cases().len(), own.metric, own.overhead_percent.round())
    };
    let one_rate = at("a", 1000, "0.99ms") + &at("b", 1000, "1.98ms");
    assert_eq!(asked(&one_rate), (1, Metric::LatencyMean, 100.0));
    let two = one_rate + &at("a", 2000, "1.00ms") + &at("b", 2000, "1.00ms");
    assert_eq!(asked(&two).0, 2);
}

#[test]
fn columns_that_are_tests_are_cases() {
    let table = "| path | ping | ab |\n|---|---|---|\n| direct | 64 us | 14531.88 req/s |\n\
                 | tunnel | 80 us | 9000.12 req/s |\n";
    let found = import(table);
    assert_eq!((found.variants(), found.cases()), (vec!["direct", "tunnel"], vec!["ping", "ab"]));
}

#[test]
fn a_rate_that_was_set_is_no_sign_of_a_copy() {
    let output = wrk(1, &[("10000.00", "9999.50")]);
    let text = format!(
        "| proxy | requests/s | mean latency |\n|---|---|---|\n| nginx | 9999.50 | 0.99 ms |\n\
         | envoy | 9999.50 | 2.50 ms |\n\n{}",
        section("nginx", "wrk2 -t2 -c10 -d10s -R10000 http://h:1/", &output)
    );
    let found = import(&text);
    assert!(of(&found, "disagrees").is_empty(), "{:#?}", audit(&found));
    assert!(found.variants().contains(&"envoy"), "{:?}", found.variants());
}

#[test]
fn what_was_loaded_with_a_rate_and_without_is_not_pooled() {
    let at = |command: &str, per_s: &str| {
        let own = wrk(1, &[("10000.00", per_s)]);
        format!("```\n$ {command} http://h:1/\n{own}```\n\n")
    };
    let (all, some) = ("wrk2 -t2 -c10 -d10s", "wrk2 -t2 -c10 -d10s -R1000");
    let text = format!("## a\n\n{}{}", at(all, "9000.50"), at(some, "999.50"));
    let found = import(&text);
    assert!(of(&found, "pooled").is_empty(), "{:#?}", audit(&found));
}

#[test]
fn a_script_made_what_follows_and_a_file_that_is_shown_did_not() {
    let text = |between: &str| {
        let own = wrk(1, &[("10000.00", "900.50")]);
        format!(
            "## a\n\n```\n$ wrk2 -t2 -c10 -d10s -R1000 http://h:1/ > out\n$ {between}\n{own}```\n"
        )
    };
    one(&import(&text("cat ./out")), "rate-missed", "reached 900 of 1000");
    assert!(of(&import(&text("./bench.sh")), "rate-missed").is_empty());
}

#[test]
fn times_that_ended_a_run_are_no_number_of_requests() {
    let h2load = |n: u32, per_s: u32| {
        format!(
            "finished in 10.00s, {per_s}.00 req/s, 1.00MB/s\nrequests: {n} total, {n} started, {n} done, \
             {n} succeeded, 0 failed, 0 errored, 0 timeout\n"
        )
    };
    let pair = |command: &str| {
        let (a, b) = (h2load(50_000, 5000), h2load(45_000, 4500));
        import(&(section("a", command, &a) + &section("b", command, &b)))
    };
    assert!(of(&pair("h2load -D 10 -c 10 http://h/"), "unequal-load").is_empty());
    one(&pair("h2load -c 10 http://h/"), "unequal-load", "had 45000 requests");
}

#[test]
fn a_count_of_something_else_is_no_value_of_a_table() {
    let k6 = "     http_req_duration..............: avg=2ms min=1ms med=2ms max=9ms p(90)=3ms p(95)=4ms\n     \
              http_reqs......................: 1000 100/s\n     \
              iterations.....................: 257550 42/s\n";
    let text = format!(
        "| server | requests/s |\n|---|---|\n| a | 257550 |\n| b | 200000 |\n\n{}",
        section("k6", "k6 run x.js", k6)
    );
    let found = import(&text);
    assert!(found.variants().contains(&"a"), "k6's iterations are no requests/s: {found:#?}");
    let ab = "Server Software: x\nConcurrency Level:      10\nTime taken for tests:   20.0 seconds\n\
              Complete requests:      10000\nRequests per second:    500.00 [#/sec] (mean)\n\
              Time per request:       20.123 [ms] (mean)\n";
    let table = "| server | requests/s | latency (ms) |\n|---|---|---|\n| a | 500.00 | 20.123 |\n\
                 | b | 400 | 25 |\n\n";
    let found = import(&(table.to_owned() + &section("a", "", ab)));
    assert!(of(&found, "disagrees").is_empty(), "{:#?}", audit(&found));
    let of_a = found.samples.iter().filter(|sample| sample.variant == "a").count();
    assert_eq!(of_a, 1, "ab says both of the row's numbers");
}
