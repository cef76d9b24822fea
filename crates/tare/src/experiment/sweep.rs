//! `[sweep]`: the experiment repeated over values, each repetition a plan of its own.

use std::collections::BTreeMap;

use toml::Spanned;

use super::Source;
use crate::failure::Failure;
use crate::run::plan::Plan;

type Put = fn(&mut Plan, f64) -> Result<(), String>;

/// What can be swept, and how a value is put into a plan.
const KEYS: [(&str, Put); 4] = [
    ("connections", |plan, value| {
        plan.load.connections = whole(value)?;
        Ok(())
    }),
    // As fast as replies come: the closed loop is a rate among others.
    ("rate", |plan, value| {
        plan.load.rate = (value != CLOSED).then_some(value);
        Ok(())
    }),
    ("threads", |plan, value| {
        plan.load.threads = Some(whole(value)?);
        Ok(())
    }),
    ("url_length", |plan, value| {
        let length = whole(value)? as usize;
        plan.variants.iter_mut().try_for_each(|variant| lengthen(&mut variant.url, length))
    }),
];

/// A rate of nothing asked for: each connection asks again when it has its reply.
const CLOSED: f64 = 0.0;
/// As many as a person will wait for.
const CELLS_MAX: usize = 1000;

/// The plans of all cells, in the file's order; the last key changes fastest.
pub(super) fn cells(
    plan: Plan,
    sweep: &BTreeMap<String, Spanned<Vec<f64>>>,
    source: &Source<'_>,
) -> Result<Vec<Plan>, Failure> {
    let mut keys: Vec<_> = sweep.iter().collect();
    keys.sort_by_key(|(_, values)| values.span().start);
    let mut cells = vec![plan];
    for (key, values) in keys {
        let at = values.span().start;
        let Some((name, put)) = KEYS.iter().find(|(name, _)| name == key) else {
            let known = KEYS.map(|(name, _)| name).join(", ");
            return Err(source.at(at, &format!("sweep: '{key}' cannot be swept; {known} can")));
        };
        if values.get_ref().is_empty() {
            return Err(source.at(at, &format!("sweep: {name} has no values")));
        }
        let mut next = Vec::new();
        for cell in &cells {
            for value in values.get_ref() {
                let mut cell = cell.clone();
                put(&mut cell, *value)
                    .map_err(|why| source.at(at, &format!("sweep: {name} = {value}: {why}")))?;
                let word = match (*name, *value) {
                    ("rate", CLOSED) => "closed loop".to_owned(),
                    _ => value.to_string(),
                };
                cell.name = format!("{} ({name} {word})", cell.name);
                cell.cell.insert((*name).to_owned(), word);
                next.push(cell);
            }
        }
        cells = next;
        if cells.len() > CELLS_MAX {
            let text = format!("sweep: {} cells; {CELLS_MAX} are allowed", cells.len());
            return Err(source.at(at, &text));
        }
    }
    Ok(cells)
}

fn whole(value: f64) -> Result<u32, String> {
    match value {
        v if v.fract() == 0.0 && (1.0..=1e9).contains(&v) => Ok(v as u32),
        _ => Err("write a whole number above 0".into()),
    }
}

/// Makes the path that long by adding to its end.
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
