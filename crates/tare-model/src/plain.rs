//! Makes untrusted text (servers' output, agents' messages, names in a store) harmless for
//! terminals: escape sequences and characters that change the text direction are replaced by their
//! code.

use std::borrow::Cow;

/// Escapes text that must stay on one line.
pub fn line(text: &str) -> Cow<'_, str> {
    escaped(text, is_unsafe)
}

/// Escapes the first `chars_max` characters as one line.
pub fn short(text: &str, chars_max: usize) -> String {
    let cut: String = text.chars().take(chars_max).collect();
    line(&cut).into_owned()
}

/// Escapes text of several lines.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| !matches!(c, '\n' | '\t') && is_unsafe(c))
}

/// Escapes JSON text; its strings may hold such characters by their code.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(|c| c != '\n' && is_unsafe(c)) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\n' => safe.push(c),
            c if is_unsafe(c) => safe.push_str(&format!("\\u{:04x}", u32::from(c))),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

/// Control characters of both sets (a terminal may treat U+009B as an escape), and characters that
/// make text look like something else.
fn is_unsafe(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{2069}')
        || matches!(c, '\u{feff}' | '\u{061c}')
}

fn escaped(text: &str, is_unsafe: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_unsafe) {
        return Cow::Borrowed(text);
    }
    let mut safe = String::with_capacity(text.len() + 16);
    for c in text.chars() {
        match c {
            '\t' if is_unsafe(c) => safe.push(' '),
            c if is_unsafe(c) => safe.extend(c.escape_default()),
            c => safe.push(c),
        }
    }
    Cow::Owned(safe)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_terminal_would_obey_is_shown() {
        assert_eq!(line("\u{1b}]0;pwned\u{7}"), "\\u{1b}]0;pwned\\u{7}");
        assert_eq!(line("a\u{9b}31m\rb\u{7f}"), "a\\u{9b}31m\\rb\\u{7f}");
        assert_eq!(line("safe\u{202e}fdp.exe"), "safe\\u{202e}fdp.exe");
        assert_eq!(line("one\ntwo\tthree"), "one\\ntwo three");
        assert_eq!(lines("one\ntwo\u{1b}c\n"), "one\ntwo\\u{1b}c\n");
        assert_eq!(lines("a\tb"), "a\tb");
        assert_eq!(json("{\n\"a\u{9b}\u{202e}\"}"), "{\n\"a\\u009b\\u202e\"}");
        assert!(matches!(line("± 2 % µs – naïve 日本"), Cow::Borrowed(_)));
    }
}
