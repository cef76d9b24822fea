//! Finds outputs in prose: where each begins and ends, its headings, and its command.

use crate::block::{Block, fence_mark, is_heading, is_value};
use crate::claim::Claim;
use crate::command::Command;
use crate::context::{Context, bold, html_heading};
use crate::sample::{Draft, FileContents, Unread};
use crate::trouble::{Trouble, too_long};
use crate::{formats, html, summary, table};

/// Most lines of one output.
const BLOCK_MAX: usize = 2000;
/// Most outputs read from one text.
const OUTPUTS_MAX: usize = 1000;
/// Most statements checked in one text.
const CLAIMS_MAX: usize = 300;
/// Most lines in which tables and summaries are looked for; a book has fewer.
const TRIES_MAX: usize = 50_000;

pub fn read(text: &str, file: &str) -> FileContents {
    let plain = html::plain(text);
    let mut lines: Vec<&str> = plain.lines().map(unquoted).collect();
    let mut reader = Reader { file, ..Reader::default() };
    let mut at = front_matter(&lines);
    while at < lines.len() && !reader.is_full() {
        at += reader.step(&mut lines, at).max(1);
    }
    if at < lines.len() {
        let why = format!("{OUTPUTS_MAX} outputs by this line; what follows was not read");
        let line = (at + 1) as u32;
        reader.found.unread.push(Unread { file: file.to_owned(), line, why });
    }
    if reader.tries >= TRIES_MAX && !reader.found.drafts.is_empty() {
        let why = format!("tables and summaries were looked for in {TRIES_MAX} lines only");
        reader.found.unread.push(Unread { file: file.to_owned(), line: 1, why });
    }
    reader.found
}

/// State of reading a text.
#[derive(Default)]
struct Reader<'a> {
    file: &'a str,
    context: Context,
    found: FileContents,
    fence: Option<String>,
    no_json_before: usize,
    /// Lines searched for tables and summaries so far.
    tries: usize,
}

impl Reader<'_> {
    fn is_full(&self) -> bool {
        self.found.drafts.len() + self.found.unread.len() >= OUTPUTS_MAX
    }

    /// Reads what begins at a line, and returns how many lines it took.
    fn step(&mut self, lines: &mut [&str], at: usize) -> usize {
        if let Some(mark) = fence_mark(lines[at]) {
            self.fence = match self.fence.take() {
                Some(open) if mark.starts_with(&open) => {
                    self.context.end_fence();
                    None
                }
                Some(open) => Some(open),
                None => Some(mark.to_owned()),
            };
            return 1;
        }
        // A fence that somebody forgot to close ends at the next heading.
        if self.fence.is_some() && is_heading(lines[at]) && lines[at].starts_with("##") {
            self.fence = None;
        }
        let in_fence = self.fence.is_some();
        self.unglue(lines, at, in_fence);
        if let Some((length, read)) = self.json(lines, at).or_else(|| output(lines, at)) {
            match read {
                Ok(FileContents { drafts, unread, .. }) => {
                    self.add(drafts, at, &lines[at..at + length]);
                    self.found.unread.extend(unread);
                }
                Err(Trouble { line, why }) => {
                    self.found.unread.push(Unread { file: self.file.to_owned(), line, why });
                }
            }
            return length;
        }
        let may_be_told = !lines[at].is_empty() && self.tries < TRIES_MAX;
        self.tries += usize::from(may_be_told);
        if may_be_told
            && let Some(length) = self.table(lines, at).or_else(|| self.summary(lines, at))
        {
            return length;
        }
        let begins =
            |at: usize| Command::found(&lines[at..], true).is_some() || output(lines, at).is_some();
        let is_code = in_fence || is_indented_command(lines[at]);
        if let Some((command, length)) = Command::found(&lines[at..], is_code) {
            if command.in_prose {
                self.context.see(lines, at, in_fence, begins);
            }
            self.context.command(command, lines[at], at);
            return length;
        }
        self.context.see(lines, at, in_fence, begins)
    }

    fn add(&mut self, drafts: Vec<Draft>, at: usize, lines: &[&str]) {
        for draft in drafts {
            let draft = self.context.complete(draft, self.file, at, lines);
            self.found.drafts.push(draft);
        }
        self.context.end_output();
    }

    fn claims(&mut self, claims: Vec<Claim>) {
        let file = self.file.to_owned();
        let room = CLAIMS_MAX.saturating_sub(self.found.claims.len());
        let own = claims.into_iter().take(room);
        self.found.claims.extend(own.map(|claim| Claim { file: file.clone(), ..claim }));
    }

    /// Separates an output from its command on the same line: the shell's echo lost the line break.
    fn unglue(&mut self, lines: &mut [&str], at: usize, in_fence: bool) {
        let line = lines[at];
        let Some(start) = formats::MARKS.iter().filter_map(|mark| line.rfind(mark)).max() else {
            return;
        };
        let Some((command, 1)) = Command::found(&lines[at..], in_fence).filter(|_| start > 0)
        else {
            return;
        };
        lines[at] = &line[start..];
        if output(lines, at).is_none() {
            lines[at] = line;
            return;
        }
        self.context.command(command, line, at);
    }

    fn json(&mut self, lines: &[&str], at: usize) -> Option<Read> {
        if at < self.no_json_before {
            return None;
        }
        let found = json(lines, at, self.fence.is_some())?;
        let length = found.lines().count();
        // JSON without any tool's keys has none in its parts either: it is searched only once.
        self.no_json_before = at + length;
        let is_likely = formats::json::is_likely(&found);
        is_likely.then(|| (length, read_json(&found, self.file, at + 1)))
    }

    fn table(&mut self, lines: &[&str], at: usize) -> Option<usize> {
        let grid = table::found(&lines[at..])?;
        self.tries += grid.length;
        let told = table::read(&grid, at + 1, &self.context.words());
        self.found.unchecked.extend(told.unchecked.iter().map(|row| (at + row + 1) as u32));
        self.context.interrupt();
        if told.drafts.is_empty() {
            return None;
        }
        let room = OUTPUTS_MAX.saturating_sub(self.found.drafts.len());
        for draft in told.drafts.into_iter().take(room) {
            let draft = self.context.complete(draft, self.file, at, &[]);
            self.found.drafts.push(draft);
        }
        self.claims(told.claims);
        let (file, line) = (self.file.to_owned(), (at + 1) as u32);
        self.found.left_out.extend(told.left_out.map(|why| Unread { file, line, why }));
        Some(grid.length)
    }

    fn summary(&mut self, lines: &[&str], at: usize) -> Option<usize> {
        if let Some((claim, length)) = summary::compared(&lines[at..], at + 1) {
            self.claims(vec![claim]);
            self.context.interrupt();
            return Some(length);
        }
        if let Some(listed) = summary::overheads(&lines[at..], at + 1) {
            let length = listed.len() + 1;
            let room = CLAIMS_MAX.saturating_sub(self.found.listed.len());
            self.found.listed.extend(listed.into_iter().take(room));
            self.context.interrupt();
            return Some(length);
        }
        let summary = summary::found(&lines[at..], at + 1)?;
        let length = summary.length;
        self.add(vec![summary.draft], at, &lines[at..at + length]);
        Some(length)
    }
}

/// Counts the lines of metadata at the start of a document.
fn front_matter(lines: &[&str]) -> usize {
    const LONGEST: usize = 200;
    if lines.first().is_none_or(|first| first.trim_end() != "---") {
        return 0;
    }
    let end = lines.iter().take(LONGEST).skip(1).position(|line| line.trim_end() == "---");
    end.map_or(0, |at| at + 2)
}

/// Strips quote marks, tags of preformatted text, and the name of the container that printed it.
fn unquoted(line: &str) -> &str {
    let mut rest = line;
    while let Some(inner) = rest.trim_start().strip_prefix('>') {
        rest = inner.strip_prefix(' ').unwrap_or(inner);
    }
    // Tags, and Textile's equivalent.
    for tag in ["<pre>", "<code>", "bc. "] {
        rest = rest.strip_prefix(tag).unwrap_or(rest);
    }
    // "wrk_1  | Running 10s test": as docker-compose prints it.
    match rest.split_once("| ") {
        Some((name, inner)) if is_service(name) => inner,
        _ => rest,
    }
}

fn is_service(name: &str) -> bool {
    let name = name.trim_end();
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.starts_with(|c: char| c.is_ascii_alphabetic()) && name.chars().all(plain)
}

/// Whether a line is a command in indented code; lists and paragraphs may be indented, too.
fn is_indented_command(line: &str) -> bool {
    const FIRST: [&str; 8] = ["$", "for", "numactl", "seq", "sudo", "taskset", "time", "while"];
    let is_indented = line.starts_with("    ") || line.starts_with('\t');
    let first = line.split_whitespace().next().filter(|_| is_indented);
    first.is_some_and(|first| FIRST.contains(&first) || Command::is_tool(first))
}

type Read = (usize, Result<FileContents, Trouble>);

/// Reads an output that begins at line `at`, if there is one.
fn output(lines: &[&str], at: usize) -> Option<Read> {
    let format = formats::TEXT.iter().find(|format| (format.begins)(&lines[at..]))?;
    let rest = &lines[at..lines.len().min(at + BLOCK_MAX)];
    // Another output, a heading, or the end of a fence ends it, unless the tool itself prints such
    // a line.
    let is_other = |from: usize| {
        let begins = formats::TEXT.iter().any(|other| (other.begins)(&rest[from..]));
        (ends_all(rest[from]) || begins) && !(format.is_inside)(&rest[..from], rest[from])
    };
    let most = (1..rest.len()).find(|from| is_other(*from)).unwrap_or(rest.len());
    let length = (format.length)(&rest[..most]).clamp(1, most);
    let block = Block { first: at + 1, lines: &rest[..length] };
    let found = |drafts| FileContents { drafts, ..FileContents::default() };
    Some((length, (format.read)(&block).map(found)))
}

/// Whether a line ends any output: a fence, a heading, or a label in bold.
fn ends_all(line: &str) -> bool {
    let is_label = bold(line.trim()).is_some() || html_heading(line).is_some();
    fence_mark(line).is_some() || is_label || is_heading(line)
}

/// Returns JSON that may begin here: a value on a line of its own, or code to the end of its fence
/// or indentation.
fn json(lines: &[&str], at: usize, in_fence: bool) -> Option<String> {
    if is_value(lines[at].as_bytes()) {
        return Some(lines[at].to_owned());
    }
    let indented = lines[at].starts_with("    ") || lines[at].starts_with('\t');
    if !(in_fence || indented) || !lines[at].trim_start().starts_with(['{', '[']) {
        return None;
    }
    let goes_on = |line: &&&str| {
        let blank_or_in = line.trim().is_empty() || line.starts_with([' ', '\t']);
        fence_mark(line).is_none() && (in_fence || blank_or_in)
    };
    let length = lines[at..].iter().take_while(goes_on).count();
    Some(lines[at..at + length].join("\n"))
}

fn read_json(text: &str, file: &str, first: usize) -> Result<FileContents, Trouble> {
    match text.len() > formats::json::BYTES_MAX {
        true => Err(too_long(text.as_bytes(), first, formats::json::BYTES_MAX, "JSON")),
        false => formats::json::read(text, file, first),
    }
}
