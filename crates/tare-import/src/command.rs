//! Command lines of load generators, and the load that they ask for.

use crate::numbers::{seconds, si, whole};
use crate::sample::{Draft, SampleLoad, Tool};

#[derive(Clone, Debug, PartialEq)]
pub struct Command {
    pub tool: Tool,
    pub text: String,
    pub asked: SampleLoad,
    /// Whether it is quoted in prose: then it may be about several outputs, and exact for none.
    pub in_prose: bool,
}

/// Program names, and the tools that they start.
const NAMES: [(&str, Tool); 12] = [
    ("wrk", Tool::Wrk),
    ("wrk2", Tool::Wrk2),
    ("qperf", Tool::Qperf),
    ("fortio", Tool::Fortio),
    ("k6", Tool::K6),
    ("oha", Tool::Oha),
    ("h2load", Tool::H2load),
    ("ab", Tool::Ab),
    ("hey", Tool::Hey),
    ("iperf3", Tool::Iperf3),
    ("Run", Tool::Unixbench),
    ("run_benchmark.py", Tool::BpftimeBenchmark),
];

/// A flag's long name, its letter, and what it sets.
type Flag = (&'static str, &'static str, Set);

#[derive(Clone, Copy)]
enum Set {
    Threads,
    Connections,
    Seconds,
    Rate,
    /// Rate of each connection.
    RateEach,
    /// Requests in flight per connection.
    AtOnce,
    Requests,
    /// Keeps connections; the flag takes no value.
    Keep,
    /// Closes connections after each request; the flag takes no value.
    Close,
}

fn flags(tool: Tool) -> &'static [Flag] {
    use Set::*;
    match tool {
        Tool::Wrk | Tool::Wrk2 => &[
            ("threads", "t", Threads),
            ("connections", "c", Connections),
            ("duration", "d", Seconds),
            ("rate", "R", Rate),
        ],
        Tool::Ab => {
            &[("", "n", Requests), ("", "c", Connections), ("", "t", Seconds), ("", "k", Keep)]
        }
        Tool::Hey => {
            &[("", "n", Requests), ("", "c", Connections), ("", "z", Seconds), ("", "q", RateEach)]
        }
        Tool::Oha => {
            &[("", "n", Requests), ("", "c", Connections), ("", "z", Seconds), ("", "q", Rate)]
        }
        Tool::H2load => &[
            ("requests", "n", Requests),
            ("clients", "c", Connections),
            ("threads", "t", Threads),
            ("duration", "D", Seconds),
            ("rps", "", RateEach),
            ("max-concurrent-streams", "m", AtOnce),
        ],
        Tool::Fortio => &[
            ("qps", "", Rate),
            ("c", "", Connections),
            ("t", "", Seconds),
            ("n", "", Requests),
            ("keepalive=false", "", Close),
        ],
        Tool::K6 => &[("vus", "u", Connections), ("duration", "d", Seconds)],
        Tool::Iperf3 => &[("time", "t", Seconds), ("parallel", "P", Connections)],
        _ => &[],
    }
}

impl Command {
    /// Finds a command on the first line and its continuation lines: after a prompt, in a fence, or
    /// between backticks. Also returns how many lines it takes.
    pub fn found(lines: &[&str], in_fence: bool) -> Option<(Self, usize)> {
        let first = lines.first()?;
        let mut text = first.trim().to_owned();
        let mut taken = 1;
        while text.ends_with('\\') && taken < lines.len().min(20) {
            text.pop();
            text.push(' ');
            text.push_str(lines[taken].trim());
            taken += 1;
        }
        if let Some(command) = Self::parse(without_prompt(&text, in_fence)?) {
            return Some((command, taken));
        }
        if in_fence {
            return None;
        }
        let mut spans = first.split('`').skip(1).step_by(2);
        let found = spans.find_map(Self::parse);
        found.map(|command| (Self { in_prose: true, ..command }, 1))
    }

    fn parse(text: &str) -> Option<Self> {
        /// Most words before a tool: loops, and sudo, taskset or numactl with their flags.
        const BEFORE: usize = 24;
        if text.len() > 4000 {
            return None;
        }
        let all = shell_words(text);
        let words: Vec<&str> = all.iter().map(String::as_str).collect();
        let is_known = |at: usize, word: &str| Self::is_tool(word) || (at == 0 && word == "Run");
        let all = words.iter().take(BEFORE).enumerate();
        let (at, tool) = all.filter(|(at, word)| is_known(*at, word)).find_map(|(at, word)| {
            let name = word.rsplit('/').next()?;
            let (_, tool) = NAMES.iter().find(|(known, _)| *known == name)?;
            Some((at, *tool))
        })?;
        let rest = &words[at + 1..];
        let is_flag = |word: &&str| word.starts_with('-') || word.contains("://");
        let is_host =
            |word: &&str| word.split('.').count() == 4 || *word == "run" || *word == "syscall";
        if !rest.iter().any(|word| is_flag(word) || is_host(word)) {
            return None;
        }
        let mut asked = read(tool, rest);
        if flags(tool).iter().any(|(.., set)| matches!(set, Set::RateEach)) {
            let each = asked.rate_per_s.zip(asked.connections);
            asked.rate_per_s = each.map(|(rate, connections)| rate * connections as f64);
        }
        // wrk2's program is called wrk too, but only wrk2 has a rate.
        let tool = if tool == Tool::Wrk && asked.rate_per_s.is_some() { Tool::Wrk2 } else { tool };
        Some(Self { tool, text: text.to_owned(), asked, in_prose: false })
    }

    /// Whether this command may have made an output of `tool`.
    pub fn made(&self, tool: Tool) -> bool {
        let either = |tool| matches!(tool, Tool::Wrk | Tool::Wrk2);
        self.tool == tool || (either(self.tool) && either(tool))
    }

    /// Adds settings that the output itself does not show.
    pub fn complete(&self, draft: &mut Draft) {
        let (own, known) = (&mut draft.asked, &self.asked);
        own.threads = own.threads.or(known.threads);
        own.connections = own.connections.or(known.connections);
        own.seconds = own.seconds.or(known.seconds);
        own.requests = own.requests.or(known.requests);
        own.keep = own.keep.or(known.keep);
        let usual = (draft.tool != Tool::K6).then_some(1);
        own.at_once = known.at_once.or(own.at_once).or(usual);
        if self.in_prose {
            return;
        }
        draft.command = Some(self.text.clone());
        // wrk prints a duration of 1 min or more in whole minutes; the command has the exact one.
        let minutes = own.seconds.filter(|s| *s >= 60.0 && s % 60.0 == 0.0);
        let rounded = minutes.zip(known.seconds).filter(|(own, known)| (own - known).abs() <= 30.0);
        own.seconds = rounded.map(|(_, known)| known).or(own.seconds);
        // If output and command differ, the output's value stays, and the audit reports this.
        own.url = own.url.take().or_else(|| known.url.clone());
        own.rate_per_s = own.rate_per_s.or(known.rate_per_s);
        if draft.tool == Tool::Wrk && known.rate_per_s.is_some() {
            draft.tool = Tool::Wrk2;
        }
    }

    /// Whether a word starts a load generator.
    pub fn is_tool(word: &str) -> bool {
        let name = word.rsplit('/').next().unwrap_or(word);
        NAMES.iter().any(|(known, _)| *known == name) && (name != "Run" || word == "./Run")
    }

    /// Returns the load that a command asks for.
    pub fn asked_by(text: &str) -> Option<SampleLoad> {
        Some(Self::parse(text)?.asked)
    }

    /// Returns the script of a load: `wrk -s post.lua`, `k6 run test.js`.
    pub fn script_in(text: &str) -> Option<&str> {
        let words: Vec<&str> = text.split_whitespace().collect();
        let has = |tool: &str| words.iter().any(|word| word.rsplit('/').next() == Some(tool));
        let (of_wrk, of_k6) = (has("wrk") || has("wrk2"), has("k6"));
        let at = words.iter().enumerate().position(|(at, word)| match *word {
            "-s" | "--script" => of_wrk,
            "run" => of_k6 && at > 0 && words[at - 1].ends_with("k6"),
            _ => false,
        })?;
        let flags = ["-e", "--env", "-u", "--vus", "-d", "--duration", "--out", "-o"];
        let mut rest = words[at + 1..].iter();
        while let Some(word) = rest.next() {
            match *word {
                flag if flags.contains(&flag) => drop(rest.next()),
                flag if flag.starts_with('-') => {}
                script => return Some(script),
            }
        }
        None
    }
}

/// Splits text into words as a shell does; a quoted string is one word.
fn shell_words(text: &str) -> Vec<String> {
    let (mut words, mut word, mut quote) = (Vec::new(), String::new(), None);
    let mut chars = text.chars().peekable();
    while let Some(c) = chars.next() {
        let is_last = |next: Option<&char>| next.is_none_or(|next| next.is_whitespace());
        match (quote, c) {
            (Some(open), c) if c == open => quote = None,
            (None, '"' | '\'') => quote = Some(c),
            // `;`, and `&` at the end of a word, are words of their own; `&` in "?a=1&b=2" is not.
            (None, ';') => {
                words.extend((!word.is_empty()).then(|| std::mem::take(&mut word)));
                words.push(";".into());
            }
            (None, '&') if !word.is_empty() && is_last(chars.peek()) && word != "&" => {
                words.push(std::mem::take(&mut word));
                words.push("&".into());
            }
            (None, c) if c.is_whitespace() => {
                if !word.is_empty() {
                    words.push(std::mem::take(&mut word));
                }
            }
            (_, c) => word.push(c),
        }
    }
    if !word.is_empty() {
        words.push(word);
    }
    words
}

/// Strips a prompt such as `$ `, `# ` or `user@host:~$ `. Outside of fences, text without a prompt
/// counts only if it begins with a tool and a flag or address.
fn without_prompt(text: &str, in_fence: bool) -> Option<&str> {
    for mark in ["$ ", "# ", "% "] {
        if let Some((before, after)) = text.split_once(mark) {
            let is_prompt =
                before.is_empty() || before.contains('@') || before.ends_with(['~', ']']);
            if is_prompt && before.len() < 80 && Command::parse(after).is_some() {
                return Some(after);
            }
        }
    }
    let indented_or_fenced = in_fence
        || NAMES.iter().any(|(name, _)| {
            text.strip_prefix(name)
                .is_some_and(|rest| rest.starts_with(" -") || rest.starts_with(" http"))
        });
    Some(if indented_or_fenced { text } else { "" })
}

fn read(tool: Tool, words: &[&str]) -> SampleLoad {
    let mut asked = SampleLoad::default();
    let mut at = 0;
    while at < words.len() {
        let word = words[at];
        at += 1;
        if matches!(word, "|" | ">" | ">>" | "2>&1" | "&&" | ";" | "&") {
            break;
        }
        // A header may contain an address too, but does not begin with one.
        let is_address = word.starts_with("http://") || word.starts_with("https://");
        if is_address && !words.get(at.wrapping_sub(2)).is_some_and(|flag| takes_text(flag)) {
            asked.url.get_or_insert_with(|| word.to_owned());
            continue;
        }
        let Some(flag) = word.strip_prefix("--").or(word.strip_prefix('-')) else { continue };
        for (long, short, set) in flags(tool) {
            let is_switch = matches!(set, Set::Keep | Set::Close);
            let value = match flag {
                own if own == *long || (own == *short && !short.is_empty()) => {
                    if is_switch {
                        Some(String::new())
                    } else {
                        let value = words.get(at).map(|word| (*word).to_owned());
                        at += 1;
                        value
                    }
                }
                own => {
                    let equals = own.strip_prefix(long).and_then(|rest| rest.strip_prefix('='));
                    let attached = own.strip_prefix(short).filter(|rest| {
                        !short.is_empty() && rest.starts_with(|c: char| c.is_ascii_digit())
                    });
                    equals.filter(|_| !long.is_empty()).or(attached).map(str::to_owned)
                }
            };
            if let Some(value) = value {
                assign(&mut asked, *set, &value);
                break;
            }
        }
    }
    asked
}

/// Whether a flag takes any text as its value.
fn takes_text(flag: &str) -> bool {
    const FLAGS: [&str; 10] =
        ["-H", "--header", "-e", "--env", "-A", "-d", "--data", "-x", "--proxy", "--connect-to"];
    FLAGS.contains(&flag)
}

fn assign(asked: &mut SampleLoad, set: Set, value: &str) {
    let count = || si(value).map(|n| n as u64).or_else(|| whole(value));
    match set {
        Set::Threads => asked.threads = count(),
        Set::Connections => asked.connections = count(),
        Set::Requests => asked.requests = count(),
        Set::Seconds => asked.seconds = seconds(value),
        // Zero and "max" mean no rate limit.
        Set::Rate | Set::RateEach => asked.rate_per_s = si(value).filter(|rate| *rate > 0.0),
        Set::AtOnce => asked.at_once = count(),
        Set::Keep => asked.keep = Some(true),
        Set::Close => asked.keep = Some(false),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Command {
        Command::found(&[line], true).unwrap_or_else(|| panic!("{line}")).0
    }

    #[test]
    fn flags_are_read_in_every_spelling() {
        let url = Some("http://h:8080/".to_owned());
        for line in [
            "$ wrk -t4 -c100 -d30s http://h:8080/",
            "root@h:~# ./wrk --threads 4 --connections=100 --duration 30 http://h:8080/",
            "sudo taskset -c 1 wrk -t 4 -c 100 -d 30s --latency 'http://h:8080/' > out",
        ] {
            let command = parsed(line);
            assert_eq!(command.tool, Tool::Wrk, "{line}");
            let asked = command.asked;
            assert_eq!(
                (asked.threads, asked.connections, asked.seconds, asked.url),
                (Some(4), Some(100), Some(30.0), url.clone()),
                "{line}"
            );
        }
        let wrk2 = parsed("wrk -t2 -c100 -d30 -R5k -L http://h/");
        assert_eq!((wrk2.tool, wrk2.asked.rate_per_s), (Tool::Wrk2, Some(5000.0)));
        let fortio = parsed("fortio load -c 8 -qps=100 -t 240s http://h/");
        assert_eq!((fortio.asked.connections, fortio.asked.rate_per_s), (Some(8), Some(100.0)));
    }

    #[test]
    fn prose_is_no_command() {
        for line in ["We use wrk for this.", "The wrk results are below", "ab initio", "# wrk2"] {
            assert_eq!(Command::found(&[line], false), None, "{line}");
        }
        let (found, _) = Command::found(&["Load: `wrk -t4 -c8 http://h/`, then"], false).unwrap();
        assert_eq!((found.asked.connections, found.in_prose), (Some(8), true));
        let header = parsed("wrk -c8 -H \"Origin: https://x.example\" -H 'A: b' http://h:1/");
        assert_eq!(header.asked.url.as_deref(), Some("http://h:1/"));
        let lines = ["wrk -t4 \\", "  -c8 http://h/"];
        let (found, taken) = Command::found(&lines, true).unwrap();
        assert_eq!((found.asked.connections, taken), (Some(8), 2));
    }
}
