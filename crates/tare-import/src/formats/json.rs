//! Reads JSON, and recognises the tool by its keys.

use serde_json::Value;

use super::{bpftime, fortio, iperf3, k6, oha};
use crate::block::kept;
use crate::sample::{Draft, FileContents, Unread};
use crate::trouble::Trouble;

pub const UNKNOWN: &str = "is JSON of no known tool";
/// Most bytes of JSON: in memory, a value takes up to sixteen times as much as its text.
pub const BYTES_MAX: usize = 8 << 20;
/// Most results read from one list.
const RESULTS_MAX: usize = 1000;

/// Reads `text`, which begins at `first_line` of its file. Elements of a list that cannot be read
/// are reported, and the rest are read.
pub fn read(text: &str, file: &str, first_line: usize) -> Result<FileContents, Trouble> {
    let is_whole = serde_json::from_str::<serde::de::IgnoredAny>(text).is_ok();
    let parts = elements(text, is_whole);
    if parts.len() > RESULTS_MAX {
        let why = format!("holds more than {RESULTS_MAX} results, the most that are read");
        return Err(Trouble::at(first_line, why));
    }
    let (mut found, mut troubles) = (FileContents::default(), Vec::new());
    for (at, (line, part)) in parts.iter().enumerate() {
        let which = match parts.len() {
            1 => String::new(),
            all => format!(" (element {} of {all})", at + 1),
        };
        match part_of(part, file, first_line + line) {
            Ok(drafts) => found.drafts.extend(drafts),
            Err(Trouble { line, why }) => troubles.push(Trouble { line, why: why + &which }),
        }
    }
    match troubles.first() {
        Some(first) if found.drafts.is_empty() => return Err(first.clone()),
        _ => {}
    }
    let unread = |Trouble { line, why }| Unread { file: file.to_owned(), line, why };
    found.unread = troubles.into_iter().map(unread).collect();
    Ok(found)
}

fn part_of(text: &str, file: &str, first_line: usize) -> Result<Vec<Draft>, Trouble> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let line = first_line + error.line().max(1) - 1;
        let text = error.to_string();
        let why = text.split(" at line ").next().unwrap_or(&text);
        Trouble::at(line, format!("is no JSON that can be read: {why}"))
    })?;
    let mut drafts = one(&value).map_err(|why| Trouble::at(first_line, why))?;
    if !drafts.iter().all(has_values) {
        return Err(Trouble::at(first_line, "holds no number that could have been measured"));
    }
    let (lines, many) = (text.lines().collect::<Vec<&str>>(), drafts.len());
    for draft in &mut drafts {
        draft.source.file = file.to_owned();
        draft.source.first_line = first_line as u32;
        draft.source.last_line = (first_line + lines.len().max(1) - 1) as u32;
        draft.source.text = kept(&lines, many);
    }
    Ok(drafts)
}

/// Returns the elements of a list with the number of lines above each, or the text if it is not a
/// list. In broken JSON, a brace with the first element's indentation begins the next element.
fn elements(text: &str, is_whole: bool) -> Vec<(usize, &str)> {
    let start = text.len() - text.trim_start().len();
    let above = text[..start].matches('\n').count();
    if !text[start..].starts_with('[') {
        return vec![(above, &text[start..])];
    }
    let mut found = Elements { text, found: Vec::new(), from: start + 1, above };
    let (mut depth, mut in_text, mut is_escaped) = (0usize, false, false);
    // Start of this line, whether it has only blanks so far, and the first element's indentation.
    let (mut line, mut is_first, mut margin) = (0, false, None);
    for (at, c) in text.char_indices().skip_while(|(at, _)| *at <= start) {
        if c == '{' && is_first && !is_whole {
            if depth > 0 && margin == Some(at - line) {
                found.end(at, at);
                (depth, in_text) = (0, false);
            }
            if depth == 0 {
                margin = margin.or(Some(at - line));
            }
        }
        is_first = c == '\n' || (is_first && c.is_whitespace());
        match c {
            '\n' => (line, is_escaped) = (at + 1, false),
            _ if is_escaped => is_escaped = false,
            '\\' if in_text => is_escaped = true,
            '"' => in_text = !in_text,
            _ if in_text => {}
            '{' | '[' => depth += 1,
            ',' | ']' if depth == 0 => found.end(at, at + 1),
            '}' | ']' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if found.found.len() > RESULTS_MAX {
            break;
        }
    }
    found.end(text.len(), text.len());
    if found.found.is_empty() { vec![(above, &text[start..])] } else { found.found }
}

/// The elements of a list as they are found.
struct Elements<'a> {
    text: &'a str,
    found: Vec<(usize, &'a str)>,
    /// Start of the next element.
    from: usize,
    /// Lines above the next element.
    above: usize,
}

impl Elements<'_> {
    fn end(&mut self, at: usize, next: usize) {
        let part = &self.text[self.from..at];
        let blank = part.len() - part.trim_start().len();
        let first = self.above + part[..blank].matches('\n').count();
        if !part.trim().trim_end_matches([',', ']']).is_empty() {
            self.found.push((first, part.trim()));
        }
        self.above += self.text[self.from..next].matches('\n').count();
        self.from = next;
    }
}

fn has_values(draft: &Draft) -> bool {
    !draft.values.is_empty()
}

fn one(value: &Value) -> Result<Vec<Draft>, String> {
    let has = |key: &str| value.get(key).is_some();
    if has("DurationHistogram") {
        fortio::read(value)
    } else if has("average_results") {
        bpftime::read(value)
    } else if has("summary") && has("latencyPercentiles") {
        oha::read(value)
    } else if has("end") && has("start") {
        iperf3::read(value)
    } else if (has("metrics") && has("root_group")) || (has("results") && has("config")) {
        k6::read(value)
    } else {
        Err(format!("{UNKNOWN} (fortio, k6, oha, iperf3, bpftime's benchmark)"))
    }
}

/// Whether text has a key of a known tool.
pub fn is_likely(text: &str) -> bool {
    let keys = [
        "\"DurationHistogram\"",
        "\"latencyPercentiles\"",
        "\"average_results\"",
        "\"sum_received\"",
        "\"sum_sent\"",
        "\"http_reqs\"",
    ];
    keys.iter().any(|key| text.contains(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ONE: &str = "{\"ActualQPS\": 100, \"DurationHistogram\": {\"Avg\": 0.001}}";

    fn places(text: &str) -> (Vec<u32>, Vec<u32>) {
        let found = read(text, "x", 1).unwrap();
        let lines = found.drafts.iter().map(|draft| draft.source.first_line).collect();
        (lines, found.unread.iter().map(|unread| unread.line).collect())
    }

    #[test]
    fn one_bad_element_is_told_and_the_rest_is_read() {
        assert_eq!(places(&format!("[\n{ONE},\n{ONE},\n]\n")), (vec![2, 3], vec![]));
        let no_end = ONE.trim_end_matches('}');
        assert_eq!(
            places(&format!("[\n  {ONE},\n  {no_end},\n  {ONE}\n]\n")),
            (vec![2, 4], vec![3])
        );
        let unknown = "{\"x\": \"} ] \\\" \"}";
        assert_eq!(places(&format!("[{ONE},\n{unknown},\n{ONE}]")), (vec![1, 3], vec![2]));
        assert_eq!(places(&format!("[{ONE}")), (vec![1], vec![]), "cut at its end");
        // In a valid list, a brace at the margin does not begin an element.
        let printed = "{\n\"ActualQPS\": 100,\n\"DurationHistogram\": {\n\"Avg\": 0.001,\n\"Data\": \
                       [\n{\n\"Start\": 1, \"End\": 2},\n{\n\"Start\": 2, \"End\": 3}]}}";
        assert_eq!(places(&format!("[{printed},{printed}]")), (vec![1, 9], vec![]));
        assert_eq!(places(&format!("\n{ONE}\n")).0, [2]);
        for none in ["[", "[]", "[,]", "{", "[1]"] {
            assert!(read(none, "x", 1).is_err(), "{none}");
        }
    }
}
