//! Reads a file's bytes and detects its type. Memory is bounded here, so that nothing else has to
//! bound it.

use std::io::{BufRead, Read};

use crate::sample::{Draft, FileContents, Unread};
use crate::trouble::{Trouble, too_long};
use crate::{block, claim, formats, text};

/// Most bytes of a text file; a book is shorter.
const TEXT_MAX: u64 = 64 << 20;
/// Most lines of a text file: each takes memory, however short it is.
const LINES_MAX: usize = 2_000_000;
/// Bytes that are enough to detect a file's type.
const HEAD: usize = 64 << 10;

/// Reads a file: its outputs, and what looked like an output but could not be read.
pub fn read(file: &str, mut reader: impl BufRead) -> Result<FileContents, Trouble> {
    let mut head = Vec::new();
    let broken = |error: std::io::Error| Trouble::at(1, format!("cannot be read: {error}"));
    reader.by_ref().take(HEAD as u64).read_to_end(&mut head).map_err(broken)?;
    if formats::k6_csv::is_points(&head) {
        let drafts = formats::k6_csv::read_points(head.chain(reader), file)?;
        return Ok(FileContents { drafts, ..FileContents::default() });
    }
    let mut bytes = head;
    let room = TEXT_MAX - bytes.len() as u64 + 1;
    reader.take(room).read_to_end(&mut bytes).map_err(broken)?;
    let is_json = is_json(&bytes);
    let (most, kind) = match is_json {
        true => (formats::json::BYTES_MAX, "JSON"),
        false => (TEXT_MAX as usize, "text"),
    };
    if bytes.len() > most {
        return Err(too_long(&bytes, 1, most, kind));
    }
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let line = 1 + before.iter().filter(|byte| **byte == b'\n').count();
        Trouble::at(line, "is not text: it contains bytes that are not UTF-8")
    })?;
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    if let Some((at, _)) = text.bytes().enumerate().filter(|(_, b)| *b == b'\n').nth(LINES_MAX)
        && at + 1 < text.len()
    {
        let why = format!("goes on after {LINES_MAX} lines, the most that are read of text");
        return Err(Trouble::at(LINES_MAX + 1, why));
    }
    let mut found = if is_json {
        json(text, file)?
    } else if let Some(drafts) = formats::k6_csv::read_summary(text, file) {
        FileContents { drafts: drafts?, ..FileContents::default() }
    } else {
        text::read(text, file)
    };
    keep_some(&mut found.drafts);
    let (claims, unchecked) = claim::against(&found.drafts, &found.listed);
    found.claims.extend(claims);
    found.unchecked.extend(unchecked);
    found.unchecked.sort_unstable();
    found.unchecked.dedup();
    if found.drafts.is_empty() {
        return Err(match found.unread.into_iter().next() {
            Some(Unread { line, why, .. }) => Trouble { line, why },
            None => Trouble::at(1, nothing(text)),
        });
    }
    Ok(found)
}

/// Reads JSON; what only begins like JSON may still be text that holds outputs.
fn json(text: &str, file: &str) -> Result<FileContents, Trouble> {
    match formats::json::read(text, file, 1) {
        Ok(found) => Ok(found),
        Err(trouble) => {
            let found = text::read(text, file);
            if found.drafts.is_empty() { Err(trouble) } else { Ok(found) }
        }
    }
}

/// Most bytes of output lines kept per file: they are in the store and in every report.
const KEPT_BYTES_MAX: usize = 4 << 20;
/// Characters kept of each further output once that limit is reached.
const KEPT_CHARS: usize = 200;

fn keep_some(drafts: &mut [Draft]) {
    let mut kept = 0;
    for draft in drafts {
        kept += draft.source.text.len();
        if kept > KEPT_BYTES_MAX && draft.source.text.len() > KEPT_CHARS {
            let text: String = draft.source.text.chars().take(KEPT_CHARS).collect();
            draft.source.text = text + " …";
        }
    }
}

/// Whether a file is JSON; a log that begins with a line of JSON, as fortio's does, is text.
fn is_json(bytes: &[u8]) -> bool {
    let bytes = bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes);
    let mut lines = bytes.split(|byte| *byte == b'\n').map(<[u8]>::trim_ascii);
    let Some(first) = lines.find(|line| !line.is_empty()) else { return false };
    let is_log = block::is_value(first) && lines.any(|line| !line.is_empty());
    // "[TOC]" and "{% raw %}" begin text; "[1] see below" looks like JSON and is tried.
    let mut bytes = bytes.iter().filter(|byte| !byte.is_ascii_whitespace());
    match (bytes.next(), bytes.next()) {
        (Some(b'['), Some(second)) => {
            matches!(second, b'{' | b'[' | b']' | b'"' | b'-' | b'0'..=b'9')
        }
        (Some(b'{'), Some(second)) => matches!(second, b'"' | b'}') && !is_log,
        (Some(b'[' | b'{'), None) => true,
        _ => false,
    }
}

fn nothing(text: &str) -> String {
    let lines = text.lines().count();
    if text.trim().is_empty() {
        return "is empty".into();
    }
    format!(
        "no output of a known tool in its {lines} lines (wrk, wrk2, qperf, h2load, ab, hey, oha, \
         fortio, k6, iperf3, netperf and UnixBench as text; fortio, k6, oha, iperf3 and bpftime's \
         benchmark as JSON; k6 as CSV; tables and printed summaries of requests/s, bandwidth or \
         latency)"
    )
}
