//! Tests that what is written can be read back, and that failures to write are reported.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::path::PathBuf;
use std::sync::Arc;

use tare_model::Distribution;
use tare_model::calibration::Calibration;
use tare_model::counters::{Counter, Counters};
use tare_model::samples::{Counts, Launch, MachineUse, Probe, Round, Series, Slice};
use tare_model::usage::Usage;
use tare_store::{Entry, NewRun, RunEnd, RunFilter, RunId, Store, StoreError, Writer};

fn folder(name: &str) -> PathBuf {
    let path = std::env::temp_dir().join(format!("tare-store-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&path).unwrap();
    path
}

fn new_run(name: &str) -> NewRun {
    NewRun {
        command: "tare run x.toml --seed 1".into(),
        name: name.into(),
        seed: u64::MAX - 7,
        tare_version: "0.1.0".into(),
        started_unix_ms: 1_795_000_000_000,
        plan: "{}".into(),
        machine: "{}".into(),
        variants: vec!["a".into(), "Bee".into()],
    }
}

fn slice(variant: u32, cycle: u32) -> Slice {
    Slice {
        variant,
        cycle,
        position: variant,
        counts: Counts {
            window_ns: 20_000_000,
            started: 10,
            completed: 8,
            good: 7,
            failed: 1,
            drained: 1,
            status: vec![(200, 7), (503, 1)],
            errors: vec![("reset".into(), 1, "connection reset".into())],
            due: Some(1.5),
            ..Counts::default()
        },
        used: Some(Usage::of_parts(
            Counters::default().with(Counter::Cpu, 5).with(Counter::Switches, 4),
            vec![Counters::default().with(Counter::Cpu, 3)],
        )),
        latencies: vec![(Series::Headline, Distribution::new(vec![(127, 3), (4095, 4)], 17_000))],
    }
}

fn written_round() -> Round {
    Round {
        index: 3,
        cycles: 2,
        started_unix_ms: 5,
        elapsed_ns: 77,
        machine: MachineUse { busy_ns: 9, ports_used: Some(0.5), ..MachineUse::default() },
        launches: vec![Launch {
            variant: 1,
            fresh: true,
            probe: Some(Probe { status: 200, tls: Some("x".into()), ..Probe::default() }),
            ..Launch::default()
        }],
        slices: vec![slice(0, 0), slice(1, 0), slice(0, 1), slice(1, 1)],
        by_sleepers: vec![slice(0, 2), slice(1, 2)],
    }
}

/// Writes [`written_round`] into a new run.
fn fill(store: Store, run: RunId) -> Store {
    let writer = Writer::start(store).unwrap();
    let round = written_round();
    let number = round.index;
    let began = Entry::RoundBegan { number, cycles: 2, started_unix_ms: 5 };
    writer.write(run, began).unwrap();
    for slice in round.slices.into_iter().chain(round.by_sleepers) {
        writer.write(run, Entry::Slice { round: number, slice: Arc::new(slice) }).unwrap();
    }
    let event = |unix_ms, text: &str| Entry::Event { unix_ms, who: "a".into(), text: text.into() };
    writer.write(run, event(9, "later")).unwrap();
    writer.write(run, event(8, "sooner \u{1b}[31m")).unwrap();
    let (machine, launches) = (round.machine, round.launches);
    writer.write(run, Entry::RoundEnded { number, elapsed_ns: 77, machine, launches }).unwrap();
    writer.write(run, Entry::RunEnded(RunEnd { stopped_by: "precision".into() })).unwrap();
    writer.finish().unwrap()
}

#[test]
fn what_is_written_is_read_back() {
    let folder = folder("round-trip");
    let path = folder.join("deep/er/tare.db");
    let mut store = Store::open(&path).unwrap();
    let id = store.begin_run(&new_run("first")).unwrap();
    let store = fill(store, id);
    drop(store);
    let store = Store::open_existing(&path).unwrap();
    let run = store.find_run("last").unwrap();
    assert_eq!((run.id, run.seed, run.rounds, run.elapsed_ns), (id, u64::MAX - 7, 1, 77));
    assert_eq!(run.stopped_by.as_deref(), Some("precision"));
    assert_eq!(run.variants, ["a", "Bee"]);
    assert_eq!(store.round_numbers(id).unwrap(), [3]);
    assert_eq!(store.round(id, 3).unwrap(), written_round());
    let events: Vec<_> = store.events(id).unwrap().into_iter().map(|event| event.text).collect();
    assert_eq!(events, ["sooner \u{1b}[31m", "later"]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn runs_are_listed_filtered_and_deleted_whole() {
    let folder = folder("list");
    let path = folder.join("tare.db");
    let mut store = Store::open(&path).unwrap();
    let first = store.begin_run(&new_run("wasm in nginx")).unwrap();
    let mut store = fill(store, first);
    let second = store.begin_run(&NewRun { variants: vec!["x".into()], ..new_run("tls") }).unwrap();
    let ids = |contains: Option<&str>| -> Vec<RunId> {
        let filter = RunFilter { contains: contains.map(str::to_owned) };
        store.runs(&filter).unwrap().into_iter().map(|run| run.id).collect()
    };
    assert_eq!(ids(None), [second, first]);
    assert_eq!(ids(Some("WASM")), [first]);
    assert_eq!(ids(Some("bee")), [first], "by a variant's name");
    assert_eq!(ids(Some("nothing")), []);
    assert!(store.delete_run(first).unwrap());
    assert!(!store.delete_run(first).unwrap());
    assert!(store.round_numbers(first).unwrap().is_empty());
    assert!(store.events(first).unwrap().is_empty());
    let third = store.begin_run(&new_run("again")).unwrap();
    assert!(third > second, "numbers are not used again");
    let error = store.find_run("99").unwrap_err().to_string();
    assert!(
        error.starts_with("there is no run 99 in ") && error.ends_with("'tare runs' lists them")
    );
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn stores_that_cannot_be_used_say_why() {
    let folder = folder("bad");
    let path = folder.join("tare.db");
    let says = |path: &std::path::Path, text: &str| {
        let error = Store::open(path).unwrap_err().to_string();
        assert!(error.contains(text) && error.contains("tare.db"), "{error}");
    };
    std::fs::write(&path, "this is text, and more of it than a header has: ".repeat(20)).unwrap();
    says(&path, "it is not a tare store");
    std::fs::remove_file(&path).unwrap();
    Store::open(&path).unwrap();
    for version in [0, 2, u32::MAX] {
        set_version(&path, version);
        let before = std::fs::read(&path).unwrap();
        for opened in [Store::open(&path), Store::open_existing(&path)] {
            assert!(matches!(opened, Err(StoreError::OtherVersion { known: 1, .. })), "{version}");
        }
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }
    says(&path.join("below/tare.db"), "Not a directory");
    assert!(Store::open_existing(&folder.join("none.db")).is_err());
    std::fs::remove_dir_all(folder).unwrap();
}

/// The schema's version lies at byte 60 of the file, big-endian.
fn set_version(path: &std::path::Path, version: u32) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[60..64].copy_from_slice(&version.to_be_bytes());
    std::fs::write(path, bytes).unwrap();
}

#[test]
fn a_writer_that_fails_says_so_and_keeps_what_it_wrote() {
    let folder = folder("fail");
    let path = folder.join("tare.db");
    let mut store = Store::open(&path).unwrap();
    let id = store.begin_run(&new_run("twice")).unwrap();
    let writer = Writer::start(store).unwrap();
    let began = || Entry::RoundBegan { number: 0, cycles: 2, started_unix_ms: 5 };
    writer.write(id, began()).unwrap();
    // Writing a round twice violates the key.
    writer.write(id, began()).unwrap();
    let error = writer.finish().unwrap_err();
    assert!(matches!(error, StoreError::Unusable { .. }), "{error}");
    assert_eq!(Store::open(&path).unwrap().round_numbers(id).unwrap(), [0]);
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn the_database_of_somebody_else_is_left_as_it_is() {
    let path = folder("foreign").join("other.db");
    let _ = std::fs::remove_file(&path);
    let foreign = rusqlite::Connection::open(&path).unwrap();
    foreign.execute_batch("CREATE TABLE run (a)").unwrap();
    drop(foreign);
    let before = std::fs::read(&path).unwrap();
    for opened in [Store::open(&path), Store::open_existing(&path)] {
        let error = opened.unwrap_err();
        assert!(matches!(error, StoreError::NotOurs { .. }), "{error}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), before);
}

#[test]
fn a_round_that_is_lost_does_not_count_and_keeps_its_number() {
    let folder = folder("lost");
    let mut store = Store::open(&folder.join("tare.db")).unwrap();
    let run = store.begin_run(&new_run("measured")).unwrap();
    assert_eq!(store.next_round(run).unwrap(), 0);
    store.begin_round(run, 0, 2, 5).unwrap();
    store.begin_round(run, 1, 2, 6).unwrap();
    // One in its middle, one before its first slice.
    store.lose_round(run, 1, 6, "b is gone").unwrap();
    store.lose_round(run, 2, 7, "c is gone").unwrap();
    assert_eq!((store.round_numbers(run).unwrap(), store.next_round(run).unwrap()), (vec![0], 3));
    assert_eq!(store.find_run("last").unwrap().lost, (2, Some("b is gone".into())));
    std::fs::remove_dir_all(folder).unwrap();
}

#[test]
fn imports_and_findings_are_kept_beside_runs() {
    let folder = folder("found");
    let mut store = Store::open(&folder.join("tare.db")).unwrap();
    let run = store.begin_run(&new_run("measured")).unwrap();
    assert_eq!(store.import(run).unwrap(), None);
    let ms = tare_io::DurationNs::from_ms;
    // A later value replaces an earlier one.
    for window in [20, 40] {
        let found = Calibration { window: ms(window), ramp: ms(2), warmup: ms(window), warm: None };
        store.set_found(run, &found).unwrap();
        let kept = store.find_run("last").unwrap().found.unwrap();
        assert_eq!(serde_json::from_str::<Calibration>(&kept).unwrap(), found);
    }
    let imported = store.add_import(&new_run("theirs"), "{\"x\": 1}").unwrap();
    assert_eq!(store.import(imported).unwrap().as_deref(), Some("{\"x\": 1}"));
    let row = store.find_run("last").unwrap();
    assert_eq!((row.is_import, row.stopped_by.as_deref()), (true, Some("imported")));
    assert_eq!((row.command.as_str(), row.found), ("tare run x.toml --seed 1", None));
    assert!(store.delete_run(imported).unwrap());
    assert!(store.find_run(&imported.to_string()).is_err());
    assert_eq!(store.runs(&RunFilter::default()).unwrap().len(), 1);
    std::fs::remove_dir_all(folder).unwrap();
}

/// One process creates its tables between two queries of another.
#[test]
fn a_new_store_may_be_opened_by_many_at_once() {
    let folder = folder("at-once");
    for attempt in 0..50 {
        let path = folder.join(format!("{attempt}.db"));
        let all = std::sync::Barrier::new(8);
        let open = || {
            all.wait();
            Store::open(&path).map(drop)
        };
        std::thread::scope(|scope| {
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(open)).collect();
            for thread in threads {
                assert_eq!(thread.join().unwrap().map_err(|error| error.to_string()), Ok(()));
            }
        });
    }
    std::fs::remove_dir_all(&folder).unwrap();
}
