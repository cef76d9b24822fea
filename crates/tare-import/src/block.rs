//! Lines of a file: what marks them, and what is kept of them.

/// Some lines of a file; numbers are the file's.
#[derive(Clone, Copy)]
pub struct Block<'a> {
    pub first: usize,
    /// Without quote marks; indented as they were.
    pub lines: &'a [&'a str],
}

impl<'a> Block<'a> {
    /// Each line with its number.
    pub fn numbered(&self) -> impl Iterator<Item = (usize, &'a str)> + use<'a> {
        let first = self.first;
        self.lines.iter().enumerate().map(move |(at, line)| (first + at, *line))
    }

    /// The first line that begins with `start` (after indentation), and what follows.
    pub fn after(&self, start: &str) -> Option<(usize, &'a str)> {
        self.numbered().find_map(|(at, line)| Some((at, line.trim_start().strip_prefix(start)?)))
    }
}

/// Lines of an output that are kept.
const KEPT: usize = 400;

pub fn fence_mark(line: &str) -> Option<&str> {
    let line = line.trim_start();
    // Backticks within the line make it a span of code, and no fence.
    let is_fence = line.starts_with("```") && !line.trim_start_matches('`').contains('`');
    (is_fence || line.starts_with("~~~")).then(|| &line[..3])
}

/// `## Host`, and `##Host` as some write it.
pub fn is_heading(line: &str) -> bool {
    let hashes = line.chars().take_while(|c| *c == '#').count();
    let rest = &line[hashes..];
    let named = rest.starts_with([' ', '\t'])
        || (hashes >= 2 && rest.starts_with(|c: char| c.is_alphanumeric()));
    // A row of marks is a picture (UnixBench's name, say), and no heading.
    (1..=6).contains(&hashes) && named && rest.contains(char::is_alphanumeric)
}

/// `{"level":"info"}`
pub fn is_value(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.len() > 2 && line.starts_with(b"{") && line.ends_with(b"}")
}

/// What is kept of an output's lines: the first of very many, the fewer the more outputs there are
/// in them.
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
