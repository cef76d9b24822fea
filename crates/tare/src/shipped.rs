//! Experiments that the program carries, so that it needs no checkout.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use tare_model::Failure;

use crate::similar::closest;

/// All files of `experiments/`: their paths below it, and their contents.
const FILES: &[(&str, &str)] = include!(concat!(env!("OUT_DIR"), "/experiments.rs"));

/// An experiment of the program's own, and its file.
#[derive(Clone, Copy, Debug)]
pub struct Shipped {
    pub name: &'static str,
    pub text: &'static str,
}

/// Lists the experiments in the order of their names.
pub fn all() -> impl Iterator<Item = Shipped> {
    FILES.iter().filter_map(|(path, text)| {
        let name = path.strip_suffix(".toml").filter(|name| !name.contains('/'))?;
        Some(Shipped { name, text })
    })
}

/// Returns the experiment if the text is a name, not a path. A file with such a name in the
/// current folder is not looked at: another user may have put it there.
pub fn named(text: &Path) -> Option<Result<Shipped, Failure>> {
    let name = text.to_str().filter(|text| !text.contains(['/', '.']))?;
    Some(all().find(|shipped| shipped.name == name).ok_or_else(|| {
        let meant = closest(name, all().map(|shipped| shipped.name));
        let meant = meant.map_or(String::new(), |meant| format!("; did you mean '{meant}'?"));
        Failure::usage(format!(
            "no ready-made experiment is called '{name}'{meant} (tare run --list lists them; a \
             file's path has a '.' or a '/')"
        ))
    }))
}

impl Shipped {
    /// Returns the files that come with it, in folders beside it.
    pub fn companions(&self) -> impl Iterator<Item = (&'static str, &'static str)> {
        let names = |folder: &str| {
            ["\"", "/"].iter().any(|before| self.text.contains(&format!("{before}{folder}/")))
        };
        let of_it = move |path: &str| path.split_once('/').is_some_and(|(folder, _)| names(folder));
        FILES.iter().copied().filter(move |(path, _)| of_it(path))
    }

    /// Returns what is missing beside an installed program, if that does not suffice.
    pub fn needs_sources(&self) -> Option<String> {
        let texts = self.companions().map(|(_, text)| text).chain([self.text]);
        let builds = texts.into_iter().any(|text| text.contains("target/shop"));
        builds.then(|| format!("{} needs programs of tare's sources: make shop", self.name))
    }

    /// Writes the experiment and the files that come with it into the folder; returns their paths.
    /// Replaces no file.
    pub fn copy_to(&self, folder: &Path) -> Result<Vec<PathBuf>, Failure> {
        let own = format!("{}.toml", self.name);
        let beside = self.companions().map(|(path, text)| (folder.join(path), text));
        let all: BTreeMap<PathBuf, &str> = beside.chain([(folder.join(own), self.text)]).collect();
        // Folders are new as well: files in another user's could be replaced before they are run.
        let folders: BTreeSet<PathBuf> = all
            .keys()
            .filter_map(|path| path.parent())
            .filter(|parent| *parent != folder)
            .map(Path::to_owned)
            .collect();
        let exists = |path: &&PathBuf| path.symlink_metadata().is_ok();
        if let Some(path) = folders.iter().chain(all.keys()).find(exists) {
            let path = path.display();
            let text = format!("{path} exists and is not replaced: copy into another folder");
            return Err(Failure::usage(text));
        }
        let write = || -> Result<(), Failure> {
            for path in &folders {
                std::fs::create_dir(path).map_err(|error| Failure::file("make", path, error))?;
            }
            for (path, text) in &all {
                write_new(path, text).map_err(|error| Failure::file("write", path, error))?;
            }
            Ok(())
        };
        write().inspect_err(|_| {
            // Nothing of this existed before.
            all.keys().for_each(|path| drop(std::fs::remove_file(path)));
            folders.iter().for_each(|path| drop(std::fs::remove_dir(path)));
        })?;
        Ok(all.into_keys().collect())
    }
}

fn write_new(path: &Path, text: &str) -> std::io::Result<()> {
    // Scripts say with which program they run.
    let mode = if text.starts_with("#!") { 0o755 } else { 0o644 };
    let mut file =
        std::fs::OpenOptions::new().write(true).create_new(true).mode(mode).open(path)?;
    file.write_all(text.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn experiments_come_with_their_files() {
        let files = |name: &str| -> Vec<&str> {
            let shipped = all().find(|shipped| shipped.name == name).unwrap();
            shipped.companions().map(|(path, _)| path).collect()
        };
        assert!(files("nginx-access-log").is_empty() && files("startup").is_empty());
        assert_eq!(files("shop"), ["shop/deploy"]);
        assert_eq!(files("startup-procedures"), ["startup/place", "startup/place.toml"]);
        assert!(files("deploy-shop").contains(&"deploy-shop/site"));
        assert!(FILES.iter().all(|(path, _)| !path.ends_with(".rs")), "programs are built");
    }

    #[test]
    fn names_are_words_and_paths_are_not() {
        let named = |text: &str| super::named(Path::new(text));
        assert_eq!(named("vm").unwrap().unwrap().name, "vm");
        for path in ["vm.toml", "./vm", "a/vm", "/vm"] {
            assert!(named(path).is_none(), "{path}");
        }
        let unknown = named("nginx-acces-log").unwrap().unwrap_err().to_string();
        assert!(unknown.contains("did you mean 'nginx-access-log'?"), "{unknown}");
        let unlike = named("xyz").unwrap().unwrap_err().to_string();
        assert!(!unlike.contains("did you mean"), "{unlike}");
    }
}
