//! Two stored runs side by side: a cost that came between them.

use serde_json::Value;

use crate::pairs::{changes, measure, throughput};
use crate::runs::Desk;

#[test]
fn a_cost_that_came_between_two_runs_fails_the_gate() {
    let desk = Desk::new("pair");
    let rounds = ["--rounds", "20"];
    measure(&desk, "2ms", &rounds);
    measure(&desk, "4ms", &rounds);
    let ran = desk.tare(&["report", "1", "2", "--json"]).success();
    let pair = changes(&ran);
    assert_eq!(pair["schema"], "tare.change/1");
    // Twice as late: half of the throughput is left.
    let change = throughput(&pair, "new");
    assert_eq!((&change["verdict"], &change["relative_to"]), (&"slower".into(), &"base".into()));
    let percent = change["overhead_percent"]["point"].as_f64().unwrap();
    assert!((30.0..70.0).contains(&percent), "{percent}");
    assert_eq!(throughput(&pair, "base")["relative_to"], Value::Null);
    let drift = pair["guards"].as_array().unwrap().iter().find(|g| g["code"] == "drift");
    let text = drift.unwrap()["text"].as_str().unwrap();
    assert!(text.contains("drift between runs is not cancelled in the change of base"), "{text}");
    let gate = |runs: [&str; 2], gate: &str| {
        desk.tare(&["report", runs[0], runs[1], "--fail-if", gate, "--json", "/dev/null"])
    };
    gate(["1", "2"], "throughput > 5%").fails(1, "gate failed: new: throughput +");
    gate(["1", "2"], "new: throughput > 90%").success();
    gate(["2", "1"], "throughput > 5%").success();
    gate(["2", "1"], "throughput < -5%").fails(1, "gate failed: new: throughput");
    gate(["1", "2"], "moon: p50 > 5%").fails(2, "--fail-if moon: gates are about");
    let again = desk.tare(&["report", "1", "2", "--json"]).success();
    assert_eq!(ran.stdout, again.stdout, "to the byte");
    for form in ["text", "markdown", "csv", "html"] {
        let told = desk.tare(&["report", "1", "2", "--format", form]).success().stdout;
        assert!(told.contains("new") && told.contains("slower"), "{form}: {told}");
    }
}
