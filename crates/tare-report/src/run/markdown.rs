//! A run as Markdown, for pull requests.

use crate::run::RunReport;
use crate::run::table::table;
use crate::run::trust::{ValueGuards, Warning, evidence, trust, warnings};
use crate::run::words::sentences;

pub fn render(report: &RunReport) -> String {
    let mut text = format!("## {}\n\n", escape(&report.run.name));
    for sentence in sentences(report) {
        text.push_str(&format!("- {}\n", escape(&sentence)));
    }
    text.push('\n');
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
    let checks: Vec<String> = trust(report).iter().map(ToString::to_string).collect();
    text.push_str(&format!("\n{}\n", escape(&checks.join(" · "))));
    let warnings = warnings(&[ValueGuards::new(&report.guards)], report.variants.len());
    if !warnings.is_empty() {
        let line = |warning: &Warning| format!("- {}\n", escape(&warning.to_string()));
        let lines: String = warnings.iter().map(line).collect();
        text.push_str(&format!("\n{lines}"));
    }
    let told = evidence(report).join(" · ");
    text.push_str(&format!("\n{}; tare {}\n", escape(&told), report.run.tare_version));
    text
}

pub fn escaped(cells: &[String]) -> Vec<String> {
    cells.iter().map(|cell| escape(cell)).collect()
}

/// Escapes text from outside, so that it cannot become markup.
pub(crate) fn escape(text: &str) -> String {
    let mut escaped = String::new();
    let is_word = |c: Option<&char>| c.is_some_and(|c| c.is_alphanumeric());
    let chars: Vec<char> = text.chars().collect();
    for (at, c) in chars.iter().copied().enumerate() {
        match c {
            // Within a word, an underscore is no emphasis: io_uring.
            '_' if at > 0 && is_word(chars.get(at - 1)) && is_word(chars.get(at + 1)) => {
                escaped.push(c);
            }
            // `>` starts a quotation only at the beginning.
            '>' if at > 0 => escaped.push(c),
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
