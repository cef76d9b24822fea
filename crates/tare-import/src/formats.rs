//! The known output formats, one file per tool. Text outputs may stand between prose; JSON is
//! recognised by its keys.

mod ab;
mod bpftime;
mod fortio;
mod fortio_text;
mod h2load;
mod hey;
mod iperf3;
mod iperf3_text;
pub mod json;
mod k6;
pub mod k6_csv;
mod k6_text;
mod netperf;
mod oha;
mod oha_text;
mod qperf;
mod unixbench;
mod value;
mod wrk;

use crate::block::Block;
use crate::sample::Draft;
use crate::trouble::Trouble;

/// A format of text output.
pub struct TextFormat {
    /// Whether an output begins at the first of these lines.
    pub begins: fn(&[&str]) -> bool,
    /// Counts the lines of the output that begins at the first of these lines.
    pub length: fn(&[&str]) -> usize,
    /// Whether a line that could begin or end an output continues the output in these lines.
    pub is_inside: fn(&[&str], &str) -> bool,
    pub read: fn(&Block<'_>) -> Result<Vec<Draft>, Trouble>,
}

pub const TEXT: [&TextFormat; 11] = [
    &wrk::FORMAT,
    &qperf::FORMAT,
    &h2load::FORMAT,
    &ab::FORMAT,
    &hey::FORMAT,
    &oha_text::FORMAT,
    &fortio_text::FORMAT,
    &unixbench::FORMAT,
    &k6_text::FORMAT,
    &iperf3_text::FORMAT,
    &netperf::FORMAT,
];

/// First words of outputs that may follow their command on the same line.
pub const MARKS: [&str; 8] = [
    "Running ",
    "This is ApacheBench",
    "starting benchmark...",
    "tcp_",
    "udp_",
    "sctp_",
    "rc_",
    "ud_",
];

/// Counts lines up to and including the first for which `is_last` holds, or all lines.
fn through(lines: &[&str], is_last: impl Fn(&str) -> bool) -> usize {
    lines.iter().position(|line| is_last(line.trim())).map_or(lines.len(), |at| at + 1)
}

/// Reads a required number.
fn needed<T>(
    found: Option<(usize, &str)>,
    first: usize,
    (tool, label): (&str, &str),
    read: impl Fn(&str) -> Option<T>,
) -> Result<T, Trouble> {
    let Some((line, text)) = found else {
        return Err(Trouble::at(
            first,
            format!("a {tool} output begins here and ends without its '{label}'"),
        ));
    };
    let word = text.trim();
    read(word).ok_or_else(|| {
        let word: String = word.chars().take(40).collect();
        Trouble::at(line, format!("'{word}' is not a number for {tool}'s '{label}'"))
    })
}
