//! Lists the experiments that the program carries, for `src/shipped.rs`.

use std::fmt::Write;
use std::path::{Path, PathBuf};
use std::{env, fs};

fn main() {
    println!("cargo::rerun-if-env-changed=TARE_COMMIT");
    let experiments = Path::new(&variable("CARGO_MANIFEST_DIR")).join("../../experiments");
    let experiments = experiments.canonicalize().expect("experiments/ is beside crates/");
    println!("cargo::rerun-if-changed={}", experiments.display());
    let mut files = Vec::new();
    collect(&experiments, &mut files);
    files.sort();
    let mut list = String::from("&[\n");
    for file in files {
        let name = file.strip_prefix(&experiments).expect("below experiments/");
        writeln!(list, "({:?}, include_str!({:?})),", name, file).expect("a string");
    }
    list.push_str("]\n");
    let out = Path::new(&variable("OUT_DIR")).join("experiments.rs");
    fs::write(out, list).expect("OUT_DIR can be written to");
    println!("cargo::rustc-env=TARE_TARGET={}", variable("TARGET"));
    let version = variable("CARGO_PKG_VERSION");
    let version = match env::var("TARE_COMMIT") {
        Ok(commit) => format!("{version} ({commit})"),
        Err(_) => version,
    };
    println!("cargo::rustc-env=TARE_VERSION={version}");
}

/// Collects all files below the folder, but not those of a program to build.
fn collect(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).expect("a folder of experiments") {
        let path = entry.expect("a folder of experiments").path();
        match path.is_dir() {
            true if path.join("Cargo.toml").exists() => {}
            true => collect(&path, files),
            false => files.push(path),
        }
    }
}

fn variable(name: &str) -> String {
    env::var(name).unwrap_or_else(|_| panic!("cargo sets {name}"))
}
