//! Trends of made-up runs: what is marked as a change, and every form to the byte.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

#[allow(dead_code)] // Other tests use the rest of it.
mod made_up;

use std::path::PathBuf;

use tare_model::Metric;
use tare_report::formats::{Document, Form};
use tare_report::run::document::RunDocument;
use tare_report::timeline::Timeline;
use tare_report::trend::TrendDocument;
use tare_stats::{Verdict, digests};

use made_up::{facts, round};

/// A run on this machine. The second variant gives `percent` replies per hundred of the first.
fn run(id: i64, percent: u64, host: &str) -> RunDocument {
    let mut facts = facts();
    facts.id = id;
    facts.started_unix_ms += id as u64 * 86_400_000;
    facts.machine = serde_json::json!({ "host": host, "commit": format!("{id:x}").repeat(40) });
    facts.plan.variants[1].name = "log".into();
    let rounds = (0..24).map(|index| {
        let mut round = round(index);
        for slice in round.slices.iter_mut().filter(|slice| slice.variant == 1) {
            let counts = &mut slice.counts;
            counts.good = counts.good * percent / 96;
            (counts.completed, counts.started) = (counts.good, counts.good + 20);
            (counts.answered, counts.body_bytes) = (counts.good + 100, counts.good * 612);
            counts.status = vec![(200, counts.good)];
            slice.latencies.clear();
        }
        round.launches.iter_mut().for_each(|launch| launch.load.sustained = None);
        round
    });
    let rounds: Vec<_> = rounds.collect();
    RunDocument::new(facts, digests(&rounds, 2, 0), Timeline::default())
}

fn trend(runs: &[(i64, u64, &str)]) -> TrendDocument {
    let documents = runs.iter().map(|(id, percent, host)| run(*id, *percent, host)).collect();
    TrendDocument::new("What does a log cost?".into(), documents).unwrap()
}

fn changes(trend: &TrendDocument) -> Vec<(i64, i64, Verdict)> {
    let found = trend.points.iter().filter_map(|point| {
        let change = point.values[0].change?;
        Some((point.run, change.since_run, change.verdict))
    });
    found.collect()
}

#[test]
fn a_change_is_marked_once_and_drift_in_the_end() {
    let here = "here";
    assert_eq!(changes(&trend(&[(1, 96, here), (2, 96, here), (3, 96, here)])), []);
    let step = trend(&[(1, 96, here), (2, 96, here), (3, 80, here), (4, 80, here)]);
    assert_eq!(changes(&step), [(3, 1, Verdict::Slower)]);
    let back = trend(&[(1, 96, here), (2, 80, here), (3, 96, here)]);
    assert_eq!(changes(&back), [(2, 1, Verdict::Slower), (3, 2, Verdict::Faster)]);
    // Each step is within the tolerance; together they are not.
    let drift = trend(&[(1, 96, here), (2, 95, here), (3, 93, here)]);
    assert_eq!(changes(&drift), [(3, 1, Verdict::Slower)]);
    let moved = trend(&[(1, 96, here), (2, 80, "there"), (3, 80, "there")]);
    assert_eq!(changes(&moved), [], "machines are breaks");
    assert!(moved.points[1].not_comparable.as_ref().unwrap().contains("host here and there"));
}

#[test]
fn every_form_of_a_trend_to_the_byte() {
    let document = trend(&[(1, 96, "here"), (2, 80, "here"), (3, 80, "there")]);
    for form in Form::ALL.into_iter().filter(|form| *form != Form::Html) {
        let Ok(got) = document.render(form) else { continue };
        let path = format!("tests/testdata/trend.{}", form.word());
        let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join(path);
        if std::env::var_os("UPDATE_GOLDEN").is_some() {
            std::fs::write(&path, &got).unwrap();
        }
        let expected = std::fs::read_to_string(&path).unwrap();
        assert_eq!(got, expected, "{}: set UPDATE_GOLDEN=1 where meant", path.display());
    }
    let page = document.render(Form::Html).unwrap();
    for told in ["Run 2: ▼ log", "Overhead in", "2, 2026-11-23", "host here and there"] {
        assert!(page.contains(told), "{told}");
    }
    let metrics = [Metric::Throughput];
    assert_eq!(document.series.iter().map(|series| series.metric).collect::<Vec<_>>(), metrics);
}
