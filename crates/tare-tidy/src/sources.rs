//! Rules for our own source files: faults, which fail the build, and advice, which is only printed.

use std::path::{Path, PathBuf};

/// Most lines of code in a file, not counting its tests.
const FILE_LINES: usize = 600;
/// Most lines of a function, from its signature to its closing brace.
const FUNCTION_LINES: usize = 70;
const COLUMNS: usize = 100;

/// Calls and words that have a better replacement here.
const BANNED: [(&str, &str); 7] = [
    ("Instant::now()", "one clock: take `now` from the reactor"),
    ("SystemTime::now()", "use tare_io::time::wall_unix_ms"),
    ("thread::sleep", "wait for what you wait for; sleeping makes tests slow and flaky"),
    ("dbg!(", "left over from debugging"),
    ("FIXME", "fix it, or file an issue"),
    ("todo!(", "do it, or file an issue"),
    ("unimplemented!(", "do it, or file an issue"),
];

/// Calls that have a better replacement in tests.
const BANNED_IN_TESTS: [(&str, &str); 1] =
    [("park_timeout", "wait for what you wait for: tests/common/wait.rs")];

/// Files that may contain banned words, with the reason.
const ALLOWED: [(&str, &str); 3] = [
    ("crates/tare/tests/common/wait.rs", "waits for all others"),
    ("crates/tare-tidy/src/sources.rs", "names the words to ban them"),
    ("crates/tare-io/src/time.rs", "the one clock"),
];

/// Paths that may contain `unsafe`: tare-io, and filter libraries, which have a C interface.
const UNSAFE_CRATES: [&str; 2] = ["crates/tare-io/src/", "filters/"];

/// Returns the faults of one Rust file as `path:line: what`.
pub fn faults(path: &str, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut complain = |line: usize, what: String| found.push(format!("{path}:{line}: {what}"));
    let exempt = ALLOWED.iter().any(|(allowed, _)| *allowed == path);
    let more = if is_test(path) { &BANNED_IN_TESTS[..] } else { &[] };
    for (at, line) in text.lines().enumerate() {
        for (word, instead) in BANNED.iter().chain(more) {
            if line.contains(word) && !exempt {
                complain(at + 1, format!("'{word}': {instead}"));
            }
        }
        let is_unsafe = line.contains("unsafe {") || line.contains("unsafe fn");
        let allowed = UNSAFE_CRATES.iter().any(|crate_| path.starts_with(crate_));
        if is_unsafe && !allowed && path.contains("/src/") && !exempt {
            complain(at + 1, "unsafe outside tare-io".into());
        }
    }
    found
}

fn is_test(path: &str) -> bool {
    path.contains("/tests/") || path.ends_with("tests.rs")
}

/// Returns advice on one Rust file as `path:line: what`. Tests get none.
pub fn advice(path: &str, text: &str) -> Vec<String> {
    if is_test(path) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut advise = |line: usize, what: String| found.push(format!("{path}:{line}: {what}"));
    if !text.starts_with("//!") && path.contains("/src/") {
        advise(1, "starts without a line that says what the file is for (//!)".into());
    }
    let code: Vec<&str> = text.lines().take_while(|line| !line.contains("#[cfg(test)]")).collect();
    if code.len() > FILE_LINES {
        let n = code.len();
        advise(n, format!("{n} lines of code, over {FILE_LINES}: can the file be split?"));
    }
    for (at, line) in code.iter().enumerate() {
        if line.chars().count() > COLUMNS && !line.contains('"') {
            advise(at + 1, format!("over {COLUMNS} columns"));
        }
    }
    for (line, name, length) in functions(&code.join("\n")) {
        if length > FUNCTION_LINES {
            advise(line, format!("{name} has {length} lines, over {FUNCTION_LINES}"));
        }
    }
    found
}

/// Returns everything that `look` finds in the files of a repository.
pub fn in_all(
    root: &Path,
    look: impl Fn(&str, &str) -> Vec<String>,
) -> std::io::Result<Vec<String>> {
    let mut found = Vec::new();
    for path in files(root) {
        let shown = path.strip_prefix(root).unwrap_or(&path).display().to_string();
        found.extend(look(&shown, &std::fs::read_to_string(&path)?));
    }
    Ok(found)
}

/// Returns line, name and length of each function in a formatted file. A function ends at the
/// closing brace with the indentation of its signature.
fn functions(text: &str) -> Vec<(usize, String, usize)> {
    let lines: Vec<&str> = text.lines().collect();
    let mut found = Vec::new();
    for (at, line) in lines.iter().enumerate() {
        let trimmed = line.trim_start();
        let indent = line.len() - trimmed.len();
        let words: Vec<&str> = trimmed.split_whitespace().collect();
        let Some(position) = words.iter().position(|word| *word == "fn").filter(|p| *p <= 4) else {
            continue;
        };
        let name = words.get(position + 1).and_then(|word| word.split(['(', '<']).next());
        let closing = format!("{}}}", " ".repeat(indent));
        // Skips declarations without a body, and bodies on one line.
        let declared = lines[at..].iter().find(|line| line.ends_with([';', '{', '}']));
        if declared.is_some_and(|line| line.ends_with([';', '}'])) {
            continue;
        }
        let end = lines[at..].iter().position(|line| *line == closing);
        if let (Some(name), Some(end)) = (name, end) {
            found.push((at + 1, name.to_owned(), end + 1));
        }
    }
    found
}

/// Returns all Rust files below `crates/`, `experiments/` and `fuzz/`.
pub fn files(root: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = ["crates", "experiments", "fuzz"].map(|name| root.join(name)).to_vec();
    while let Some(folder) = folders.pop() {
        let Ok(entries) = std::fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let path = entry.path();
            if path.is_dir() && path.file_name().is_none_or(|name| name != "target") {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_rule_can_fail() {
        for (text, fault) in [
            ("//! x\nlet now = Instant::now();\n", "one clock"),
            ("//! x\n// FIXME later\n", "file an issue"),
            ("//! x\nfn f() { unsafe { g() } }\n", "unsafe outside tare-io"),
        ] {
            let found = faults("crates/tare/src/x.rs", text);
            assert!(found.iter().any(|line| line.contains(fault)), "{fault}: {found:?}");
            assert_eq!(advice("crates/tare/src/x.rs", text), Vec::<String>::new());
        }
        let long_function = format!("//! x\nfn f() {{\n{}}}\n", "    g();\n".repeat(70));
        let long_file = format!("//! x\n{}", "const A: u8 = 0;\n".repeat(600));
        for (text, advised) in [
            ("fn f() {}\n", "starts without a line"),
            (long_function.as_str(), "f has 72 lines, over 70"),
            (long_file.as_str(), "601 lines of code, over 600"),
            (&format!("//! x\n// {}\n", "y".repeat(100)), "over 100 columns"),
        ] {
            let found = advice("crates/tare/src/x.rs", text);
            assert!(found.iter().any(|line| line.contains(advised)), "{advised}: {found:?}");
            assert_eq!(faults("crates/tare/src/x.rs", text), Vec::<String>::new());
            assert_eq!(advice("crates/tare/src/tests.rs", text), Vec::<String>::new());
        }
        let waits = "std::thread::park_timeout(rest);\n";
        assert_eq!(faults("crates/tare/src/x.rs", waits), Vec::<String>::new());
        assert_eq!(faults("crates/tare/tests/x/y.rs", waits).len(), 1);
        assert_eq!(faults("crates/tare/tests/common/wait.rs", waits), Vec::<String>::new());
        let good = "//! Good.\n\nfn f() {}\n";
        assert_eq!(faults("crates/tare/src/x.rs", good), Vec::<String>::new());
        assert_eq!(advice("crates/tare/src/x.rs", good), Vec::<String>::new());
    }
}
