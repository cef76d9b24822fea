//! Runs the fuzz targets on their stored inputs, so that fixed failures stay fixed.

use std::path::Path;

#[path = "../../../../fuzz/src/http2.rs"]
mod http2;
#[path = "../../../../fuzz/src/imports.rs"]
mod imports;
#[path = "../../../../fuzz/src/messages.rs"]
mod messages;
#[path = "../../../../fuzz/src/replies.rs"]
mod replies;

/// Calls `check` on each input of one corpus.
fn replay(name: &str, check: impl Fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(name);
    let mut replayed = false;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        println!("{}", path.display());
        check(&std::fs::read(path).unwrap());
        replayed = true;
    }
    assert!(replayed, "{name}: no input is kept");
}

#[test]
fn kept_http2_inputs_end_the_same_however_they_are_cut() {
    replay("http2", http2::check);
}

#[test]
fn kept_imports_are_answered() {
    replay("imports", imports::check);
}

#[test]
fn kept_messages_read_the_same_once_written_again() {
    replay("messages", messages::check);
}

#[test]
fn kept_replies_are_the_same_however_they_are_cut() {
    replay("replies", replies::check);
}
