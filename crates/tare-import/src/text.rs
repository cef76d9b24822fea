//! Outputs between prose: where each begins and ends, under which headings, after which command.

use crate::command::Command;
use crate::formats;
use crate::sample::{Draft, Unread};
use crate::source::{JSON_MAX, Trouble, too_long};

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
/// Lines of an output that are kept.
const KEPT: usize = 400;
/// More outputs than these are no paper.
const OUTPUTS_MAX: usize = 1000;

pub fn read(text: &str, file: &str) -> (Vec<Draft>, Vec<Unread>) {
    let lines: Vec<&str> = text.lines().map(unquoted).collect();
    let mut context = Context::default();
    let (mut drafts, mut unread) = (Vec::new(), Vec::new());
    let mut fence: Option<&str> = None;
    let mut at = front_matter(&lines);
    let mut no_json_before = 0;
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
        // A fence that somebody forgot to close ends at the next heading.
        if fence.is_some() && is_heading(line) && line.starts_with("##") {
            fence = None;
        }
        let may_be_json = at >= no_json_before;
        let found = may_be_json.then(|| json(&lines, at, fence.is_some())).flatten();
        // What has none of a tool's keys has none in any of its parts: it is looked at once.
        no_json_before = found.as_ref().map_or(no_json_before, |found| at + found.lines().count());
        let found = found.filter(|found| formats::json::is_likely(found));
        let found = found.map(|found| (found.lines().count(), read_json(&found, file, at + 1)));
        if let Some((length, read)) = found.or_else(|| output(&lines, at)) {
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
    if at < lines.len() {
        let why = format!("{OUTPUTS_MAX} outputs by this line; what follows was not read");
        unread.push(Unread { file: file.to_owned(), line: (at + 1) as u32, why });
    }
    (drafts, unread)
}

/// Lines of metadata that some documents begin with.
fn front_matter(lines: &[&str]) -> usize {
    const LONGEST: usize = 200;
    if lines.first().is_none_or(|first| first.trim_end() != "---") {
        return 0;
    }
    let end = lines.iter().take(LONGEST).skip(1).position(|line| line.trim_end() == "---");
    end.map_or(0, |at| at + 2)
}

/// Without the marks of a quotation, of preformatted text, and of the container that said it.
fn unquoted(line: &str) -> &str {
    let mut rest = line;
    while let Some(inner) = rest.trim_start().strip_prefix('>') {
        rest = inner.strip_prefix(' ').unwrap_or(inner);
    }
    for tag in ["<pre>", "<code>"] {
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

fn fence_mark(line: &str) -> Option<&str> {
    let line = line.trim_start();
    // Backticks within the line make it a span of code, and no fence.
    let is_fence = line.starts_with("```") && !line.trim_start_matches('`').contains('`');
    (is_fence || line.starts_with("~~~")).then(|| &line[..3])
}

/// `## Host`, and `##Host` as some write it.
fn is_heading(line: &str) -> bool {
    let hashes = line.chars().take_while(|c| *c == '#').count();
    let rest = &line[hashes..];
    let named = rest.starts_with([' ', '\t'])
        || (hashes >= 2 && rest.starts_with(|c: char| c.is_alphanumeric()));
    // A row of marks is a picture (UnixBench's name, say), and no heading.
    (1..=6).contains(&hashes) && named && rest.contains(char::is_alphanumeric)
}

type Read = (usize, Result<Vec<Draft>, Trouble>);

/// An output that begins here.
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
    Some((length, (format.read)(&block)))
}

/// After the end of a fence, a heading, or a label in bold an output does not go on.
fn ends_all(line: &str) -> bool {
    let is_bold = label(line.trim(), false).is_some() && line.trim_start().starts_with(['*', '<']);
    fence_mark(line).is_some() || is_bold || is_heading(line)
}

/// JSON that may begin here: a value on a line of its own, or in code to the end of its fence or
/// indentation.
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

/// `{"level":"info"}`
pub fn is_value(line: &[u8]) -> bool {
    let line = line.trim_ascii();
    line.len() > 2 && line.starts_with(b"{") && line.ends_with(b"}")
}

fn read_json(text: &str, file: &str, first: usize) -> Result<Vec<Draft>, Trouble> {
    match text.len() > JSON_MAX {
        true => Err(too_long(text.as_bytes(), first, JSON_MAX, "JSON")),
        false => formats::json::read(text, file, first),
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
        if !in_fence && is_heading(line) {
            let hashes = line.chars().take_while(|c| *c == '#').count();
            self.heading(hashes as u8, cleaned(&line[hashes..]));
            return;
        }
        if let Some((level, text)) = html_heading(line) {
            self.heading(level, cleaned(text));
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
        } else if !in_fence && stands_alone(lines, at) {
            self.heading(LABEL, cleaned(line));
        }
    }

    fn complete(&self, draft: Draft, file: &str, at: usize, lines: &[&str]) -> Draft {
        let mut draft = draft;
        draft.source.file = file.to_owned();
        if draft.source.last_line == 0 {
            draft.source.first_line = (at + 1) as u32;
            draft.source.last_line = (at + lines.len()) as u32;
            draft.source.text = kept(lines, 1);
        }
        draft.headings.clone_from(&self.headings);
        let own = self.commands.iter().rev().find(|(_, command)| command.made(draft.tool));
        if let Some((_, command)) = own {
            command.complete(&mut draft);
        }
        draft
    }
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

/// `=== host ===`, `--- host ---`, `== host ==`.
fn banner(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|c| matches!(c, '=' | '-' | '*'))?;
    let inner = line.trim_start_matches(mark);
    let marks = line.len() - inner.len();
    let closed = inner.ends_with(mark) || mark == '=';
    let inner = inner.trim_matches(mark).trim();
    (marks >= 2 && closed && !inner.is_empty() && inner.len() <= 80 && mark != '*').then_some(inner)
}

/// `<h2>host</h2>`, and the summary of what is folded.
fn html_heading(line: &str) -> Option<(u8, &str)> {
    let line = line.strip_prefix("<details>").unwrap_or(line).trim_start();
    let (tag, rest) = line.strip_prefix('<')?.split_once('>')?;
    let level = match tag.split(' ').next()? {
        "summary" => LABEL - 1,
        tag => tag.strip_prefix('h')?.parse().ok().filter(|level| (1..=6).contains(level))?,
    };
    let text = rest.split("</").next()?;
    (!text.trim().is_empty()).then_some((level, text))
}

/// `**host**`, `**host** (bare metal)`, `*host*`, `1. host:`, and in a fence `# on the host`.
fn label(line: &str, in_fence: bool) -> Option<&str> {
    const LONG: usize = 80;
    if line.is_empty() || line.len() > LONG {
        return None;
    }
    if in_fence {
        return line.strip_prefix("# ");
    }
    let item = line.trim_start_matches(['-', '+', ' ']);
    let item = item.strip_prefix("* ").unwrap_or(item).trim_start();
    let digits = item.chars().take_while(char::is_ascii_digit).count();
    let rest = &item[digits..];
    let item = match digits {
        0 => item,
        _ => rest.strip_prefix(". ").or(rest.strip_prefix(") ")).unwrap_or(item),
    };
    let bold = item.trim_end_matches(':').trim_end();
    for mark in ["**", "__", "*", "_"] {
        let Some((inner, after)) = bold.strip_prefix(mark).and_then(|b| b.split_once(mark)) else {
            continue;
        };
        let remark = after.trim().trim_end_matches(':');
        let is_remark = remark.is_empty() || (remark.starts_with('(') && remark.ends_with(')'));
        if !inner.trim().is_empty() && is_remark {
            return Some(inner);
        }
    }
    let inner = item.strip_suffix(':')?;
    let mut words = inner.split_whitespace();
    let first = words.next()?.to_lowercase();
    // Of a sentence that ends with a colon the beginning tells that it is no name.
    let is_sentence = OPENINGS.contains(&first.as_str()) || inner.contains(". ");
    (!is_sentence && words.count() < 6).then_some(inner)
}

/// How sentences begin that lead to an output.
const OPENINGS: [&str; 24] = [
    "a", "after", "and", "as", "but", "finally", "first", "for", "here", "if", "in", "it", "now",
    "or", "so", "the", "then", "there", "these", "this", "we", "when", "while", "with",
];

/// A few words on a line of their own, right before what is fenced or indented.
fn stands_alone(lines: &[&str], at: usize) -> bool {
    let line = lines[at].trim();
    let words = line.split_whitespace().count();
    let plain = line.starts_with(|c: char| c.is_alphanumeric())
        && !line.ends_with(['.', ',', ';', '!', '?'])
        && !lines[at].starts_with([' ', '\t']);
    let alone = at == 0 || lines[at - 1].trim().is_empty();
    if !(plain && alone) {
        return false;
    }
    let next = lines[at + 1..].iter().take(BLANKS_MAX).find(|line| !line.trim().is_empty());
    let before_code = next.is_some_and(|next| {
        fence_mark(next).is_some() || next.starts_with("    ") || next.starts_with('\t')
    });
    before_code && (1..=5).contains(&words) && line.len() <= 50
}

/// Blank lines between a name and what it names.
const BLANKS_MAX: usize = 10;

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
    cleaned.chars().take(300).collect()
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
        for line in
            ["**Host**", "* **Host**", "*Host*", "**Host** (bare metal)", "1. Host:", "- Host:"]
        {
            assert_eq!(label(line, false), Some("Host"), "{line}");
        }
        assert_eq!(label("**In the VM:**", false), Some("In the VM:"));
        assert_eq!(label("while in the VM we got:", false), None);
        assert_eq!(html_heading("<details><summary>Host</summary>"), Some((LABEL - 1, "Host")));
        assert_eq!(html_heading("<h2 id=\"x\">Host</h2>"), Some((2, "Host")));
        assert!(
            stands_alone(&["", "Host", "", "```"], 1) && !stands_alone(&["x", "Host", "```"], 1)
        );
        assert_eq!(label("We then ran it again. This is what came out:", false), None);
        assert_eq!(label("# on the host", true), Some("on the host"));
        assert_eq!(banner("=== runc ==="), Some("runc"));
        assert_eq!(banner("====="), None);
        assert!(is_heading("## Host") && is_heading("##Host") && !is_heading("#    #  #    #"));
    }
}
