//! `[sweep]`: repeats the experiment for each value, with a plan for each. A key is a key of load
//! or a setting of servers ([`settings`]).

mod settings;

use std::collections::BTreeMap;

use serde::Deserialize;
use tare_io::calls::Call;
use tare_model::net::{CallName, NetTest};
use tare_model::plan::Draft;
use toml::Spanned;

use super::Source;
use crate::net::sizes::{size, sizes};
use tare_model::Failure;

/// Values as written: a list, or sizes in one word, `"1:256K:*64"`.
#[derive(Deserialize)]
#[serde(untagged, expecting = "write a list of values, or sizes as \"1:256K:*64\"")]
pub(super) enum Values {
    List(Vec<Value>),
    Sizes(String),
}

#[derive(Clone, Deserialize)]
#[serde(untagged, expecting = "write numbers, words, true or false")]
pub(super) enum Value {
    Switch(bool),
    Number(f64),
    Word(String),
}

type Put = fn(&mut Draft, &Value) -> Result<(), String>;

/// Keys of load that can be swept, and how a value is put into a plan.
const KEYS: [(&str, Put); 10] = [
    ("connections", |plan, value| {
        plan.load.connections = Some(value.whole()?);
        Ok(())
    }),
    ("http", |plan, value| {
        plan.load.http = Some(value.text("http"));
        Ok(())
    }),
    ("streams", |plan, value| {
        plan.load.streams = Some(value.whole()?);
        Ok(())
    }),
    // A rate of 0 is the closed loop.
    ("rate", |plan, value| {
        let rate = value.number()?;
        plan.load.rate = (rate != CLOSED).then_some(rate);
        Ok(())
    }),
    ("threads", |plan, value| {
        plan.load.threads = Some(value.whole()?);
        Ok(())
    }),
    ("url_length", |plan, value| {
        let length = value.whole()? as usize;
        if !plan.load.paths.is_empty() {
            return Err("the paths that are requested are given by load.paths".into());
        }
        plan.variants.iter_mut().try_for_each(|variant| lengthen(&mut variant.url, length))
    }),
    ("message_bytes", |plan, value| {
        plan.load.message_bytes = Some(value.size()?);
        Ok(())
    }),
    ("reply_bytes", |plan, value| {
        plan.load.reply_bytes = Some(value.size()?);
        Ok(())
    }),
    ("test", |plan, value| {
        plan.load.test = Some(NetTest::parse(value.word()?)?);
        Ok(())
    }),
    ("call", |plan, value| {
        plan.load.call = Some(CallName(Call::parse(value.word()?)?));
        Ok(())
    }),
];

/// Rate that stands for the closed loop.
const CLOSED: f64 = 0.0;
/// Maximum number of cells of a sweep.
const CELLS_MAX: usize = 1000;

impl Value {
    fn number(&self) -> Result<f64, String> {
        match self {
            Self::Number(number) => Ok(*number),
            Self::Word(word) => Err(format!("'{word}' is not a number")),
            Self::Switch(switch) => Err(format!("{switch} is not a number")),
        }
    }

    fn whole(&self) -> Result<u32, String> {
        match self.number()? {
            v if v.fract() == 0.0 && (1.0..=1e9).contains(&v) => Ok(v as u32),
            _ => Err("write a whole number above 0".into()),
        }
    }

    /// Reads a size in bytes or as "4K".
    fn size(&self) -> Result<u32, String> {
        match self {
            Self::Word(word) => size(word),
            Self::Number(_) | Self::Switch(_) => self.whole(),
        }
    }

    fn word(&self) -> Result<&str, String> {
        match self {
            Self::Word(word) => Ok(word),
            Self::Number(number) => Err(format!("{number} is not a word")),
            Self::Switch(switch) => Err(format!("{switch} is not a word")),
        }
    }

    /// Returns the value as shown in reports.
    fn text(&self, key: &str) -> String {
        match (key, self) {
            ("rate", Self::Number(CLOSED)) => "closed loop".to_owned(),
            (_, Self::Number(number)) => number.to_string(),
            (_, Self::Word(word)) => word.clone(),
            (_, Self::Switch(switch)) => switch.to_string(),
        }
    }

    fn json(&self) -> serde_json::Value {
        match self {
            Self::Switch(switch) => (*switch).into(),
            // Whole numbers are written without a point.
            Self::Number(number) if number.fract() == 0.0 && number.abs() < 1e15 => {
                (*number as i64).into()
            }
            Self::Number(number) => (*number).into(),
            Self::Word(word) => word.as_str().into(),
        }
    }
}

impl Values {
    fn list(&self) -> Result<Vec<Value>, String> {
        match self {
            Self::List(values) => Ok(values.clone()),
            Self::Sizes(text) => {
                Ok(sizes(text)?.into_iter().map(|size| Value::Number(size.into())).collect())
            }
        }
    }
}

/// Returns the plans of all cells, in the file's order; the last key changes fastest.
pub(super) fn cells(
    plan: Draft,
    sweep: &BTreeMap<String, Spanned<Values>>,
    source: &Source<'_>,
) -> Result<Vec<Draft>, Failure> {
    let mut keys: Vec<_> = sweep.iter().collect();
    keys.sort_by_key(|(_, values)| values.span().start);
    let mut cells = vec![plan];
    for (key, values) in keys {
        let at = values.span().start;
        let name = key.as_str();
        let put = KEYS.iter().find(|(key, _)| *key == name).map(|(_, put)| put);
        let wrong = |why: String| source.at(at, &format!("sweep: {name}: {why}"));
        let list = values.get_ref().list().map_err(wrong)?;
        if list.is_empty() {
            return Err(source.at(at, &format!("sweep: {name} has no values")));
        }
        if put.is_some() && settings::is_parameter(&cells[0], name) {
            let text = format!("sweep: {name} is a key of load; {{{name}}} needs another word");
            return Err(source.at(at, &text));
        }
        let all = cells.len().saturating_mul(list.len());
        if all > CELLS_MAX {
            let text = format!("sweep: {all} cells; {CELLS_MAX} are allowed");
            return Err(source.at(at, &text));
        }
        let mut next = Vec::new();
        for cell in &cells {
            for value in &list {
                let mut cell = cell.clone();
                let word = value.text(name);
                let done = match put {
                    Some(put) => put(&mut cell, value),
                    None => settings::put(&mut cell, name, value, source),
                };
                done.map_err(|why| source.at(at, &format!("sweep: {name} = {word}: {why}")))?;
                cell.name = format!("{} ({name} {word})", cell.name);
                cell.cell.insert(name.to_owned(), word);
                next.push(cell);
            }
        }
        cells = next;
    }
    Ok(cells)
}

/// Pads the path at its end to this length.
fn lengthen(url: &mut String, length: usize) -> Result<(), String> {
    let start = url.find("://").map_or(0, |at| at + 3);
    let path = url[start..].find('/').map_or(url.len(), |at| start + at);
    if path == url.len() {
        url.push('/');
    }
    if url[path..].contains(['?', '#']) {
        return Err("the path has a query, which cannot be made longer".into());
    }
    let own = url.len() - path;
    if length < own {
        return Err(format!("shorter than the path {}, {own} bytes", &url[path..]));
    }
    url.push_str(&"x".repeat(length - own));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_lengthened_at_their_end() {
        let mut url = "http://127.0.0.1:{port}/aaaa".to_owned();
        assert_eq!(lengthen(&mut url, 8), Ok(()));
        assert_eq!(url, "http://127.0.0.1:{port}/aaaaxxx");
        assert!(lengthen(&mut url, 3).unwrap_err().contains("shorter than the path /aaaaxxx"));
        assert!(lengthen(&mut "http://a/b?c".to_owned(), 9).unwrap_err().contains("a query"));
    }
}
