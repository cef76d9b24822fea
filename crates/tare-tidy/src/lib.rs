//! House rules of this repository. Tests check them; the program prints what is only advice.
//!
//! [`sources`] checks single files, [`arrows`] dependencies between our crates, [`circles`] files
//! that use each other. The rules are values, and the tests feed each of them a case that breaks
//! it.

#![forbid(unsafe_code)]

pub mod arrows;
pub mod circles;
pub mod skips;
pub mod sources;

use std::path::{Path, PathBuf};

/// The root of the repository.
pub fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.ancestors().nth(2).unwrap_or(here).to_path_buf()
}
