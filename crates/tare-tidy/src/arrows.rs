//! Checks dependencies between our crates: only lower floors are allowed, and not all of those.

use std::collections::BTreeMap;

use serde::Deserialize;

/// Floors of crates, from the bottom up: a crate may depend only on crates of lower floors.
const FLOORS: [&[&str]; 8] = [
    &["tare-bypass", "tare-io", "tare-shop", "tare-tidy"],
    &["tare-model"],
    &["tare-stats", "tare-store", "tare-load", "tare-kube"],
    &["tare-guards"],
    &["tare-import", "tare-lab", "tare-target", "tare-wrk"],
    &["tare-agent", "tare-report", "tare-run", "tare-steps"],
    &["tare-results", "tare-sim"],
    &["tare"],
];

/// Crates that a crate must not depend on, although they are on lower floors.
const APART: [(&str, &[&str]); 8] = [
    ("tare-kube", &["tare-model"]),
    ("tare-stats", &["tare-load", "tare-store"]),
    ("tare-load", &["tare-stats", "tare-store"]),
    ("tare-lab", &["tare-stats", "tare-store"]),
    ("tare-guards", &["tare-load", "tare-store"]),
    ("tare-import", &["tare-load", "tare-store"]),
    ("tare-report", &["tare-load", "tare-store", "tare-lab"]),
    ("tare-results", &["tare-load", "tare-lab", "tare-run"]),
];

/// Dependencies allowed to one crate only: elsewhere their scheduler would disturb measurements.
const EXCLUSIVE_DEPENDENCIES: [(&str, &str); 3] =
    [("tokio", "tare-kube"), ("kube", "tare-kube"), ("k8s-openapi", "tare-kube")];

/// The part of a manifest that is checked.
#[derive(Deserialize)]
struct Manifest {
    package: Package,
    #[serde(default)]
    dependencies: BTreeMap<String, toml::Value>,
}

#[derive(Deserialize)]
struct Package {
    name: String,
}

fn floor(name: &str) -> Option<usize> {
    FLOORS.iter().position(|floor| floor.contains(&name))
}

/// Returns complaints about a crate's manifest.
pub fn check(manifest: &str) -> Result<Vec<String>, toml::de::Error> {
    let Manifest { package: Package { name }, dependencies } = toml::from_str(manifest)?;
    let Some(own) = floor(&name) else {
        return Ok(vec![format!("{name}: it has no floor in tare-tidy/src/arrows.rs")]);
    };
    let apart = APART.iter().find(|(other, _)| *other == name).map_or(&[][..], |(_, all)| all);
    let ours = dependencies.keys().filter(|dependency| dependency.starts_with("tare-"));
    let wrong = ours.filter(|dependency| {
        floor(dependency).is_none_or(|floor| floor >= own) || apart.contains(&dependency.as_str())
    });
    let others = EXCLUSIVE_DEPENDENCIES
        .iter()
        .filter(|(dependency, owner)| *owner != name && dependencies.contains_key(*dependency));
    let wrong = wrong.map(String::as_str).chain(others.map(|(dependency, _)| *dependency));
    Ok(wrong.map(|dependency| format!("{name} must not build on {dependency}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arrows_that_point_up_or_aside_are_seen() {
        let with = |name: &str, dependency: &str| {
            let manifest = format!(
                "[package]\nname = \"{name}\"\n[dependencies]\n{dependency}.workspace = true\n"
            );
            check(&manifest).unwrap()
        };
        assert_eq!(with("tare-report", "tare-stats"), Vec::<String>::new());
        assert_eq!(with("tare-kube", "tokio"), Vec::<String>::new());
        assert_eq!(with("tare-lab", "tokio"), ["tare-lab must not build on tokio"]);
        assert_eq!(with("tare-stats", "tare-report"), ["tare-stats must not build on tare-report"]);
        assert_eq!(with("tare-lab", "tare-stats"), ["tare-lab must not build on tare-stats"]);
        assert_eq!(with("tare-lab", "tare-target"), ["tare-lab must not build on tare-target"]);
        assert!(with("tare-new", "tare-io")[0].contains("has no floor"));
    }
}
