//! An import for a terminal, and for pull requests.

use tare_import::audit::Finding;

use super::{ImportDocument, ending, footnote, sentences, table};
use crate::run::markdown::{escape, escaped};
use crate::run::text::columns;

pub fn text(document: &ImportDocument) -> String {
    let mut lines = vec![document.import.name.clone(), String::new()];
    // Wide rather than short of columns: what was published is to be seen whole.
    let table = table(document);
    lines.extend(columns(&table));
    lines.extend(footnote(&table).map(|note| format!("  {note}")));
    for group in [sentences(document), findings_lines(document)] {
        if !group.is_empty() {
            lines.push(String::new());
            lines.extend(group);
        }
    }
    lines.push(String::new());
    lines.push(ending(document));
    lines.join("\n") + "\n"
}

/// Each finding, and under those of a kind what they mean.
fn findings_lines(document: &ImportDocument) -> Vec<String> {
    let mut lines = Vec::new();
    let mut all = document.findings.iter().peekable();
    while let Some(finding) = all.next() {
        let word = finding.severity.word();
        lines.push(format!("  {word} {}: {}", finding.code, about(finding)));
        let is_same = |next: &&Finding| next.code == finding.code && next.means == finding.means;
        if all.peek().is_none_or(|next| !is_same(next)) {
            lines.push(format!("      {}", finding.means));
        }
    }
    lines
}

pub fn about(finding: &Finding) -> String {
    let mut whom = finding.variant.clone().unwrap_or_default();
    if let Some(case) = finding.case.as_ref().filter(|case| !case.is_empty()) {
        whom.push_str(&format!(" [{case}]"));
    }
    if let Some(place) = &finding.place {
        whom.push_str(&if whom.is_empty() { place.clone() } else { format!(" ({place})") });
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
    let marks = (0..table.header.len())
        .map(|at| if at == 0 || at + 1 == table.header.len() { "---" } else { "---:" });
    text.push_str(&format!("|{}|\n", marks.collect::<Vec<_>>().join("|")));
    table.rows.iter().for_each(|cells| text.push_str(&row(cells)));
    text.push('\n');
    text.extend(footnote(&table).map(|note| note + "\n\n"));
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
