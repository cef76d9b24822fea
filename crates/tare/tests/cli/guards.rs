//! Guards that a probe alone decides, and those that a flag decides.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use tare_report::load::guards::Severity;
use tare_stats::Verdict;

use crate::runs::{BRIEF, Desk, asked, between, guard, launches, no_guard, voids};
use crate::util::str;

#[test]
fn a_server_that_refuses_does_other_work() {
    let report = between("status", "", "--error-rate 1 --status 403", &["--allow-void"]);
    voids(&report, "unequal-reply", "status 403 against 200");
    assert!(guard(&report, "errors").text.contains("have an unexpected status (403: "));
    let b = report.variant("b").unwrap();
    assert!(!b.metrics.contains_key("throughput_per_s"), "a refusal is no throughput");
}

#[test]
fn a_body_that_differs_by_a_byte() {
    let report = between("byte", "", "--body 613", &["--allow-void"]);
    voids(&report, "unequal-reply", "differs from the baseline's: 613 bytes against 612");
    let declared = between("declared", "", "--body 613", &["--may-differ", "body,headers"]);
    no_guard(&declared, "unequal-reply");
    assert!(matches!(asked(&declared).verdict, Verdict::Unresolved | Verdict::Void));
}

#[test]
fn a_body_of_the_same_length_with_other_bytes() {
    let desk = Desk::new("bytes");
    let (a, b) = (answering("same"), answering("some"));
    let report = desk.compare(&[
        &format!("a={a}"),
        &format!("b={b}"),
        "--rounds",
        "2",
        "-c",
        "2",
        "--slice",
        "5ms",
        "--cycles",
        "2",
        "--allow-void",
    ]);
    let text = "4 bytes in both, with different contents (byte 1: \"some\" against \"same\")";
    voids(&report, "unequal-reply", text);
}

/// Starts a server with this body on threads of the test.
fn answering(body: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    std::thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            std::thread::spawn(move || answer(stream, body));
        }
    });
    url
}

fn answer(mut stream: TcpStream, body: &str) {
    let mut request = [0; 4096];
    while matches!(stream.read(&mut request), Ok(n) if n > 0) {
        let reply = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len());
        if stream.write_all(reply.as_bytes()).is_err() {
            return;
        }
    }
}

#[test]
fn a_server_that_closes_after_each_reply_does_other_work() {
    let report = between("closes", "", "--close-after 1", &["--allow-void"]);
    voids(&report, "unequal-reply", "it closes the connection after each reply");
}

#[test]
fn replies_in_several_segments_are_told() {
    let split = between("split", "--slow-head 1ms", "", &[]);
    let found = guard(&split, "split-replies");
    assert_eq!((found.severity, found.variant.as_deref()), (Severity::Warn, Some("a")));
    assert!(found.text.contains("would fit one TCP segment but is sent in "), "{found:?}");

    let other = between("split-variant", "", "--slow-head 1ms", &[]);
    let found = guard(&other, "split-replies");
    assert_eq!((found.severity, found.variant.as_deref()), (Severity::Note, Some("b")));
    assert!(found.text.contains(" TCP segments, the baseline's in 1"), "{found:?}");
}

#[test]
fn what_the_probe_knows_ends_the_run_there_with_its_cure() {
    let desk = Desk::new("probe-ends");
    let compare = |flags: &str, more: &[&str]| {
        let [a, b] = launches("", flags);
        desk.tare(&[&["compare", &a, &b, "-q", "--max-time", "10m"], more].concat())
    };
    compare("--body 613", &[]).fails(
        6,
        "b against a is void: replies differ: 613 bytes against 612; make them equal, or run with \
         --may-differ body",
    );
    compare("--close-after 1", &[]).fails(6, "it closes the connection after each reply; make");
    compare("--error-rate 1 --status 404", &["--path", "/data.json?n=1"]).fails(
        4,
        "b: GET /data.json?n=1 is answered with status 404, which is not good; if it is meant to \
         be, say --expect-status 404",
    );
    compare("--tls", &[]).fails(4, "b: the server speaks TLS: its URL begins with https://");
    compare("", &["http://127.0.0.1:{port}/x", "--path", "/y"])
        .fails(2, "variant 'a': its URL asks for /x, and the load's path is /y: write one");
    // The cure works in both commands.
    let file = desk.file(
        "differ.toml",
        "name = \"x\"\n[server.a]\ntarget = {}\n[server.b]\ntarget = { body_bytes = 613 }\n\
         [[variant]]\nname = \"a\"\nserver = \"a\"\n[[variant]]\nname = \"b\"\nserver = \"b\"\n",
    );
    let run = ["run", str(&file), "-q"];
    desk.tare(&run).fails(6, "or run with --may-differ body");
    let cured = [&run[..], &BRIEF, &["--may-differ", "body"]].concat();
    let ran = desk.tare(&cured);
    assert!(
        ran.stdout.contains("replies as declared (GET /, 612 B to 613 B) ✓"),
        "{}",
        ran.story()
    );
}

#[test]
fn one_void_variant_of_several_is_exit_code_6_unless_that_is_allowed() {
    let desk = Desk::new("one-void");
    let [a, b] = launches("", "");
    let c = b.replacen("--launch=b=", "--launch=c=", 1) + " --body 613";
    let three = [&["compare", &a, &b, &c, "-q"][..], &BRIEF].concat();
    // A busy machine may make b void, too.
    desk.tare(&three).fails(6, "c (--allow-void)");
    assert_eq!(desk.tare(&[&three[..], &["--allow-void"]].concat()).code, Some(0));
}

#[test]
fn variants_that_run_alone() {
    let report = between("exclusive", "", "", &["--exclusive"]);
    let found = guard(&report, "exclusive");
    assert!(found.severity == Severity::Note && found.text.contains("is not cancelled"));
}
