//! Files' drafts, together: variants and cases named, in their order.

use serde::{Deserialize, Serialize};

use crate::names;
use crate::sample::{Draft, Sample, Unread};

pub const SCHEMA: &str = "tare.import/1";

/// What was imported: kept as it is; everything that is said of it is computed from this.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Import {
    pub schema: String,
    pub name: String,
    /// The variant that others are compared with.
    pub baseline: String,
    pub samples: Vec<Sample>,
    pub unread: Vec<Unread>,
}

/// One file: its name, what the user calls it, and what is in it.
pub struct FileDrafts {
    pub file: String,
    pub given: Option<String>,
    pub drafts: Vec<Draft>,
    pub unread: Vec<Unread>,
}

/// The first variant is the baseline.
pub fn assemble(name: &str, files: Vec<FileDrafts>) -> Import {
    let mut import = Import {
        schema: SCHEMA.into(),
        name: name.to_owned(),
        baseline: String::new(),
        samples: Vec::new(),
        unread: Vec::new(),
    };
    for FileDrafts { file, given, drafts, unread } in files {
        let base = file.rsplit('/').next().unwrap_or(&file);
        let stem = base.split('.').next().filter(|stem| !stem.is_empty()).unwrap_or(base);
        let names = names::of_file(&drafts, stem, given.as_deref());
        let samples = drafts.into_iter().zip(names).map(|(draft, name)| sample(draft, name));
        import.samples.extend(samples);
        import.unread.extend(unread);
    }
    split_by_connections(&mut import.samples);
    import.baseline =
        import.samples.first().map_or_else(String::new, |first| first.variant.clone());
    import
}

fn sample(draft: Draft, name: names::Name) -> Sample {
    Sample {
        variant: name.variant,
        case: name.case,
        tool: draft.tool,
        source: draft.source,
        headings: draft.headings.into_iter().map(|(_, text)| text).collect(),
        command: draft.command,
        asked: draft.asked,
        seen: draft.seen,
        values: draft.values,
        percentiles: draft.percentiles,
        repeats: draft.repeats,
    }
}

/// A variant that was asked by several numbers of connections was swept over them; one that was
/// asked by another number than the others is a mistake, which the audit tells.
fn split_by_connections(samples: &mut [Sample]) {
    let is_swept = samples.iter().any(|a| {
        samples.iter().any(|b| {
            a.variant == b.variant
                && a.case == b.case
                && a.asked.connections != b.asked.connections
                && a.asked.connections.is_some()
                && b.asked.connections.is_some()
        })
    });
    if !is_swept {
        return;
    }
    for sample in samples {
        if let Some(connections) = sample.asked.connections {
            let own = format!("{connections} connections");
            sample.case = match sample.case.is_empty() {
                true => own,
                false => format!("{}, {own}", sample.case),
            };
        }
    }
}

impl Import {
    /// In the order of their first output.
    pub fn variants(&self) -> Vec<&str> {
        unique(self.samples.iter().map(|sample| sample.variant.as_str()))
    }

    pub fn cases(&self) -> Vec<&str> {
        unique(self.samples.iter().map(|sample| sample.case.as_str()))
    }

    /// Outputs of one variant that were asked the same.
    pub fn of<'a>(&'a self, case: &'a str, variant: &'a str) -> impl Iterator<Item = &'a Sample> {
        self.samples.iter().filter(move |s| s.case == case && s.variant == variant)
    }

    pub fn json(&self) -> String {
        // Plain data: nothing in it can fail to be written.
        serde_json::to_string(self).unwrap_or_default()
    }
}

fn unique<'a>(all: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut found: Vec<&str> = Vec::new();
    let mut seen = std::collections::BTreeSet::new();
    for one in all {
        if seen.insert(one) {
            found.push(one);
        }
    }
    found
}
