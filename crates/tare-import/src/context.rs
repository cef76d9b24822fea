//! What stands above an output: headings, labels, the prose that leads to it, the host of the
//! prompt, the command line.

use crate::block::{fence_mark, is_heading, kept};
use crate::command::Command;
use crate::lead::{self, Lead};
use crate::prompt;
use crate::sample::Draft;

/// A label on a line of its own, or in bold: below all headings.
pub const LABEL: u8 = 7;
/// Paragraphs above an output that may name it.
const PARAGRAPHS: usize = 3;
/// Of a paragraph, the end.
const PARAGRAPH_MAX: usize = 2000;

/// What is above a line.
#[derive(Default)]
pub struct Context {
    headings: Vec<(u8, String)>,
    /// Under the heading of this level.
    commands: Vec<(u8, Command)>,
    /// Since the last output or heading.
    paragraphs: Vec<String>,
    /// The last line was prose: the next belongs to it.
    in_paragraph: bool,
    /// What the prose said of the outputs since: until other prose, a label or a heading.
    lead: Option<String>,
    /// The paragraph that says it, which may list several.
    listing: String,
    /// Of the last prompt under these headings.
    host: Option<String>,
    typed: Option<String>,
}

impl Context {
    fn level(&self) -> u8 {
        self.headings.last().map_or(0, |(level, _)| *level)
    }

    fn heading(&mut self, level: u8, text: String) {
        self.headings.retain(|(own, _)| *own < level);
        self.commands.retain(|(own, _)| *own < level);
        self.headings.push((level, text));
        (self.lead, self.host, self.typed) = (None, None, None);
        self.listing.clear();
        self.paragraphs.clear();
        self.in_paragraph = false;
    }

    pub fn command(&mut self, command: Command) {
        let level = self.level();
        self.commands.retain(|(own, known)| *own < level || known.tool != command.tool);
        self.commands.push((level, command));
    }

    /// The host of a line's prompt.
    pub fn prompt(&mut self, line: &str) -> bool {
        let host = prompt::host(line);
        if host.is_some() || line.trim_start().starts_with("$ ") {
            self.typed = Some(line.trim().chars().take(300).collect());
        }
        self.host = host.map(str::to_owned).or(self.host.take());
        host.is_some()
    }

    /// The last of the words that name what follows: of a table, its title.
    pub fn title(&self) -> Option<String> {
        let own = match lead::lead(&self.paragraphs) {
            Lead::Names(name) => Some(name),
            Lead::Again | Lead::Nothing => self.lead.clone(),
        };
        own.or_else(|| self.headings.last().map(|(_, text)| text.clone()))
    }

    /// All prose and headings above: what a table's numbers are may be said there only.
    pub fn words(&self) -> String {
        let headings = self.headings.iter().map(|(_, text)| text.as_str());
        headings.chain(self.paragraphs.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
    }

    /// A line that is no output and no command may name what follows. Says how many lines it took.
    pub fn see(&mut self, lines: &[&str], at: usize, in_fence: bool) -> usize {
        let line = lines[at].trim();
        if self.prompt(line) || line.starts_with("$ ") {
            return 1;
        }
        if !in_fence && is_heading(line) {
            let hashes = line.chars().take_while(|c| *c == '#').count();
            self.heading(hashes as u8, cleaned(&line[hashes..]));
            return 1;
        }
        if let Some((level, text)) = html_heading(line) {
            self.heading(level, cleaned(text));
            return 1;
        }
        let above = at.checked_sub(1).map_or("", |before| lines[before].trim());
        let below = lines.get(at + 1).map_or("", |next| next.trim());
        if let Some(level) = underlined(above, line, below).filter(|_| !in_fence) {
            self.heading(level, cleaned(line));
            return 2;
        }
        if let Some(text) = banner(line).filter(|text| !says_nothing(text)) {
            self.heading(LABEL - 1, cleaned(text));
        } else if let Some(text) = self.label(line, in_fence) {
            self.heading(LABEL, named(text));
        } else if !in_fence && stands_alone(lines, at) && !says_nothing(line) {
            self.heading(LABEL, named(item(line).unwrap_or(line)));
        } else if !in_fence || line.starts_with("# ") {
            self.prose(line, lines[at]);
        }
        1
    }

    /// The end of a paragraph is no label.
    fn label<'a>(&self, line: &'a str, in_fence: bool) -> Option<&'a str> {
        let goes_on = self.in_paragraph && !line.starts_with(['*', '_', '-', '#', '+']);
        label(line, in_fence).filter(|text| !goes_on && !says_nothing(text))
    }

    fn prose(&mut self, line: &str, whole: &str) {
        if !line.contains(char::is_alphanumeric) {
            self.in_paragraph = false;
            return;
        }
        // Code that is indented says nothing, nor do lines of a shell and of tables.
        let is_code = whole.starts_with("    ") || whole.starts_with('\t');
        let is_mark = line.starts_with('[') && line.ends_with(']');
        if is_code || is_mark || line.starts_with(['|', '<', '$']) {
            return;
        }
        let is_item = item(line).is_some();
        let text = item(line).unwrap_or(line).trim_start_matches("# ");
        let end = text.char_indices().rev().nth(PARAGRAPH_MAX).map_or(0, |(at, _)| at);
        let text = &text[end..];
        match self.paragraphs.last_mut().filter(|_| self.in_paragraph && !is_item) {
            Some(last) if last.len() < PARAGRAPH_MAX => {
                last.push(' ');
                last.push_str(text);
            }
            _ => self.paragraphs.push(text.to_owned()),
        }
        let known = self.paragraphs.len();
        self.paragraphs.drain(..known.saturating_sub(PARAGRAPHS));
        self.in_paragraph = true;
    }

    pub fn complete(&mut self, draft: Draft, file: &str, at: usize, lines: &[&str]) -> Draft {
        let paragraphs = std::mem::take(&mut self.paragraphs);
        if let Lead::Names(name) = lead::lead(&paragraphs) {
            self.lead = Some(cleaned(&name));
        }
        // "the same with -m 1, same order" lists what was listed before.
        if let Some(text) = paragraphs.last().filter(|text| !lead::is_same_order(text)) {
            self.listing.clone_from(text);
        }
        let heading = self.headings.last().map_or("", |(_, text)| text.as_str());
        let has_text = !self.listing.is_empty();
        let listing = if has_text { &self.listing } else { heading };
        let mut list = lead::list(listing);
        if list.is_empty() && self.lead.is_none() {
            list = lead::heading_list(heading);
        }
        let lists_several = lead::lists_several(listing);
        let is_list_counted = lead::is_counted(listing);
        self.in_paragraph = false;
        let mut draft = draft;
        draft.source.file = file.to_owned();
        if draft.source.last_line == 0 {
            draft.source.first_line = (at + 1) as u32;
            draft.source.last_line = (at + lines.len()) as u32;
            draft.source.text = kept(lines, 1);
        }
        draft.headings.clone_from(&self.headings);
        draft.lead.clone_from(&self.lead);
        (draft.list, draft.lists_several) = (list, lists_several);
        draft.is_list_counted = is_list_counted;
        draft.typed.clone_from(&self.typed);
        draft.host.clone_from(&self.host);
        let own = self.commands.iter().rev().find(|(_, command)| command.made(draft.tool));
        if let Some((_, command)) = own {
            command.complete(&mut draft);
        }
        draft
    }
}

/// Without the words that say nothing.
fn named(text: &str) -> String {
    cleaned(&lead::name(text).unwrap_or_else(|| text.to_owned()))
}

fn says_nothing(text: &str) -> bool {
    !lead::is_name(text)
}

/// The level of a heading that is underlined; `~` and `^` after a blank line only.
fn underlined(above: &str, line: &str, below: &str) -> Option<u8> {
    let is_words = line.contains(char::is_alphabetic) && !line.starts_with('[');
    if !is_words || line.len() >= 200 || below.len() < 3 {
        return None;
    }
    let is_rule = |mark: char| below.chars().all(|c| c == mark);
    let is_long = below.len() >= line.chars().count() && above.is_empty();
    match below.chars().next()? {
        '=' if is_rule('=') => Some(1),
        '-' if is_rule('-') => Some(2),
        '~' if is_rule('~') && is_long => Some(3),
        '^' if is_rule('^') && is_long => Some(4),
        _ => None,
    }
}

/// An item of a list, without its mark.
fn item(line: &str) -> Option<&str> {
    let marks = ["- ", "* ", "+ ", "• ", "– "];
    marks.iter().find_map(|mark| line.strip_prefix(mark)).map(str::trim_start)
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
pub fn html_heading(line: &str) -> Option<(u8, &str)> {
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
pub fn label(line: &str, in_fence: bool) -> Option<&str> {
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
    let is_word = inner.split_whitespace().count() == 1;
    let opens = OPENINGS.contains(&first.as_str()) && !is_word;
    let is_sentence = opens || inner.contains(". ");
    (!is_sentence && words.count() < 6).then_some(inner)
}

/// How sentences begin that lead to an output.
const OPENINGS: [&str; 24] = [
    "a", "after", "and", "as", "but", "finally", "first", "for", "here", "if", "in", "it", "now",
    "or", "so", "the", "then", "there", "these", "this", "we", "when", "while", "with",
];

/// A few words on a line of their own, right before what is fenced or indented.
fn stands_alone(lines: &[&str], at: usize) -> bool {
    let line = item(lines[at].trim()).unwrap_or(lines[at].trim());
    let words = line.split_whitespace().count();
    let plain = line.starts_with(|c: char| c.is_alphanumeric())
        && !line.ends_with(['.', ',', ';', '!', '?'])
        && !lines[at].starts_with([' ', '\t']);
    let is_item = item(lines[at].trim()).is_some();
    let alone = is_item || at == 0 || lines[at - 1].trim().is_empty();
    if !(plain && alone) {
        return false;
    }
    let next = lines[at + 1..].iter().take(BLANKS_MAX).find(|line| !line.trim().is_empty());
    let before_code = next.is_some_and(|next| {
        fence_mark(next).is_some() || next.starts_with("    ") || next.starts_with('\t')
    });
    let most = if is_item { 8 } else { 5 };
    before_code && (1..=most).contains(&words) && line.len() <= 10 * most
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
