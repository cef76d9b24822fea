//! Gates, on stored runs.

use crate::runs::{Desk, asked, read};
use crate::stored::Stored;

#[test]
fn a_server_half_as_fast_is_slower_by_half_and_gates_judge_that() {
    let desk = Desk::new("stored-gates");
    Stored::answering(50).write(&desk);
    let report = read(desk.tare(&["report", "last", "--json"]).success());
    let comparison = asked(&report);
    assert_eq!(comparison.verdict, tare_stats::Verdict::Slower, "{:#?}", report.guards);
    let loss = comparison.overhead_percent;
    assert!(loss.lower < 50.0 && 50.0 < loss.upper && loss.upper - loss.lower < 1.0, "{loss:?}");
    let gate = |gate: &str| desk.tare(&["report", "last", "--fail-if", gate]);
    let passed = gate("throughput > 70%").success().stdout;
    assert!(passed.contains("gate passed: new throughput +50.0 %"), "{passed}");
    assert!(passed.contains("(--fail-if 'throughput > 70%')"), "{passed}");
    gate("throughput > 20%").fails(1, "gate exceeded: new: throughput +50.0 %");
    // Decided by the interval: its upper end exceeds what the point stays below.
    gate("throughput > 49%").fails(1, "is > 49 %");
    gate("new: p50 < 0%").success();
    gate("packets > 5%").fails(5, "packets was not measured");
    gate("none: p50 > 0%").fails(2, "gates are about what is compared with the baseline: new");
    gate("unresolved").success();
}

#[test]
fn what_is_not_known_as_precisely_as_asked_is_unresolved() {
    let desk = Desk::new("stored-unresolved");
    let mut few = Stored::answering(50);
    few.rounds = 2;
    few.write(&desk);
    let gate = ["report", "last", "--fail-if", "unresolved"];
    desk.tare(&gate).fails(5, "unresolved: no verdict to ± 2 % on new");
    let mut precise = Stored::answering(50);
    precise.plan.stop.precision = 0.000_01;
    precise.write(&desk);
    desk.tare(&gate).fails(5, "unresolved: no verdict to ± 0.001 % on new");
    // If a run ended too early, a gate inside the interval does not pass.
    let decided = |gate: &str| desk.tare(&["report", "last", "--fail-if", gate]);
    let undecided = decided("throughput > 50%");
    assert!(
        undecided.stdout.contains("gate not decided: new: throughput +50.0 % ± "),
        "{}",
        undecided.story()
    );
    undecided.fails(5, "gate not decided: new: throughput +50.0 % ± ");
    decided("throughput > 70%").success();
    decided("throughput > 20%").fails(1, "gate exceeded: new: throughput");
    // Nor for a metric that the run was not asked to resolve.
    decided("p50 > 100%").fails(5, "gate not decided: new: p50 +100 % ± ");
    decided("p50 > 120%").success();
}
