//! `tare sys`: what it prints, and the consistency of its numbers.

use tare_io::calls::Call;
use tare_report::sys::SysReport;

use crate::util::tare;

#[test]
fn every_call_has_its_time_by_launches() {
    let args = ["sys", "--launches", "3", "-d", "1500ms", "--unixbench", "--json", "-"];
    let report: SysReport = serde_json::from_str(&tare(&args).success().stdout).unwrap();
    assert_eq!(report.calls.len(), Call::ALL.len());
    for call in &report.calls {
        let (ns, per_s) = (call.ns.unwrap(), call.per_s.unwrap());
        assert!(call.failed.is_none() && call.launches == 3 && call.made > 0, "{call:?}");
        assert!(ns.lower <= ns.point && ns.point <= ns.upper && ns.n == 3, "{call:?}");
        assert!(ns.point > 0.5 && per_s.point > 0.0, "{call:?}");
    }
    let of = |name: &str| report.calls.iter().find(|call| call.call == name).unwrap();
    // The five calls of mix take longer than one of them, and a fork takes longer than all five.
    assert!(of("mix").ns.unwrap().point > of("getpid").ns.unwrap().point);
    assert!(of("fork").ns.unwrap().point > of("mix").ns.unwrap().point);
}

#[test]
fn unixbenchs_line_and_index_are_those_of_the_table() {
    let args = ["sys", "mix", "--launches", "2", "-d", "100ms", "--unixbench"];
    let text = tare(&args).success().stdout;
    let line = text.lines().find(|line| line.contains(" lps ")).unwrap();
    assert!(line.starts_with("System Call Overhead                    "), "{text}");
    let lps: f64 = line[40..].split_whitespace().next().unwrap().parse().unwrap();
    let row = text.lines().find(|line| line.contains(" 15000.0 ")).unwrap();
    let numbers: Vec<f64> =
        row[40..].split_whitespace().map(|word| word.parse().unwrap()).collect();
    assert_eq!(numbers[..2], [15_000.0, lps]);
    assert!((numbers[2] - lps / 1500.0).abs() < 0.06, "{row}");
    let copies = ["sys", "mix", "--launches", "2", "-d", "100ms", "--copies", "2"];
    assert!(tare(&copies).success().stdout.contains("2 processes at a time"));
}
