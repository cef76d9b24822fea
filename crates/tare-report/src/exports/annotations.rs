//! Writes the answer of a check as a message that GitHub shows beside a change: a workflow command.

use crate::check::{CheckDocument, Outcome};

pub fn render(document: &CheckDocument) -> String {
    let level = match document.outcome {
        Outcome::Worse | Outcome::RepliesDiffer => "error",
        Outcome::Undecided | Outcome::Unfit | Outcome::Void => "warning",
        Outcome::NotWorse => "notice",
    };
    let title = format!("tare check {}", document.name);
    let (title, sentence) = (property(&title), data(&document.sentence));
    format!("::{level} title={title}::{sentence}\n")
}

/// Escapes a message, so that it stays one command.
fn data(text: &str) -> String {
    text.replace('%', "%25").replace('\r', "%0D").replace('\n', "%0A")
}

/// Escapes the value of a property, which a comma or a colon would end.
fn property(text: &str) -> String {
    data(text).replace(':', "%3A").replace(',', "%2C")
}
