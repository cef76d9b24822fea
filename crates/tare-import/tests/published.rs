//! Documents with the faults of published ones: prose that names outputs, prompts of several
//! hosts, tables, summaries, wrong percentages.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

mod common;

use tare_import::audit::audit;
use tare_import::compare::compare;
use tare_import::{Import, Tool, read};
use tare_model::Metric;
use tare_stats::Severity;

use common::{import, of, one};

/// Returns "variant|case|line" of each output, in order.
fn places(import: &Import) -> Vec<String> {
    let of = |s: &tare_import::Sample| format!("{}|{}|{}", s.variant, s.case, s.source.first_line);
    import.samples.iter().map(of).collect()
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
    // Broken JSON is still reported as such.
    let trouble =
        read("x.json", "{\"DurationHistogram\": {\n \"Count\": }".as_bytes()).unwrap_err();
    assert!(trouble.why.contains("no JSON that can be read"), "{trouble:?}");
}

#[test]
fn labels_between_blocks_tell_them_apart() {
    let text = format!(
        "## System calls\n\nTDX VM\n\n    {}\nregular VM:\n\n    {}\n\
         **on bare metal**\n\n    {}",
        unixbench(0),
        unixbench(1),
        unixbench(2)
    );
    let apart = import(&text);
    let names: Vec<&str> = apart.variants();
    assert_eq!(names, ["TDX VM", "regular VM", "on bare metal"]);
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
    let asked = one(&apart, "kept-apart", "the outputs at lines 4, 16 from each other");
    assert!(asked.means.contains("--as 'x.md:4=NAME' --as 'x.md:16=NAME'"), "{asked:?}");
}

#[test]
fn no_sentence_names_an_output() {
    for sentence in [
        "This represents the best case:",
        "The columns generated are: requests per second, latency stats, total requests sent",
        "on the VM we got:",
        "Now the same with TLS.",
        "压测结果如下，其中传输的是：",
        "Voici ce que donne le proxy :",
    ] {
        let (a, b) = (wrk(URL, 10_000.0), wrk(URL, 8_000.0));
        let text = format!("# Study\n\n**Host**\n\n```\n{a}```\n\n{sentence}\n\n```\n{b}```\n");
        let apart = import(&text);
        let names = apart.variants();
        assert!(names[0] == "Host" && names[1].starts_with("wrk at line"), "{sentence}: {names:?}");
    }
}

/// Four processes share the load: their outputs are not repetitions of each other.
#[test]
fn outputs_of_processes_that_ran_at_once_are_not_pooled() {
    let four = |port: u32, per_s: f64| -> String {
        (0..4).map(|n| wrk(&format!("http://h:{port}/"), per_s + f64::from(n))).collect()
    };
    for command in [
        "for i in 0 1 2 3; do taskset -c $i wrk -t1 -c10 -d10s http://h:$PORT/ & done; wait",
        "for i in 0 1 2 3; do wrk -t1 -c10 -d10s http://h:1/ & done; wait",
    ] {
        let text = format!(
            "# Study\n\n```\n{command}\n```\n\n**a**\n\n```\n{}```\n\n**b**\n\n```\n{}```\n",
            four(1, 10_000.0),
            four(2, 8_000.0)
        );
        let found = import(&text);
        assert_eq!(found.variants().len(), 8, "{:?}", places(&found));
        assert!(of(&found, "pooled").is_empty(), "{:?}", of(&found, "pooled"));
        one(&found, "kept-apart", "each is shown as a variant of its own");
        let compared = compare(&found, &audit(&found));
        assert!(compared.iter().all(|c| c.interval.is_none()), "{compared:?}");
    }
    // Without such a command, they are kept apart too.
    let text = format!("# a\n```\n{}```\n", four(1, 10_000.0));
    assert_eq!(import(&text).variants().len(), 4);
}

#[test]
fn only_what_is_shown_to_be_a_repetition_is_pooled() {
    let two = |first: &str, second: &str| {
        let (a, b) = (wrk(URL, 10_000.0), wrk(URL, 9_900.0));
        import(&format!("## Host\n\n{first}{a}```\n\n{second}{b}```\n"))
    };
    for (first, second) in [
        ("Run 1:\n\n```\n", "Run 2:\n\n```\n"),
        ("**First run**\n\n```\n", "**Second run**\n\n```\n"),
        ("```\n# run 1\n", "```\n# run 2\n"),
        ("```\n$ wrk -c10 http://h:1/\n", "```\n$ wrk -c10 http://h:1/\n"),
        ("```\n$ ./bench.sh\n", "```\n$ ./bench.sh\n"),
    ] {
        let pooled = two(first, second);
        assert_eq!(pooled.variants(), ["Host"], "{first}: {:?}", places(&pooled));
        assert_eq!(pooled.cases().len(), 1, "{first}");
        let told = one(&pooled, "pooled", "2 runs are combined (lines ");
        assert_eq!(told.variant.as_deref(), Some("Host"));
    }
    for (first, second) in [
        ("```\n", "Again:\n\n```\n"),
        ("```\n$ wrk -c10 http://h:1/\n", "Once more, to be sure.\n\n```\n"),
        // A command in between may have changed the variant.
        (
            "```\n$ wrk -c10 http://h:1/\n",
            "```\n$ kubectl apply -f istio.yaml\n$ wrk -c10 http://h:1/\n",
        ),
        ("```\n$ wrk -c10 http://h:1/\n", "```\nnow with TLS\n$ wrk -c10 http://h:1/\n"),
        ("**Run 1**\n\n```\n", "**Run 1**\n\n```\n"),
        // The command is the same, but the prose in between may name another variant.
        ("```\n$ wrk -c10 http://h:1/\n", "Now with TLS.\n\n```\n$ wrk -c10 http://h:1/\n"),
    ] {
        let apart = two(first, second);
        assert_eq!(apart.variants().len(), 2, "{first}: {:?}", places(&apart));
        one(&apart, "kept-apart", "each is shown as a variant of its own");
    }
}

fn qperf(latency: &str) -> String {
    format!("tcp_lat:\n    latency   =  {latency} us\n    msg_size  =     1 bytes\n")
}

#[test]
fn what_was_typed_at_another_host_is_no_repetition() {
    let block = |host: &str, us: &str| {
        format!("```\n[root@{host} ~]# qperf 10.0.0.9 -vu tcp_lat\n{}```\n\n", qperf(us))
    };
    let text = format!("## runc\n\n{}{}", block("node1", "12.5"), block("node2", "19.2"));
    assert_eq!(import(&text).variants(), ["qperf at line 5", "qperf at line 12"]);
    let again = format!("## runc\n\n{}{}", block("node1", "12.5"), block("node1", "19.2"));
    assert_eq!(import(&again).variants(), ["runc"]);
    let block =
        |host: &str, at: usize| format!("```\n{host}:~ # ./Run syscall\n{}```\n\n", unixbench(at));
    let text = block("metal", 2) + &block("guest", 2);
    assert_eq!(import(&text).groups().len(), 2);
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
        let ab = format!("```\n$ ab -c 10 http://h:1/\n{ab}```\n");
        format!("```\n{}```\nAnd ab, twice:\n{ab}{ab}", wrk(URL, per_s))
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
    one(&found, "sums-only", "of 20 runs, only means and standard deviations are shown");
    one(&found, "wrong-change", "states 31.33 % where 'no_module' and 'lua' give 13.3 %");
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
    one(&found, "other-base", "12.5 % is the difference between");
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
    // Values that Little's law does not allow.
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
        "the document's table says 8100 (throughput) where the output at x.md:18-24 says 8010",
    );
    assert_eq!(finding.place.as_deref(), Some("x.md:4"));
}

#[test]
fn a_printed_list_of_overheads_is_computed_again() {
    let text = |percent: &str| {
        format!(
            "Nginx without module:\n  Requests/sec: 4536.86 ± 1027.29\n  Successful iterations: 20\n\n\
             Nginx with WebAssembly:\n  Requests/sec: 4008.00 ± 797.06\n  Successful iterations: 20\n\n\
             Nginx with eBPF:\n  Requests/sec: 4400.00 ± 700.00\n  Successful iterations: 20\n\n\
             Overhead Comparisons:\n  WebAssembly: {percent}%\n  eBPF vs no module: 3.02%\n"
        )
    };
    let found = import(&text("11.66"));
    assert!(of(&found, "wrong-change").is_empty() && of(&found, "unchecked").is_empty());
    assert_eq!(found.claims.len(), 2, "{:?}", found.claims);
    let wrong = one(&import(&text("16.61")), "wrong-change", "states 16.61 %");
    assert_eq!(wrong.place.as_deref(), Some("x.md:14"));
    assert!(wrong.text.contains("'Nginx without module' and 'Nginx with WebAssembly' give 11.7 %"));
    one(&import(&text("13.19")), "other-base", "13.19 % is the difference between");
    let short = text("16.61").replace("Overhead Comparisons:", "Overheads:");
    one(&import(&short), "wrong-change", "states 16.61 %");
    // Sentences are not read.
    let prose = format!("p99 went from 312 to 165 ms, 74.1 % better.\n\n{}", text("11.66"));
    assert_eq!(import(&prose).claims.len(), 2);
}

#[test]
fn few_repetitions_have_no_interval() {
    let runs = |n: usize| {
        let one = |name: &str, per_s: f64| {
            let of = |at: usize| {
                format!("```\n$ wrk -t2 -c10 {URL}\n{}```\n", wrk(URL, per_s + at as f64))
            };
            format!("## {name}\n{}", (0..n).map(of).collect::<String>())
        };
        import(&(one("a", 10_000.0) + &one("b", 8_000.0)))
    };
    for n in [2, 4] {
        let found = runs(n);
        let compared = compare(&found, &audit(&found));
        assert!(compared.iter().all(|c| c.interval.is_none() && c.verdict.is_none()));
        assert_eq!(
            compared[0].why,
            Some(format!("only {n} runs (a confidence interval needs 5 or more)"))
        );
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

#[test]
fn what_only_the_table_says_is_kept() {
    let text = format!(
        "| variant | requests/s | p99 |\n|---|---|---|\n| host | 10,000 | 2 ms |\n\
         | VM | 8,010 | 3 ms |\n| pod | 8,010 | 4 ms |\n\n## host\n```\n{}```\n## VM\n```\n{}```\n",
        wrk(URL, 10_000.0),
        wrk(URL, 8_010.0)
    );
    let found = import(&text);
    let of_table = found.samples.iter().filter(|sample| sample.tool == Tool::Table);
    let told: Vec<(&str, Vec<&str>)> = of_table
        .map(|own| (own.variant.as_str(), own.values.keys().map(String::as_str).collect()))
        .collect();
    let (p99, both) = (vec!["latency_ns_p99"], vec!["latency_ns_p99", "throughput_per_s"]);
    assert_eq!(told, [("host", p99.clone()), ("VM", p99), ("pod", both)]);
}
