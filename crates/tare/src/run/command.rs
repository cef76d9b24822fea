//! Formats the command line so that it can be run again.

use std::ffi::OsString;

/// Returns the shell command line with the run's seed, which repeats all random choices.
pub fn with_seed(args: impl Iterator<Item = OsString>, seed: u64) -> String {
    let mut words = words(args);
    let has_seed = words.iter().any(|word| word == "--seed" || word.starts_with("--seed="));
    if !has_seed && matches!(words.first().map(String::as_str), Some("run" | "compare")) {
        words.extend(["--seed".to_owned(), seed.to_string()]);
    }
    join_command(&words)
}

/// Returns the command line, quoted for a shell.
pub fn typed(args: impl Iterator<Item = OsString>) -> String {
    join_command(&words(args))
}

fn words(args: impl Iterator<Item = OsString>) -> Vec<String> {
    args.skip(1).map(|word| word.to_string_lossy().into_owned()).collect()
}

fn join_command(words: &[String]) -> String {
    let words: Vec<String> = words.iter().map(|word| quoted(word)).collect();
    format!("tare {}", words.join(" ")).trim_end().to_owned()
}

fn quoted(word: &str) -> String {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_./:=,@%+~".contains(c);
    match !word.is_empty() && word.chars().all(plain) {
        true => word.to_owned(),
        false => format!("'{}'", word.replace('\'', "'\\''")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_typed_can_be_typed_again() {
        let told = |words: &[&str]| with_seed(words.iter().map(OsString::from), 7);
        assert_eq!(told(&["/x/tare", "run", "a b.toml"]), "tare run 'a b.toml' --seed 7");
        assert_eq!(
            told(&["tare", "compare", "a=http://h/?x&y", "--seed", "9", "-H", "it's: x"]),
            "tare compare 'a=http://h/?x&y' --seed 9 -H 'it'\\''s: x'"
        );
        assert_eq!(told(&["tare", "doctor"]), "tare doctor");
    }
}
