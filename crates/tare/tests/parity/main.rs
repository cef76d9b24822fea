//! Runs here and elsewhere: everything that this process's executor does is asked of an agent at
//! the end of a byte stream, and gives the same knowledge. A lab ends all remaining children of its
//! process, so this test has a separate process.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

#[path = "../common/mod.rs"]
mod common;
#[path = "../../../tare-lab/tests/there/mod.rs"]
mod there;

use common::{parity, runs, util};
use parity::ROWS;
use runs::{Desk, read};
use tare_io::DurationNs;
use tare_lab::lab::site::Site;
use tare_lab::lab::{Deployment, PLACE_LAUNCHES};
use tare_lab::{Halt, Lab, LabPlan};
use tare_model::Metric;
use tare_model::load::LoadSpec;
use tare_model::plan::{Draft, Plan, Slices, Stop};
use tare_model::servers::{CommandSpec, ServerSpec, TargetSpec};
use tare_model::variant::Variant;
use tare_report::run::RunReport;
use tare_run::clock::SystemClock;
use tare_run::observer::SilentObserver;
use tare_run::runner::RunServices;
use tare_run::{Cell, Runner, Start, Stopped};
use tare_store::{NewRun, Store, Writer};
use there::There;

const ROUNDS: u32 = 2;

fn plan(row: &parity::Row) -> Plan {
    let target: TargetSpec = toml::from_str(row.server).unwrap();
    let load: LoadSpec = toml::from_str(row.load).unwrap();
    let tare = env!("CARGO_BIN_EXE_tare");
    let flags = target.flags().join(" ");
    let server = ServerSpec::Command(CommandSpec {
        command: format!("exec {tare} target --listen {{address}}:{{port}} {flags}"),
        argv: Vec::new(),
        env: Default::default(),
        ready_within_ms: 10_000,
        access_log: None,
    });
    let scheme = if target.tls { "https" } else { "http" };
    let variant = |name: &str, baseline| Variant {
        baseline,
        ..Variant::new(name, &format!("{scheme}://127.0.0.1:{{port}}/"), server.clone())
    };
    let draft = Draft {
        name: "parity".into(),
        seed: 7,
        load: LoadSpec { threads: Some(1), insecure: target.tls, ..load },
        stop: Stop {
            precision: 0.02,
            of_effect: 0.0,
            tolerance: 0.02,
            max_time: DurationNs::from_secs(600),
            metrics: vec![Metric::Throughput],
            rounds: Some(ROUNDS),
            lost_rounds: 0,
        },
        slices: Slices {
            window: Some(DurationNs::from_ms(50)),
            sustained: Some(DurationNs::from_ms(500)),
            cycles: Some(2),
            ..Slices::default()
        },
        load_cpus: Vec::new(),
        server_cpus: Vec::new(),
        variants: vec![variant("a", true), variant("b", false)],
        skipped: Vec::new(),
        cell: Default::default(),
        check: None,
    };
    Plan::try_from(draft).unwrap()
}

/// Makes a run with `elsewhere` or this process; returns how it ended.
fn run(desk: &Desk, plan: &Plan, elsewhere: Option<&Site>) -> Stopped {
    let mut store = Store::open(&desk.folder.file("tare/tare.db")).unwrap();
    let run = store
        .begin_run(&NewRun {
            name: plan.name.clone(),
            seed: plan.seed,
            tare_version: env!("CARGO_PKG_VERSION").into(),
            started_unix_ms: 1_795_239_600_000,
            command: "tare run parity.toml".into(),
            plan: serde_json::to_string(plan).unwrap(),
            machine: serde_json::json!({ "cpus": [0, 1] }).to_string(),
            variants: plan.variants.iter().map(|variant| variant.name.clone()).collect(),
        })
        .unwrap();
    // A separate one for each run, as it ends with the run.
    let halt = Halt::default();
    let deployments =
        plan.variants.iter().map(|variant| Deployment::from_variant(variant, None).unwrap());
    let lab = Lab::open(LabPlan {
        state: &desk.folder.file("journal"),
        servers: deployments.collect(),
        cpus: Vec::new(),
        load_cpus: Vec::new(),
        connections: plan.load.connections,
        exclusive: false,
        place_launches: PLACE_LAUNCHES,
        halt: halt.clone(),
    })
    .unwrap();
    let lab = match elsewhere {
        Some(site) => lab.with_site(site.clone()),
        None => lab,
    };
    let writer = Writer::start(store).unwrap();
    let services = RunServices {
        record: &writer,
        clock: &SystemClock,
        observer: &mut SilentObserver,
        halt,
        allows_void: false,
        limits: Vec::new(),
    };
    let cells = vec![Cell::new(plan, run, None, Vec::new())];
    let stopped = Runner::new(cells, lab, services).unwrap().run(Start::default());
    writer.finish().unwrap();
    stopped.into_iter().next().unwrap()
}

/// Makes a run and returns its report.
fn report(desk: &Desk, plan: &Plan, elsewhere: Option<&Site>) -> RunReport {
    let stopped = run(desk, plan, elsewhere);
    assert!(matches!(stopped, Stopped::Rounds), "{stopped:?}");
    read(desk.tare(&["report", "last", "--json"]).success())
}

#[test]
fn a_run_through_an_agent_tells_as_much_as_one_from_here() {
    let desk = Desk::new("parity");
    let there = There::new("there");
    for row in &ROWS {
        let plan = plan(row);
        let [here, other] = [None, Some(&there.site)].map(|site| report(&desk, &plan, site));
        row.sets_off(&here);
        row.sets_off(&other);
        for (here, other) in here.variants.iter().zip(&other.variants) {
            row.same(here, other);
        }
        let checked = |report: &RunReport| report.comparisons.iter().any(|c| c.sustained.is_some());
        assert_eq!(checked(&here), checked(&other), "{row}");
    }
    // All of that used the agent: without it, runs fail.
    let site = there.site.clone();
    there.end();
    let stopped = run(&desk, &plan(&ROWS[0]), Some(&site));
    assert!(matches!(stopped, Stopped::Failed(_)), "{stopped:?}");
    assert_eq!(desk.tare(&["clean"]).success().stdout, "nothing was left behind\n");
}
