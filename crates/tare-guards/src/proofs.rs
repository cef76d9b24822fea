//! Rules about proofs that a layer or place was in the path.

use tare_model::samples::Launch;

use crate::evidence::Evidence;
use crate::{Code, RunGuard, Severity, guard};

/// One sentence for each layer about its proofs in all launches.
pub fn proofs(launches: &[&Launch]) -> Vec<String> {
    let all: Vec<_> = launches.iter().flat_map(|launch| &launch.proofs).collect();
    let mut layers: Vec<&str> = Vec::new();
    for proof in &all {
        if !layers.contains(&proof.layer.as_str()) {
            layers.push(&proof.layer);
        }
    }
    let sentence = |layer: &str| {
        let of: Vec<_> = all.iter().filter(|proof| proof.layer == layer).collect();
        let held = of.iter().filter(|proof| proof.held).count();
        // A proof that failed matters more than one that held.
        let shown = of.iter().find(|proof| !proof.held).or(of.last()).map_or("", |p| &p.text);
        format!("{layer}: held in {held} of {} launches, for example: {shown}", of.len())
    };
    layers.into_iter().map(sentence).collect()
}

pub fn not_proven(evidence: &Evidence<'_>, variant: usize) -> Vec<RunGuard> {
    let launches = &evidence.totals[variant].launches;
    let broken = launches.iter().flat_map(|launch| &launch.proofs).find(|proof| !proof.held);
    broken.map_or_else(Vec::new, |proof| {
        let text = format!("{} is not proven to be in the path: {}", proof.layer, proof.text);
        guard(Code::NotProven, Severity::Void, Some(evidence.name(variant)), text)
    })
}
