//! Shared by these tests: runs of experiments in the cluster, and queries with kubectl.

use std::path::PathBuf;
use std::process::{Command, Output};
use std::time::Duration;

use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_report::run::RunReport;

use crate::util::{Folder, Ran, own, ran, str};
use crate::wait::let_pass;

const HEAD: &str = "name = \"kubernetes\"\n[load]\nconnections = 4\nthreads = 1\n[stop]\n\
    rounds = 2\n[slices]\nwindow = \"20ms\"\ncycles = 2\n[server.web]\n\
    nginx = { workers = 1 }\n[server.apache]\nhttpd = {}\n[server.target]\ntarget = {}\n";

pub struct Desk {
    pub folder: Folder,
}

impl Desk {
    pub fn new(name: &str) -> Self {
        Self { folder: Folder::new(name) }
    }

    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.file(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    pub fn command(&self, args: &[&str]) -> Command {
        let mut command = own();
        command.args(args).env("XDG_DATA_HOME", &self.folder.0).env_remove("TARE_STORE");
        command
    }

    pub fn tare(&self, args: &[&str]) -> Ran {
        ran(&mut self.command(args))
    }

    /// Writes an experiment with these variants, each a name and its keys.
    pub fn experiment(&self, variants: &[(&str, &str)]) -> PathBuf {
        let tables =
            variants.iter().map(|(name, keys)| format!("[[variant]]\nname = \"{name}\"\n{keys}\n"));
        self.file("experiment.toml", &(HEAD.to_owned() + &tables.collect::<String>()))
    }

    pub fn run(&self, variants: &[(&str, &str)]) -> RunReport {
        let path = self.experiment(variants);
        let ran = self.tare(&["run", str(&path), "--json", "-", "-q"]).measured();
        match serde_json::from_str(&ran.stdout) {
            Ok(report) => report,
            Err(error) => panic!("{error}: {}", ran.story()),
        }
    }

    /// Returns the exit code and the error line for these variants.
    pub fn refused(&self, variants: &[(&str, &str)]) -> (i32, String) {
        let path = self.experiment(variants);
        let ran = self.tare(&["run", str(&path), "-q"]);
        let said: Vec<&str> =
            ran.stderr.lines().filter(|line| line.starts_with("tare: ")).collect();
        let last = said.last().unwrap_or_else(|| panic!("{}", ran.story()));
        (ran.code.unwrap_or(-1), (*last).to_owned())
    }
}

pub fn kubectl(args: &[&str]) -> String {
    let done = try_kubectl(args);
    let said = String::from_utf8_lossy(&done.stderr).into_owned();
    assert!(done.status.success(), "kubectl {args:?}: {said}");
    String::from_utf8(done.stdout).unwrap()
}

pub fn try_kubectl(args: &[&str]) -> Output {
    let program = std::env::var("TARE_KUBECTL").unwrap_or_else(|_| "kubectl".into());
    Command::new(program).args(args).output().unwrap()
}

pub fn apply(desk: &Desk, name: &str, manifest: &str) {
    let path = desk.file(name, manifest);
    kubectl(&["apply", "-f", str(&path)]);
}

/// A namespace for this test, removed at its end.
pub struct Namespace(pub String);

impl Namespace {
    pub fn new(name: &str) -> Self {
        let name = format!("test-{name}-{}", std::process::id());
        kubectl(&["create", "namespace", &name]);
        Self(name)
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        try_kubectl(&["delete", "namespace", &self.0, "--wait=false"]);
    }
}

pub fn within(seconds: u64, what: &str, mut holds: impl FnMut() -> bool) {
    let limit = monotonic_now() + DurationNs::from_secs(seconds);
    while !holds() {
        assert!(monotonic_now() < limit, "not within {seconds} s: {what}");
        let_pass(Duration::from_millis(200));
    }
}

#[track_caller]
pub fn proven(report: &RunReport, name: &str, seen: &[&str]) {
    let variant = report.variant(name).unwrap();
    let proofs = variant.proofs.join("\n");
    assert!(!proofs.is_empty() && !proofs.contains("held in 0"), "{name}: {proofs}");
    for words in seen {
        assert!(proofs.contains(words), "{name}: '{words}' is not in: {proofs}");
    }
    assert!(variant.requests > 0 && variant.launches == 2, "{variant:#?}");
}
