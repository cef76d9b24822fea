//! Documents with the faults of published ones: prose that names outputs, prompts of several
//! hosts, tables, summaries, percentages that do not follow.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use tare_import::audit::{Finding, audit};
use tare_import::compare::compare;
use tare_import::{FileDrafts, Import, assemble, read};
use tare_model::Metric;
use tare_stats::Severity;

fn import(text: &str) -> Import {
    let found = read("x.md", text.as_bytes()).unwrap();
    assemble("x", vec![FileDrafts { file: "x.md".into(), found, ..FileDrafts::default() }])
}

/// "variant|case|line", in order.
fn places(import: &Import) -> Vec<String> {
    let of = |s: &tare_import::Sample| format!("{}|{}|{}", s.variant, s.case, s.source.first_line);
    import.samples.iter().map(of).collect()
}

fn of(import: &Import, code: &str) -> Vec<Finding> {
    audit(import).into_iter().filter(|finding| finding.code == code).collect()
}

#[track_caller]
fn one(import: &Import, code: &str, text: &str) -> Finding {
    let found = of(import, code);
    let [finding] = found.as_slice() else { panic!("{code}: {found:#?}\n{:#?}", audit(import)) };
    assert!(finding.text.contains(text), "{finding:?}");
    finding.clone()
}

/// 10,000 requests/s at 1 ms on 10 connections, but for the rate.
fn wrk(url: &str, per_s: f64) -> String {
    format!(
        "Running 10s test @ {url}\n  2 threads and 10 connections\n  \
         Thread Stats   Avg      Stdev     Max   +/- Stdev\n    \
         Latency     {:.2}ms    0.10ms   9.00ms   99.00%\n  \
         {:.0} requests in 10.00s, {:.2}MB read\nRequests/sec:  {per_s:.2}\n\
         Transfer/sec:      4.77MB\n",
        9900.0 / per_s,
        per_s * 10.0,
        per_s * 0.004768
    )
}

const URL: &str = "http://h:1/";
const SYSCALL: [&str; 3] = ["18750490.3", "18801524.5", "19818118.3"];

fn unixbench(at: usize) -> String {
    format!("System Call Overhead                     {} lps   (10.0 s, 7 samples)\n", SYSCALL[at])
}

#[test]
fn text_that_begins_with_a_bracket_is_text() {
    for first in [" [TOC]", "[1] see below", "{% raw %}", "[note]: https://h/", "{TOC}"] {
        let text = format!("{first}\n\n# Host\n```\n{}```\n", wrk(URL, 10_000.0));
        assert_eq!(places(&import(&text)), ["Host||5"], "{first}");
    }
    // JSON that is broken is still told as such.
    let trouble =
        read("x.json", "{\"DurationHistogram\": {\n \"Count\": }".as_bytes()).unwrap_err();
    assert!(trouble.why.contains("no JSON that can be read"), "{trouble:?}");
}

#[test]
fn prose_between_blocks_tells_them_apart() {
    let text = format!(
        "## System calls\n\nresults on TDX VM\n\n    {}\nresults on regular VM\n\n    {}\n\
         on bare metal:\n\n    {}",
        unixbench(0),
        unixbench(1),
        unixbench(2)
    );
    let apart = import(&text);
    let names: Vec<&str> = apart.variants();
    assert_eq!(names, ["TDX VM", "regular VM", "bare metal"]);
    assert!(
        audit(&apart).iter().all(|finding| finding.code != "sequential"),
        "{:?}",
        audit(&apart)
    );
}

#[test]
fn a_doubt_keeps_them_apart_and_asks() {
    let (a, b) = (wrk(URL, 10_000.0), wrk(URL, 8_000.0));
    let text = format!(
        "## Proxy\n\n```\n{a}```\n\nAfter we had moved the sidecar, this came out.\n\n```\n{b}```\n"
    );
    let apart = import(&text);
    assert_eq!(apart.variants().len(), 2, "{:?}", places(&apart));
    let asked = one(&apart, "kept-apart", "under 'Proxy'");
    assert!(asked.means.contains("--as FILE:LINE=NAME"), "{asked:?}");
}

#[test]
fn what_only_says_again_is_a_repetition() {
    for again in
        ["Again:", "second run", "Once more, to be sure.", "Run 2:", "noch einmal:", "第二次测试"]
    {
        let text = format!(
            "## Host\n\n```\n{}```\n\n{again}\n\n```\n{}```\n",
            wrk(URL, 10_000.0),
            wrk(URL, 9_900.0)
        );
        let pooled = import(&text);
        assert_eq!(pooled.variants(), ["Host"], "{again}: {:?}", places(&pooled));
        assert_eq!(pooled.cases().len(), 1, "{again}");
    }
}

fn qperf(latency: &str) -> String {
    format!("tcp_lat:\n    latency   =  {latency} us\n    msg_size  =     1 bytes\n")
}

#[test]
fn the_host_of_the_prompt_is_part_of_the_case() {
    let block = |host: &str, us: &str| {
        format!("```\n[root@{host} ~]# qperf 10.0.0.9 -vu tcp_lat\n{}```\n\n", qperf(us))
    };
    let of_both = |a: &str, b: &str| block("node1", a) + &block("node2", b);
    let text =
        format!("## runc\n\n{}## Kata\n\n{}", of_both("12.5", "19.2"), of_both("20.2", "28.9"));
    let found = import(&text);
    assert_eq!(found.variants(), ["runc", "Kata"]);
    assert_eq!(found.cases(), ["tcp_lat, 1 B, from node1", "tcp_lat, 1 B, from node2"]);
    let compared = compare(&found, &audit(&found));
    assert_eq!(compared.len(), 2);
    assert!((compared[1].overhead_percent - 50.5).abs() < 0.1, "{compared:?}");
}

#[test]
fn of_local_loads_the_host_is_what_was_measured() {
    let block =
        |host: &str, at: usize| format!("```\n{host}:~ # ./Run syscall\n{}```\n\n", unixbench(at));
    let text = block("metal", 2) + &block("guest", 0);
    assert_eq!(import(&text).variants(), ["metal", "guest"]);
}

#[test]
fn an_output_at_the_end_of_its_commands_line() {
    let text = format!(
        "## Kata\n```\n[root@node1 ~]# qperf 10.0.0.9 -oo msg_size:1:4K:*64 -vu tcp_bw \
         tcp_lattcp_bw:\n    bw        =  1.05 MB/sec\n    msg_size  =     1 bytes\n{}```\n",
        qperf("20.2")
    );
    let found = import(&text);
    assert_eq!(places(&found), ["Kata|tcp_bw, 1 B|3", "Kata|tcp_lat, 1 B|6"]);
    assert!(found.samples[0].command.as_deref().is_some_and(|c| c.starts_with("qperf")));
    let wrk = format!("```\n$ wrk -t2 -c10 http://h:1/{}```\n", wrk(URL, 10_000.0));
    assert_eq!(import(&wrk).samples.len(), 1);
}

#[test]
fn results_of_different_tools_are_different_cases() {
    let ab = "Server Software: x\nConcurrency Level:      10\nTime taken for tests:   2.0 seconds\n\
              Complete requests:      2000\nRequests per second:    1000.00 [#/sec] (mean)\n";
    let section = |per_s: f64| {
        format!("```\n{}```\nAnd ab, twice:\n```\n{ab}```\n```\n{ab}```\n", wrk(URL, per_s))
    };
    let text = format!("## Host\n{}## VM\n{}", section(10_000.0), section(8_000.0));
    let found = import(&text);
    assert_eq!(found.variants(), ["Host", "VM"]);
    assert_eq!(found.cases(), ["wrk", "ab"]);
    let groups: Vec<usize> = found.groups().iter().map(|group| group.samples.len()).collect();
    assert_eq!(groups, [1, 1, 2, 2]);
    assert!(of(&found, "different-tools").is_empty());
}

#[test]
fn a_point_of_a_list_names_what_follows() {
    let text = format!(
        "- nginx in runc\n\n  ```\n{}  ```\n\n- nginx in Kata\n\n  ```\n{}  ```\n",
        wrk(URL, 10_000.0),
        wrk(URL, 8_000.0)
    );
    assert_eq!(import(&text).variants(), ["nginx in runc", "nginx in Kata"]);
    let alone = format!("- nginx in runc\n\n```\n{}```\n", wrk(URL, 10_000.0));
    assert_eq!(import(&alone).variants(), ["nginx in runc"]);
}

const AVERAGES: &str = "{\n  \"benchmark_info\": { \"duration\": 30, \"connections\": 64, \"iterations\": 20 },\n  \
    \"average_results\": {\n    \
    \"no_module\": { \"rps\": 4500.0, \"latency_avg\": \"16.50ms\", \"iterations\": 20 },\n    \
    \"wasm\": { \"rps\": 4000.0, \"latency_avg\": \"18.10ms\", \"iterations\": 20 },\n    \
    \"lua\": { \"rps\": 3900.0, \"latency_avg\": \"17.90ms\", \"iterations\": 20 }\n  },\n  \
    \"standard_deviation\": {\n    \
    \"no_module\": { \"rps\": 1000.0, \"latency_avg\": \"6.5ms\" },\n    \
    \"wasm\": { \"rps\": 800.0, \"latency_avg\": \"3.7ms\" },\n    \
    \"lua\": { \"rps\": 650.0, \"latency_avg\": \"3.6ms\" }\n  },\n  \
    \"overheads\": { \"wasm_vs_no_module\": \"11.11%\", \"lua_vs_no_module\": \"31.33%\" }\n}\n";

#[test]
fn means_deviations_and_counts_make_intervals() {
    let found = import(AVERAGES);
    assert_eq!(found.variants(), ["no_module", "lua", "wasm"]);
    let compared = compare(&found, &audit(&found));
    let wasm =
        compared.iter().find(|c| c.variant == "wasm" && c.metric == Metric::Throughput).unwrap();
    let interval = wasm.interval.unwrap();
    assert_eq!(wasm.repetitions, [20, 20]);
    // Welch on the log of the means by hand: 0.1178 ± 2.3 × 0.0671.
    assert!(interval.lower < 0.0 && interval.upper > 20.0, "{interval:?}");
    assert!(
        (interval.p - 0.087).abs() < 0.005 && interval.p_corrected > interval.p,
        "{interval:?}"
    );
    assert!(of(&found, "single-run").is_empty());
    one(&found, "sums-only", "of 20 runs only means and standard deviations were kept");
    one(&found, "wrong-change", "states 31.33 % where 'no_module' and 'lua' give -13.3 %");
}

#[test]
fn printed_summaries_are_results() {
    let text = "Results\n=======\n\n```\nNginx without module:\n  Requests/sec: 4500.00 ± 1000.00\n  \
                Latency (avg): 16.50ms ± 6.50ms\n  Successful iterations: 20\n\n\
                Nginx with WebAssembly:\n  Requests/sec: 4000.00 ± 800.00\n  \
                Latency (avg): 18.10ms ± 3.70ms\n  Successful iterations: 20\n  Overhead vs no module: 12.50%\n```\n";
    let found = import(text);
    assert_eq!(found.variants(), ["Nginx without module", "Nginx with WebAssembly"]);
    let compared = compare(&found, &audit(&found));
    assert!(compared[0].interval.is_some() && compared[0].repetitions == [20, 20], "{compared:?}");
    one(&found, "other-base", "states 12.5 %, which is relative to the second");
}

#[test]
fn tables_are_values_without_a_sample() {
    let table = "| | host | kata |\n|---|---|---|\n| 1 B | 13 us, 1.13 MB/sec | 20.2 us, 1.05 MB/sec |\n\
                 | 64 B | 12.9 us | 19.3 us |\n";
    let found = import(table);
    assert_eq!(found.variants(), ["host", "kata"]);
    assert_eq!(found.cases(), ["1 B", "64 B"]);
    let compared = compare(&found, &audit(&found));
    let latency = compared.iter().find(|c| c.case == "64 B").unwrap();
    assert!((latency.overhead_percent - 49.6).abs() < 0.1 && latency.interval.is_none());
    one(&found, "no-sample", "values of a table");
    // What Little's law does not allow.
    let impossible = "| server | connections | req/s | mean latency |\n|---|---|---|---|\n\
                      | a | 10 | 10000 | 0.9 ms |\n| b | 10 | 10000 | 9 ms |\n";
    let found = of(&import(impossible), "littles-law");
    assert!(found.len() == 1 && found[0].variant.as_deref() == Some("b"), "{found:?}");
}

#[test]
fn a_table_is_compared_with_the_outputs_below_it() {
    let text = format!(
        "| variant | requests/s | mean latency |\n|---|---|---|\n| host | 10,000 | 0.99 ms |\n\
         | VM | 8,100 | 1.24 ms |\n\n## host\n```\n{}```\n## VM\n```\n{}```\n",
        wrk(URL, 10_000.0),
        wrk(URL, 8_010.0)
    );
    let found = import(&text);
    assert_eq!(places(&found), ["host||8", "VM||18"], "the table's own values are not results");
    let finding = one(
        &found,
        "disagrees",
        "the table says 8100 (throughput) where the output at x.md:18-24 says 8010",
    );
    assert_eq!(finding.place.as_deref(), Some("x.md:4"));
}

#[test]
fn percentages_are_computed_again() {
    let text = |percent: &str| {
        format!(
            "p99 went from 312 to 165 ms, an improvement of {percent} %.\n\n# a\n```\n{}```\n",
            wrk(URL, 10_000.0)
        )
    };
    assert!(of(&import(&text("47.1")), "wrong-change").is_empty());
    one(&import(&text("74.1")), "wrong-change", "states 74.1 % where the two values give -47.1 %");
    one(&import(&text("89.1")), "other-base", "relative to the first it is -47.1 %");
    let chosen = text("47.1") + "\nWe report the median of the last three of ten runs.\n";
    one(&import(&chosen), "selected", "the median of the last three of ten runs");
}

#[test]
fn few_repetitions_have_no_interval() {
    let runs = |n: usize| {
        let one = |name: &str, per_s: f64| {
            let of = |at: usize| format!("```\n{}```\n", wrk(URL, per_s + at as f64));
            format!("## {name}\n{}", (0..n).map(of).collect::<String>())
        };
        import(&(one("a", 10_000.0) + &one("b", 8_000.0)))
    };
    for n in [2, 4] {
        let found = runs(n);
        let compared = compare(&found, &audit(&found));
        assert!(compared.iter().all(|c| c.interval.is_none() && c.verdict.is_none()));
        assert_eq!(compared[0].why, Some(format!("{n} repetitions: no interval")));
    }
    let five = runs(5);
    assert!(compare(&five, &audit(&five))[0].interval.is_some());
}

#[test]
fn a_document_in_html() {
    let block = |per_s: f64| wrk("http://h:1/?a=1&amp;b=2", per_s);
    let text = format!(
        "<html><body>\n<h2>Without mesh</h2>\n<p>We ran:</p>\n<pre><code>$ wrk -t2 -c10 http://h:1/\n\
         {}</code></pre>\n<h2>Sidecar &amp; mTLS</h2>\n<pre>\n{}</pre>\n</body></html>\n",
        block(10_000.0),
        block(8_000.0)
    );
    let found = import(&text);
    assert_eq!(found.variants(), ["Without mesh", "Sidecar & mTLS"]);
    assert_eq!(found.samples[1].asked.url.as_deref(), Some("http://h:1/?a=1&b=2"));
    assert_eq!(audit(&found)[0].severity, Severity::Warn);
}
