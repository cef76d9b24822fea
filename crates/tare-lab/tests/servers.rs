//! Servers by command are started, metered and stopped.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::net::SocketAddr;

use tare_lab::Event;
use tare_lab::machine::processes;
use tare_lab::world::World as _;
use tare_model::plan::VariantId;
use tare_model::{Failure, Fault};

use bench::{Bench, command};

mod bench;

#[test]
fn output_is_drained_counted_and_told() {
    let noisy = command(
        "yes 'a line of log' | head -n 100000 >&2; \
         exec python3 -u -m http.server --bind 127.0.0.1 {port}",
    );
    let mut bench = Bench::new("output", vec![noisy], None);
    let mut server = bench.start(0);
    server.server.stop();
    assert!(server.server.logged().0 >= 100_000, "{:?}", server.server.logged());
    let told: Vec<Event> = bench.lab.take_events();
    assert!(told.iter().any(|event| event.who == "v0" && event.text == "a line of log"));
    assert!(told.len() <= 60, "{} events kept", told.len());
    drop(server);
    bench.end();
}

#[test]
fn whatever_a_server_started_ends_with_it() {
    let forking = command(
        "setsid sleep 1000 & sh -c 'trap \"\" TERM; while :; do sleep 1000; done' & \
         exec python3 -u -m http.server --bind 127.0.0.1 {port}",
    );
    let mut bench = Bench::new("fork", vec![forking], None);
    let mut server = bench.start(0);
    let pids = server.meter().processes();
    assert!(pids.len() >= 4, "{pids:?}");
    server.server.stop();
    for pid in pids {
        let gone = processes::Stat::read(pid).is_none_or(|stat| stat.zombie);
        // Without a control group, a process that left its process group cannot be found.
        assert!(gone || bench.lab.cgroup_note.is_some(), "process {pid} is left");
    }
    drop(server);
    bench.end();
}

fn failure(name: &str, text: &str, fixed: Option<SocketAddr>) -> Failure {
    let mut bench = Bench::new(name, vec![command(text)], fixed);
    let outcome = bench.lab.launch(VariantId(0), 0).and_then(|launched| {
        let mut launched = launched.unwrap();
        launched.server.wait_until_listening(&Default::default())
    });
    bench.end();
    outcome.unwrap_err()
}

#[test]
fn servers_that_do_not_start_say_why() {
    let Failure { fault: Fault::Environment, text } =
        failure("missing", "no-such-program --port {port}", None)
    else {
        panic!("a program that is missing is missing on this machine");
    };
    assert!(
        text.contains(
            "v0: the server ended before it was ready (exit status: 127; is the program installed?)"
        ),
        "{text}"
    );
    assert!(text.contains("no-such-program"), "its own words: {text}");
    let Failure { fault: Fault::Target, text } = failure("daemon", "true", None) else {
        panic!("a server that ends is the target's failure");
    };
    assert!(text.contains("if it went into the background, start it in the foreground"), "{text}");
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = listener.local_addr().unwrap();
    let Failure { fault: Fault::Environment, text } = failure("taken", "sleep 100", Some(taken))
    else {
        panic!("a port that is taken is taken on this machine");
    };
    assert!(text.contains(&format!("something already answers on {taken}")), "{text}");
}
