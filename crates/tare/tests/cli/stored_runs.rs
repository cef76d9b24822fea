//! `tare runs`: the verdicts of stored runs are computed once and then kept.

use crate::runs::Desk;
use crate::stored::Stored;

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
