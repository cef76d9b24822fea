//! Reports tests that cannot run on this machine, and why; `scripts/check-skips` counts them.

use std::fs::OpenOptions;
use std::io::Write;

/// Prints that this thread's test was not run, and appends that to the file `$TARE_SKIPS`.
pub fn not_run(why: &str) {
    let thread = std::thread::current();
    let line = format!("{}: {why}", thread.name().unwrap_or("a test"));
    eprintln!("not run: {line}");
    let Some(path) = std::env::var_os("TARE_SKIPS").filter(|path| !path.is_empty()) else { return };
    let file = OpenOptions::new().create(true).append(true).open(&path);
    // A single write, because other tests append at the same time.
    let written = file.and_then(|mut file| file.write_all(format!("{line}\n").as_bytes()));
    assert!(written.is_ok(), "{}: {written:?}", path.display());
}
