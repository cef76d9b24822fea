//! A run as text: the answer, the table, why it can be trusted, warnings, evidence, and commands to
//! type next. All figures of guards are in [`super::why`].

use tare_model::Metric;
use unicode_width::UnicodeWidthStr;

use crate::run::RunReport;
use crate::run::table::{Table, spare, table};
use crate::run::trust::{ValueGuards, evidence, trust, warnings};
use crate::run::words::{Answer, VERDICTS, answers, sign, verdict_word};

pub fn render(report: &RunReport) -> String {
    let mut lines = Vec::new();
    if has_name(report) {
        lines.extend(prose("", &report.run.name));
        lines.push(String::new());
    }
    lines.extend(answers(report).iter().flat_map(answer));
    lines.push(String::new());
    lines.extend(fitted(narrowed(table(report)), PAPER, &spare(report)));
    lines.push(String::new());
    let checks: Vec<String> = trust(report).iter().map(ToString::to_string).collect();
    lines.extend(items("trust", &checks));
    let warnings = warnings(&[ValueGuards::new(&report.guards)], report.variants.len());
    lines.extend(warnings.iter().flat_map(|warning| prose("", &warning.to_string())));
    lines.extend(items("evidence", &evidence(report)));
    let id = report.run.id;
    // Both commands show all columns.
    let next = ["--html report.html", "--why # all figures"]
        .map(|form| format!("tare report {id} {form}"));
    lines.extend(items("next", &next));
    lines.join("\n") + "\n"
}

/// Replaces several verdict columns by signs before overheads; the sentences above have the words.
fn narrowed(mut table: Table) -> Table {
    let is_verdict = |header: &String| header == VERDICT;
    if table.header.iter().filter(|header| is_verdict(header)).count() < 2 {
        return table;
    }
    while let Some(at) = table.header.iter().position(is_verdict) {
        table.header.remove(at);
        for row in &mut table.rows {
            let word = row.remove(at);
            if let (Some(sign), Some(cell)) = (sign_of(&word), row.get_mut(at - 1)) {
                *cell = format!("{sign} {cell}");
            }
        }
    }
    table
}

const VERDICT: &str = "verdict";

fn sign_of(word: &str) -> Option<char> {
    let found = VERDICTS.into_iter().find(|verdict| {
        [Metric::Throughput, Metric::ServerCpu].map(|of| verdict_word(of, *verdict)).contains(&word)
    });
    found.map(sign)
}

/// Whether the run's name says more than the names of its variants.
fn has_name(report: &RunReport) -> bool {
    let names: Vec<&str> = report.variants.iter().map(|variant| variant.name.as_str()).collect();
    report.run.name != names.join(" vs. ")
}

pub(crate) fn answer(answer: &Answer) -> Vec<String> {
    let sign = answer.sign().map_or("  ".into(), |sign| format!("{sign} "));
    prose(&sign, &answer.text)
}

/// Wraps text into as few lines as possible; keeps a number and its unit together.
pub(crate) fn prose(head: &str, text: &str) -> Vec<String> {
    const TIED: char = '\u{a0}';
    let tied = text.replace(" %", "\u{a0}%").replace(" ± ", "\u{a0}±\u{a0}");
    let lines = wrapped(head, tied.split(' '), " ");
    lines.into_iter().map(|line| line.replace(TIED, " ")).collect()
}

const LABEL: usize = 10;

/// Wraps items after a label.
pub(crate) fn items(label: &str, all: &[String]) -> Vec<String> {
    wrapped(&format!("{label:LABEL$}"), all.iter().map(String::as_str), " · ")
}

/// Wraps pieces at [`PAPER`]; further lines begin below the first piece.
fn wrapped<'a>(head: &str, pieces: impl Iterator<Item = &'a str>, between: &str) -> Vec<String> {
    let indent = head.width().max(2);
    let mut lines = vec![head.to_owned()];
    let mut is_first = true;
    for piece in pieces {
        let line = lines.last().map_or(0, |line| line.width());
        let needs = between.width() + piece.width();
        if !is_first && line + needs > PAPER {
            lines.push(format!("{:indent$}{piece}", ""));
        } else if let Some(line) = lines.last_mut() {
            line.push_str(if is_first { "" } else { between });
            line.push_str(piece);
        }
        is_first = false;
    }
    lines
}

/// Maximum width of a line; wider lines wrap in many terminals.
pub const PAPER: usize = 80;

/// Returns a table's lines; drops spare columns until they fit into the width.
pub fn fitted(mut table: Table, width: usize, spare: &[String]) -> Vec<String> {
    let mut spare = spare.iter();
    loop {
        let lines = columns(&table);
        let widest = lines.iter().map(|line| line.width()).max().unwrap_or(0);
        let Some(title) = spare.next().filter(|_| widest > width) else {
            return lines;
        };
        while let Some(at) = table.header.iter().position(|header| header == title) {
            table.header.remove(at);
            table.rows.iter_mut().for_each(|row| drop(row.remove(at)));
        }
    }
}

/// Headings of columns that hold words.
const WORDS: [&str; 2] = [VERDICT, "what it is"];

/// Aligns the first column and words to the left, numbers to the right.
pub fn columns(table: &Table) -> Vec<String> {
    let width = |column: usize| {
        let cells = table.rows.iter().map(|row| &row[column]).chain([&table.header[column]]);
        cells.map(|cell| cell.width()).max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..table.header.len()).map(width).collect();
    let is_word = |column: usize| column == 0 || WORDS.contains(&table.header[column].as_str());
    let line = |cells: &[String]| {
        let mut line = String::from("  ");
        for (column, cell) in cells.iter().enumerate() {
            let pad = " ".repeat(widths[column] - cell.width());
            let (before, after) = if is_word(column) { ("", pad.as_str()) } else { (&*pad, "") };
            line.push_str(&format!("{before}{cell}{after}   "));
        }
        line.trim_end().to_owned()
    };
    std::iter::once(&table.header).chain(&table.rows).map(|cells| line(cells)).collect()
}
