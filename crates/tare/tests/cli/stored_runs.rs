//! `tare runs`: the verdicts of stored runs are computed once and then kept.

use tare_stats::Verdict;

use crate::runs::{Desk, asked, read};
use crate::stored::Stored;
use crate::util::str;

/// Returns the names in a list, without what varies.
fn listed(desk: &Desk) -> Vec<String> {
    let lines = desk.tare(&["runs"]).success().stdout;
    let name = |line: &str| line.rsplit("  ").next().unwrap_or_default().to_owned();
    lines.lines().map(name).collect()
}

#[test]
fn verdicts_are_worked_out_once_kept_and_worked_out_anew_after_more_rounds() {
    let desk = Desk::new("runs-verdicts");
    Stored::answering(90).write(&desk);
    Stored::answering(100).write(&desk);
    let first = listed(&desk);
    assert!(first[0].contains(": same, "), "{first:?}");
    assert!(first[1].ends_with(": slower, +10.0 %"), "{first:?}");
    assert_eq!(listed(&desk), first);
    let store = rusqlite::Connection::open(desk.folder.file("tare/tare.db")).unwrap();
    let change = |set: &str| store.execute(&format!("UPDATE conclusion SET {set}"), []).unwrap();
    // The stored verdict is shown …
    assert_eq!(change("text = replace(text, 'slower', 'faster')"), 2);
    assert!(listed(&desk)[1].contains(": faster"), "{:?}", listed(&desk));
    // … unless it is from fewer rounds, from another method, or invalid.
    let others = [
        "rounds = rounds - 1",
        "version = version - 1",
        "text = '{'",
        "rounds = -1",
        "text = x'00'",
        "text = printf('%70000s', '')",
    ];
    for other in others {
        change("text = replace(text, 'slower', 'faster')");
        change(other);
        assert_eq!(listed(&desk), first, "{other}");
    }
}

#[test]
fn a_report_keeps_what_it_concludes_and_a_run_that_cannot_be_read_is_listed() {
    let desk = Desk::new("runs-report");
    Stored::answering(90).write(&desk);
    desk.tare(&["report", "1"]).success();
    let store = rusqlite::Connection::open(desk.folder.file("tare/tare.db")).unwrap();
    let kept = |of: &rusqlite::Connection| -> i64 {
        of.query_row("SELECT count(*) FROM conclusion", [], |row| row.get(0)).unwrap()
    };
    assert_eq!(kept(&store), 1);
    store.execute("UPDATE run SET plan = '{}'", []).unwrap();
    store.execute("DELETE FROM conclusion", []).unwrap();
    assert_eq!(listed(&desk).len(), 1);
    assert_eq!(kept(&store), 0);
    desk.tare(&["runs", "--delete", "1"]).success();
    store.execute("DROP TABLE conclusion", []).unwrap();
    store.execute("CREATE TABLE conclusion (other TEXT)", []).unwrap();
    Stored::answering(90).write(&desk);
    assert!(listed(&desk)[0].ends_with(": slower, +10.0 %"), "worked out each time");
}

/// Stores of every release stay readable. That of 0.1.0 is made anew if its format changes before
/// it is released: a comparison of three rounds, and an import of wrk's output.
#[test]
fn stores_of_earlier_releases_are_read() {
    let folder = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/releases");
    let stores: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|file| file.unwrap().path()).collect();
    assert!(!stores.is_empty());
    for store in stores {
        let desk = Desk::new("release");
        let copy = desk.folder.file("tare.db");
        std::fs::copy(&store, &copy).unwrap();
        let tare =
            |words: &[&str]| desk.tare(&[words, &["--store", str(&copy)]].concat()).success();
        let listed = tare(&["runs", "--all"]).stdout;
        assert!(listed.contains("a fixture") && listed.contains("wrk.txt"), "{listed}");
        let report = read(tare(&["report", "1", "--json"]));
        let b = report.variant("b").unwrap();
        assert_eq!((report.run.rounds, b.launches, b.errors.len()), (3, 3, 0));
        assert_eq!(b.requests, 655);
        assert_eq!(asked(&report).verdict, Verdict::Slower);
        assert!(tare(&["report", "1", "--why"]).stdout.contains("a fixture"));
        assert!(tare(&["report", "2"]).stdout.contains("24,000"));
        // A run in it can be deleted.
        tare(&["runs", "--delete", "1"]);
    }
}

#[test]
fn an_experiment_is_followed_over_time() {
    let desk = Desk::new("runs-trend");
    for percent in [100, 100, 90] {
        Stored::answering(percent).write(&desk);
    }
    let trend = |more: &[&str]| desk.tare(&[&["runs", "--trend", "What does"], more].concat());
    let told = trend(&[]).success().stdout;
    assert!(told.contains("▼ new +10.0 % ± ") && told.contains(" since run 1"), "{told}");
    let csv = trend(&["--csv", "-"]).success().stdout;
    assert_eq!(csv.lines().count(), 4, "{csv}");
    let page = desk.folder.file("trend.html");
    trend(&["--html", str(&page)]).success();
    assert!(std::fs::read_to_string(page).unwrap().contains("Run 3: ▼ new"));
    desk.tare(&["runs", "--trend", "nowhere"]).fails(2, "no measured run has this name");
    desk.tare(&["runs", "--html", "x"]).fails(2, "--trend <EXPERIMENT>");
    let mut other = Stored::answering(100);
    other.plan.name = "What does another cost?".into();
    other.write(&desk);
    trend(&[]).fails(2, "matches several experiments: What does another cost?; What does |it|");
}
