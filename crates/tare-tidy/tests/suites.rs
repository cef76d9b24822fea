//! Tests scripts/suite, which records test results, and scripts/release-check, which reads the
//! records. A fake cargo only prints.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Desk(PathBuf);

impl Desk {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tare-suites-{}-{name}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn run(&self, script: &str, args: &[&str]) -> Output {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(root.join("scripts").join(script));
        command.args(args).env("PATH", path).env("TARE_RECORDS", &self.0);
        command.output().unwrap()
    }

    /// Runs a suite of tests, each given as its name and its results among others and alone.
    fn suite(&self, tests: &[(&str, bool, bool)], more: &str) -> (bool, String) {
        let print = |name: &str, passes: bool| {
            format!("echo 'test {name} ... {}'\n", if passes { "ok" } else { "FAILED" })
        };
        let all: String = tests.iter().map(|(name, among, _)| print(name, *among)).collect();
        let alone = tests.iter().map(|(name, _, alone)| {
            let code = u8::from(!alone);
            format!("*' --exact {name} '*)\n{}exit {code};;\n", print(name, *alone))
        });
        let code = u8::from(tests.iter().any(|(_, among, _)| !among));
        let script = format!(
            "#!/bin/sh\ncase \"$* \" in\n{}esac\n{all}{more}\nexit {code}\n",
            alone.collect::<String>()
        );
        let cargo = self.0.join("cargo");
        std::fs::write(&cargo, script).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&cargo, mode).unwrap();
        let done = self.run("suite", &["made-up", "-p", "x", "--", "--test-threads=1"]);
        let record = std::fs::read_to_string(self.0.join("made-up.md")).unwrap();
        (done.status.success(), record)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn what_passes_is_green_and_says_what_was_skipped() {
    let desk = Desk::new("green");
    let skip = "echo 'test c ... ignored, needs a moon'; echo 'd: no tides' >>\"$TARE_SKIPS\"";
    let (green, record) = desk.suite(&[("a", true, true), ("m::b", true, true)], skip);
    assert!(green && record.starts_with("# `make test-made-up`: green\n"), "{record}");
    for row in ["| passed | 2 |", "| failed | 0 |", "| skipped | 2 |", "| commit | ", "| date | 20"]
    {
        assert!(record.contains(row), "{row}: {record}");
    }
    assert!(record.contains("- c: needs a moon\n- d: no tides\n"), "{record}");
}

#[test]
fn what_fails_once_is_flaky_and_what_fails_twice_is_red() {
    let desk = Desk::new("red");
    let (green, record) = desk.suite(&[("a", true, true), ("b", false, true)], "");
    assert!(green, "{record}");
    assert!(record.contains("| flaky | 1 |"), "{record}");
    assert!(record.contains("- b: failed, then passed alone\n"), "{record}");
    let (green, record) = desk.suite(&[("a", true, true), ("b", false, false)], "");
    assert!(!green && record.starts_with("# `make test-made-up`: red\n"), "{record}");
    assert!(record.contains("- b: failed, then failed again alone\n"), "{record}");
}

#[test]
fn tests_that_did_not_run_are_not_green() {
    let desk = Desk::new("none");
    let (green, record) = desk.suite(&[], "");
    assert!(!green, "not one test ran: {record}");
    let (green, record) = desk.suite(&[("a", true, true)], "echo 'error: it broke'; exit 101");
    assert!(!green && record.contains("- error: it broke\n"), "{record}");
}

#[test]
fn a_release_needs_every_suite_green_on_its_sources() {
    let desk = Desk::new("release");
    let told = || {
        let done = desk.run("release-check", &[]);
        (done.status.success(), String::from_utf8(done.stderr).unwrap())
    };
    let git = |args: &[&str]| {
        let done = Command::new("git").args(args).output().unwrap();
        String::from_utf8(done.stdout).unwrap()
    };
    let head = git(&["rev-parse", "HEAD"]);
    if head.is_empty() {
        tare_tidy::skips::not_run("these sources are in no repository of git");
        return;
    }
    let write = |suite: &str, state: &str, commit: &str| {
        let text = format!("# `make test-{suite}`: {state}\n\n| commit | {commit} |\n");
        std::fs::write(desk.0.join(format!("{suite}.md")), text).unwrap();
    };
    let suites =
        ["real", "install", "servers", "places", "layers", "cluster", "mesh", "mesh-clusters"];
    suites[1..].iter().for_each(|suite| write(suite, "green", head.trim()));
    let (allowed, said) = told();
    assert!(!allowed && said.contains("real was never run"), "{said}");
    write("real", "red", head.trim());
    assert!(told().1.contains("real is red"));
    write("real", "green", "0123456789ab");
    assert!(told().1.contains("which is no commit here"));
    let first = git(&["rev-list", "--max-parents=0", "HEAD"]);
    let first = first.lines().next().unwrap();
    if first != head.trim() {
        write("real", "green", first);
        assert!(told().1.contains("sources have changed since"), "{}", told().1);
    }
    write("real", "green", head.trim());
    assert!(told().0, "{}", told().1);
}
