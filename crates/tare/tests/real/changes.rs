//! `ci/check` in a clone of a small server's repository: ten commits, each checked against the one
//! before it.

use std::path::Path;
use std::process::Command;

use crate::util::{Folder, command, ran};

/// Commits, and the exit codes of their checks: 0 not worse (or not decided, which is a warning), 1
/// worse, 3 base does not build, 4 head does not build or answers other replies.
const COMMITS: [(&str, &str, i32); 10] = [
    ("first", "--busy 40us", 0),
    ("documentation", "--busy 40us", 0),
    ("other flags in another order", "--status 500 --busy 40us", 0),
    ("slower", "--busy 48us --status 500", 1),
    ("as fast again", "--busy 40us --status 500", 0),
    ("other replies", "--busy 40us --body 700", 4),
    ("the old replies", "--busy 40us --body 612", 4),
    ("does not build", "syntax error", 4),
    ("builds again", "--busy 40us", 3),
    ("documentation again", "--busy 40us", 0),
];

fn git(folder: &Path, args: &[&str]) {
    let who = [("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@b")];
    let also = [("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@b")];
    let ran = ran(command("git").args(args).current_dir(folder).envs(who).envs(also));
    assert_eq!(ran.code, Some(0), "{}", ran.story());
}

#[test]
fn each_commit_of_a_small_server_gets_the_right_word() {
    let folder = Folder::new("changes");
    let repository = folder.file("server");
    std::fs::create_dir_all(&repository).unwrap();
    git(&repository, &["init", "-q", "-b", "main"]);
    for (message, flags, _) in COMMITS {
        std::fs::write(repository.join("flags"), format!("{flags}\n")).unwrap();
        std::fs::write(repository.join("README"), format!("{message}\n")).unwrap();
        git(&repository, &["add", "."]);
        git(&repository, &["commit", "-q", "-m", message]);
    }
    git(&folder.0, &["clone", "-q", "server", "clone"]);
    let bin = Path::new(env!("CARGO_BIN_EXE_tare")).parent().unwrap();
    let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci/check");
    let check = |head: usize| {
        let of = |commit: usize| format!("HEAD~{}", COMMITS.len() - 1 - commit);
        let mut command = Command::new(&script);
        command
            .args(["--build", "! grep error flags && cp flags built", "--out", "../out"])
            .args(["--start", "exec tare target --listen 127.0.0.1:{port} $(cat built)"])
            .args(["--base", &of(head - 1), "--head", &of(head), "--cache", "../cache"])
            .args(["--", "-q", "--max-time", "3m"])
            .current_dir(folder.file("clone"))
            .env("PATH", &path)
            .env_remove("GITHUB_OUTPUT")
            .env_remove("GITHUB_STEP_SUMMARY");
        ran(&mut command)
    };
    for (head, (message, _, expected)) in COMMITS.into_iter().enumerate().skip(1) {
        let ran = check(head);
        assert_eq!(ran.code, Some(expected), "{message}: {}", ran.story());
        let comment = std::fs::read_to_string(folder.file("out").join("comment.md")).unwrap();
        let said = comment.lines().nth(1).unwrap().to_owned();
        let word = match (message, expected) {
            (_, 0) => "",
            (_, 1) => "▼ head is worse than base: ",
            (_, 3) => "✗ base (",
            ("does not build", _) => "✗ head (",
            _ => "✗ head's replies differ from base's: ",
        };
        assert!(said.contains(word), "{message}: {said}");
        println!("{message}: {said}");
    }
}
