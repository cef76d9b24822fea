//! UnixBench: raw lines with their counts of samples, and the table of indices.

use tare_model::Metric;

use super::TextFormat;
use crate::block::Block;
use crate::numbers::{plain, whole};
use crate::sample::{Draft, Tool};
use crate::trouble::Trouble;

pub const FORMAT: TextFormat = TextFormat {
    begins: |lines| copies(lines[0]).is_some() || raw(lines[0]).is_some() || is_table(lines[0]),
    length,
    is_inside,
    read,
};

/// A test has one raw line, and a report one table.
fn is_inside(block: &[&str], line: &str) -> bool {
    match raw(line) {
        Some((name, ..)) => {
            !block.iter().any(|own| is_table(own) || raw(own).is_some_and(|own| own.0 == name))
        }
        None => is_table(line) && !block.iter().any(|own| is_table(own)),
    }
}

fn is_table(line: &str) -> bool {
    let line = line.trim();
    line.starts_with("System Benchmarks") && line.contains("BASELINE") && line.ends_with("INDEX")
}

/// Reads the copies in "8 CPUs in system; running 4 parallel copies of tests".
fn copies(line: &str) -> Option<u64> {
    let (_, rest) = line.split_once("running ")?;
    let (n, rest) = rest.split_once(' ')?;
    rest.starts_with("parallel cop").then(|| whole(n))?
}

/// Counts lines to the score, or without a table to the last raw line.
fn length(lines: &[&str]) -> usize {
    let score =
        lines.iter().position(|line| line.trim().starts_with("System Benchmarks Index Score"));
    let last = lines.iter().rposition(|line| raw(line).is_some() || row(line).is_some());
    score.or(last).map_or(lines.len(), |at| at + 1)
}

/// Reads "System Call Overhead   18750490.3 lps   (10.0 s, 7 samples)": name, value, unit, samples.
fn raw(line: &str) -> Option<(&str, f64, &str, u64)> {
    let (head, samples) = line.trim_end().strip_suffix(" samples)")?.rsplit_once(", ")?;
    let (head, _) = head.rsplit_once('(')?;
    let (head, unit) = head.trim_end().rsplit_once(' ')?;
    let (name, value) = head.trim_end().rsplit_once(' ')?;
    Some((name.trim(), plain(value)?, unit, whole(samples)?))
}

/// Reads "System Call Overhead   15000.0   18750490.3   12500.3": name, result, index.
fn row(line: &str) -> Option<(&str, f64, f64)> {
    let (head, index) = line.trim_end().rsplit_once(' ')?;
    let (head, result) = head.trim_end().rsplit_once(' ')?;
    let (name, baseline) = head.trim_end().rsplit_once(' ')?;
    plain(baseline)?;
    Some((name.trim(), plain(result)?, plain(index)?))
}

fn read(block: &Block<'_>) -> Result<Vec<Draft>, Trouble> {
    let mut drafts: Vec<Draft> = Vec::new();
    let copies = block.lines.iter().find_map(|line| copies(line));
    for (_, line) in block.numbered() {
        let (name, value, index) = match (raw(line), row(line)) {
            (Some((name, value, ..)), _) => (name, value, None),
            (None, Some((name, result, index))) => (name, result, Some(index)),
            (None, None) => continue,
        };
        // "runc-1.log:File Copy …", as grep prints it.
        let (file, name) = name.split_once(':').map_or((None, name), |(f, n)| (Some(f), n));
        let case = match copies {
            Some(1) => format!("{name}, 1 copy"),
            Some(n) => format!("{name}, {n} copies"),
            None => name.to_owned(),
        };
        let own_name = file.map(|file| file.rsplit_once('.').map_or(file, |p| p.0).to_owned());
        let is_known =
            |draft: &Draft| draft.own_case.as_ref() == Some(&case) && draft.own_name == own_name;
        let known = drafts.iter().position(is_known);
        let at = known.unwrap_or_else(|| {
            let own_case = Some(case);
            drafts.push(Draft { own_case, own_name, ..Draft::new(Tool::Unixbench) });
            drafts.len() - 1
        });
        // Copying is counted in kilobytes.
        match raw(line).map(|(_, _, unit, _)| unit) {
            Some("KBps") => drafts[at].put(Metric::Bandwidth, value * 1024.0),
            // Scripts are counted per minute, instructions in millions.
            Some("lpm") => drafts[at].put(Metric::Throughput, value / 60.0),
            Some("MWIPS") => drafts[at].put(Metric::Throughput, value * 1e6),
            _ if drafts[at].values.is_empty() => drafts[at].put(Metric::Throughput, value),
            _ => {}
        }
        drafts[at].seen.other.extend(index.map(|index| ("index".to_owned(), index)));
    }
    if drafts.is_empty() {
        let why = "a UnixBench output begins here and has no result";
        return Err(Trouble::at(block.first, why));
    }
    Ok(drafts)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn raw_lines_and_the_table_are_one() {
        let lines = [
            "System Call Overhead                     18750490.3 lps   (10.0 s, 7 samples)",
            "",
            "System Benchmarks Partial Index              BASELINE       RESULT    INDEX",
            "System Call Overhead                          15000.0   18750490.3  12500.3",
            "                                                                   ========",
            "System Benchmarks Index Score (Partial Only)                        12500.3",
        ];
        assert!((FORMAT.begins)(&lines) && (FORMAT.length)(&lines) == 6);
        let drafts = read(&Block { first: 1, lines: &lines }).unwrap();
        let [draft] = drafts.as_slice() else { panic!("{drafts:?}") };
        assert_eq!(draft.values["throughput_per_s"], 18_750_490.3);
        assert_eq!(draft.seen.other["index"], 12_500.3);
        assert_eq!(draft.own_case.as_deref(), Some("System Call Overhead"));
    }
}
