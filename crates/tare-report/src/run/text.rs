//! A run, for a person at a terminal.

use crate::run::RunReport;
use crate::run::words::{Table, basis, ending, sentences, spare, table};

pub fn render(report: &RunReport) -> String {
    let mut lines = vec![report.run.name.clone(), String::new()];
    lines.extend(on_paper(table(report), &spare(report)));
    lines.push(String::new());
    lines.extend(sentences(report));
    let all = report.guards.iter().map(|guard| {
        let word = guard.severity.word();
        let whom = guard.variant.as_ref().map_or(String::new(), |name| format!("{name}: "));
        format!("  {word} {}: {whom}{}", guard.code, guard.text)
    });
    let all: Vec<String> = all.collect();
    if !all.is_empty() {
        lines.push(String::new());
        lines.extend(all);
    }
    lines.push(String::new());
    lines.extend(basis(report));
    lines.push(ending(report));
    lines.join("\n") + "\n"
}

/// Wider lines wrap in most people's terminals.
pub const PAPER: usize = 120;

/// A table's lines, and below them which of its spare columns they are too wide for.
pub fn on_paper(table: Table, spare: &[String]) -> Vec<String> {
    let (mut lines, left_out) = fitted(table, PAPER, spare);
    if !left_out.is_empty() {
        let left_out = left_out.join(", ");
        lines.push(format!("  (hidden to fit {PAPER} columns: {left_out}; see --html or --json)"));
    }
    lines
}

/// A table's lines, without its spare columns as far as needed to keep to a width, and which those
/// were.
pub fn fitted(mut table: Table, width: usize, spare: &[String]) -> (Vec<String>, Vec<String>) {
    let mut spare = spare.iter();
    let mut left_out: Vec<String> = Vec::new();
    loop {
        let lines = columns(&table);
        let widest = lines.iter().map(|line| line.chars().count()).max().unwrap_or(0);
        let Some(title) = spare.next().filter(|_| widest > width) else {
            return (lines, left_out);
        };
        left_out.extend(table.header.iter().find(|header| *header == title).cloned());
        while let Some(at) = table.header.iter().position(|header| header == title) {
            table.header.remove(at);
            table.rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    }
}

/// Columns of words.
const WORDS: [&str; 2] = ["verdict", "what it is"];

/// The first column to the left, numbers to the right, words to the left again.
pub fn columns(table: &Table) -> Vec<String> {
    let width = |column: usize| {
        let cells = table.rows.iter().map(|row| &row[column]).chain([&table.header[column]]);
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.header.len()).map(width).collect();
    let is_word = |column: usize| column == 0 || WORDS.contains(&table.header[column].as_str());
    let line = |cells: &[String]| {
        let mut line = String::from("  ");
        for (column, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.chars().count());
            let (before, after) = if is_word(column) { ("", pad.as_str()) } else { (&*pad, "") };
            line.push_str(&format!("{before}{cell}{after}   "));
        }
        line.trim_end().to_owned()
    };
    std::iter::once(&table.header).chain(&table.rows).map(|cells| line(cells)).collect()
}
