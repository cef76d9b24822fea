//! Two stored runs side by side.

use serde_json::Value;

use crate::runs::Desk;
use crate::stored::Stored;
use crate::util::Ran;

fn changes(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

fn throughput<'a>(pair: &'a Value, variant: &str) -> &'a Value {
    let mut all = pair["changes"].as_array().unwrap().iter();
    let found = all.find(|c| c["variant"] == variant && c["metric"] == "throughput_per_s");
    found.unwrap_or_else(|| panic!("no {variant} in {pair}"))
}

#[test]
fn a_cost_that_came_between_two_runs_fails_the_gate() {
    let desk = Desk::new("stored-pair");
    Stored::answering(100).write(&desk);
    Stored::answering(50).write(&desk);
    let ran = desk.tare(&["report", "1", "2", "--json"]).success();
    let pair = changes(&ran);
    assert_eq!(pair["schema"], "tare.change/1");
    let change = throughput(&pair, "new");
    assert_eq!((&change["verdict"], &change["relative_to"]), (&"slower".into(), &"base".into()));
    let percent = change["overhead_percent"]["point"].as_f64().unwrap();
    assert!((49.0..51.0).contains(&percent), "{percent}");
    assert_eq!(throughput(&pair, "base")["relative_to"], Value::Null);
    let drift = pair["guards"].as_array().unwrap().iter().find(|g| g["code"] == "drift");
    let text = drift.unwrap()["text"].as_str().unwrap();
    assert!(text.contains("drift between runs is not cancelled in the change of base"), "{text}");
    let gate = |runs: [&str; 2], gate: &str| {
        desk.tare(&["report", runs[0], runs[1], "--fail-if", gate, "--json", "/dev/null"])
    };
    gate(["1", "2"], "throughput > 5%").fails(1, "gate exceeded: new: throughput +");
    gate(["1", "2"], "new: throughput > 90%").success();
    gate(["2", "1"], "throughput > 5%").success();
    gate(["2", "1"], "throughput < -5%").fails(1, "gate exceeded: new: throughput");
    gate(["1", "2"], "moon: p50 > 5%").fails(2, "--fail-if moon: gates are about");
    let again = desk.tare(&["report", "1", "2", "--json"]).success();
    assert_eq!(ran.stdout, again.stdout, "to the byte");
    for form in ["text", "markdown", "csv", "html"] {
        let told = desk.tare(&["report", "1", "2", "--format", form]).success().stdout;
        assert!(told.contains("new") && told.contains("slower"), "{form}: {told}");
    }
}

#[test]
fn what_cannot_be_compared_is_said() {
    let desk = Desk::new("pair-not");
    let named = |names: [&str; 2]| {
        let mut stored = Stored::answering(100);
        for (variant, name) in stored.plan.variants.iter_mut().zip(names) {
            variant.name = name.into();
        }
        stored
    };
    let mut other_load = Stored::answering(100);
    other_load.plan.load.http_mut().unwrap().headers = vec!["X-Other: 1".into()];
    let mut few = Stored::answering(100);
    few.rounds = 2;
    for stored in [
        Stored::answering(100),
        other_load,
        named(["alone", "other"]),
        named(["base", "other"]),
        few,
    ] {
        stored.write(&desk);
    }
    // A different load forbids every verdict, and a gate that cannot be decided does not pass.
    let pair = changes(&desk.tare(&["report", "1", "2", "--json"]).success());
    assert_eq!(throughput(&pair, "new")["verdict"], "void");
    let code = &pair["guards"][0];
    assert_eq!((&code["code"], &code["severity"]), (&"other-load".into(), &"void".into()));
    assert!(code["text"].as_str().unwrap().contains("headers"), "{code}");
    desk.tare(&["report", "1", "2", "--fail-if", "throughput > 90%", "--json", "/dev/null"])
        .fails(6, "gate is void: new: no verdict on throughput is allowed");
    desk.tare(&["report", "1", "3"])
        .fails(2, "runs 1 and 3 have no variant in common: base, new against alone, other");
    desk.tare(&["report", "1", "1"]).fails(2, "run 1 and run 1 are the same: name two");
    desk.tare(&["report", "1", "9"]).fails(2, "there is no run 9");
    desk.tare(&["report", "1", "2", "--format", "k6-csv"])
        .fails(2, "--format k6-csv: a pair of runs has no form k6-csv");
    // A variant that is missing does not count as unchanged.
    desk.tare(&["report", "1", "4", "--fail-if", "throughput > 900%", "--json", "/dev/null"])
        .fails(1, "new: throughput was not measured in two rounds; other: throughput was not");
    // Two rounds each resolve nothing.
    let ran = desk.tare(&["report", "1", "5", "--fail-if", "unresolved", "--json", "/dev/null"]);
    ran.fails(5, "unresolved: no verdict to ± 2.828 % on new");
}
