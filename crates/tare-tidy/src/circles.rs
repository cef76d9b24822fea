//! Finds files of a crate that use each other in a circle: none can be understood or tested alone.

use std::collections::{BTreeMap, BTreeSet};

/// The modules that each module uses, keyed by path below the crate, such as `places::oci`.
type Uses = BTreeMap<String, BTreeSet<String>>;

/// Two modules may use each other; a larger circle is a fault.
const CIRCLE_MAX: usize = 2;

/// Returns complaints about one crate; `sources` maps module paths to texts.
pub fn check(sources: &BTreeMap<String, String>) -> Vec<String> {
    let uses: Uses = sources
        .iter()
        .map(|(module, text)| (module.clone(), used(module, text, sources)))
        .collect();
    let circles = uses.keys().map(|module| circle_of(module, &uses));
    let circles: BTreeSet<BTreeSet<String>> = circles.collect();
    let long = circles.into_iter().filter(|circle| circle.len() > CIRCLE_MAX);
    long.map(|circle| {
        let names: Vec<String> = circle.into_iter().collect();
        format!("these use each other in a circle: {}", names.join(", "))
    })
    .collect()
}

/// Returns the modules that a module reaches and that reach it.
fn circle_of(module: &str, uses: &Uses) -> BTreeSet<String> {
    let reached = reach(module, uses);
    reached.into_iter().filter(|other| reach(other, uses).contains(module)).collect()
}

/// Returns the module itself and all that it uses, directly or not.
fn reach(module: &str, uses: &Uses) -> BTreeSet<String> {
    let mut found = BTreeSet::from([module.to_owned()]);
    let mut open = vec![module.to_owned()];
    while let Some(next) = open.pop() {
        for other in uses.get(&next).into_iter().flatten() {
            if found.insert(other.clone()) {
                open.push(other.clone());
            }
        }
    }
    found
}

fn used(module: &str, text: &str, all: &BTreeMap<String, String>) -> BTreeSet<String> {
    // Tests may use what they like.
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    let mut paths = Vec::new();
    for statement in text.split("\nuse ").skip(1).chain(text.split("\npub use ").skip(1)) {
        let end = statement.find(';').unwrap_or(0);
        let written: String = statement[..end].chars().filter(|c| !c.is_whitespace()).collect();
        paths.extend(expanded(&written));
    }
    // Paths written out in the code, without `use`.
    for root in ["crate::", "super::"] {
        paths.extend(text.match_indices(root).map(|(at, _)| {
            let path = text[at..].chars().take_while(|c| c.is_alphanumeric() || "_:".contains(*c));
            path.collect::<String>()
        }));
    }
    let whole = paths.iter().map(|path| absolute(module, path));
    let known = whole.filter_map(|path| module_of(&path, all));
    known.filter(|other| other != module).collect()
}

/// Expands braces: `a::{b, c::d}` becomes `a::b` and `a::c::d`.
fn expanded(path: &str) -> Vec<String> {
    let (Some(from), Some(to)) = (path.find('{'), path.rfind('}')) else {
        return vec![path.to_owned()];
    };
    let (mut parts, mut depth) = (vec![String::new()], 0);
    for c in path[from + 1..to].chars() {
        depth += i32::from(c == '{') - i32::from(c == '}');
        match (c, depth) {
            (',', 0) => parts.push(String::new()),
            _ => parts.last_mut().unwrap_or(&mut String::new()).push(c),
        }
    }
    parts.iter().flat_map(|part| expanded(&format!("{}{part}", &path[..from]))).collect()
}

/// Returns the path from the crate root; external paths are taken as local ones.
fn absolute(module: &str, path: &str) -> String {
    if let Some(path) = path.strip_prefix("crate::") {
        return path.to_owned();
    }
    let mut own: Vec<&str> = module.split("::").collect();
    let mut rest = path;
    while let Some(path) = rest.strip_prefix("super::") {
        rest = path;
        own.pop();
    }
    // A module's children need no `self`.
    own.push(rest.strip_prefix("self::").unwrap_or(rest));
    own.join("::")
}

/// Returns the module that defines what a path names.
fn module_of(path: &str, all: &BTreeMap<String, String>) -> Option<String> {
    let parts: Vec<&str> = path.split("::").collect();
    let mut shorter = (1..=parts.len()).rev().map(|n| parts[..n].join("::"));
    shorter.find(|path| all.contains_key(path))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(all: &[(&str, &str)]) -> BTreeMap<String, String> {
        all.iter().map(|(path, text)| ((*path).to_owned(), format!("\n{text}"))).collect()
    }

    #[test]
    fn a_circle_of_three_is_seen_and_one_of_two_is_not() {
        let two = sources(&[("a", "use crate::b::B;"), ("b", "use crate::{x, a::{A, C}};")]);
        assert_eq!(check(&two), Vec::<String>::new());
        let three = sources(&[
            ("a", "use crate::b::c::C;"),
            ("b", "fn f() { crate::a::g() }"),
            ("b::c", "use super::B;"),
        ]);
        assert_eq!(check(&three), ["these use each other in a circle: a, b, b::c"]);
        let tests = sources(&[
            ("a", "use crate::b::B;"),
            ("b", "use crate::c::C;"),
            ("c", "#[cfg(test)]\nmod tests { use crate::a::A; }"),
        ]);
        assert_eq!(check(&tests), Vec::<String>::new());
    }
}
