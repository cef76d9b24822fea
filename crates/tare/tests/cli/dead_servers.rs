//! Servers that crash, hang or do not answer: the run ends in time and names the server.

use std::time::Duration;

use tare_io::time::monotonic_now;
use tare_target::behaviour::{Behaviour, Defect};

use crate::runs::{Desk, launches};
use crate::util::{Ran, Server};

/// Far longer than a run that ends at once takes on any machine.
const FAR: &str = "10m";
const AT_ONCE: Duration = Duration::from_secs(120);

/// The error has the server's status, its output, and this text.
#[track_caller]
fn died(ran: &Ran, text: &str) {
    assert_eq!(ran.code, Some(4), "{}", ran.story());
    for part in [text, "(exit status: 9)", "\n    target: died as --die-after asked\n"] {
        assert!(ran.stderr.contains(part), "{part}: {}", ran.story());
    }
}

/// Compares two targets with these flags; fails if that takes long.
#[track_caller]
fn compare(a: &str, b: &str, more: &[&str]) -> Ran {
    let desk = Desk::new("dead-servers");
    let began = monotonic_now();
    let [a, b] = launches(a, b);
    let args = [&["compare", &a, &b, "-q", "-c", "4"][..], more].concat();
    let ran = desk.tare(&args);
    let took = Duration::from(monotonic_now().since(began));
    assert!(took < AT_ONCE, "{took:?}: {}", ran.story());
    ran
}

#[test]
fn a_server_that_crashes_under_load_ends_the_run_with_its_last_words() {
    for (a, b, name) in [
        ("--die-after 9000", "", "a: "),
        ("", "--die-after 9000", "b: "),
        ("--die-after 9000", "--die-after 9000", ""),
    ] {
        let ran = compare(a, b, &["--max-time", FAR]);
        assert!(ran.stderr.starts_with(&format!("tare: {name}")), "{}", ran.story());
        died(&ran, ": the server ended under load, after ");
    }
}

#[test]
fn a_crash_is_named_in_slices_and_under_sustained_load_too() {
    let slices = ["--warmup", "20ms", "--no-sustained", "--slice", "20ms"];
    let sustained = ["--rate", "1000", "--warmup", "20ms", "--slice", "20ms", "--cycles", "1"];
    let sustained = [&sustained[..], &["--rounds", "3", "--sustained", "20s"]].concat();
    // At a rate the slices of a launch take a few hundred requests, and sustained load 20,000.
    for (more, requests) in [(&slices[..], "200"), (&sustained[..], "4000")] {
        let dies = format!("--die-after {requests}");
        let more = [more, &["--max-time", FAR]].concat();
        died(&compare("", &dies, &more), "b: the server ended under load, after ");
    }
}

#[test]
fn a_crash_before_the_first_good_reply_is_named() {
    let ran = compare("", "--die-after 1", &["--max-time", FAR]);
    died(&ran, "b: the server ended before it was ready");
}

#[test]
fn a_command_that_ends_at_its_start_is_named() {
    let desk = Desk::new("dead-at-start");
    let words = "echo one >&2; echo two >&2; exit 3";
    let [a, _] = launches("", "");
    let b = format!("--launch=b={words}; : {{port}}");
    let ran = desk.tare(&["compare", &a, &b, "-q", "--max-time", FAR]);
    let said = "tare: b: the server ended before it was ready (exit status: 3); its last output:\n    \
                one\n    two\n";
    assert_eq!((ran.code, ran.stderr.as_str()), (Some(4), said), "{}", ran.story());
}

#[test]
fn replies_that_never_come_do_not_outlive_the_time_limit() {
    let mute = "--defect silence --defect-every 1000";
    let ran = compare("", mute, &["--max-time", "6s"]);
    ran.fails(4, "tare: no round was finished within --max-time 6s: b: ");
    assert!(ran.stderr.contains(" requests had no reply"), "{}", ran.story());
}

#[test]
fn a_server_that_accepts_and_never_answers_is_told_within_the_time_limit() {
    compare("", "--defect silence", &["--max-time", "2s"])
        .fails(4, "tare: no round was finished within --max-time 2s: b: no good reply from ");
}

#[test]
fn a_time_limit_shorter_than_a_server_may_take_tells_what_is_wrong_with_it() {
    let desk = Desk::new("dead-other-port");
    let [a, _] = launches("", "");
    let tare = env!("CARGO_BIN_EXE_tare");
    let b = format!("--launch=b=exec {tare} target --listen 127.0.0.1:0 # {{port}}");
    let ran = desk.tare(&["compare", &a, &b, "-q", "--max-time", "2s"]);
    ran.fails(
        4,
        "tare: no round was finished within --max-time 2s: b: no good reply from 127.0.0.1:",
    );
    assert!(ran.stderr.contains("it listens on port "), "{}", ran.story());
    // And of servers that were already running.
    let mute = Server::start(Behaviour { defect: Some(Defect::Silence), ..Behaviour::default() });
    let (good, url) = (Server::start(Behaviour::default()), mute.url());
    let ran = desk.tare(&["compare", &good.url(), &url, "-q", "--max-time", "2s"]);
    ran.fails(4, "no reply yet from ");
}

#[test]
fn a_crash_in_the_first_round_is_told_also_where_rounds_may_be_lost() {
    let ran = compare("", "--die-after 3000", &["--max-time", FAR, "--lost-rounds", "2"]);
    died(&ran, "b: the server ended under load, after ");
}

#[test]
fn a_time_limit_too_short_for_a_round_names_one_that_would_do() {
    compare("--delay 300ms", "--delay 300ms", &["--max-time", "2s"]).fails(
        5,
        "no round was finished within --max-time 2s; a verdict needs 3 rounds: try --max-time 10s",
    );
}
