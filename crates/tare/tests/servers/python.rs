//! Servers with several processes: a supervisor of workers, and connections that land on workers by
//! chance.

use tare_report::load::guards::Severity;

use crate::processes::program;
use crate::runs::{Desk, asked, guard};

/// Returns the path of a program that `make setup-servers` installs.
fn installed(name: &str) -> String {
    let programs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../target/servers/python/bin");
    format!("{programs}/{name}")
}

fn folder() -> String {
    program("app.py").trim_end_matches("/app.py").to_owned()
}

fn uvicorn(name: &str, workers: u32) -> String {
    let (uvicorn, folder) = (installed("uvicorn"), folder());
    format!(
        "--launch={name}={uvicorn} --app-dir {folder} --no-access-log --log-level warning \
         --workers {workers} --port {{port}} app:asgi"
    )
}

/// Several workers answer in two pieces, each waiting for an acknowledgement: about 40 times
/// slower. The supervisor's idle work is not deferred work.
#[test]
fn a_supervisors_heartbeat_is_no_work_put_off() {
    let desk = Desk::new("uvicorn");
    let (one, three) = (uvicorn("one", 1), uvicorn("three", 3));
    let report = desk.compare(&[&one, &three, "-c", "10", "--max-time", "45s"]);
    let void = report.guards.iter().find(|guard| guard.severity == Severity::Void);
    assert_eq!(void, None);
    assert!(report.guards.iter().all(|guard| guard.code != "deferred-work"), "{report:#?}");
    let bounds = &asked(&report).overhead_percent;
    println!("three workers: −{:.1} % ({:.1} to {:.1})", bounds.point, bounds.lower, bounds.upper);
    assert!(bounds.lower > 90.0, "{bounds:?}");
    assert_eq!(guard(&report, "delayed-ack").variant.as_deref(), Some("three"));
}

/// Twenty connections on eight workers: it is chance which of them has a worker alone.
#[test]
fn connections_that_fall_to_workers_by_lot_are_named() {
    let desk = Desk::new("gunicorn");
    let (gunicorn, folder) = (installed("gunicorn"), folder());
    let [a, b] = ["a", "b"].map(|name| {
        format!(
            "--launch={name}={gunicorn} --chdir {folder} --log-level warning --workers 8 \
             --threads 2 --keep-alive 60 --bind 127.0.0.1:{{port}} app:wsgi"
        )
    });
    let report = desk.compare(&[&a, &b, "-c", "20", "--rounds", "6"]);
    let found = guard(&report, "uneven-workers");
    assert!(found.text.contains("of its 20 connections got"), "{found:?}");
}
