//! Hostile files: imports, bodies, stores, logs.

use std::process::Stdio;

use tare_io::DurationNs;
use tare_io::process::{PidFd, is_root, signal};
use tare_tidy::skips::not_run;

use crate::flood::{Flood, PEAK_KB_MAX};
use crate::runs::{BRIEF, Desk, launches, read};
use crate::util::{command, peak_of, ran, str, tare};
use crate::wait::until_it_catches;

#[test]
fn imports_take_time_and_memory_by_their_length() {
    let desk = Desk::new("hostile-import");
    let long_json = format!("[{}0]", "0,".repeat((8 << 20) / 2 - 10));
    let nested = "[".repeat(1 << 20);
    let points = "metric_name,timestamp,metric_value,scenario\n".to_owned()
        + &(0..300)
            .map(|n| format!("http_req_duration,1,{n},s{n}\nhttp_reqs,1,1,s{n}\n"))
            .collect::<String>();
    for (name, text) in [
        ("blank.md", "\n".repeat(1_900_000)),
        ("blanks.md", "\n".repeat(4 << 20)),
        ("words.md", "Host\n\n".repeat(600_000)),
        ("fences.md", "```\n{\n".repeat(400_000)),
        ("zeros.json", long_json),
        ("nested.json", nested),
        ("line.md", "x".repeat(60 << 20)),
        ("scenarios.csv", points),
        (
            "names.csv",
            format!(
                "metric_name,timestamp,metric_value,scenario\nhttp_reqs,1,1,{}\n",
                "n".repeat(60_000)
            ),
        ),
    ] {
        let path = desk.file(name, &text);
        let (ran, peak_kb) = peak_of(&mut desk.command(&["import", str(&path), "--dry-run"]));
        ran.fails(2, name);
        assert!(peak_kb <= PEAK_KB_MAX, "{name}: {peak_kb} kB");
    }
}

/// Hundreds of outputs, each of the greatest allowed length.
#[test]
fn what_imports_keep_is_bounded_in_all() {
    let desk = Desk::new("hostile-kept");
    let long = format!("    {}\n", "x".repeat(290)).repeat(380);
    let output = format!(
        "Running 10s test @ http://h/\n  2 threads and 10 connections\n  Thread Stats   Avg      \
         Stdev     Max   +/- Stdev\n    Latency     1.00ms    1.00ms  10.00ms   90.00%\n    \
         Req/Sec     5.00k     1.00k   10.00k    90.00%\n{long}  100000 requests in 10.00s, \
         80.00MB read\nRequests/sec:  10000.00\nTransfer/sec:      8.00MB\n\n"
    );
    let path = desk.file("fill.txt", &output.repeat(500));
    let html = desk.folder.file("r.html");
    let args = ["import", str(&path), "--html", str(&html), "--json", "-"];
    let (ran, peak_kb) = peak_of(&mut desk.command(&args));
    assert!(peak_kb > 1000 && peak_kb <= PEAK_KB_MAX, "{peak_kb} kB");
    assert_eq!(ran.code, Some(0), "{}", ran.stderr);
}

#[test]
fn a_body_nobody_could_hold_is_refused_when_it_is_read() {
    let desk = Desk::new("hostile-body-bytes");
    for server in ["nginx = { body_bytes = 4294967295 }", "httpd = { body_bytes = 4294967295 }"] {
        let toml = format!(
            "name = \"x\"\n[load]\nconnections = 1\n[server.web]\n{server}\n\
             [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
             [[variant]]\nname = \"b\"\nserver = \"web\"\n"
        );
        let path = desk.file("large.toml", &toml);
        desk.tare(&["run", str(&path), "-q"]).fails(2, "at most 67108864 (64 MiB)");
    }
}

#[test]
fn headers_with_line_ends_are_refused_when_they_are_read() {
    let desk = Desk::new("hostile-headers");
    for (load, variant) in [
        ("headers = [\"A: b\\r\\nX: y\"]", ""),
        ("", "headers = [\"A: b\\n\\nGET /admin HTTP/1.1\"]"),
    ] {
        let toml = format!(
            "name = \"x\"\n[load]\nconnections = 1\n{load}\n[server.web]\nnginx = {{}}\n\
             [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
             [[variant]]\nname = \"b\"\nserver = \"web\"\n{variant}\n"
        );
        let path = desk.file("headers.toml", &toml);
        let told = desk.tare(&["run", str(&path), "--dry-run"]);
        told.fails(2, "write it without control characters");
    }
}

const ESCAPES: [char; 4] = ['\u{1b}', '\u{7}', '\u{9b}', '\u{202e}'];

#[track_caller]
fn is_safe(text: &str, what: &str) {
    assert!(!text.contains(ESCAPES), "{what}: {text:?}");
}

#[test]
fn escape_sequences_are_shown_and_not_sent_to_the_terminal() {
    let desk = Desk::new("hostile-escapes");
    let evil = "printf '\\033]0;pwned\\007\\302\\2331m\\342\\200\\256'";
    let dies = format!("--launch=a={evil}; exit 1 {{port}}");
    let told = desk.tare(&["compare", &dies, &dies.replace("=a=", "=b="), "-q"]);
    told.fails(4, "\\u{1b}]0;pwned\\u{7}");
    is_safe(&told.stderr, "an error");
    // The output of servers goes into the log of the run.
    let says = format!(
        "--launch=a={evil} >&2; echo >&2; exec {} target --listen 127.0.0.1:{{port}}",
        env!("CARGO_BIN_EXE_tare")
    );
    let pair = launches("", "");
    let mut args = vec!["compare", &says, &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).measured();
    let events = desk.tare(&["runs", "--events", "last"]).success().stdout;
    assert!(events.contains("\\u{1b}]0;pwned\\u{7}\\u{9b}1m\\u{202e}"), "{events}");
    is_safe(&events, "events");
    // A server's reply, quoted in the description of what is wrong with it.
    let flood = Flood::of("HTTP/1.1 200 OK\r\nContent-Length: \u{9b}31m\u{202e}\r\n\r\n", vec![]);
    let told = tare(&["load", &flood.url(), "-n", "1", "-c", "1", "-d", "5s"]);
    is_safe(&(told.stdout + &told.stderr), "a reply");
    let told = tare(&["load", &flood.url(), "-n", "1", "-c", "1", "-d", "5s", "--json", "-"]);
    is_safe(&told.stdout, "JSON");
    let report: serde_json::Value = serde_json::from_str(&told.stdout).expect("valid JSON");
    assert!(report.to_string().contains('\u{202e}'), "{report}");
}

#[test]
fn names_in_a_strangers_store_are_shown_and_not_sent_to_the_terminal() {
    let desk = Desk::new("hostile-store");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).measured();
    let path = desk.folder.file("tare/tare.db");
    let store = rusqlite::Connection::open(&path).unwrap();
    let name = "\u{1b}]0;pwned\u{7}\u{9b}1m\u{202e}";
    for (table, column) in [("run", "name"), ("run", "command"), ("variant", "name")] {
        store.execute(&format!("UPDATE {table} SET {column} = {column} || ?1"), [name]).unwrap();
    }
    let json = serde_json::to_string(name).unwrap();
    let quoted = format!("\"a{}\"", &json[1..json.len() - 1]);
    store.execute("UPDATE run SET plan = replace(plan, '\"a\"', ?1)", [&quoted]).unwrap();
    drop(store);
    is_safe(&desk.tare(&["runs"]).success().stdout, "runs");
    for form in ["text", "markdown", "csv", "json", "html", "openmetrics", "fortio-csv", "k6-csv"] {
        let told = desk.tare(&["report", "last", "--format", form]).success();
        is_safe(&told.stdout, form);
        assert!(form == "html" || told.stdout.contains("pwned"), "{form}: {}", told.stdout);
    }
    let report = read(desk.tare(&["report", "last", "--json"]).success());
    assert_eq!(report.variants[0].name, "a\\u{1b}]0;pwned\\u{7}\\u{9b}1m\\u{202e}");
}

#[test]
fn a_strangers_store_cannot_make_reports_compute_or_grow_without_end() {
    let desk = Desk::new("hostile-store-size");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).measured();
    let own = desk.folder.file("tare/tare.db");
    let endless = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n)";
    for (name, sql, words) in [
        (
            "view",
            format!(
                "DROP TABLE latency; CREATE VIEW latency AS {endless} \
                 SELECT i AS slice, 'x' AS series, '1' AS sum_ns, zeroblob(9) AS histogram FROM n"
            ),
            "not a tare store",
        ),
        (
            "histogram",
            "UPDATE latency SET histogram = zeroblob(60000000)".into(),
            "a histogram cannot be read",
        ),
        ("plan", "UPDATE run SET plan = zeroblob(300000000)".into(), "too big"),
        (
            "elements",
            "UPDATE run SET plan = '[' || replace(hex(zeroblob(1000000)), '00', '\"\",') || '0]'"
                .into(),
            "a value has over 500000 elements",
        ),
        (
            "slices",
            format!(
                "INSERT INTO slice (run, round, cycle, position, variant, window_ns, started, \
                 good, failed, counts) SELECT run, round, 100 + i, position, variant, window_ns, \
                 started, good, failed, counts FROM slice, \
                 ({endless} SELECT i FROM n LIMIT 20000) WHERE id = (SELECT min(id) FROM slice)"
            ),
            "has over 20000 slices",
        ),
        (
            "computed",
            "ALTER TABLE event ADD COLUMN more TEXT AS (printf('%.*c', 60000000, 'x'))".into(),
            "not a tare store",
        ),
    ] {
        let path = desk.folder.file(name);
        std::fs::copy(&own, &path).unwrap();
        rusqlite::Connection::open(&path).unwrap().execute_batch(&sql).unwrap();
        let args = ["report", "last", "--store", str(&path)];
        let (ran, peak_kb) = peak_of(&mut desk.command(&args));
        ran.fails(3, words);
        assert!(peak_kb <= PEAK_KB_MAX, "{name}: {peak_kb} kB");
        let (_, peak_kb) = peak_of(&mut desk.command(&["runs", "--store", str(&path)]));
        assert!(peak_kb <= PEAK_KB_MAX, "{name}: {peak_kb} kB");
    }
}

#[test]
fn how_a_strangers_run_ended_is_one_line() {
    let desk = Desk::new("hostile-end");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q"];
    args.extend(BRIEF);
    desk.tare(&args).measured();
    let store = rusqlite::Connection::open(desk.folder.file("tare/tare.db")).unwrap();
    store.execute_batch("UPDATE run SET stopped_by = 'x' || char(10) || 'forged'").unwrap();
    let listed = desk.tare(&["runs"]).success().stdout;
    assert!(listed.contains("x\\nforged") && !listed.contains("\nforged"), "{listed}");
}

/// Findings of the first rounds are no key of an experiment, and must fit the plan that is resumed.
#[test]
fn findings_that_do_not_fit_are_refused() {
    let desk = Desk::new("hostile-found");
    let [a, b] = launches("", "");
    desk.tare(&["compare", &a, &b, "--rounds", "1", "-q"]).measured();
    let resume = ["run", "--resume", "1", "--rounds", "2", "-q"];
    for found in [
        r#"{"window":"20ms","ramp":"2ms","warmup":"20ms","warm":[]}"#,
        r#"{"window":"9000h","ramp":"2ms","warmup":"20ms"}"#,
        r#"{"window":"20ms"}"#,
        "no JSON",
    ] {
        let store = rusqlite::Connection::open(desk.folder.file("tare/tare.db")).unwrap();
        let changed = store.execute("UPDATE run SET found = ?1", [found]).unwrap();
        assert_eq!(changed, 1, "one run found something");
        drop(store);
        desk.tare(&resume).fails(3, "found");
    }
    let toml = "name = \"x\"\n[slices]\nfound = {}\n";
    let path = desk.file("found.toml", toml);
    desk.tare(&["run", str(&path), "-q"]).fails(2, "unknown key 'found'");
}

#[test]
fn numbers_without_their_unit_are_told_so() {
    let desk = Desk::new("units");
    for (table, wanted) in [
        ("[stop]\nmax_time = 20", "20 has no unit: write \"20s\""),
        ("[stop]\nprecision = 3", "3 has no unit: write \"3%\""),
        ("[slices]\nwarmup = 1.5", "1.5 has no unit: write \"1.5s\""),
    ] {
        let toml = format!("name = \"x\"\n{table}\n[[variant]]\nname = \"a\"\nserver = \"a\"\n");
        desk.tare(&["run", str(&desk.file("unit.toml", &toml))]).fails(2, wanted);
    }
}

/// The file claims to be longer than any disk.
#[test]
fn a_sparse_log_is_not_read_for_hours() {
    let desk = Desk::new("hostile-sparse");
    let own = env!("CARGO_BIN_EXE_tare");
    let log = desk.folder.file("log");
    std::fs::File::create(&log).unwrap().set_len(15 << 40).unwrap();
    let toml = format!(
        "name = \"x\"\n[load]\nconnections = 2\n[stop]\nrounds = 2\n\
         [slices]\ncycles = 2\nwindow = \"5ms\"\n\
         [server.web]\ncommand = \"exec {own} target --listen 127.0.0.1:{{port}}\"\n\
         access_log = \"{}\"\n\
         [[variant]]\nname = \"a\"\nserver = \"web\"\nbaseline = true\n\
         [[variant]]\nname = \"b\"\nserver = \"web\"\n",
        log.display()
    );
    let path = desk.file("sparse.toml", &toml);
    let mut command = desk.command(&["run", str(&path), "-q"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    let ended = PidFd::new(child.id()).unwrap().wait_timeout(DurationNs::from_secs(120));
    let _ = child.kill();
    child.wait().unwrap();
    assert!(ended, "it reads on and on");
}

#[test]
fn a_store_that_may_only_be_read_is_reported() {
    if !is_root() {
        not_run("a mount that is read-only needs root");
        return;
    }
    let desk = Desk::new("hostile-read-only");
    let pair = launches("", "");
    let mut args = vec!["compare", &pair[0], &pair[1], "-q", "--json", "-"];
    args.extend(BRIEF);
    let first = read(desk.tare(&args).measured());
    let folder = desk.folder.file("tare");
    let script = format!(
        "mount --bind {0} {0} && mount -o remount,ro,bind {0} && exec \"$0\" \"$@\"",
        folder.display()
    );
    let on_read_only = |args: &[&str]| {
        let mut command = command("unshare");
        command.args(["-m", "sh", "-c", &script, env!("CARGO_BIN_EXE_tare")]).args(args);
        ran(command.env("XDG_DATA_HOME", &desk.folder.0).env_remove("TARE_STORE"))
    };
    let again = read(on_read_only(&["report", "last", "--json"]).success());
    assert_eq!(again, first);
    let listed = on_read_only(&["runs"]).success().stdout;
    assert!(listed.contains(&first.run.name), "{listed}");
    let mut more = vec!["compare", &pair[0], &pair[1], "-q"];
    more.extend(BRIEF);
    assert_eq!(on_read_only(&more).code, Some(3));
}

/// As in other programs, Ctrl-C ends the wait.
#[test]
fn a_fifo_that_is_named_is_waited_for_until_ctrl_c() {
    let desk = Desk::new("hostile-fifo");
    let fifo = desk.folder.file("fifo");
    assert!(command("mkfifo").arg(&fifo).status().unwrap().success());
    for args in [
        &["import", str(&fifo)][..],
        &["run", str(&fifo)],
        &["steps", str(&fifo)],
        &["wrk", "-s", str(&fifo), "http://127.0.0.1:9/"],
        &["load", "--body-file", str(&fifo), "http://127.0.0.1:9/"],
        &["load", "--urls", str(&fifo), "http://127.0.0.1:9/"],
    ] {
        let mut command = desk.command(args);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        until_it_catches(child.id(), libc::SIGINT);
        // A writer that sends nothing would end the wait, so there is none.
        signal(child.id(), libc::SIGINT).unwrap();
        let ended = PidFd::new(child.id()).unwrap().wait_timeout(DurationNs::from_secs(10));
        let _ = child.kill();
        let status = child.wait().unwrap();
        assert!(ended, "{args:?} is deaf");
        assert_eq!(status.code(), Some(130), "{args:?}");
    }
}
