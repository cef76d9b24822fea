//! `tare sys`: what it counts, and mistakes. `make test-real` checks which calls take longer.

use tare_report::sys::SysReport;

use crate::util::tare;

#[test]
fn every_launch_of_a_call_is_counted_and_in_its_interval() {
    let args = ["sys", "getpid", "mix", "--launches", "3", "-d", "100ms", "--json", "-"];
    let report: SysReport = serde_json::from_str(&tare(&args).success().stdout).unwrap();
    let names: Vec<&str> = report.calls.iter().map(|call| call.call.as_str()).collect();
    assert_eq!(names, ["mix", "getpid"], "in the order of the table");
    for call in &report.calls {
        let (ns, per_s) = (call.ns.unwrap(), call.per_s.unwrap());
        assert!(call.failed.is_none() && call.launches == 3 && call.made > 0, "{call:?}");
        assert!(ns.lower <= ns.point && ns.point <= ns.upper && ns.n == 3, "{call:?}");
        assert!(ns.point > 0.0 && per_s.point > 0.0, "{call:?}");
    }
}

#[test]
fn mistakes_are_told() {
    tare(&["sys", "getpit"]).fails(2, "'getpit' is not a call that tare makes; choose among mix");
    tare(&["sys", "-d", "1ms"]).fails(2, "--duration 1ms: 12 calls in 20 launches need");
    tare(&["sys", "--copies", "1000"]).fails(2, "--copies 1000: there are ");
    tare(&["sys", "--launches", "1"]).fails(2, "--launches");
}
