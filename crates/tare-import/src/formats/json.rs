//! JSON: which tool's it is, told by its keys.

use serde_json::Value;

use super::{bpftime, fortio, iperf3, k6, oha};
use crate::block::kept;
use crate::sample::Draft;
use crate::trouble::Trouble;

pub const UNKNOWN: &str = "is JSON of no known tool";
/// A JSON value takes up to sixteen times its text in memory.
pub const BYTES_MAX: usize = 8 << 20;
/// More results than these are no paper.
const RESULTS_MAX: usize = 1000;

/// `text` begins at a line of its file.
pub fn read(text: &str, file: &str, first_line: usize) -> Result<Vec<Draft>, Trouble> {
    let value: Value = serde_json::from_str(text).map_err(|error| {
        let line = first_line + error.line().max(1) - 1;
        let text = error.to_string();
        let why = text.split(" at line ").next().unwrap_or(&text);
        Trouble::at(line, format!("is no JSON that can be read: {why}"))
    })?;
    let values = match value {
        Value::Array(values) => values,
        value => vec![value],
    };
    if values.len() > RESULTS_MAX {
        let why = format!("holds {} results; up to {RESULTS_MAX} are read", values.len());
        return Err(Trouble::at(first_line, why));
    }
    let mut drafts = Vec::new();
    for (at, value) in values.iter().enumerate() {
        let which = match values.len() {
            1 => String::new(),
            all => format!(" (element {} of {all})", at + 1),
        };
        let found = one(value).and_then(|found| match found.iter().all(has_values) {
            true => Ok(found),
            false => Err("holds no number that could have been measured".into()),
        });
        drafts.extend(found.map_err(|why| Trouble::at(first_line, why + &which))?);
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

/// Whether text that begins with a brace may be one of these at all.
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
