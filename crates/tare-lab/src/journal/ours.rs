//! Names of what tare makes.

use std::path::Path;

/// Everything tare makes bears it, and nothing else is ever removed.
pub const PREFIX: &str = "tare-";

/// Everything that tare makes in a cluster bears this label, too.
pub const OURS: (&str, &str) = ("app.kubernetes.io/managed-by", "tare");

pub fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

pub fn has_our_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| is_ours(&name.to_string_lossy()))
}
