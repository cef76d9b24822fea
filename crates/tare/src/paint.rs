//! Colours of a report's signs, for terminals.

use std::borrow::Cow;
use std::io::IsTerminal;
use std::sync::OnceLock;

/// When reports have colours.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum When {
    /// If standard output is a terminal, unless `NO_COLOR` is set (<https://no-color.org>).
    Auto,
    Always,
    Never,
}

static WHEN: OnceLock<When> = OnceLock::new();

/// Sets when reports have colours, once for the whole process; else it is [`When::Auto`].
pub fn set(when: When) {
    let _ = WHEN.set(when);
}

/// Colours the signs of a report.
pub fn paint(text: &str) -> Cow<'_, str> {
    coloured_for(text, std::io::stdout().is_terminal())
}

/// Colours signs, if they go to a terminal or colours are asked for.
pub fn coloured_for(text: &str, is_terminal: bool) -> Cow<'_, str> {
    let wants_none = || std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_coloured = match WHEN.get().unwrap_or(&When::Auto) {
        When::Auto => !wants_none() && is_terminal,
        When::Always => true,
        When::Never => false,
    };
    match is_coloured {
        true => coloured(text).into(),
        false => text.into(),
    }
}

fn coloured(text: &str) -> String {
    let mut painted = String::new();
    for c in text.chars() {
        match colour(c) {
            Some(number) => painted.push_str(&format!("\x1b[{number}m{c}\x1b[0m")),
            None => painted.push(c),
        }
    }
    painted
}

fn colour(sign: char) -> Option<u8> {
    match sign {
        '▲' | '✓' => Some(32),
        '▼' | '✗' => Some(31),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn signs_have_colours_and_the_rest_stays() {
        assert_eq!(coloured("▼ a, 5 ✓!"), "\x1b[31m▼\x1b[0m a, 5 \x1b[32m✓\x1b[0m!");
        let plain = "plain = 1 ? 2 ± 3";
        assert_eq!(coloured(plain), plain);
    }
}
