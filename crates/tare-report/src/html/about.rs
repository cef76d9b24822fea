//! The basis of a run: guards and proofs in words, the machine, the plan, and how to repeat it.

use serde_json::Value;

use super::page::{definitions, details, escape, list, paragraph};
use super::secrets;
use crate::date;
use crate::format::{bytes, count};
use crate::load::guards::Severity;
use crate::run::words::{basis, ending};
use crate::run::{RunGuard, RunReport, Variant};

/// Lists the guards, gravest first, or states that there are none.
pub fn guards(guards: &[RunGuard]) -> String {
    if guards.is_empty() {
        return paragraph(
            "No guard tripped: nothing that tare looks for speaks against these numbers.",
        );
    }
    let mut sorted: Vec<&RunGuard> = guards.iter().collect();
    sorted.sort_by_key(|guard| std::cmp::Reverse(guard.severity as u8));
    let items: Vec<String> = sorted.into_iter().map(|guard| item(guard, "")).collect();
    list("guards", &items)
}

/// Formats one guard; `scope` names the values of a sweep that it concerns.
pub fn item(guard: &RunGuard, scope: &str) -> String {
    let whom = guard.variant.as_ref().map_or(String::new(), |name| format!("{name}: "));
    format!(
        "{} {}{}: {} <code>{}</code>",
        badge(guard.severity),
        escape(guard.code.family().words()),
        escape(scope),
        escape(&format!("{whom}{}", guard.text)),
        escape(guard.code.word())
    )
}

pub fn badge(severity: Severity) -> String {
    let class = match severity {
        Severity::Note => "note",
        Severity::Warn => "warn",
        Severity::Void => "void",
    };
    format!("<span class=\"badge {class}\">{}</span>", severity.word())
}

/// Lists the evidence that each variant is what its name says, and that all did the same work.
pub fn proofs(report: &RunReport) -> String {
    let item = |variant: &Variant| {
        let mut told: Vec<String> = Vec::new();
        if variant.place != "host" || variant.client != "host" {
            told.push(format!("server in {}, client in {}", variant.place, variant.client));
        }
        if let Some(probe) = &variant.probe {
            let hash: String = probe.body_sha256.chars().take(12).collect();
            let kept = if probe.connection_kept { "kept" } else { "closed" };
            told.push(format!(
                "the probe was answered {}, {} bytes (SHA-256 {hash}…), connection {kept}{}; \
                 headers: {}",
                probe.status,
                count(probe.body_bytes),
                probe.tls.as_ref().map_or(String::new(), |tls| format!(", {tls}")),
                probe.header_names.join(", ")
            ));
        }
        told.extend(variant.proofs.iter().cloned());
        let errors: Vec<String> =
            variant.errors.iter().map(|(kind, n)| format!("{} {kind}", count(*n))).collect();
        let failed = match errors.is_empty() {
            true => "none failed".to_owned(),
            false => format!("failed: {}", errors.join(", ")),
        };
        told.push(format!("{} requests in slices, {failed}", count(variant.requests)));
        let told: Vec<String> = told.iter().map(|text| escape(text)).collect();
        format!("<strong>{}</strong>: {}", escape(&variant.name), told.join("; "))
    };
    let items: Vec<String> = report.variants.iter().map(item).collect();
    details("What shows that each is what its name says", &list("proofs", &items))
}

/// Describes how the run went, on which machine, and how to repeat it.
pub fn facts(report: &RunReport) -> String {
    let run = &report.run;
    let mut pairs = vec![
        ("Run".to_owned(), format!("{} of its store", run.id)),
        ("Began".into(), format!("{} UTC", date::utc_with_seconds(run.started_unix_ms))),
        ("How it went".into(), ending(report)),
        ("It rests on".into(), basis(report).join("; ")),
        ("Seed".into(), run.seed.to_string()),
        ("tare".into(), run.tare_version.clone()),
    ];
    pairs.extend(machine(&report.machine));
    let again = match run.command.is_empty() {
        true => paragraph("What was typed to make this run was not kept; its plan, below, was."),
        false => format!(
            "<p>Repeated by:</p><pre class=\"command\">{}</pre>",
            escape(&secrets::mask_command(&run.command))
        ),
    };
    let plan = secrets::mask_json(&report.plan.json().unwrap_or_default());
    let plan = serde_json::to_string_pretty(&plan).unwrap_or_default();
    let plan = format!("<pre>{}</pre>", escape(&plan));
    definitions(&pairs) + &again + &details("The plan, with every default resolved", &plan)
}

fn machine(machine: &Value) -> Vec<(String, String)> {
    let text = |key: &str| machine.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
    let mut pairs = Vec::new();
    let mut put = |name: &str, what: String| {
        if !what.is_empty() {
            pairs.push((name.to_owned(), what));
        }
    };
    let cpus = machine.get("cpus").and_then(Value::as_array).map_or(0, Vec::len);
    let model = match (cpus, text("cpu_model")) {
        (0, model) => model,
        (n, model) => format!("{n} × {model}"),
    };
    put("Machine", text("host"));
    put("CPUs", model);
    let memory = machine.get("memory_bytes").and_then(Value::as_f64).filter(|n| *n > 0.0);
    put("Memory", memory.map_or(String::new(), bytes));
    put("System", [text("system"), text("kernel")].join(", ").trim_matches([',', ' ']).to_owned());
    put("Frequency governor", text("governor"));
    if machine.get("virtual_machine").and_then(Value::as_bool) == Some(true) {
        put("It is", "a virtual machine itself".into());
    }
    pairs
}
