//! Two stored runs side by side: what cannot be compared.

use crate::pairs::{changes, measure, throughput};
use crate::runs::Desk;

#[test]
fn what_cannot_be_compared_is_said() {
    let desk = Desk::new("pair-not");
    let rounds = ["--rounds", "2"];
    measure(&desk, "2ms", &rounds);
    measure(&desk, "2ms", &["--rounds", "2", "-H", "X-Other: 1"]);
    let tare = env!("CARGO_BIN_EXE_tare");
    let alone = format!("--launch=alone=exec {tare} target --listen 127.0.0.1:{{port}}");
    let other = alone.replace("alone", "other");
    let flags = ["-q", "--rounds", "2", "--cycles", "2", "--slice", "20ms"];
    desk.tare(&[&["compare", &alone, &other][..], &flags].concat()).measured();
    // Another load forbids every verdict, and a gate that cannot judge does not pass.
    let pair = changes(&desk.tare(&["report", "1", "2", "--json"]).success());
    assert_eq!(throughput(&pair, "new")["verdict"], "void");
    let code = &pair["guards"][0];
    assert_eq!((&code["code"], &code["severity"]), (&"other-load".into(), &"void".into()));
    assert!(code["text"].as_str().unwrap().contains("headers"), "{code}");
    desk.tare(&["report", "1", "2", "--fail-if", "throughput > 90%", "--json", "/dev/null"])
        .fails(1, "new: no verdict on throughput is allowed (void)");
    desk.tare(&["report", "1", "3"])
        .fails(2, "runs 1 and 3 have no variant in common: base, new against alone, other");
    desk.tare(&["report", "1", "1"]).fails(2, "run 1 and run 1 are the same: name two");
    desk.tare(&["report", "1", "9"]).fails(2, "there is no run 9");
    desk.tare(&["report", "1", "2", "--format", "k6-csv"])
        .fails(2, "--format k6-csv: a pair of runs has no form k6-csv");
    // A variant that is gone is none that has not changed.
    let base = alone.replacen("alone", "base", 1);
    desk.tare(&[&["compare", &base, &other, "-c", "4"][..], &flags].concat()).measured();
    desk.tare(&["report", "1", "4", "--fail-if", "throughput > 900%", "--json", "/dev/null"])
        .fails(1, "new: throughput was not measured in two rounds; other: throughput was not");
    // Two rounds each resolve nothing.
    measure(&desk, "2ms", &rounds);
    let ran = desk.tare(&["report", "1", "5", "--fail-if", "unresolved", "--json", "/dev/null"]);
    ran.fails(5, "unresolved: new not known to ± 2 %");
}
