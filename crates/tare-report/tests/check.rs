//! The answers of checks: each outcome, and every form to the byte.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

#[allow(dead_code)] // Other tests use the rest of it.
mod made_up;

use std::path::PathBuf;

use tare_model::Metric;
use tare_model::check::{Check, CheckLimit};
use tare_model::counters::Counter;
use tare_model::samples::{Launch, Round};
use tare_model::variant::{Skipped, Variant};
use tare_report::check::{CheckDocument, Outcome};
use tare_report::formats::{Document, Form};
use tare_report::run::document::RunDocument;
use tare_report::run::from_rounds::RunFacts;
use tare_report::timeline::Timeline;
use tare_stats::digests;

use made_up::{facts, round, slice};

/// A run of a check: base, base again, and head.
fn facts_of(id: i64, name: &str, rate: Option<f64>, metrics: &[Metric]) -> RunFacts {
    let mut facts = facts();
    let plan = &mut facts.plan;
    facts.id = id;
    plan.name = name.into();
    plan.skipped.clear();
    plan.stop.metrics = metrics.to_vec();
    let variant = plan.variants[0].clone();
    let named =
        |name: &str| Variant { name: name.into(), baseline: name == "base", ..variant.clone() };
    plan.variants = ["base", "base again", "head"].map(named).to_vec();
    if let Some(rate) = rate {
        plan.load.set_rate(rate);
        plan.name += &format!(" (rate {rate})");
        plan.cell.insert("rate".into(), rate.to_string());
    }
    plan.check = Some(Check {
        head: "head".into(),
        again: "base again".into(),
        limits: metrics.iter().map(|metric| CheckLimit { metric: *metric, percent: 2.0 }).collect(),
        runs: 2,
        screen: tare_io::DurationNs::from_secs(60),
    });
    facts
}

/// Work of the three variants, per hundred of base's.
fn document(facts: &RunFacts, work: [u64; 3], change: impl Fn(&mut Round)) -> RunDocument {
    let mut timeline = Timeline::default();
    let rounds = (0..24).map(|index| {
        let mut round = round(index);
        let base = round.launches[0].clone();
        round.launches = (0..3)
            .map(|variant| {
                let mut launch = Launch { variant, ..base.clone() };
                launch.load.sustained = launch.load.sustained.take().map(|mut sustained| {
                    for bin in &mut sustained.bins {
                        bin.answered = 1_316 * 100 / work[variant as usize];
                    }
                    sustained
                });
                launch
            })
            .collect();
        round.slices = (0..3)
            .flat_map(|cycle| (0..3).map(move |v| (v, cycle)))
            .map(|(v, cycle)| {
                let mut slice = slice(0, cycle, index + v);
                (slice.variant, slice.position) = (v, v);
                let work = work[v as usize];
                match facts.plan.load.rate() {
                    None => {
                        let counts = &mut slice.counts;
                        counts.good = counts.good * 100 / work;
                        (counts.completed, counts.started) = (counts.good, counts.good + 20);
                        (counts.answered, counts.body_bytes) =
                            (counts.good + 100, counts.good * 612);
                        counts.status = vec![(200, counts.good)];
                        slice.latencies.clear();
                    }
                    Some(_) => {
                        let used = slice.used.get_or_insert_default();
                        let answered = slice.counts.answered;
                        used.all = used.all.with(Counter::Cpu, answered * 9_500 * work / 100);
                        slice.counts.due = Some(slice.counts.good as f64);
                    }
                }
                slice
            })
            .collect();
        change(&mut round);
        timeline.add(&round, Metric::Throughput);
        round
    });
    let rounds: Vec<Round> = rounds.collect();
    let digests = digests(&rounds, 3, 0);
    RunDocument::new(facts.clone(), digests, timeline)
}

fn both(work: [u64; 3], change: impl Fn(&mut Round)) -> CheckDocument {
    let closed = facts_of(7, "spin", None, &[Metric::Throughput]);
    let at_rate = facts_of(8, "spin", Some(14_000.0), &[Metric::ServerCpu]);
    let of = |facts: &RunFacts| document(facts, work, &change);
    CheckDocument::new(vec![of(&closed), of(&at_rate)], Vec::new())
}

fn golden(name: &str, got: &str) {
    let path = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/testdata").join(name);
    if std::env::var_os("UPDATE_GOLDEN").is_some() {
        std::fs::write(&path, got).unwrap();
    }
    let expected = std::fs::read_to_string(&path).unwrap();
    assert_eq!(got, expected, "{}: set UPDATE_GOLDEN=1 where the change is meant", path.display());
}

#[test]
fn every_form_of_a_check_to_the_byte() {
    let document = both([100, 100, 110], |_| {});
    assert_eq!(document.outcome, Outcome::Worse);
    for form in Form::ALL.into_iter().filter(|form| *form != Form::Html) {
        if let Ok(text) = document.render(form) {
            golden(&format!("check.{}", form.word()), &text);
        }
    }
    let page = document.render(Form::Html).unwrap();
    for told in ["head is worse than base", "14,000/s", "base again", "In full: tare report 8"] {
        assert!(page.contains(told), "{told}");
    }
}

#[test]
fn the_json_of_a_check_is_as_published() {
    let page = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/json.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, rest) = page.split_once("## `tare.check/1`").unwrap();
    let rows = rest.split("\n## ").next().unwrap().lines();
    let mut published: Vec<String> = rows
        .filter_map(|line| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned()))
        .map(|row| row.replace(".*", ""))
        .collect();
    let missing = vec![Skipped { name: "x".into(), reason: "y".into() }];
    let mut document = both([100, 100, 110], |_| {});
    document.missing = missing;
    let json = document.render(Form::Json).unwrap();
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let mut written = Vec::new();
    for (key, value) in json.as_object().unwrap() {
        match value.as_array().and_then(|all| all.first()) {
            Some(serde_json::Value::Object(first)) => {
                written.extend(first.keys().map(|below| format!("{key}[].{below}")));
            }
            Some(_) => written.push(format!("{key}[]")),
            None => written.push(key.clone()),
        }
    }
    published.sort();
    written.sort();
    assert_eq!(written, published);
}

#[test]
fn each_outcome_is_one_sentence() {
    let told = |document: &CheckDocument| document.sentence.clone();
    let same = both([100, 100, 100], |_| {});
    assert_eq!(same.outcome, Outcome::NotWorse);
    assert!(
        told(&same).starts_with("head is not worse than base by more than 2 %: "),
        "{}",
        told(&same)
    );
    let better = both([100, 100, 80], |_| {});
    assert_eq!(better.outcome, Outcome::NotWorse, "{}", told(&better));
    let near = both([100, 100, 102], |_| {});
    assert_eq!(near.outcome, Outcome::Undecided);
    assert!(told(&near).contains("; it would pass with a limit of 2."), "{}", told(&near));
    let unfit = both([100, 90, 110], |_| {});
    assert_eq!(unfit.outcome, Outcome::Unfit);
    let of = "no verdict: base and base again are the same server, but differ on this machine by ";
    assert!(told(&unfit).starts_with(of), "{}", told(&unfit));
    let other = both([100, 100, 110], |round| {
        round.launches[2].probe.as_mut().unwrap().body_bytes = 615;
    });
    assert_eq!(other.outcome, Outcome::RepliesDiffer);
    assert!(told(&other).starts_with("head's replies differ from base's: "), "{}", told(&other));
    let void = both([100, 100, 110], |round| {
        round.launches[2].requests_served = Some(30_000);
    });
    assert_eq!(void.outcome, Outcome::Void, "{}", told(&void));
    let missing = Skipped { name: "spin".into(), reason: "base: the server ended".into() };
    let nothing = CheckDocument::new(Vec::new(), vec![missing]);
    assert_eq!(told(&nothing), "undecided: base: the server ended");
    assert_eq!(nothing.outcome, Outcome::Undecided);
}

/// The most significant excess comes first, not the largest; an experiment that could not be
/// measured leaves the check undecided.
#[test]
fn several_experiments_are_one_family() {
    let of = |id: i64, name: &str, work: [u64; 3], scatter: u64| {
        let facts = facts_of(id, name, None, &[Metric::Throughput]);
        document(&facts, work, |round| {
            let by = [100, 100 + scatter, 100 - scatter][round.index as usize % 3];
            for slice in round.slices.iter_mut().filter(|slice| slice.variant == 2) {
                let counts = &mut slice.counts;
                counts.good = counts.good * by / 100;
                (counts.completed, counts.started) = (counts.good, counts.good + 20);
                (counts.answered, counts.body_bytes) = (counts.good + 100, counts.good * 612);
                counts.status = vec![(200, counts.good)];
            }
        })
    };
    let sharp = of(7, "sharp", [100, 100, 112], 0);
    let vague = of(8, "vague", [100, 100, 120], 12);
    let document = CheckDocument::new(vec![vague, sharp], Vec::new());
    assert_eq!(document.outcome, Outcome::Worse);
    assert_eq!(document.findings[0].experiment, "sharp", "{:#?}", document.findings);
    let text = document.render(Form::Text).unwrap();
    assert!(text.contains("▼ sharp: requests/s") && text.starts_with("vague, sharp\n"), "{text}");

    let kept = of(7, "api", [100, 100, 100], 0);
    let missing = Skipped { name: "search".into(), reason: "head: the server ended".into() };
    let document = CheckDocument::new(vec![kept], vec![missing]);
    assert_eq!(document.outcome, Outcome::Undecided);
    assert_eq!(document.sentence, "undecided: search: head: the server ended");
}

#[test]
fn text_from_outside_is_neither_markup_nor_a_command() {
    const EVIL: &str = "a --> b | `c` <img src=x>\n::error::x";
    let mut facts = facts_of(7, "x", None, &[Metric::Throughput]);
    facts.plan.name = EVIL.replace('\n', " ");
    let document = CheckDocument::new(vec![document(&facts, [100, 100, 110], |_| {})], Vec::new());
    let comment = document.render(Form::Markdown).unwrap();
    let mark = comment.lines().next().unwrap();
    assert!(mark.ends_with("-->") && mark.matches("-->").count() == 1, "{mark}");
    assert!(!comment.contains("<img"), "{comment}");
    let missing = Skipped { name: "x".into(), reason: EVIL.into() };
    let other = CheckDocument::new(Vec::new(), vec![missing]);
    let command = other.render(Form::Annotations).unwrap();
    assert_eq!(command.lines().count(), 1, "{command}");
    let junit = document.render(Form::Junit).unwrap();
    assert!(junit.contains("&lt;img") && !junit.contains("<img"), "{junit}");
}
