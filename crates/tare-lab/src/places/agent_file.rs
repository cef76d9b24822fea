//! Finds the agent's program.

use std::path::{Path, PathBuf};

use tare_io::owned::own_folder;

use crate::machine::programs;
use tare_model::Failure;

/// Finds the static program `tare-agent`: `$TARE_AGENT`, or else beside or above tare.
pub fn find() -> Result<PathBuf, Failure> {
    if let Some(given) = std::env::var_os("TARE_AGENT").filter(|path| !path.is_empty()) {
        let path = PathBuf::from(given);
        return match is_static(&path) {
            Some(true) => Ok(path),
            Some(false) => Err(Failure::environment(format!(
                "TARE_AGENT={}: it is linked dynamically, and places may lack its libraries: make \
                 agent",
                path.display()
            ))),
            None => Err(Failure::usage(format!(
                "TARE_AGENT={}: not a program of Linux",
                path.display()
            ))),
        };
    }
    let own = own_folder().unwrap_or_default();
    // tare is target/release/tare, target/debug/tare, target/debug/deps/TEST, or installed.
    let above: Vec<&Path> = own.ancestors().take(3).collect();
    let mut all: Vec<PathBuf> = above.iter().map(|f| f.join("agent/tare-agent")).collect();
    all.extend(above.first().map(|folder| folder.join("tare-agent")));
    all.extend(above.get(1).map(|folder| folder.join("lib/tare/tare-agent")));
    let is_agent = |path: &PathBuf| is_static(path) == Some(true) && programs::is_ours(path);
    all.into_iter().find(is_agent).ok_or_else(|| {
        let text = "the agent that runs inside places is not built: make agent";
        Failure::environment(text)
    })
}

/// Returns a file's SHA-256 in hexadecimal.
pub fn hash(path: &Path) -> Result<String, Failure> {
    let bytes = std::fs::read(path).map_err(|e| Failure::file("read", path, e))?;
    let hash = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &bytes);
    Ok(hash.as_ref().iter().map(|byte| format!("{byte:02x}")).collect())
}

const ELF_64: &[u8] = b"\x7fELF\x02";
const PROGRAM_HEADER_BYTES: usize = 56;
const PT_INTERP: u32 = 3;

/// Whether an ELF file needs no dynamic loader; `None` if it is not a 64-bit ELF file.
fn is_static(path: &Path) -> Option<bool> {
    use std::io::Read;
    let mut head = Vec::new();
    std::fs::File::open(path).ok()?.take(4096).read_to_end(&mut head).ok()?;
    let number = |at: usize, bytes: usize| {
        let bytes = head.get(at..at + bytes)?;
        Some(bytes.iter().rev().fold(0u64, |n, byte| n << 8 | u64::from(*byte)) as usize)
    };
    if !head.starts_with(ELF_64) {
        return None;
    }
    let (start, n) = (number(32, 8)?, number(56, 2)?);
    let headers = (0..n).map(|i| number(start + i * PROGRAM_HEADER_BYTES, 4));
    Some(headers.flatten().all(|kind| kind as u32 != PT_INTERP))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn static_programs_are_told_from_others() {
        assert_eq!(is_static(Path::new("/bin/sh")), Some(false));
        assert_eq!(is_static(Path::new("/etc/passwd")), None);
        assert_eq!(is_static(Path::new("/nothing")), None);
    }
}
