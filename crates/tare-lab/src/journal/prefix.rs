//! Names of what tare creates.

use std::path::Path;

/// Prefix of everything that tare creates; nothing without it is ever removed.
pub const PREFIX: &str = "tare-";

/// Label of everything that tare creates in a cluster.
pub const OURS: (&str, &str) = ("app.kubernetes.io/managed-by", "tare");

pub fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

pub fn has_our_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| is_ours(&name.to_string_lossy()))
}
