//! An import for a terminal, and for pull requests.

use tare_import::audit::Finding;

use super::{ImportDocument, ending, sentences, sources, table};
use crate::run_markdown::{escape, escaped};
use crate::run_text::{PAPER, fitted};

pub fn text(document: &ImportDocument) -> String {
    let mut lines = vec![document.import.name.clone(), String::new()];
    lines.extend(fitted(table(document), PAPER));
    lines.push(String::new());
    lines.extend(sentences(document));
    if !document.findings.is_empty() {
        lines.push(String::new());
    }
    for (head, means) in findings(document) {
        lines.push(format!("  {head}"));
        lines.push(format!("      {means}"));
    }
    lines.push(String::new());
    lines.extend(sources(document).into_iter().map(|source| format!("  {source}")));
    lines.push(String::new());
    lines.push(ending(document));
    lines.join("\n") + "\n"
}

/// Each finding, and what it means; those that say the same of several are told once.
pub fn findings(document: &ImportDocument) -> Vec<(String, String)> {
    let mut told: Vec<(String, String)> = Vec::new();
    let mut last: Option<(&str, &str)> = None;
    for finding in &document.findings {
        let head = format!("{} {}: {}", finding.severity.word(), finding.code, about(finding));
        // The meaning is told where it is first needed.
        match last {
            Some((code, means)) if code == finding.code && means == finding.means => {
                if let Some((known, _)) = told.last_mut() {
                    known.push_str(&format!("\n  {head}"));
                }
            }
            _ => told.push((head, finding.means.clone())),
        }
        last = Some((&finding.code, &finding.means));
    }
    told
}

pub fn about(finding: &Finding) -> String {
    let mut whom = finding.variant.clone().unwrap_or_default();
    if let Some(case) = finding.case.as_ref().filter(|case| !case.is_empty()) {
        whom.push_str(&format!(" [{case}]"));
    }
    if let Some(place) = &finding.place {
        whom.push_str(&format!(" ({place})"));
    }
    match whom.trim() {
        "" => finding.text.clone(),
        whom => format!("{whom}: {}", finding.text),
    }
}

pub fn markdown(document: &ImportDocument) -> String {
    let mut text = format!("## {}\n\n", escape(&document.import.name));
    let table = table(document);
    let row = |cells: &[String]| format!("| {} |\n", escaped(cells).join(" | "));
    text.push_str(&row(&table.header));
    let marks = (0..table.header.len()).map(|at| {
        if at == 0 || at + 1 == table.header.len() { "---" } else { "---:" }
    });
    text.push_str(&format!("|{}|\n", marks.collect::<Vec<_>>().join("|")));
    table.rows.iter().for_each(|cells| text.push_str(&row(cells)));
    text.push('\n');
    for sentence in sentences(document) {
        text.push_str(&format!("- {}\n", escape(&sentence)));
    }
    text.push('\n');
    for finding in &document.findings {
        text.push_str(&format!(
            "- {} `{}`: {}. *{}*\n",
            finding.severity.word(),
            finding.code,
            escape(&about(finding)),
            escape(&finding.means)
        ));
    }
    text.push_str(&format!("\n{}; tare {}\n", escape(&ending(document)), document.tare_version));
    text
}
