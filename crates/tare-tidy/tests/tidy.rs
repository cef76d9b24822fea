//! The repository keeps its own rules.

#![allow(clippy::unwrap_used)] // In a test a panic is the message.

use std::collections::BTreeMap;

use tare_tidy::{arrows, circles, root, sources};

#[test]
fn sources_keep_the_house_rules() {
    let files = sources::files(&root());
    assert!(files.len() > 30, "only {} files found", files.len());
    let faults = sources::in_all(&root(), sources::faults).unwrap();
    assert!(faults.is_empty(), "\n{}\n", faults.join("\n"));
}

#[test]
fn crates_build_on_those_below() {
    let mut complaints = Vec::new();
    let crates = std::fs::read_dir(root().join("crates")).unwrap();
    let folders = crates.map(|entry| entry.unwrap().path());
    for folder in folders.chain([root().join("experiments/shop/program")]) {
        let manifest = std::fs::read_to_string(folder.join("Cargo.toml")).unwrap();
        complaints.extend(arrows::check(&manifest).unwrap());
    }
    assert!(complaints.is_empty(), "\n{}\n", complaints.join("\n"));
}

/// Crates without circles between their files; the others should follow.
const WITHOUT_CIRCLES: [&str; 4] = ["tare-import", "tare-lab", "tare-run", "tare-store"];

#[test]
fn files_do_not_use_each_other_in_circles() {
    for name in WITHOUT_CIRCLES {
        let folder = root().join("crates").join(name).join("src");
        let files = sources::files(&root()).into_iter().filter(|path| path.starts_with(&folder));
        let of_crate: BTreeMap<String, String> = files
            .filter_map(|path| {
                let module = path.strip_prefix(&folder).unwrap().with_extension("");
                let module = module.display().to_string().replace('/', "::");
                let is_module = module != "lib" && !module.split("::").any(|part| part == "tests");
                is_module.then(|| (module, std::fs::read_to_string(path).unwrap()))
            })
            .collect();
        assert!(of_crate.len() > 4, "{name}: {} modules", of_crate.len());
        let complaints = circles::check(&of_crate);
        assert!(complaints.is_empty(), "{name}:\n{}\n", complaints.join("\n"));
    }
}

#[test]
fn every_crate_and_command_is_documented() {
    let root = root();
    let architecture = std::fs::read_to_string(root.join("docs/architecture.md")).unwrap();
    for entry in std::fs::read_dir(root.join("crates")).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(architecture.contains(&format!("`{name}`")), "docs/architecture.md lacks {name}");
    }
    let tasks = std::fs::read_to_string(root.join("docs/tasks.md")).unwrap();
    for command in [
        "tare compare",
        "tare run",
        "tare check",
        "tare report",
        "tare runs",
        "tare load",
        "tare wrk",
        "tare qperf",
        "tare net",
        "tare sys",
        "tare steps",
        "tare filter",
        "tare target",
        "tare import",
        "tare doctor",
        "tare clean",
    ] {
        assert!(tasks.contains(command), "docs/tasks.md lacks {command}");
    }
}
