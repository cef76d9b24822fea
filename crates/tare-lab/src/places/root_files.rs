//! Builds a root file system from this machine's programs and the libraries they need.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use tare_io::DurationNs;

use crate::machine::commands::run;
use crate::machine::programs;
use tare_model::Failure;

/// The folder of a root file system.
pub struct Root<'a>(pub &'a Path);

/// Folders that servers expect; `/tmp` and `/run` can be written to.
const FOLDERS: [&str; 8] = ["dev", "proc", "sys", "tmp", "run", "var/log", "var/run", "etc"];
/// Links in the root of systems with a merged /usr, such as /lib to usr/lib.
const MERGED: [&str; 4] = ["bin", "sbin", "lib", "lib64"];
/// Users in a place: root, and those that servers switch to.
const PASSWD: &str = "root:x:0:0:root:/:/bin/sh\nwww-data:x:33:33:www-data:/:/bin/false\n\
                      nobody:x:65534:65534:nobody:/:/bin/false\n";
const GROUP: &str = "root:x:0:\nwww-data:x:33:\nnogroup:x:65534:\n";
const HOSTS: &str = "127.0.0.1 localhost tare\n";
const TIMEOUT: DurationNs = DurationNs::from_secs(10);

impl Root<'_> {
    /// Fills the folder with the agent and the files that servers need.
    pub fn fill(&self, agent: &Path, needs: &[PathBuf]) -> Result<(), Failure> {
        for folder in FOLDERS {
            self.folder(Path::new(folder))?;
        }
        for name in MERGED {
            if let Ok(target) = fs::read_link(Path::new("/").join(name)) {
                self.folder(&target)?;
                let link = self.0.join(name);
                if !link.exists() {
                    symlink(&target, &link).map_err(|e| Failure::file("make", &link, e))?;
                }
            }
        }
        for (name, text) in [("passwd", PASSWD), ("group", GROUP), ("hosts", HOSTS)] {
            let path = self.0.join("etc").join(name);
            fs::write(&path, text).map_err(|e| Failure::file("write", &path, e))?;
        }
        for path in closure(needs)? {
            self.copy(&path, &path)?;
            // If the path contains links that this root lacks, copy the file to that path as well.
            let named = self.0.join(path.strip_prefix("/").unwrap_or(&path));
            if !named.exists() {
                let folder = named.parent().unwrap_or(self.0);
                fs::create_dir_all(folder).map_err(|e| Failure::file("make", folder, e))?;
                fs::copy(&path, &named).map_err(|e| Failure::file("copy", &path, e))?;
            }
        }
        self.copy(agent, Path::new(AGENT))
    }

    /// Creates a folder and its parents, following the links of this machine's root.
    fn folder(&self, path: &Path) -> Result<PathBuf, Failure> {
        let whole = Path::new("/").join(path);
        let real = fs::canonicalize(&whole).unwrap_or(whole);
        let inside = self.0.join(real.strip_prefix("/").unwrap_or(&real));
        fs::create_dir_all(&inside).map_err(|e| Failure::file("make", &inside, e))?;
        Ok(inside)
    }

    fn copy(&self, from: &Path, to: &Path) -> Result<(), Failure> {
        let folder = self.folder(to.parent().unwrap_or(Path::new("/")))?;
        let to = folder.join(to.file_name().unwrap_or_default());
        if to.exists() {
            return Ok(());
        }
        fs::copy(from, &to).map(drop).map_err(|e| Failure::file("copy", from, e))
    }
}

/// The agent's path in a place.
pub const AGENT: &str = "/tare-agent";

/// Returns files together with all libraries that they are linked with.
fn closure(needs: &[PathBuf]) -> Result<BTreeSet<PathBuf>, Failure> {
    let mut all = BTreeSet::new();
    programs::need(&["ldd"], "libc-bin")?;
    let mut files = Vec::new();
    for need in needs {
        match need.is_dir() {
            true => files_below(need, &mut files)?,
            false => files.push(need.clone()),
        }
    }
    for need in files {
        if !need.is_file() {
            let text = format!("{} is not a file, and the place needs it", need.display());
            return Err(Failure::environment(text));
        }
        all.insert(need.clone());
        if !is_elf(&need) {
            continue;
        }
        let listed = run(&["ldd", &need.display().to_string()], TIMEOUT);
        // ldd fails for static programs, which have no libraries.
        if listed.worked {
            for line in listed.out.lines() {
                match library(line) {
                    Library::At(path) => {
                        all.insert(path.into());
                    }
                    Library::Missing(name) => {
                        let text = format!("{} needs {name}, which is missing", need.display());
                        return Err(Failure::environment(text));
                    }
                    Library::None => {}
                }
            }
        }
    }
    // glibc loads libgcc_s only when a thread ends, so ldd does not list it.
    let opened = all.iter().filter(|path| path.ends_with("libc.so.6"));
    let opened: Vec<PathBuf> = opened.map(|path| path.with_file_name("libgcc_s.so.1")).collect();
    all.extend(opened.into_iter().filter(|path| path.is_file()));
    Ok(all)
}

/// Limit of files copied into a place; a larger folder was probably named by mistake.
const FILES_MAX: usize = 20_000;

fn files_below(folder: &Path, files: &mut Vec<PathBuf>) -> Result<(), Failure> {
    let entries = fs::read_dir(folder).map_err(|e| Failure::file("read", folder, e))?;
    for entry in entries.flatten() {
        let path = entry.path();
        // Links to folders are not followed, since they may form a cycle.
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => files_below(&path, files)?,
            Ok(_) if path.is_file() => files.push(path),
            _ => {}
        }
        if files.len() > FILES_MAX {
            let text = format!("{}: more than {FILES_MAX} files are in it", folder.display());
            return Err(Failure::usage(text));
        }
    }
    Ok(())
}

fn is_elf(path: &Path) -> bool {
    use std::io::Read;
    let mut magic = [0; 4];
    fs::File::open(path).and_then(|mut file| file.read_exact(&mut magic)).is_ok()
        && magic == *b"\x7fELF"
}

#[derive(Debug, PartialEq, Eq)]
enum Library<'a> {
    At(&'a str),
    Missing(&'a str),
    None,
}

/// Reads `libc.so.6 => /lib/libc.so.6 (0x…)`, `/lib64/ld-linux.so.2 (0x…)`, `x => not found`.
fn library(line: &str) -> Library<'_> {
    let line = line.trim();
    let (name, target) = line.split_once(" => ").unwrap_or(("", line));
    let target = target.split(" (0x").next().unwrap_or_default();
    match target {
        "not found" => Library::Missing(name),
        path if path.starts_with('/') => Library::At(path),
        _ => Library::None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_of_ldd_are_read() {
        let at = Library::At;
        assert_eq!(library("\tlinux-vdso.so.1 (0x00007ffe)"), Library::None);
        assert_eq!(library("\tlibc.so.6 => /lib/libc.so.6 (0x00007f)"), at("/lib/libc.so.6"));
        assert_eq!(library("\t/lib64/ld-linux.so.2 (0x00007f)"), at("/lib64/ld-linux.so.2"));
        assert_eq!(library("\tlibx.so => not found"), Library::Missing("libx.so"));
        assert_eq!(library("\tstatically linked"), Library::None);
    }

    #[test]
    fn a_program_comes_with_its_libraries() {
        let all = closure(&["/bin/sh".into()]).unwrap();
        assert!(all.iter().any(|path| path.to_string_lossy().contains("libc.so")), "{all:?}");
        let folder = closure(&[env!("CARGO_MANIFEST_DIR").into()]).unwrap();
        assert!(folder.contains(Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/src/lib.rs"))));
        let missing = closure(&["/no/such".into()]).unwrap_err();
        assert!(missing.to_string().contains("/no/such is not a file"));
    }
}
