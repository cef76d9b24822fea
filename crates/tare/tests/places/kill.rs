//! `kill -9` at any moment: the store opens, the run resumes, and nothing is left behind.

use std::path::Path;
use std::process::Stdio;

use tare_io::process::{PidFd, signal};
use tare_io::{DurationNs, Random};

use crate::runs::{Desk, launches, read};
use crate::util::Temporary;

/// Returns what this tare process has left: folders, control groups, servers.
fn left_by(pid: u32, marker: &str, temporary: &Temporary) -> Vec<String> {
    let prefix = format!("tare-{pid}-");
    let named = |folder: &Path| -> Vec<String> {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.path().display().to_string());
        names.filter(|name| name.contains(&prefix)).collect()
    };
    let mut found = temporary.left();
    found.extend(named(Path::new("/sys/fs/cgroup/cpuacct")));
    found.extend(named(Path::new("/sys/fs/cgroup")));
    for pid in tare_lab::machine::processes::all() {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&command).contains(marker) {
            found.push(format!("process {pid}"));
        }
    }
    found
}

#[test]
fn killed_ten_times_a_run_still_ends_and_leaves_nothing() {
    let (desk, temporary) = (Desk::new("kill"), Temporary::new());
    // The seed marks this test's servers.
    let marker = format!("--seed\0{}77", std::process::id());
    let flags = marker.replace('\0', " ");
    let pair = launches(&flags, &flags);
    let mut random = Random::stream(u64::from(std::process::id()), "kill", 0);
    let begin = ["compare", &pair[0], &pair[1], "--slice", "5ms", "--cycles", "3", "--seed", "4"];
    let mut begin = begin.to_vec();
    begin.extend(["--precision", "0.01%", "--max-time", "100s", "-q", "-c", "4"]);
    begin.push("--no-sustained");
    let mut rounds = 0;
    for kill in 0..10u64 {
        let resume = ["run", "--resume", "last", "-q"];
        let args: &[&str] = if rounds == 0 { &begin } else { &resume };
        let mut child = desk
            .command(args)
            .env("TMPDIR", &temporary.0)
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let pid = child.id();
        // Later each time: on a busy machine the first round takes long.
        let moment = DurationNs::from_ms(30 + random.below(600) * (1 + kill / 3));
        assert!(!PidFd::new(pid).unwrap().wait_timeout(moment), "kill {kill}: ended by itself");
        signal(pid, libc::SIGKILL).unwrap();
        child.wait().unwrap();
        let cleaned = desk.tare(&["clean"]).success();
        let left = left_by(pid, &marker, &temporary);
        assert_eq!(left, Vec::<String>::new(), "kill {kill}: {}", cleaned.story());
        let listed = desk.tare(&["runs"]);
        if listed.code != Some(0) {
            continue; // Killed before it had made its store.
        }
        if listed.stdout.contains("killed") {
            let report = read(desk.tare(&["report", "last", "--json"]).success());
            assert!(report.run.rounds >= rounds, "a round was lost");
            assert_eq!(report.run.seed, 4);
            rounds = report.run.rounds;
        }
    }
    assert!(rounds > 0, "ten kills, and not one round");
    let more = (rounds + 2).to_string();
    let ended = desk.tare(&["run", "--resume", "last", "--rounds", &more, "--json", "-", "-q"]);
    let report = read(ended.measured());
    assert_eq!((report.run.rounds, report.run.stopped_by.as_str()), (rounds + 2, "rounds"));
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
    assert_eq!(std::fs::read_dir(desk.folder.file("tare/journal")).unwrap().count(), 0);
}
