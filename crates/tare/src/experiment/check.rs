//! The table `[check]`: which variant is the change, and how much worse it may be.

use std::path::Path;

use serde::Deserialize;
use tare_model::plan::Draft;

use super::{ExperimentFile, plan, share};
use crate::run::check::MetricLimit;
use crate::toml_file::{self, Source};
use tare_model::Failure;

#[derive(Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Table {
    /// Default: the baseline.
    base: Option<String>,
    /// Default: the only other variant.
    head: Option<String>,
    #[serde(default, deserialize_with = "share")]
    worse_by: Option<f64>,
    /// Each with or without a limit of its own: "cpu", "p99=10%".
    #[serde(default)]
    metrics: Vec<MetricLimit>,
}

/// An experiment of a check: the old version, then the new one.
pub struct Checked {
    pub draft: Draft,
    pub worse_by: Option<f64>,
    pub metrics: Vec<MetricLimit>,
}

/// Reads an experiment that has a table `[check]`.
pub fn read_check(path: &Path) -> Result<Checked, Failure> {
    let text = toml_file::read(path)?;
    let source = Source { path, text: &text };
    let mut file: ExperimentFile = source.parse()?;
    if let Some((key, values)) = file.sweep.first_key_value() {
        let at = values.span().start;
        return Err(source.at(at, &format!("sweep: not supported in a check; remove {key}")));
    }
    let Some(table) = file.check.take() else {
        let path = path.display();
        return Err(Failure::usage(format!(
            "{path}: no [check] table; add [check] with head = \"VARIANT\""
        )));
    };
    let at = table.span().start;
    let Table { base, head, worse_by, metrics } = table.into_inner();
    let mut draft = plan(file, &source)?;
    let names: Vec<String> = draft.variants.iter().map(|variant| variant.name.clone()).collect();
    let base = base.unwrap_or_else(|| names[draft.baseline()].clone());
    let others: Vec<&String> = names.iter().filter(|name| **name != base).collect();
    let head = match (head, others.as_slice()) {
        (Some(head), _) => head,
        (None, [only]) => (*only).clone(),
        (None, _) => {
            let others: Vec<&str> = others.iter().map(|name| name.as_str()).collect();
            let text = format!("check: head is required; expected one of {}", others.join(", "));
            return Err(source.at(at, &text));
        }
    };
    let named = |name: &str| draft.variants.iter().find(|v| v.name == name).cloned();
    let (Some(mut old), Some(mut new), true) = (named(&base), named(&head), base != head) else {
        let text =
            format!("check: base and head must be two different variants of {}", names.join(", "));
        return Err(source.at(at, &text));
    };
    (old.baseline, old.optional) = (true, false);
    (new.baseline, new.optional) = (false, false);
    draft.variants = vec![old, new];
    Ok(Checked { draft, worse_by, metrics })
}
