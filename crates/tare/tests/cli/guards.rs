//! Guards that a probe alone decides, and those that a flag does.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};

use tare_report::load::guards::Severity;
use tare_stats::Verdict;

use crate::runs::{Desk, asked, between, guard, no_guard, voids};

#[test]
fn a_server_that_refuses_does_other_work() {
    let report = between("status", "", "--error-rate 1 --status 403", &[]);
    voids(&report, "unequal-reply", "it answers 403, the baseline 200");
    assert!(guard(&report, "errors").text.contains("have an unexpected status (403: "));
    let b = report.variant("b").unwrap();
    assert!(!b.metrics.contains_key("throughput_per_s"), "a refusal is no throughput");
}

#[test]
fn a_body_that_differs_by_a_byte() {
    let report = between("byte", "", "--body 613", &[]);
    voids(&report, "unequal-reply", "its reply has 613 bytes of body, the baseline's 612");
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
    ]);
    voids(&report, "unequal-reply", "has the baseline's length, but other bytes");
}

/// A server on threads of the test, with this body.
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
    let report = between("closes", "", "--close-after 1", &[]);
    voids(&report, "unequal-reply", "it closes the connection after a reply, the baseline keeps");
}

#[test]
fn variants_that_run_alone() {
    let report = between("exclusive", "", "", &["--exclusive"]);
    let found = guard(&report, "exclusive");
    assert!(found.severity == Severity::Note && found.text.contains("is not cancelled"));
}
