//! A run, for pull requests.

use crate::load::guards::Severity;
use crate::run::RunReport;
use crate::run::words::{basis, ending, sentences, table};

pub fn render(report: &RunReport) -> String {
    let mut text = format!("## {}\n\n", escape(&report.run.name));
    let table = table(report);
    let row = |cells: &[String]| format!("| {} |\n", escaped(cells).join(" | "));
    text.push_str(&row(&table.header));
    let marks: Vec<&str> = table
        .header
        .iter()
        .enumerate()
        .map(|(at, title)| if at == 0 || title == "verdict" { "---" } else { "---:" })
        .collect();
    text.push_str(&format!("|{}|\n", marks.join("|")));
    for cells in &table.rows {
        text.push_str(&row(cells));
    }
    text.push('\n');
    for sentence in sentences(report) {
        text.push_str(&format!("- {}\n", escape(&sentence)));
    }
    let graver = report.guards.iter().map(|guard| {
        let word = match guard.severity {
            Severity::Note => "note",
            Severity::Warn => "warning",
            Severity::Void => "**void**",
        };
        let whom = guard.variant.as_ref().map_or(String::new(), |name| format!("{name}: "));
        format!("- {word} `{}`: {}\n", guard.code, escape(&format!("{whom}{}", guard.text)))
    });
    let graver: String = graver.collect();
    if !graver.is_empty() {
        text.push_str(&format!("\n{graver}"));
    }
    let run = &report.run;
    for line in basis(report) {
        text.push_str(&format!("\n{}\n", escape(&line)));
    }
    text.push_str(&format!("\n{}; tare {}\n", escape(&ending(report)), run.tare_version));
    text
}

/// Cells of a table, so that they stay that.
pub fn escaped(cells: &[String]) -> Vec<String> {
    cells.iter().map(|cell| escape(cell)).collect()
}

/// Text from outside must not become markup.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    for c in text.chars() {
        match c {
            '|' | '*' | '_' | '`' | '[' | ']' | '#' | '\\' => escaped.extend(['\\', c]),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            c if c.is_control() => escaped.push(' '),
            c => escaped.push(c),
        }
    }
    escaped
}
