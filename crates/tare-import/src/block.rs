//! Lines of a file: their markup, and the part of them that is kept.

/// Consecutive lines of a file, with the file's line numbers.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    pub first: usize,
    /// The lines without quote marks, but with their original indentation.
    pub lines: &'a [&'a str],
}

impl<'a> Block<'a> {
    /// Returns each line with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
        let first = self.first;
        self.lines.iter().enumerate().map(move |(at, line)| (first + at, *line))
    }

    /// Finds the first line that begins with `start` after indentation; returns what follows it.
    pub fn after(&self, start: &str) -> Option<(usize, &'a str)> {
        self.numbered().find_map(|(at, line)| Some((at, line.trim_start().strip_prefix(start)?)))
    }
}

/// Most lines kept of an output.
const KEPT: usize = 400;

pub fn fence_mark(line: &str) -> Option<&str> {
    let line = line.trim_start();
    // More backticks in the line make it inline code, not a fence.
    let is_fence = line.starts_with("```") && !line.trim_start_matches('`').contains('`');
    (is_fence || line.starts_with("~~~")).then(|| &line[..3])
}

/// Whether a line is a Markdown heading: `## Host`, or `##Host` without the space.
pub fn is_heading(line: &str) -> bool {
    let hashes = line.chars().take_while(|c| *c == '#').count();
    let rest = &line[hashes..];
    let named = rest.starts_with([' ', '\t'])
        || (hashes >= 2 && rest.starts_with(|c: char| c.is_alphanumeric()));
    // A line of `#` without words is part of a picture, such as UnixBench's logo, not a heading.
    (1..=6).contains(&hashes) && named && rest.contains(char::is_alphanumeric)
}

/// Whether a line is a JSON object, such as `{"level":"info"}`.
pub fn is_value(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.len() > 2 && line.starts_with(b"{") && line.ends_with(b"}")
}

/// Returns the lines of an output that are kept: the first ones, fewer if the lines hold several
/// outputs.
pub fn kept(lines: &[&str], outputs: usize) -> String {
    let most = (KEPT / outputs.max(1)).max(5);
    const LINE: usize = 300;
    let cut = |line: &&str| line.chars().take(LINE).collect::<String>();
    let mut text: Vec<String> = lines.iter().take(most).map(cut).collect();
    if lines.len() > most {
        text.push(format!("… {} more lines", lines.len() - most));
    }
    text.join("\n")
}
