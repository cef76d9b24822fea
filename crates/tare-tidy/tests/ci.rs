//! Tests ci/check and ci/comment, which run in other people's CI: with a local repository, a fake
//! tare, and a stub of a forge's API.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::thread::JoinHandle;

/// A clone of a repository: `main` has two commits, and a branch one more.
struct Clone(PathBuf);

/// A server's repository: `make` copies what is to be served, unless it says that it is broken.
const FAKE_TARE: &str = "#!/bin/sh
echo \"$@\" >>\"$SAID\"
while [ $# -gt 0 ]; do
    case $1 in
    --base | --head) (PORT=1; eval \"$2\") >>\"$SAID\" ;;
    --markdown) echo '<!-- tare check it -->' >\"$2\"; echo '**told**' >>\"$2\" ;;
    --annotations) echo '::notice::told' >\"$2\" ;;
    esac
    shift
done
exit \"${FAKE_CODE:-0}\"
";

impl Clone {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tare-ci-{}-{name}", std::process::id()));
        std::fs::create_dir_all(path.join("bin")).unwrap();
        let clone = Self(path);
        let tare = clone.0.join("bin/tare");
        std::fs::write(&tare, FAKE_TARE).unwrap();
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(&tare, mode).unwrap();
        clone.sh(
            "git init -q --bare server.git && git clone -q server.git work 2>/dev/null && cd work && \
             git checkout -q -b main && echo first >reply && git add . && git commit -q -m first && \
             echo second >reply && git commit -q -am second && git push -q origin main && \
             git checkout -q -b change && echo third >reply && git commit -q -am third && \
             git push -q origin change",
        );
        clone
    }

    #[track_caller]
    fn sh(&self, script: &str) -> String {
        let (code, said) = self.run(Command::new("sh").args(["-c", script]).current_dir(&self.0));
        assert_eq!(code, Some(0), "{script}: {said}");
        said
    }

    fn run(&self, command: &mut Command) -> (Option<i32>, String) {
        let path = format!("{}:{}", self.0.join("bin").display(), std::env::var("PATH").unwrap());
        // Unset the CI variables of the calling environment.
        for name in ["GITHUB_STEP_SUMMARY", "GITHUB_OUTPUT", "GITHUB_EVENT_PATH", "GITLAB_CI"] {
            if !command.get_envs().any(|(known, _)| known == name) {
                command.env_remove(name);
            }
        }
        let done = command
            .env("PATH", path)
            .env("SAID", self.0.join("said"))
            .env("HOME", &self.0)
            .env("GIT_CONFIG_NOSYSTEM", "1")
            .envs([("GIT_AUTHOR_NAME", "a"), ("GIT_AUTHOR_EMAIL", "a@b")])
            .envs([("GIT_COMMITTER_NAME", "a"), ("GIT_COMMITTER_EMAIL", "a@b")])
            .output()
            .unwrap();
        (done.status.code(), String::from_utf8([done.stdout, done.stderr].concat()).unwrap())
    }

    /// Runs ci/check in the clone.
    fn check(&self, build: &str, more: &[&str]) -> (Option<i32>, String) {
        let mut command = Command::new(script("check"));
        command.args(["--build", build, "--start", "cat reply", "--out", "../out"]).args(more);
        self.run(command.current_dir(self.0.join("work")))
    }

    fn said(&self) -> String {
        std::fs::read_to_string(self.0.join("said")).unwrap_or_default()
    }

    fn result(&self, name: &str) -> String {
        std::fs::read_to_string(self.0.join("out").join(name)).unwrap_or_default()
    }
}

impl Drop for Clone {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn script(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../ci").join(name).canonicalize().unwrap()
}

#[test]
fn both_commits_are_built_and_compared_and_nothing_is_left() {
    let clone = Clone::new("both");
    // What main got since the branch began is not the change's.
    clone.sh("cd work && git checkout -q main && echo later >reply && git commit -q -am later && \
         git push -q origin main && git checkout -q change");
    let flags = ["--cache", "../cache", "--name", "it", "--", "--worse-by", "3%"];
    let (code, said) = clone.check("echo ok", &flags);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("::notice::told"), "{said}");
    let told = clone.said();
    assert!(told.contains("\nsecond\nthird\n"), "base, then head: {told}");
    assert!(told.contains("--name it ") && told.contains(" --worse-by 3%"), "{told}");
    let comment = clone.result("comment.md");
    assert!(comment.starts_with("<!-- tare check it -->\n**told**\n"), "{comment}");
    assert!(comment.trim_end().rsplit('\n').next().unwrap().contains(" → "), "{comment}");
    assert_eq!(clone.sh("cd work && git worktree list").lines().count(), 1);
    // The base's build is taken from the cache, unless it is built otherwise.
    let builds_base = |build: &str| {
        let (code, said) = clone.check(build, &flags);
        assert_eq!((code, clone.result("build-head.log").as_str()), (Some(0), "ok\n"), "{said}");
        clone.0.join("out/build-base.log").exists()
    };
    assert!(!builds_base("echo ok"));
    assert!(builds_base("echo  ok"));
}

#[test]
fn the_answer_is_the_exit_code_and_what_is_undecided_is_a_warning() {
    let clone = Clone::new("codes");
    for (code, strict, expected) in
        [(1, false, 1), (4, false, 4), (5, false, 0), (6, false, 0), (5, true, 5)]
    {
        let flags = if strict { &["--strict"][..] } else { &[] };
        let mut command = Command::new(script("check"));
        command.args(["--build", "true", "--start", "cat reply", "--out", "../out"]).args(flags);
        command.current_dir(clone.0.join("work")).env("FAKE_CODE", code.to_string());
        command.env("GITHUB_OUTPUT", clone.0.join("output"));
        command.env("GITHUB_STEP_SUMMARY", clone.0.join("summary"));
        let (got, said) = clone.run(&mut command);
        assert_eq!(got, Some(expected), "{code}: {said}");
        let output = std::fs::read_to_string(clone.0.join("output")).unwrap();
        assert!(output.ends_with(&format!("code={code}\n")), "{output}");
    }
    let summary = std::fs::read_to_string(clone.0.join("summary")).unwrap();
    assert_eq!(summary.matches("**told**").count(), 5);
}

#[test]
fn what_does_not_build_is_named() {
    let clone = Clone::new("builds");
    let (code, said) =
        clone.check("! grep -q second reply || { echo 'no * such' >&2; false; }", &[]);
    assert_eq!(code, Some(3), "{said}");
    let comment = clone.result("comment.md");
    assert!(
        comment.contains("**✗ base (") && comment.contains(") does not build: no  such**"),
        "{comment}"
    );
    assert!(said.contains("::error title=tare check::base ("), "{said}");
    let (code, said) = clone.check("! grep -q third reply", &[]);
    assert_eq!(code, Some(4), "{said}");
    assert!(clone.result("comment.md").contains("**✗ head ("));
    assert_eq!(clone.said(), "", "nothing was measured");
    assert_eq!(clone.sh("cd work && git worktree list").lines().count(), 1);
}

#[test]
fn wrong_words_and_short_histories_are_explained() {
    let clone = Clone::new("words");
    for (more, message) in [
        (&["--frob"][..], "check: unknown option --frob; usage: check --build COMMAND"),
        (&["--base"], "check: --base needs a value"),
        (&["--base", "nowhere"], "check: --base nowhere: not a commit in this repository"),
        (&["--build", ""], "check: --build is required"),
    ] {
        let (code, said) = clone.check("true", more);
        assert!(code == Some(2) && said.contains(message), "{said}");
    }
    clone.sh("git clone -q --depth 1 --branch change file://$PWD/server.git shallow");
    clone.sh("cd shallow && git fetch -q --depth 1 origin main:refs/remotes/origin/main");
    let mut command = Command::new(script("check"));
    command.args(["--build", "true", "--start", "cat reply"]).current_dir(clone.0.join("shallow"));
    let (code, said) = clone.run(&mut command);
    assert!(code == Some(3) && said.contains("fetch-depth: 0"), "{said}");
}

/// A request to the stub: its first line, and its body.
type Asked = (String, String);

/// Answers requests with these statuses and bodies, in order; returns what was asked.
fn forge(replies: Vec<(u16, String)>) -> (String, JoinHandle<Vec<Asked>>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = format!("http://{}", listener.local_addr().unwrap());
    let serve = move || {
        let answer = |(status, body): (u16, String)| {
            let (mut stream, _) = listener.accept().unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let (mut first, mut length) = (String::new(), 0);
            reader.read_line(&mut first).unwrap();
            loop {
                let mut line = String::new();
                reader.read_line(&mut line).unwrap();
                let line = line.trim_end().to_ascii_lowercase();
                if line.is_empty() {
                    break;
                }
                if let Some(n) = line.strip_prefix("content-length: ") {
                    length = n.parse().unwrap();
                }
            }
            let mut sent = vec![0; length];
            reader.read_exact(&mut sent).unwrap();
            let head = format!("HTTP/1.1 {status} x\r\nContent-Length: {}\r\n\r\n", body.len());
            stream.write_all((head + &body).as_bytes()).unwrap();
            (first.trim_end().to_owned(), String::from_utf8(sent).unwrap())
        };
        replies.into_iter().map(answer).collect()
    };
    (address, std::thread::spawn(serve))
}

/// Runs ci/comment as a job of a pull request.
fn comment(clone: &Clone, forge: &str, more: &[(&str, &str)]) -> (Option<i32>, String) {
    std::fs::create_dir_all(clone.0.join("out")).unwrap();
    std::fs::write(clone.0.join("out/comment.md"), "<!-- tare check it -->\n**told**\n").unwrap();
    std::fs::write(clone.0.join("event"), "{\"pull_request\": {\"number\": 12}}").unwrap();
    let mut command = Command::new(script("comment"));
    command.arg(clone.0.join("out")).env("GITHUB_EVENT_PATH", clone.0.join("event"));
    command.envs([("GITHUB_API_URL", forge), ("GITHUB_REPOSITORY", "o/r"), ("GITHUB_TOKEN", "t")]);
    command.env("no_proxy", "127.0.0.1");
    command.envs(more.iter().copied());
    clone.run(&mut command)
}

#[test]
fn one_comment_is_written_and_then_updated() {
    let clone = Clone::new("comment");
    let (address, asked) = forge(vec![(200, "[]".into()), (201, "{}".into())]);
    let (code, said) = comment(&clone, &address, &[]);
    assert!(code == Some(0) && said.contains("comment: written"), "{said}");
    let asked = asked.join().unwrap();
    assert!(asked[0].0.starts_with("GET /repos/o/r/issues/12/comments?"), "{asked:?}");
    assert!(asked[1].0.starts_with("POST /repos/o/r/issues/12/comments "), "{asked:?}");
    assert!(asked[1].1.contains("**told**"), "{asked:?}");
    // Another check's comment is left alone.
    let found = "[{\"id\": 7, \"body\": \"<!-- tare check other -->\\n\"}, \
                 {\"id\": 6, \"body\": \"<!-- tare check it -->\\n**of somebody**\", \
                  \"user\": {\"login\": \"evil\", \"type\": \"User\"}}, \
                 {\"id\": 8, \"body\": \"<!-- tare check it -->\\n**old**\", \
                  \"user\": {\"login\": \"github-actions[bot]\", \"type\": \"Bot\"}}]";
    let (address, asked) = forge(vec![(200, found.into()), (200, "{}".into())]);
    let (code, said) = comment(&clone, &address, &[]);
    assert!(code == Some(0) && said.contains("comment: updated"), "{said}");
    let asked = asked.join().unwrap();
    assert!(asked[1].0.starts_with("PATCH /repos/o/r/issues/comments/8 "), "{asked:?}");
    let (address, asked) = forge(vec![(200, found.into()), (200, "{}".into())]);
    let api = format!("{address}/api/v4");
    let gitlab = [
        ("GITLAB_CI", "true"),
        ("CI_API_V4_URL", api.as_str()),
        ("CI_PROJECT_ID", "3"),
        ("CI_MERGE_REQUEST_IID", "4"),
        ("TARE_GITLAB_TOKEN", "t"),
    ];
    let (code, said) = comment(&clone, &address, &gitlab);
    assert!(code == Some(0) && said.contains("comment: updated"), "{said}");
    let asked = asked.join().unwrap();
    assert!(
        asked[1].0.starts_with("PUT /api/v4/projects/3/merge_requests/4/notes/8 "),
        "{asked:?}"
    );
}

#[test]
fn a_token_that_may_not_comment_is_no_failure() {
    let clone = Clone::new("token");
    let (address, _asked) = forge(vec![(403, "{}".into())]);
    let (code, said) = comment(&clone, &address, &[]);
    assert!(code == Some(0) && said.contains("may not write comments (HTTP 403)"), "{said}");
    let (code, said) = comment(&clone, "http://127.0.0.1:9", &[("GITHUB_TOKEN", "")]);
    assert!(code == Some(0) && said.contains("GITHUB_TOKEN is not set"), "{said}");
    let (address, _asked) = forge(vec![(500, "{}".into())]);
    let (code, said) = comment(&clone, &address, &[]);
    assert!(code == Some(3) && said.contains("comment: HTTP Error 500"), "{said}");
}
