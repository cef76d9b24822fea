//! Outputs between prose: where each begins and ends, under which headings, after which command.

use crate::command::Command;
use crate::formats;
use crate::sample::{Draft, Unread};
use crate::source::Trouble;

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

/// Headings and commands that are above a line.
#[derive(Default)]
struct Context {
    headings: Vec<(u8, String)>,
    /// Under the heading of this level.
    commands: Vec<(u8, Command)>,
}

/// A label on a line of its own, or in bold: below all headings.
pub const LABEL: u8 = 7;
/// Longer blocks are no outputs.
const BLOCK_MAX: usize = 2000;
/// More outputs than these are no paper.
const OUTPUTS_MAX: usize = 10_000;

pub fn read(text: &str, file: &str) -> (Vec<Draft>, Vec<Unread>) {
    let lines: Vec<&str> = text.lines().map(unquoted).collect();
    let mut context = Context::default();
    let (mut drafts, mut unread) = (Vec::new(), Vec::new());
    let mut fence: Option<&str> = None;
    let mut at = 0;
    while at < lines.len() && drafts.len() + unread.len() < OUTPUTS_MAX {
        let line = lines[at];
        if let Some(mark) = fence_mark(line) {
            fence = match fence {
                Some(open) if mark.starts_with(open) => None,
                Some(open) => Some(open),
                None => Some(mark),
            };
            at += 1;
            continue;
        }
        let opens_json = line.trim_start().starts_with('{') && (fence.is_some() || at == 0);
        let found = if opens_json { Some(json(&lines, at, file)) } else { output(&lines, at) };
        if let Some((length, read)) = found {
            match read {
                Ok(found) => drafts.extend(
                    found
                        .into_iter()
                        .map(|draft| context.complete(draft, file, at, &lines[at..at + length])),
                ),
                Err(Trouble { line, why }) => {
                    unread.push(Unread { file: file.to_owned(), line, why });
                }
            }
            at += length.max(1);
            continue;
        }
        if let Some((command, length)) = Command::found(&lines[at..], fence.is_some()) {
            context.command(command);
            at += length;
            continue;
        }
        context.see(&lines, at, fence.is_some());
        at += 1;
    }
    (drafts, unread)
}

/// Without the marks of a quotation.
fn unquoted(line: &str) -> &str {
    let mut rest = line;
    while let Some(inner) = rest.trim_start().strip_prefix("> ") {
        rest = inner;
    }
    rest
}

fn fence_mark(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let is_mark = line.starts_with("```") || line.starts_with("~~~");
    is_mark.then(|| &line[..3])
}

type Read = (usize, Result<Vec<Draft>, Trouble>);

/// An output that begins here.
fn output(lines: &[&str], at: usize) -> Option<Read> {
    let format = formats::TEXT.iter().find(|format| (format.begins)(&lines[at..]))?;
    let rest = &lines[at..lines.len().min(at + BLOCK_MAX)];
    // Another output, a heading, or the end of a fence ends it in any case.
    let is_other = |from: usize| {
        let begins = formats::TEXT.iter().any(|other| (other.begins)(&rest[from..]));
        ends_all(rest[from]) || (begins && !(format.is_inside)(rest[from]))
    };
    let most = (1..rest.len()).find(|from| is_other(*from)).unwrap_or(rest.len());
    let length = (format.length)(&rest[..most]).clamp(1, most);
    let block = Block { first: at + 1, lines: &rest[..length] };
    Some((length, (format.read)(&block)))
}

/// No output goes on after the end of a fence, or a heading.
fn ends_all(line: &str) -> bool {
    fence_mark(line).is_some()
        || line.starts_with("# ")
        || line.starts_with("## ")
        || line.starts_with("### ")
        || line.starts_with("#### ")
}

/// JSON in a fence: to the fence's end, or the text's.
fn json(lines: &[&str], at: usize, file: &str) -> Read {
    let length = lines[at..].iter().take_while(|line| fence_mark(line).is_none()).count();
    let text = lines[at..at + length].join("\n");
    let read = formats::json::read(&text, file, at + 1);
    // JSON of something else is nobody's fault.
    match read {
        Err(Trouble { why, .. }) if why.contains(formats::json::UNKNOWN) => {
            (length, Ok(Vec::new()))
        }
        read => (length, read),
    }
}

impl Context {
    fn level(&self) -> u8 {
        self.headings.last().map_or(0, |(level, _)| *level)
    }

    fn heading(&mut self, level: u8, text: String) {
        self.headings.retain(|(own, _)| *own < level);
        self.commands.retain(|(own, _)| *own < level);
        self.headings.push((level, text));
    }

    fn command(&mut self, command: Command) {
        let level = self.level();
        self.commands.retain(|(own, known)| *own < level || known.tool != command.tool);
        self.commands.push((level, command));
    }

    /// A line that is no output and no command may name what follows.
    fn see(&mut self, lines: &[&str], at: usize, in_fence: bool) {
        let line = lines[at].trim();
        let hashes = line.chars().take_while(|c| *c == '#').count();
        if !in_fence && (1..=6).contains(&hashes) && line[hashes..].starts_with([' ', '\t']) {
            self.heading(hashes as u8, cleaned(&line[hashes..]));
            return;
        }
        let below = lines.get(at + 1).map_or("", |next| next.trim());
        let is_rule = |mark: char| below.len() >= 3 && below.chars().all(|c| c == mark);
        if !in_fence && !line.is_empty() && (is_rule('=') || is_rule('-')) && line.len() < 200 {
            self.heading(if is_rule('=') { 1 } else { 2 }, cleaned(line));
            return;
        }
        if let Some(text) = banner(line) {
            self.heading(LABEL - 1, cleaned(text));
        } else if let Some(text) = label(line, in_fence) {
            self.heading(LABEL, cleaned(text));
        }
    }

    fn complete(&self, draft: Draft, file: &str, at: usize, lines: &[&str]) -> Draft {
        let mut draft = draft;
        draft.source.file = file.to_owned();
        if draft.source.last_line == 0 {
            draft.source.first_line = (at + 1) as u32;
            draft.source.last_line = (at + lines.len()) as u32;
            draft.source.text = kept(lines);
        }
        draft.headings.clone_from(&self.headings);
        let own = self.commands.iter().rev().find(|(_, command)| command.made(draft.tool));
        if let Some((_, command)) = own {
            command.complete(&mut draft);
        }
        draft
    }
}

/// What is kept of an output's lines: all, but for the middle of very long ones.
pub fn kept(lines: &[&str]) -> String {
    const MOST: usize = 400;
    const LINE: usize = 300;
    let cut = |line: &&str| line.chars().take(LINE).collect::<String>();
    let mut text: Vec<String> = lines.iter().take(MOST).map(cut).collect();
    if lines.len() > MOST {
        text.push(format!("… {} more lines", lines.len() - MOST));
    }
    text.join("\n")
}

/// `=== host ===`, `--- host ---`, `== host ==`.
fn banner(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|c| matches!(c, '=' | '-' | '*'))?;
    let inner = line.trim_start_matches(mark);
    let marks = line.len() - inner.len();
    let closed = inner.ends_with(mark) || mark == '=';
    let inner = inner.trim_matches(mark).trim();
    (marks >= 2 && closed && !inner.is_empty() && inner.len() <= 80 && mark != '*').then_some(inner)
}

/// `**host**`, `host:`, and in a fence `# on the host`.
fn label(line: &str, in_fence: bool) -> Option<&str> {
    const LONG: usize = 80;
    if line.is_empty() || line.len() > LONG {
        return None;
    }
    if let Some(comment) = line.strip_prefix("# ").filter(|_| in_fence) {
        return Some(comment);
    }
    if in_fence {
        return None;
    }
    let bold = line.trim_end_matches(':');
    for mark in ["**", "__"] {
        let inner = bold.strip_prefix(mark).and_then(|rest| rest.strip_suffix(mark));
        if let Some(inner) = inner.filter(|inner| !inner.contains(mark)) {
            return Some(inner);
        }
    }
    let inner = line.trim_start_matches(['-', '*', '+', ' ']).strip_suffix(':')?;
    // A sentence that ends with a colon is no name.
    (!inner.contains(". ") && inner.split_whitespace().count() <= 8).then_some(inner)
}

/// A heading's words without markup and numbering.
fn cleaned(text: &str) -> String {
    let text = text.trim().trim_end_matches('#').trim();
    let number = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(0);
    let text = match text[..number].ends_with('.') || text[number..].starts_with(')') {
        true if number > 0 => text[number..].trim_start_matches(')').trim(),
        _ => text,
    };
    let mut cleaned = String::new();
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '*' | '`' => {}
            // Of a link, its words.
            ']' if chars.peek() == Some(&'(') => {
                chars.by_ref().take_while(|c| *c != ')').for_each(drop);
            }
            '[' | ']' => {}
            c if c.is_control() => cleaned.push(' '),
            c => cleaned.push(c),
        }
    }
    let cleaned = cleaned.trim().trim_end_matches(':').trim();
    cleaned.chars().take(120).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headings_lose_their_markup() {
        for (text, expected) in [
            (" 2. **VM** with `virtio` ##", "VM with virtio"),
            ("[Kata](https://x/y) results:", "Kata results"),
            ("3) runc", "runc"),
            ("1.5 GHz", "1.5 GHz"),
            ("nginx 1.22", "nginx 1.22"),
        ] {
            assert_eq!(cleaned(text), expected);
        }
    }

    #[test]
    fn labels_are_short_and_stand_alone() {
        assert_eq!(label("**In the VM:**", false), Some("In the VM:"));
        assert_eq!(label("- host:", false), Some("host"));
        assert_eq!(label("We then ran it again. This is what came out:", false), None);
        assert_eq!(label("# on the host", true), Some("on the host"));
        assert_eq!(banner("=== runc ==="), Some("runc"));
        assert_eq!(banner("====="), None);
    }
}
