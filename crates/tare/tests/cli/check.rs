//! `tare check`: words, exit codes and comments. How well it decides, `tare-stats/tests/check.rs`
//! simulates.

use crate::runs::Desk;
use crate::util::{Ran, tare};

fn server(flags: &str) -> String {
    format!("exec {} target --listen 127.0.0.1:{{port}} {flags}", env!("CARGO_BIN_EXE_tare"))
}

/// Checks in little time: on a busy machine the answer may be that nothing is decided.
fn check(desk: &Desk, base: &str, head: &str, more: &[&str]) -> Ran {
    let time = ["-q", "--max-time", "30s", "--name", "it"];
    let args = ["check", "--base", base, "--head", head];
    desk.tare(&args.iter().chain(&time).chain(more).copied().collect::<Vec<_>>())
}

#[test]
fn wrong_words_are_refused_before_anything_is_started() {
    let good = server("");
    for (args, message) in [
        (&["check"][..], "required arguments were not provided: --base <COMMAND|IMAGE|URL>"),
        (&["check", "--base", "./a"], "not provided: --head <COMMAND|IMAGE|URL>"),
        (
            &["check", "--base", "a", "--head", "b"],
            "a: neither a URL (http://host:port/) nor a command",
        ),
        (
            &["check", "--base", &good, "--head", &good, "--worse-by", "3"],
            "'3' is not a percentage; write 2%",
        ),
        (
            &["check", "--base", &good, "--head", &good, "--metric", "speed"],
            "'speed' is not a metric",
        ),
        (
            &["check", "--base", &good, "--head", &good, "--metric", "p99=9"],
            "'9' is not a percentage",
        ),
        (
            &["check", "--base", &good, "--head", &good, "--metric", "cpu,cpu"],
            "--metric: cpu is given twice",
        ),
        (
            &["check", "--base", &good, "--head", &good, "--rate", "9", "--metric", "throughput"],
            "--metric throughput cannot be used with --rate",
        ),
        (&["check", "--base", &good, "--head", &good, "--path", "x"], "must begin with /"),
        (&["check", "nowhere.toml"], "nowhere.toml"),
    ] {
        tare(args).fails(2, message);
    }
}

#[test]
fn a_server_that_does_not_start_is_named() {
    let desk = Desk::new("check-start");
    let comment = desk.folder.file("comment.md");
    let ran =
        check(&desk, "exit 7 # {port}", &server(""), &["--markdown", comment.to_str().unwrap()]);
    ran.fails(4, "base");
    let comment = std::fs::read_to_string(comment).unwrap();
    assert!(comment.contains("**? undecided: base"), "{comment}");
    check(&desk, &server(""), "exit 7 # {port}", &[]).fails(4, "head: the server ended");
}

#[test]
fn other_replies_are_an_answer_of_their_own() {
    let desk = Desk::new("check-replies");
    let comment = desk.folder.file("comment.md");
    let comment = comment.to_str().unwrap();
    let ran = check(
        &desk,
        &server(""),
        &server("--body 7"),
        &["--markdown", comment, "--metric", "throughput"],
    );
    ran.fails(4, "head's replies differ from base's: ");
    let text = std::fs::read_to_string(comment).unwrap();
    assert!(text.starts_with("<!-- tare check it -->\n**✗ head's replies differ"), "{text}");
    // The stored runs give the same answer.
    let again = desk.tare(&["report", "1-1", "--format", "annotations"]).success().stdout;
    assert!(again.starts_with("::error title=tare check it::head's replies differ"), "{again}");
    let may = ["--may-differ", "body", "--metric", "throughput"];
    let ran = check(&desk, &server(""), &server("--body 7"), &may);
    assert_ne!(ran.code, Some(4), "{}", ran.story());
}

#[test]
fn experiments_with_a_table_are_checked_together() {
    let desk = Desk::new("check-files");
    let text = |check: &str| {
        format!(
            "name = \"api\"\n[server.a]\ncommand = \"{}\"\n[[variant]]\nname = \"old\"\nserver = \
             \"a\"\n[[variant]]\nname = \"new\"\nserver = \"a\"\n{check}",
            server("")
        )
    };
    let file = |name: &str, check: &str| desk.file(name, &text(check)).to_str().unwrap().to_owned();
    let api = file("api.toml", "[check]\nmetrics = [\"throughput=40%\"]\n");
    let json = desk.folder.file("check.json");
    let args = ["check", &api, "-q", "--max-time", "30s", "--json", json.to_str().unwrap()];
    let ran = desk.tare(&args);
    assert!(matches!(ran.code, Some(0 | 5 | 6)), "{}", ran.story());
    let json: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(json).unwrap()).unwrap();
    let finding = &json["findings"][0];
    assert_eq!((&finding["experiment"], &finding["limit_percent"]), (&"api".into(), &40.0.into()));
    for (name, check, message) in [
        ("none.toml", "", "no [check] table"),
        (
            "head.toml",
            "[check]\nhead = \"newer\"\n",
            "base and head must be two different variants of old, new",
        ),
        (
            "both.toml",
            "[check]\nhead = \"old\"\n",
            "base and head must be two different variants of old, new",
        ),
        (
            "key.toml",
            "[check]\nwors_by = \"3%\"\n",
            "unknown key 'wors_by'; did you mean 'worse_by'?",
        ),
        ("sweep.toml", "[check]\n[sweep]\nconnections = [1, 2]\n", "not supported in a check"),
    ] {
        desk.tare(&["check", &file(name, check)]).fails(2, message);
    }
    // What gets no time is no pass.
    let short = desk.tare(&["check", &api, &api, "-q", "--max-time", "6s"]);
    short.fails(5, "no time is left for it within --max-time");
    assert!(
        short.stdout.contains("  api: no time is left for it within --max-time"),
        "{}",
        short.story()
    );
    let flags = ["check", &api, "-c", "200"];
    desk.tare(&flags).fails(2, "flags of the load go with --base and --head");
    // An ordinary run compares the variants.
    let plan = desk.tare(&["run", &api, "--dry-run"]).success().stdout;
    assert!(!plan.contains("\"check\""), "{plan}");
}
