//! Other tools' outputs, from anywhere: whatever comes, there is an answer, and its report can be
//! written.

use tare_import::{FileDrafts, assemble, read};
use tare_report::formats::{Document, Form};
use tare_report::import::ImportDocument;

pub fn check(bytes: &[u8]) {
    let found = match read("input", bytes) {
        Ok(found) => found,
        Err(trouble) => {
            let lines = bytes.iter().filter(|byte| **byte == b'\n').count() + 1;
            assert!((1..=lines + 1).contains(&(trouble.line as usize)), "{trouble:?}");
            let why = &trouble.why;
            assert!(!why.is_empty() && why.len() < 1000 && !why.contains(char::is_control));
            return;
        }
    };
    let file = "input".to_owned();
    let import = assemble("input", vec![FileDrafts { file, found, ..FileDrafts::default() }]);
    // It is kept as JSON, and read back.
    let again = serde_json::from_str(&import.json());
    assert_eq!(again.ok().as_ref(), Some(&import));
    let document = ImportDocument::new(import, 1, 0, "0");
    for form in [Form::Text, Form::Markdown, Form::Csv, Form::Html] {
        assert!(document.render(form).is_ok());
    }
}
