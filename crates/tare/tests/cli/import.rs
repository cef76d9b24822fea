//! Other tools' results: pasted, whole, repeated, broken, huge.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::Value;

use crate::runs::Desk;
use crate::util::{Ran, ran, str};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

impl Desk {
    /// Runs in the repository, so that paths are those of the docs.
    fn import(&self, args: &[&str]) -> Ran {
        let all: Vec<&str> = ["import"].iter().chain(args).copied().collect();
        ran(self.command(&all).current_dir(root()))
    }

    fn imported(&self, args: &[&str]) -> Value {
        let all: Vec<&str> = args.iter().chain(&["--json", "-"]).copied().collect();
        serde_json::from_str(&self.import(&all).success().stdout).unwrap()
    }
}

fn list<'a>(value: &'a Value, key: &str) -> &'a Vec<Value> {
    value[key].as_array().unwrap()
}

fn words<'a>(values: &'a [Value], key: &str) -> Vec<&'a str> {
    values.iter().map(|value| value[key].as_str().unwrap_or("-")).collect()
}

#[test]
fn an_output_is_named_by_its_line() {
    let desk = Desk::new("import-lines");
    let file = "docs/evidence/confidential-vm.md";
    let named = |name: &str| format!("{file}:{name}");
    let (host, again) = (named("10=bare metal"), named("69=bare metal"));
    let audit = desk.imported(&[file, "--dry-run", "--as", &host, "--as", &again]);
    let variants = words(list(&audit["import"], "samples"), "variant");
    assert_eq!((variants[0], variants[4]), ("bare metal", "bare metal"), "repetitions now");
    assert_eq!(variants[1], "wrk on the host, nginx in a VM", "the others keep their names");
    let refused = |name: &str, why: &str| desk.import(&[file, "--as", name]).fails(2, why);
    refused(&named("11=x"), "a line where an output begins: 10, 24, 38, 53, 69");
    refused(&named("10="), "a name, and a line where an output begins");
    refused("other.md:10=x", "FILE:LINE=NAME is of one of the files that are read");
}

#[test]
fn five_blocks_under_headings_are_five_variants() {
    let desk = Desk::new("import-headings");
    let audit = desk.imported(&["docs/evidence/confidential-vm.md"]);
    assert_eq!(
        words(list(&audit["import"], "samples"), "variant"),
        [
            "wrk and nginx on the host",
            "wrk on the host, nginx in a VM",
            "wrk on the host, nginx in a confidential VM",
            "wrk in a pod, nginx in a confidential pod",
            "wrk and nginx inside one confidential VM",
        ]
    );
    // 10,905 bytes on the host, some 850 elsewhere: 12.8 and 12.9 times.
    let findings = list(&audit, "findings");
    let unequal: Vec<&Value> = findings.iter().filter(|f| f["code"] == "unequal-reply").collect();
    assert_eq!(unequal.len(), 4);
    for finding in unequal {
        assert_eq!(finding["severity"], "void");
        let text = finding["text"].as_str().unwrap();
        assert!(text.contains("; 'wrk and nginx on the host' had 10905: 12."), "{text}");
    }
    let throughput = list(&audit, "comparisons").iter().filter(|c| c["asked"] == true);
    assert!(throughput.clone().count() == 4 && throughput.clone().all(|c| c["verdict"] == "void"));
}

/// The page shows exactly what the program prints.
#[test]
fn the_page_of_evidence_is_what_the_audit_says() {
    const START: &str = "```console\n$ tare ";
    let desk = Desk::new("import-evidence");
    let path = root().join("docs/evidence.md");
    let page = std::fs::read_to_string(&path).unwrap();
    let mut made = String::new();
    let mut blocks = page.split(START);
    made.push_str(blocks.next().unwrap());
    let mut shown = 0;
    for block in blocks {
        let (command, rest) = block.split_once('\n').unwrap();
        let (_, after) = rest.split_once("\n```\n").unwrap();
        let words: Vec<&str> = command.split(' ').skip(1).collect();
        let output = desk.import(&words).success().stdout;
        made.push_str(&format!("{START}{command}\n{}\n```\n{after}", output.trim_end()));
        shown += 1;
    }
    assert!(shown >= 6, "{shown} outputs on the page");
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, &made).unwrap();
        return;
    }
    assert_eq!(made, page, "set UPDATE_GOLDEN=1 where the change is meant");
}

#[test]
fn what_is_kept_is_reported_again_to_the_byte() {
    let desk = Desk::new("import-kept");
    let first = desk.import(&["docs/evidence/filters.json", "--name", "filters"]).success().stdout;
    let (report, kept) = first.split_once("stored as run ").unwrap();
    assert!(kept.starts_with("1 in "), "{kept}");
    assert_eq!(desk.tare(&["report", "1"]).success().stdout, report);
    for form in ["json", "markdown", "csv", "html"] {
        let one = desk.tare(&["report", "last", "--format", form]).success().stdout;
        assert_eq!(one, desk.tare(&["report", "last", "--format", form]).success().stdout);
        assert!(one.contains("wasm"), "{form}");
    }
    let runs = desk.tare(&["runs", "erim"]).success().stdout;
    assert!(runs.contains("imported") && runs.contains("filters"), "{runs}");
    let other = desk.tare(&["report", "1", "--baseline", "wasm"]).success().stdout;
    assert!(other.contains("'no_module' against 'wasm', overhead in throughput"), "{other}");
    desk.tare(&["report", "1", "--baseline", "x"]).fails(2, "--baseline x: there are: no_module");
    desk.tare(&["report", "1", "--fail-if", "p99 > 5%"]).fails(2, "run 1 was imported");
    desk.tare(&["report", "1", "1"]).fails(2, "run 1 was imported: it has no rounds to compare");
    desk.tare(&["run", "--resume", "1"]).fails(2, "run 1 was imported");
    desk.tare(&["report", "1", "--format", "k6-csv"]).fails(
        2,
        "--format k6-csv: an import has no form k6-csv; it has text, json, markdown, csv, html",
    );
    desk.tare(&["runs", "--delete", "1"]).success();
    desk.tare(&["report", "1"]).fails(2, "there is no run 1");
}

#[test]
fn repeated_values_have_intervals_and_a_corrected_significance() {
    let desk = Desk::new("import-repeated");
    let audit = desk.imported(&["docs/evidence/filters.json"]);
    let asked: Vec<&Value> =
        list(&audit, "comparisons").iter().filter(|c| c["asked"] == true).collect();
    assert_eq!(asked.len(), 6);
    let number = |value: &Value, key: &str| value["interval"][key].as_f64().unwrap();
    for compared in &asked {
        assert_eq!(compared["repetitions"], serde_json::json!([20, 20]));
        assert_eq!(compared["verdict"], "unresolved");
        let (p, corrected) = (number(compared, "p"), number(compared, "p_corrected"));
        assert!((corrected - (1.0 - (1.0 - p).powi(6))).abs() < 1e-12, "{p} {corrected}");
        assert!(number(compared, "lower") < 0.0 && number(compared, "upper") > 0.0);
    }
    // One of the six looks significant by itself; corrected for all six, none is.
    let least = asked.iter().map(|c| number(c, "p")).fold(1.0, f64::min);
    assert!((0.01..0.05).contains(&least), "{least}");
    // Twenty files of each name are repetitions too.
    let mut args = Vec::new();
    let mut names = Vec::new();
    for (name, base) in [("slow", 900.0), ("fast", 1000.0)] {
        for n in 0..20 {
            let text =
                format!("Running 1s test @ http://h/\nRequests/sec: {}\n", base + f64::from(n % 5));
            args.push(desk.file(&format!("{name}-{n}.txt"), &text));
            names.push(name);
        }
    }
    let mut all: Vec<&str> = args.iter().map(|path| str(path)).collect();
    names.iter().for_each(|name| all.extend(["--as", name]));
    let audit = desk.imported(&[&all[..], &["--baseline", "fast"]].concat());
    let compared = &list(&audit, "comparisons")[0];
    assert_eq!(compared["verdict"], "slower");
    assert!((compared["overhead_percent"].as_f64().unwrap() - 9.98).abs() < 0.01, "{compared}");
}

#[test]
fn broken_input_is_one_line_with_its_number() {
    let desk = Desk::new("import-broken");
    let wrk = "Running 1s test @ http://h/\n  1 threads and 2 connections\n";
    for (name, text, message) in [
        ("empty.txt", "", "empty.txt:1: is empty"),
        (
            "prose.txt",
            "nothing here\nat all\n",
            "prose.txt:1: no output of a known tool in its 2 lines",
        ),
        (
            "cut.txt",
            wrk,
            "cut.txt:1: a wrk output begins here and ends without its 'Requests/sec:'",
        ),
        (
            "bad.md",
            "# x\n\n```\nRunning 1s test @ u\nRequests/sec: many\n```\n",
            "bad.md:5: 'many' is not a number for wrk's 'Requests/sec:'",
        ),
        (
            "cut.json",
            "{\n \"DurationHistogram\": {\n",
            "cut.json:3: is no JSON that can be read: EOF",
        ),
        ("other.json", "{\"a\": 1}", "other.json:1: is JSON of no known tool"),
        (
            "fortio.json",
            "{\"DurationHistogram\": {}, \"ActualQPS\": 1}",
            "fortio.json:1: is fortio's JSON without a number at 'DurationHistogram.Avg'",
        ),
        (
            "k6.csv",
            "metric_name,timestamp,metric_value\nhttp_reqs,1,1\nhttp_reqs,1,x\n",
            "k6.csv:3: a point of k6's CSV without a number as metric_value",
        ),
        (
            "qperf.txt",
            "tcp_lat:\n    latency  =  soon\n",
            "qperf.txt:2: 'soon' is not a number for qperf's 'latency'",
        ),
        (
            "deep.json",
            &"[".repeat(5000),
            "deep.json:1: is no JSON that can be read: recursion limit",
        ),
    ] {
        let path = desk.file(name, text);
        desk.import(&[str(&path)]).fails(2, message);
    }
    let binary = desk.folder.file("binary.txt");
    std::fs::write(&binary, b"one\ntwo\n\xff\xfe\n").unwrap();
    desk.import(&[str(&binary)]).fails(2, "binary.txt:3: is not text: it contains bytes");
    desk.import(&["/nowhere/x.txt"]).fails(2, "/nowhere/x.txt: cannot be read: No such file");
    desk.import(&[str(&desk.folder.0)]).fails(2, "cannot be read: it is a folder");
    let good = "docs/evidence/qperf.md";
    desk.import(&[good, good, good, "--as", "a", "--as", "b"])
        .fails(2, "--as was given 2 times for 3");
    desk.import(&[good, "--baseline", "moon"])
        .fails(2, "--baseline moon: there are: Host, runc, Kata");
    // All or nothing: a good file beside a bad one is not stored.
    desk.import(&[good, str(&binary)]).fails(2, "binary.txt:3");
    desk.tare(&["runs"]).fails(3, "there is none yet");
    // A broken output among good ones is reported, and the others are kept.
    let mixed = desk.file("mixed.md", &format!("# a\n{wrk}Requests/sec: 10\n# b\n{wrk}\n"));
    let told = desk.import(&[str(&mixed)]).success().stdout;
    assert!(told.contains("mixed.md:6: a wrk output") && told.contains(" [unread]"), "{told}");
}

/// Half a gigabyte of address space cannot hold a file of 100 MB and its values.
fn bounded(desk: &Desk, args: &[&str]) -> Command {
    let own = desk.command(&[]);
    let mut command = Command::new("/bin/sh");
    command.args(["-c", "ulimit -v 600000; exec \"$0\" import \"$@\""]);
    command.arg(own.get_program()).args(args).env("XDG_DATA_HOME", &desk.folder.0);
    command
}

#[test]
fn huge_files_are_refused_or_streamed_in_bounded_memory() {
    let desk = Desk::new("import-huge");
    let huge = |name: &str, line: &[u8], last: &[u8]| {
        let path = desk.folder.file(name);
        let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
        (0..100_000_000 / line.len()).for_each(|_| file.write_all(line).unwrap());
        file.write_all(last).unwrap();
        path
    };
    let text = huge("text.txt", b"Running 9s test @ http://h/ and then nothing\n", b"");
    ran(&mut bounded(&desk, &[str(&text)]))
        .fails(2, "goes on after 64 MiB, the most that is read of text");
    std::fs::remove_file(text).unwrap();
    let json = huge("json.json", b"[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0],\n", b"");
    ran(&mut bounded(&desk, &[str(&json)]))
        .fails(2, "goes on after 8 MiB, the most that is read of JSON");
    std::fs::remove_file(json).unwrap();
    let one_line = huge("line.json", b"{\"a\":", b"");
    ran(&mut bounded(&desk, &[str(&one_line)])).fails(2, "line.json:1: goes on after 8 MiB");
    std::fs::remove_file(one_line).unwrap();
    // A table that never ends, in one line.
    let table = desk.folder.file("table.html");
    let cells = "<table><tr><td colspan=40 rowspan=40>1 ms<td>2".repeat(1_200_000);
    std::fs::write(&table, cells).unwrap();
    ran(&mut bounded(&desk, &[str(&table)])).fails(2, "no output of a known tool");
    std::fs::remove_file(table).unwrap();
    // k6 may write any number of points.
    let header = b"metric_name,timestamp,metric_value,scenario\n";
    let point = b"http_req_duration,1700000000,1.5,default\nhttp_reqs,1700000000,1,default\n";
    let path = desk.folder.file("k6.csv");
    let mut file = std::io::BufWriter::new(std::fs::File::create(&path).unwrap());
    file.write_all(header).unwrap();
    let points = 100_000_000 / point.len();
    (0..points).for_each(|_| file.write_all(point).unwrap());
    file.flush().unwrap();
    let told = ran(&mut bounded(&desk, &[str(&path), "--json", "-"])).success().stdout;
    let audit: Value = serde_json::from_str(&told).unwrap();
    assert_eq!(audit["import"]["samples"][0]["seen"]["requests"], points);
    file.write_all(b"http_reqs,soon,1,default\n").unwrap();
    drop(file);
    let line = 2 + 2 * points;
    ran(&mut bounded(&desk, &[str(&path)]))
        .fails(2, &format!("k6.csv:{line}: a point of k6's CSV without a number as timestamp"));
}

#[test]
fn standard_input_is_a_file_too() {
    let desk = Desk::new("import-stdin");
    let mut child = desk
        .command(&["import", "-", "--as", "host", "--dry-run"])
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let text = "Running 1s test @ http://h/\nRequests/sec: 10.5\n";
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    let told = String::from_utf8(output.stdout).unwrap();
    assert!(output.status.success() && told.contains("stdin:1-2: wrk, 'host'"), "{told}");
    assert!(told.contains("nothing was kept (--dry-run)"), "{told}");
    desk.tare(&["runs"]).fails(3, "there is none yet");
}

/// tare reads what it exports in k6's format.
#[test]
fn our_own_k6_table_comes_back() {
    let desk = Desk::new("import-own");
    let [a, b] = crate::runs::launches("", "--delay 1ms");
    desk.tare(&["compare", &a, &b, "-q", "--rounds", "2", "--cycles", "2", "--slice", "20ms"])
        .measured();
    let csv = desk.tare(&["report", "last", "--format", "k6-csv"]).success().stdout;
    let path = desk.file("k6.csv", &csv);
    let audit = desk.imported(&[str(&path)]);
    assert_eq!(words(list(&audit["import"], "samples"), "variant"), ["a", "b"]);
    let rate = csv.lines().find(|line| line.starts_with("http_reqs{variant:b}")).unwrap();
    let rate: f64 = rate.split(',').nth(10).unwrap().parse().unwrap();
    assert_eq!(audit["import"]["samples"][1]["values"]["throughput_per_s"], rate);
}
