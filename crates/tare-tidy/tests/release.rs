//! Tests ci/publish and ci/formula, on files as `make dist` makes them, with a fake gh and git.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::path::{Path, PathBuf};
use std::process::Command;

struct Dist(PathBuf);

impl Dist {
    fn new(name: &str, version: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tare-dist-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("dist")).unwrap();
        let gh = format!(
            "#!/bin/sh\necho \"$*\" >>{0}/said\ncase \"$*\" in 'release view'*) exit 1;; esac\n",
            path.display()
        );
        for (name, script) in [("gh", gh.as_str()), ("git", "#!/bin/sh\necho 0123456789ab\n")] {
            std::fs::write(path.join(name), script).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
            std::fs::set_permissions(path.join(name), mode).unwrap();
        }
        let dist = Self(path);
        dist.file(&format!("tare-{version}-x86_64-linux.tar.gz"), "a tarball");
        dist.file(&format!("tare-{version}-x86_64-linux.BUILD"), "tare, commit 0123456789ab\n");
        let sums = "sha256sum -- tare* >SHA256SUMS";
        let mut command = Command::new("sh");
        let done = command.args(["-c", sums]).current_dir(dist.0.join("dist")).status().unwrap();
        assert!(done.success());
        dist
    }

    fn file(&self, name: &str, text: &str) {
        std::fs::write(self.0.join("dist").join(name), text).unwrap();
    }

    /// Runs a script of ci/; returns its exit code and what it printed.
    fn run(&self, script: &str, args: &[&str]) -> (Option<i32>, String) {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
        let path = format!("{}:{}", self.0.display(), std::env::var("PATH").unwrap());
        let mut command = Command::new(root.join("ci").join(script));
        let done = command.args(args).current_dir(&self.0).env("PATH", path).output().unwrap();
        let said = String::from_utf8([done.stdout, done.stderr].concat()).unwrap();
        (done.status.code(), said)
    }
}

impl Drop for Dist {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn a_release_is_made_and_has_the_packages() {
    let dist = Dist::new("publish", "1.2.3");
    let (code, said) = dist.run("publish", &["v1.2.3", "dist"]);
    assert_eq!(code, Some(0), "{said}");
    let said = std::fs::read_to_string(dist.0.join("said")).unwrap();
    let said: Vec<&str> = said.lines().collect();
    assert!(said[1].starts_with("release create v1.2.3 "), "{said:?}");
    assert!(said[2].contains("tare-1.2.3-x86_64-linux.tar.gz"), "{said:?}");
    assert!(said[2].ends_with(" SHA256SUMS-tare-1.2.3-x86_64-linux"), "{said:?}");
}

#[test]
fn nothing_is_published_that_is_not_what_it_says() {
    let dist = Dist::new("refused", "1.2.3");
    let (code, said) = dist.run("publish", &["v1.2.4", "dist"]);
    assert!(code == Some(2) && said.contains("v1.2.4 is not the version"), "{said}");
    dist.file("tare-1.2.3-x86_64-linux.tar.gz", "another tarball");
    let (code, said) = dist.run("publish", &["v1.2.3", "dist"]);
    assert!(code == Some(1) && said.contains("FAILED"), "{said}");
    let dist = Dist::new("changed", "1.2.3");
    dist.file("tare-1.2.3-x86_64-linux.BUILD", "tare, commit 0123456789ab-changed\n");
    let (code, said) = dist.run("publish", &["v1.2.3", "dist"]);
    assert!(code == Some(2) && said.contains("built from other sources than v1.2.3"), "{said}");
    assert!(!dist.0.join("said").exists(), "gh was not called");
}

#[test]
fn the_formula_has_both_tarballs() {
    let dist = Dist::new("formula", "1.2.3");
    let url = "https://forge.example/tare/releases/download/v1.2.3";
    let (code, said) = dist.run("formula", &[url, "dist/SHA256SUMS"]);
    assert!(code == Some(2) && said.contains("no tarball for aarch64"), "{said}");
    let sums = std::fs::read_to_string(dist.0.join("dist/SHA256SUMS")).unwrap();
    dist.file("SHA256SUMS-aarch64", &sums.replace("x86_64", "aarch64"));
    let all = ["dist/SHA256SUMS", "dist/SHA256SUMS-aarch64"];
    let (code, said) = dist.run("formula", &[&[url], &all[..]].concat());
    assert_eq!(code, Some(0), "{said}");
    for part in [
        "homepage \"https://forge.example/tare\"",
        "v1.2.3/tare-1.2.3-x86_64-linux.tar.gz\"",
        "v1.2.3/tare-1.2.3-aarch64-linux.tar.gz\"",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    assert_eq!(said.matches("sha256 \"").count(), 2);
    dist.file("more", &sums.replace("1.2.3", "1.2.4"));
    let (code, said) = dist.run("formula", &[&[url, "dist/more"], &all[..]].concat());
    assert!(code == Some(2) && said.contains("several tarballs for x86_64"), "{said}");
}
