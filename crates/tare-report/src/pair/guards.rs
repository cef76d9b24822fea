//! Guards of the comparison of two runs.

use serde_json::{Map, Value};
use tare_guards::{Code, in_order};
use tare_stats::Severity;

use crate::date;
use crate::run::document::RunDocument;
use crate::run::{RunGuard, RunReport};

/// Ratio of mean reply sizes above which the replies were not the same.
const REPLY_VOID: f64 = 1.005;

pub fn pair_guards(
    before: &RunDocument,
    after: &RunDocument,
    baseline: Option<&str>,
) -> Vec<RunGuard> {
    let (a, b) = (&before.report, &after.report);
    let mut guards: Vec<RunGuard> = carried(a).chain(carried(b)).collect();
    guards.extend(other_load(a, b));
    guards.extend(a.variants.iter().filter_map(|variant| unequal_reply(a, b, &variant.name)));
    guards.extend(other_machine(a, b));
    guards.extend(a.variants.iter().filter_map(|variant| other_server(a, b, &variant.name)));
    guards.push(drift(a, b, baseline));
    in_order(&mut guards);
    guards
}

pub fn is_void(guards: &[RunGuard], variant: &str, baseline: Option<&str>) -> bool {
    guards.iter().filter(|guard| guard.severity == Severity::Void).any(|guard| {
        guard.variant.as_deref().is_none_or(|name| name == variant || Some(name) == baseline)
    })
}

fn guard(code: Code, severity: Severity, variant: Option<&str>, text: String) -> RunGuard {
    let line = Default::default();
    RunGuard { code, severity, variant: variant.map(str::to_owned), text, line }
}

/// Returns the guards that forbid a verdict in one run; they also forbid one on the change.
fn carried(report: &RunReport) -> impl Iterator<Item = RunGuard> {
    let void = report.guards.iter().filter(|guard| guard.severity == Severity::Void);
    void.map(|own| RunGuard {
        text: format!("in run {}: {}", report.run.id, own.text),
        ..own.clone()
    })
}

fn drift(a: &RunReport, b: &RunReport, baseline: Option<&str>) -> RunGuard {
    let times = format!(
        "run {} was made at {}, run {} at {} UTC",
        a.run.id,
        date::utc(a.run.started_unix_ms),
        b.run.id,
        date::utc(b.run.started_unix_ms)
    );
    let text = match baseline {
        Some(name) => format!(
            "{times}: drift between runs is not cancelled in the change of {name} itself; of the \
             others the ratio to {name} is compared, in which it is"
        ),
        None => format!(
            "{times}, and with different baselines: values are compared, and drift between runs \
             is not cancelled in them"
        ),
    };
    guard(Code::Drift, Severity::Warn, None, text)
}

/// Keys of load that describe how it is made, not what is requested.
const OF_THE_MACHINE: [&str; 3] = ["cpus", "reactor", "threads"];

pub(crate) fn other_load(a: &RunReport, b: &RunReport) -> Option<RunGuard> {
    let load =
        |report: &RunReport| serde_json::to_value(&report.plan.parts.load).unwrap_or_default();
    let (x, y) = (load(a), load(b));
    let differ = differences(&x, &y, &OF_THE_MACHINE);
    (!differ.is_empty()).then(|| {
        let text = format!("the loads are not the same: {}", differ.join(", "));
        guard(Code::OtherLoad, Severity::Void, None, text)
    })
}

pub(crate) fn other_machine(a: &RunReport, b: &RunReport) -> Option<RunGuard> {
    let differ = differences(&a.machine, &b.machine, &["commit"]);
    (!differ.is_empty()).then(|| {
        let text = format!(
            "the machines are not the same: {}; a ratio on one need not be the ratio on another",
            differ.join(", ")
        );
        guard(Code::OtherMachine, Severity::Warn, None, text)
    })
}

fn other_server(a: &RunReport, b: &RunReport, name: &str) -> Option<RunGuard> {
    let own = |report: &RunReport| -> Option<Value> {
        let found = report.plan.parts.variants.iter().find(|one| one.name == name)?;
        serde_json::to_value(found).ok()
    };
    let differ = differences(&own(a)?, &own(b)?, &["baseline", "url"]);
    (!differ.is_empty()).then(|| {
        let text = format!("its settings differ between the runs: {}", differ.join(", "));
        guard(Code::OtherServer, Severity::Note, Some(name), text)
    })
}

fn unequal_reply(a: &RunReport, b: &RunReport, name: &str) -> Option<RunGuard> {
    let bytes = |report: &RunReport| report.variant(name)?.body_bytes_per_reply;
    let (x, y) = (bytes(a)?, bytes(b)?);
    if x.max(y) <= x.min(y) * REPLY_VOID {
        return None;
    }
    let text = format!("its replies have {x:.0} bytes on average in one and {y:.0} in the other");
    Some(guard(Code::UnequalReply, Severity::Void, Some(name), text))
}

/// Lists the values that differ, each after its key: "connections 20 and 40".
fn differences(a: &Value, b: &Value, but: &[&str]) -> Vec<String> {
    let (Some(x), Some(y)) = (a.as_object(), b.as_object()) else {
        return if a == b { Vec::new() } else { vec![between(a, b)] };
    };
    let mut keys: Vec<&String> = x.keys().chain(y.keys()).collect();
    keys.sort_unstable();
    keys.dedup();
    let mut found = Vec::new();
    for key in keys.into_iter().filter(|key| !but.contains(&key.as_str())) {
        let of = |all: &Map<String, Value>| all.get(key).cloned().unwrap_or_default();
        let inner = differences(&of(x), &of(y), &[]);
        found.extend(inner.into_iter().map(|inner| format!("{key} {inner}")));
    }
    found
}

/// Shows both values, from shortly before the first difference.
fn between(a: &Value, b: &Value) -> String {
    const BEFORE: usize = 12;
    const LONG: usize = 50;
    let text = |value: &Value| -> Vec<char> {
        match value {
            Value::Null => "none".chars().collect(),
            Value::String(text) => text.chars().collect(),
            other => other.to_string().chars().collect(),
        }
    };
    let (a, b) = (text(a), text(b));
    let same = a.iter().zip(&b).take_while(|(a, b)| a == b).count();
    let from = if same > LONG - BEFORE { same - BEFORE } else { 0 };
    let cut = |text: &[char]| {
        let mut told: String = if from > 0 { "…" } else { "" }.into();
        told.extend(text[from.min(text.len())..].iter().take(LONG));
        told + if text.len() > from + LONG { "…" } else { "" }
    };
    format!("{} and {}", cut(&a), cut(&b))
}
