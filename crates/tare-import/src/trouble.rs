//! Why a file cannot be imported.

use tare_model::plain;

/// Why a file cannot be imported, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trouble {
    pub line: u32,
    pub why: String,
}

impl Trouble {
    pub fn at(line: usize, why: impl Into<String>) -> Self {
        Self { line: u32::try_from(line).unwrap_or(u32::MAX), why: printable(&why.into()) }
    }
}

/// Makes text from files safe to print: one line, without control characters.
pub fn printable(text: &str) -> String {
    plain::line(text).into_owned()
}

/// Reports more than `most` bytes. `bytes` begin at `first_line` of their file.
pub fn too_long(bytes: &[u8], first_line: usize, most: usize, kind: &str) -> Trouble {
    let line = first_line + bytes[..most].iter().filter(|byte| **byte == b'\n').count();
    let mebibytes = most >> 20;
    Trouble::at(line, format!("goes on after {mebibytes} MiB, the most that is read of {kind}"))
}
