//! An import as text and as Markdown.

use std::collections::BTreeSet;

use tare_import::audit::{Finding, by_kind};

use super::{ImportDocument, compared_with, ending, footnote, place_name, sentences, table};
use crate::run::markdown::{escape, escaped};
use crate::run::terminal::columns;

pub fn text(document: &ImportDocument) -> String {
    let mut lines = vec![document.import.name.clone(), String::new()];
    // The table may be wide: published results are shown with all columns.
    let table = table(document);
    lines.extend(columns(&table));
    lines.extend(footnote(&table).map(|note| format!("  {note}")));
    lines.extend(compared_with(document).map(|told| format!("  {told}")));
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

/// Lists each kind of finding, with its meaning below.
fn findings_lines(document: &ImportDocument) -> Vec<String> {
    let mut lines = Vec::new();
    for kind in by_kind(&document.findings) {
        let Finding { severity, code, means, .. } = kind[0];
        lines.push(format!("  {}: {} [{code}]", severity.word(), about_all(document, &kind)));
        lines.push(format!("      {means}"));
    }
    lines
}

/// Describes all findings of a kind in one line: the first, and where the others are.
pub fn about_all(document: &ImportDocument, kind: &[&Finding]) -> String {
    const SHOWN: usize = 20;
    let first = about(document, kind[0]);
    let others = &kind[1..];
    if others.is_empty() {
        return first;
    }
    let lines: BTreeSet<u32> = kind.iter().filter_map(|finding| finding.line()).collect();
    // If findings share a line, name their variants instead.
    let (word, mut told): (&str, Vec<String>) = match lines.len() == kind.len() {
        true => {
            let word = if others.len() == 1 { "line" } else { "lines" };
            (word, others.iter().filter_map(|other| Some(other.line()?.to_string())).collect())
        }
        false => {
            let names: BTreeSet<&String> =
                others.iter().filter_map(|other| other.variant.as_ref()).collect();
            let lines = || lines.iter().map(u32::to_string).collect();
            match names.is_empty() {
                true => ("lines", lines()),
                false => ("", names.iter().map(|name| format!("'{name}'")).collect()),
            }
        }
    };
    let more = if told.len() > SHOWN { ", …" } else { "" };
    told.truncate(SHOWN);
    let places = match (word, told.is_empty()) {
        (_, true) => format!(" {} more times", others.len()),
        ("", _) => format!(" for {}{more}", told.join(", ")),
        (word, _) => format!(" at {word} {}{more}", told.join(", ")),
    };
    format!("{first}; similar{places}")
}

fn about(document: &ImportDocument, finding: &Finding) -> String {
    let case = finding.case.as_deref().unwrap_or_default();
    let name = finding.variant.as_ref().map(|own| place_name(document, case, own));
    let mut whom = name.unwrap_or_default();
    if let Some(place) = &finding.place {
        whom.push_str(&if whom.is_empty() { place.clone() } else { format!(", {place}") });
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
    for sentence in compared_with(document).into_iter().chain(sentences(document)) {
        text.push_str(&format!("- {}\n", escape(&sentence)));
    }
    text.push('\n');
    for kind in by_kind(&document.findings) {
        let Finding { severity, code, means, .. } = kind[0];
        let (word, about) = (severity.word(), escape(&about_all(document, &kind)));
        text.push_str(&format!("- {word}: {about} (`{code}`). *{}*\n", escape(means)));
    }
    text.push_str(&format!("\n{}; tare {}\n", escape(&ending(document)), document.tare_version));
    text
}
