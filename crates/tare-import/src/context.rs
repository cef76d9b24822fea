//! Collects what stands above an output: headings, labels on lines of their own, comments in a
//! fence, and the command line. Sentences are not read; they are left to the user.

use crate::block::{fence_mark, is_heading, kept};
use crate::command::Command;
use crate::prompt;
use crate::sample::{Draft, Typed};

/// Level of a label on a line of its own; it is below all headings.
pub const LABEL: u8 = 7;
/// Level of a comment in a fence.
const COMMENT: u8 = 8;
/// Most characters of a name.
const NAME_MAX: usize = 80;
/// Most lines kept of prose, which may say what a table's numbers are.
const PROSE: usize = 20;

/// Text above the current line that may describe an output.
#[derive(Default)]
pub struct Context {
    headings: Vec<(u8, String)>,
    /// Commands, with the level of the heading above each.
    commands: Vec<(u8, Command)>,
    /// The last line that was typed under these headings.
    typed: Option<Typed>,
    /// Prose since the last heading or output.
    prose: Vec<String>,
    /// Whether an output stood under the last heading.
    has_output: bool,
    /// Whether a command was typed since the last output.
    is_fresh: bool,
    /// Number of lines above that are neither output nor command.
    passage: u32,
}

impl Context {
    fn heading(&mut self, level: u8, text: &str) {
        self.headings.retain(|(own, _)| *own < level);
        self.commands.retain(|(own, _)| *own < level);
        self.headings.push((level, cleaned(text)));
        self.prose.clear();
        self.has_output = false;
        self.passage += u32::from(level < LABEL);
        if level < LABEL - 1 {
            self.typed = None;
        }
    }

    /// Called after each output.
    pub fn end_output(&mut self) {
        self.is_fresh = false;
    }

    /// Called after lines that are neither output nor command, such as a table.
    pub fn interrupt(&mut self) {
        self.passage += 1;
    }

    /// Drops comments, which count only within their fence.
    pub fn end_fence(&mut self) {
        self.headings.retain(|(level, _)| *level < COMMENT);
    }

    /// Records a command at this line.
    pub fn command(&mut self, command: Command, line: &str, at: usize) {
        let level = self.headings.last().map_or(0, |(level, _)| *level);
        self.commands.retain(|(own, known)| *own < level || known.tool != command.tool);
        if !command.in_prose {
            self.is_fresh = true;
            let host = prompt::host(line).map(str::to_owned);
            self.typed = Some(Typed { line: (at + 1) as u32, text: command.text.clone(), host });
        }
        self.commands.push((level, command));
    }

    /// Records a line with a prompt and an unknown command; returns whether it has a prompt.
    fn prompt(&mut self, line: &str, at: usize) -> bool {
        let host = prompt::host(line);
        let is_prompt = host.is_some() || line.starts_with("$ ");
        if is_prompt {
            let text: String = line.chars().take(300).collect();
            if is_script(&text) {
                self.commands.clear();
            }
            // After another command, the next output may be of another variant.
            let is_again = self.typed.as_ref().is_some_and(|typed| typed.text == text);
            self.passage += u32::from(!is_again && !line.contains("$ !"));
            self.typed = Some(Typed { line: (at + 1) as u32, text, host: host.map(str::to_owned) });
        }
        is_prompt
    }

    /// Returns all headings and prose above: often only these say what a table's numbers are.
    pub fn words(&self) -> String {
        let headings = self.headings.iter().map(|(_, text)| text.as_str());
        headings.chain(self.prose.iter().map(String::as_str)).collect::<Vec<_>>().join("\n")
    }

    /// Reads a line that is neither output nor command, but may name what follows. Returns how many
    /// lines it took; `begins` returns whether a command or an output begins at a line.
    pub fn see(
        &mut self,
        lines: &[&str],
        at: usize,
        in_fence: bool,
        begins: impl Fn(usize) -> bool,
    ) -> usize {
        let line = lines[at].trim();
        if self.prompt(line, at) {
            return 1;
        }
        if in_fence {
            // After a root prompt, "# systemctl restart nginx" is a command, not a comment.
            let is_comment = |text: &&str| {
                let below = lines[at + 1..].iter().take(BLANKS_MAX);
                let next = below.enumerate().find(|(_, line)| !line.trim().is_empty());
                is_name(text, 8)
                    && next.is_some_and(|(n, line)| !line.starts_with("# ") && begins(at + 1 + n))
            };
            let own = line.strip_prefix("# ").filter(is_comment);
            if let Some(text) = own {
                self.heading(COMMENT, text);
            } else if let Some(text) = banner(line) {
                self.heading(LABEL - 1, text);
            } else {
                self.passage += u32::from(line.contains(char::is_alphanumeric));
            }
            return 1;
        }
        let is_code = lines[at].starts_with("    ") || lines[at].starts_with('\t');
        if is_heading(line) && !is_code {
            let text = line.trim_start_matches('#');
            self.heading((line.len() - text.len()) as u8, text);
            return 1;
        }
        if let Some((level, text)) = html_heading(line) {
            self.heading(level, text);
            return 1;
        }
        let above = at.checked_sub(1).map_or("", |before| lines[before].trim());
        let below = lines.get(at + 1).map_or("", |next| next.trim());
        if let Some(level) = underlined(above, line, below) {
            self.heading(level, line);
            return 2;
        }
        if let Some(text) = banner(line) {
            self.heading(LABEL - 1, text);
        } else if let Some(text) = label(lines, at) {
            self.heading(LABEL, text);
        } else if line.contains(char::is_alphanumeric) {
            self.passage += 1;
            // A label names only the output right below it; text after that may be about another.
            if self.has_output {
                self.headings.retain(|(level, _)| *level < LABEL);
            }
            if self.prose.len() < PROSE {
                self.prose.push(line.chars().take(300).collect());
            }
        }
        1
    }

    pub fn complete(&mut self, mut draft: Draft, file: &str, at: usize, lines: &[&str]) -> Draft {
        self.prose.clear();
        self.has_output = true;
        draft.source.file = file.to_owned();
        if draft.source.last_line == 0 {
            draft.source.first_line = (at + 1) as u32;
            draft.source.last_line = (at + lines.len()) as u32;
            draft.source.text = kept(lines, 1);
        }
        draft.passage = self.passage;
        draft.headings.clone_from(&self.headings);
        draft.typed.clone_from(&self.typed);
        draft.is_first_of_typed = self.is_fresh;
        let own = self.commands.iter().rev().find(|(_, command)| command.made(draft.tool));
        if let Some((_, command)) = own {
            command.complete(&mut draft);
        }
        draft
    }
}

/// Whether a typed line runs a script: "$ ./bench.sh", "root@h:~# bash bench.sh".
fn is_script(typed: &str) -> bool {
    let own =
        typed.split_once("$ ").or_else(|| typed.split_once("# ")).map_or(typed, |(_, own)| own);
    let mut words = own.split_whitespace();
    let first = words.find(|word| !["sudo", "time", "bash", "sh"].contains(word)).unwrap_or("");
    first.starts_with("./") || first.ends_with(".sh")
}

/// Returns the level of an underlined heading; `~` and `^` count after a blank line only.
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

/// Returns the words of a banner: `=== host ===`, `--- host ---`, `== host ==`.
fn banner(line: &str) -> Option<&str> {
    let mark = line.chars().next().filter(|c| matches!(c, '=' | '-'))?;
    let inner = line.trim_start_matches(mark);
    let marks = line.len() - inner.len();
    let closed = inner.ends_with(mark) || mark == '=';
    let inner = inner.trim_matches(mark).trim();
    (marks >= 2 && closed && is_name(inner, 12)).then_some(inner)
}

/// Returns level and text of `<h2>host</h2>`, or of the `<summary>` of a folded part.
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

/// Returns the emphasised text of `**host**`, `*host*` or `**host** (bare metal)`, also in a list.
pub fn bold(line: &str) -> Option<&str> {
    let item = item(line).unwrap_or(line).trim_end_matches([':', ' ']);
    ["**", "__", "*", "_"].iter().find_map(|mark| {
        let (inner, after) = item.strip_prefix(mark)?.split_once(mark)?;
        let remark = after.trim();
        let is_remark = remark.is_empty() || (remark.starts_with('(') && remark.ends_with(')'));
        // Italics are more often a remark than a label.
        let words = if mark.len() == 2 { 10 } else { 4 };
        (is_remark && is_name(inner, words)).then_some(inner)
    })
}

/// Returns a list item without its mark or number.
fn item(line: &str) -> Option<&str> {
    let digits = line.chars().take_while(char::is_ascii_digit).count();
    let rest = match digits {
        0 => ["- ", "* ", "+ ", "• ", "– "].iter().find_map(|mark| line.strip_prefix(mark)),
        _ => line[digits..].strip_prefix(". ").or(line[digits..].strip_prefix(") ")),
    };
    rest.map(str::trim_start)
}

/// Returns a label that stands alone: in bold, or, right before fenced or indented code, a list
/// item, a word or two with a colon, or a few words that do not end a sentence.
fn label<'a>(lines: &[&'a str], at: usize) -> Option<&'a str> {
    let line = lines[at].trim();
    if let Some(text) = bold(line) {
        return Some(text);
    }
    let is_alone = at == 0 || lines[at - 1].trim().is_empty();
    let (text, words) = match item(line) {
        Some(text) => (text, 12),
        None if !is_alone || lines[at].starts_with([' ', '\t']) => return None,
        None if line.ends_with([':', '：']) => (line, 2),
        None => (line, 4),
    };
    let text = text.trim_end_matches([':', '：']).trim_end();
    (leads_to_code(&lines[at + 1..]) && is_name(text, words)).then_some(text)
}

/// Most blank lines between a label and what it names.
const BLANKS_MAX: usize = 10;

fn leads_to_code(below: &[&str]) -> bool {
    let next = below.iter().take(BLANKS_MAX).find(|line| !line.trim().is_empty());
    next.is_some_and(|next| {
        fence_mark(next).is_some() || next.starts_with('\t') || next.starts_with("    ")
    })
}

/// First words of sentences that lead to an output.
const OPENINGS: [&str; 30] = [
    "a", "after", "an", "and", "as", "but", "finally", "for", "here", "i", "if", "in", "it", "my",
    "now", "or", "our", "please", "so", "that", "the", "then", "there", "these", "this", "we",
    "when", "while", "you", "your",
];

/// Words that fit any output, so that they cannot name a particular one.
const ANYBODYS: [&str; 34] = [
    "ab",
    "again",
    "benchmark",
    "benchmarks",
    "command",
    "commands",
    "example",
    "fortio",
    "full",
    "h2load",
    "hey",
    "iperf",
    "iperf3",
    "k6",
    "log",
    "more",
    "netperf",
    "note",
    "oha",
    "once",
    "output",
    "outputs",
    "qperf",
    "result",
    "results",
    "summary",
    "test",
    "tests",
    "then",
    "thresholds",
    "total",
    "unixbench",
    "wrk",
    "wrk2",
];

/// Whether text is a few words that name something in particular, and not a sentence.
pub fn is_name(text: &str, words_max: usize) -> bool {
    let text = text.trim();
    if text.is_empty() || text.len() > 4 * NAME_MAX || text.chars().count() > NAME_MAX {
        return false;
    }
    let bare = |word: &str| word.trim_matches(|c: char| !c.is_alphanumeric()).to_lowercase();
    let words = text.split_whitespace().map(bare).filter(|word| !word.is_empty());
    let words: Vec<String> = words.collect();
    let opens = words.len() > 1 && OPENINGS.contains(&words[0].as_str());
    let ends = text.ends_with(['.', ',', ';', '!', '?'])
        || text.contains(['。', '，', '；'])
        || text.contains(". ");
    (1..=words_max).contains(&words.len()) && !(opens || is_anybodys(text) || ends)
}

/// Whether all words are generic: "Results", "wrk output".
pub fn is_anybodys(text: &str) -> bool {
    let lower = text.to_lowercase();
    let mut words = lower.split(|c: char| !c.is_alphanumeric()).filter(|word| !word.is_empty());
    words.all(|word| ANYBODYS.contains(&word))
}

/// Strips a heading's markup and numbering.
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
            // A link is reduced to its text.
            ']' if chars.peek() == Some(&'(') => {
                chars.by_ref().take_while(|c| *c != ')').for_each(drop);
            }
            '[' | ']' => {}
            c if c.is_control() => cleaned.push(' '),
            c => cleaned.push(c),
        }
    }
    let cleaned = cleaned.trim().trim_end_matches([':', '：']).trim();
    cleaned.chars().take(NAME_MAX).collect()
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
        assert_eq!(html_heading("<details><summary>Host</summary>"), Some((LABEL - 1, "Host")));
        assert_eq!(html_heading("<h2 id=\"x\">Host</h2>"), Some((2, "Host")));
        assert_eq!(banner("=== runc ==="), Some("runc"));
        assert_eq!(banner("====="), None);
        assert!(is_heading("## Host") && is_heading("##Host") && !is_heading("#    #  #    #"));
    }

    #[test]
    fn labels_stand_alone_and_are_no_sentences() {
        for line in [
            "**Host**",
            "* **Host**",
            "*Host*",
            "**Host** (bare metal)",
            "1. Host:",
            "- Host:",
            "Host:",
            "Host",
            "Host：",
            "**Host:**",
        ] {
            let found = label(&["", line, "", "```"], 1).map(cleaned);
            assert_eq!(found.as_deref(), Some("Host"), "{line}");
        }
        for line in [
            "while in the VM we got:",
            "This represents the best case:",
            "The columns generated are: requests per second, latency stats, total requests sent",
            "We ran it again.",
            "Here is the output",
            "Output:",
            "wrk results:",
            "- Then we ran the same with a sidecar in front of it, once more and twice",
        ] {
            assert_eq!(label(&["", line, "", "```"], 1), None, "{line}");
        }
        assert_eq!(label(&["some prose", "Host:", "```"], 1), None, "it ends a paragraph");
        assert_eq!(label(&["", "Host:", "", "prose"], 1), None, "no output follows");
    }
}
