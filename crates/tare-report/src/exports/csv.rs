//! Quotes cells of CSV.

/// Quotes as in RFC 4180; a cell that a spreadsheet would take for a formula gets a leading quote.
pub fn quote(text: &str) -> String {
    let text = match text.chars().next() {
        Some('=' | '+' | '-' | '@') => format!("'{text}"),
        _ => text.to_owned(),
    };
    match text.contains([',', '"', '\n', '\r']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text,
    }
}
