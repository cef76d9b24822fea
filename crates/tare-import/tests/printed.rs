//! Printed output of fortio and oha as people keep it: with logs, cut, old versions, failed runs.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use tare_import::{Draft, read};
use tare_model::Metric;

fn drafts(text: &str) -> Vec<Draft> {
    read("x.md", text.as_bytes()).unwrap().drafts
}

fn why(text: &str) -> (u32, String) {
    let trouble = read("x.md", text.as_bytes()).unwrap_err();
    (trouble.line, trouble.why)
}

const HEAD: &str = "Fortio 1.63.5 running at 100 queries per second, 2->2 procs, for 40 calls: \
                    http://h:1/\nStarting at 100 qps with 2 thread(s) [gomax 2] : exactly 40\n";
const LOG: &str = "{\"level\":\"info\",\"msg\":\"T000 ended after 1s : 20 calls. qps=50\"}\n";

fn ended(per_s: u32) -> String {
    format!(
        "Ended after 1m0.4s : 40 calls. qps={per_s}\n\
         Aggregated Function Time : count 40 avg 0.002 +/- 0.001 min 0.001 max 0.004 sum 0.08\n\
         # range, mid point, percentile, count\n\
         >= 0.001 <= 0.004 , 0.0025 , 100.00, 40\n# target 50% 0.0025\n"
    )
}

#[test]
fn a_log_of_fortios_is_text_though_it_begins_with_json() {
    let text = format!("{LOG}{HEAD}{LOG}{}Code 200 : 40 (100.0 %)\nAll done 40 calls\n", ended(99));
    let read = drafts(&text);
    let [draft] = read.as_slice() else { panic!("{read:?}") };
    assert_eq!((draft.source.first_line, draft.source.last_line), (2, 11));
    assert_eq!(draft.seen.seconds, Some(60.4));
    assert_eq!((draft.asked.connections, draft.asked.requests), (Some(2), Some(40)));
    let (line, told) = why(&format!("{LOG}{HEAD}{LOG}Aborting because of error -1\n"));
    assert_eq!(line, 2);
    assert!(told.contains("ends without its 'Ended after'"), "{told}");
}

#[test]
fn outputs_without_their_ends_do_not_share_their_heads() {
    let text = format!("{}{HEAD}{}", ended(50), ended(60));
    let read = drafts(&text);
    let asked: Vec<_> = read.iter().map(|draft| draft.asked.connections).collect();
    assert_eq!(asked, [None, Some(2)]);
}

#[test]
fn the_same_run_as_text_and_json_is_one_run() {
    let json = "{\n  \"ActualQPS\": 99.8,\n  \"DurationHistogram\": {\n    \"Avg\": 0.1\n  }\n}\n";
    let text = format!("```\n{LOG}{HEAD}{}All done 40 calls\n{json}```\n", ended(99));
    assert_eq!(drafts(&text).len(), 1);
}

#[test]
fn failures_are_seen_of_every_kind_of_run() {
    for (status, kind) in [
        ("Code -1 : 40 (100.0 %)", "socket"),
        ("Health ERROR : 40", "ERROR"),
        ("tcp dial tcp 127.0.0.1:1: refused : 40 (100.0 %)", "dial tcp 127.0.0.1:1: refused"),
        ("udp short read : 40 (100.0 %)", "short read"),
    ] {
        let draft = &drafts(&format!("{}{status}\n", ended(99)))[0];
        assert_eq!(draft.seen.errors.get(kind), Some(&40), "{:?}", draft.seen);
        assert_eq!(draft.seen.requests, Some(0), "calls that failed were not answered");
    }
    let draft = &drafts(&format!("{}Health SERVING : 40\n", ended(99)))[0];
    assert!(draft.seen.errors.is_empty() && draft.seen.requests == Some(40));
}

#[test]
fn old_histograms_have_percentiles_too() {
    let text = "Ended after 30s : 4000 calls. qps=133\n\
        Aggregated Function Time : count 4000 avg 0.0002 +/- 8e-05 min 4e-05 max 0.012 sum 0.8\n\
        # range, mid point, percentile, count\n< 0.001 , 0.001 , 99.88, 3990\n\
        >= 0.001 < 0.002 , 0.0015 , 99.97, 10\n# target 99.9% 0.0012\nCode 200 : 4000\n";
    let draft = &drafts(text)[0];
    assert_eq!(draft.values.get(Metric::LatencyP999.key()), Some(&1_200_000.0));
    assert_eq!(draft.seen.bucket_ns, Some(1_000_000.0));
}

#[test]
fn of_ohas_lists_the_one_of_all_replies_is_read() {
    let head =
        "Summary:\n  Success rate:\t100.00%\n  Average:\t0.5000 ms\n  Requests/sec:\t100.0\n";
    let list = |of: &str, p99: &str| {
        format!("\nResponse time distribution{of}:\n  50.00% in 0.1000 ms\n  99.00% in {p99} ms\n")
    };
    let text = format!("{head}{}{}", list("", "0.6000"), list(" (4xx + 5xx only)", "0.1000"));
    let draft = &drafts(&text)[0];
    assert_eq!(draft.values.get(Metric::LatencyP99.key()), Some(&600_000.0));
    assert_eq!(draft.percentiles.len(), 2);
    // It was cut before its status codes, so they are unknown.
    assert_eq!((draft.seen.requests, draft.seen.bad_status), (None, None));
    let codes = "\nStatus code distribution:\n  [200] 90 responses\n  [503] 10 responses\n\
                 \nError distribution:\n  [4] aborted due to deadline\n  [2] refused\n";
    let draft = &drafts(&format!("{text}{codes}"))[0];
    assert_eq!((draft.seen.requests, draft.seen.bad_status), (Some(100), Some(10)));
    assert_eq!(draft.seen.errors.iter().collect::<Vec<_>>(), [(&"refused".to_owned(), &2)]);
}

#[test]
fn errors_whose_kept_words_are_the_same_add_up() {
    let long = "x".repeat(100);
    let text = format!(
        "Summary:\n  Success rate:\t1.00%\n  Requests/sec:\t9.0\n\nError distribution:\n  \
         [40] {long}a\n  [7] {long}b\n"
    );
    assert_eq!(drafts(&text)[0].seen.errors.values().collect::<Vec<_>>(), [&47]);
}

#[test]
fn a_run_until_interrupted_has_its_address() {
    let head = HEAD.replace("for 40 calls", "until interrupted");
    let draft = &drafts(&format!("{head}{}", ended(99)))[0];
    assert_eq!(draft.asked.url.as_deref(), Some("http://h:1/"));
    assert_eq!((draft.asked.requests, draft.asked.seconds), (None, None));
}

#[test]
fn json_in_text_is_bounded_and_read_once() {
    let one = "{\"DurationHistogram\": [\n";
    let long = format!("text\n```\n{one}{}```\n", "1,1,1,1,1,1,1,1,\n".repeat(1 << 20));
    let (line, told) = why(&long);
    assert!(line > 400_000 && told.contains("goes on after 8 MiB"), "{line}: {told}");
    // Parsing from each brace to the end would take hours.
    let braces = format!("text\n```\n{}```\n", "    {\n".repeat(1 << 20));
    assert!(why(&braces).1.contains("no output of a known tool"));
}
