//! Imports documents, and returns what the audit finds in them.

use tare_import::audit::{Finding, audit};
use tare_import::{FileDrafts, Import, assemble, read};

pub fn import(text: &str) -> Import {
    let found = read("x.md", text.as_bytes()).unwrap();
    assemble("x", vec![FileDrafts { file: "x.md".into(), found, ..FileDrafts::default() }])
}

pub fn of(import: &Import, code: &str) -> Vec<Finding> {
    audit(import).into_iter().filter(|finding| finding.code == code).collect()
}

/// Returns the only finding of a kind.
#[track_caller]
pub fn one(import: &Import, code: &str, text: &str) -> Finding {
    let found = of(import, code);
    let [finding] = found.as_slice() else { panic!("{code}: {found:#?}\n{:#?}", audit(import)) };
    assert!(finding.text.contains(text), "{finding:?}");
    finding.clone()
}
