//! What a cluster refuses, and who must act.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// The user's words: no such context, a manifest that is no object.
    #[error("{0}")]
    Usage(String),
    /// Nobody answers, or not in time.
    #[error("{0}")]
    Unreachable(String),
    /// Who asks may not do that.
    #[error("not allowed to {verb} {what}: {why}")]
    Forbidden { verb: &'static str, what: String, why: String },
    /// The cluster's own words: a quota, an admission webhook, a field that it does not take.
    #[error("cannot {verb} {what}: {why}")]
    Refused { verb: &'static str, what: String, why: String },
}

/// A cluster's words on one line of bounded length.
#[cfg(feature = "client")]
pub(crate) fn line(text: &str) -> String {
    let mut words = text.split_whitespace();
    let mut line = String::new();
    while let Some(word) = words.next().filter(|_| line.chars().count() < WORDS_MAX) {
        if !line.is_empty() {
            line.push(' ');
        }
        line.extend(word.chars().take(WORDS_MAX + 1));
    }
    match line.char_indices().nth(WORDS_MAX) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

#[cfg(feature = "client")]
const WORDS_MAX: usize = 300;

/// An error with its causes, on one line.
#[cfg(feature = "client")]
pub(crate) fn in_words(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !text.contains(&more) {
            text = format!("{text}: {more}");
        }
        cause = inner.source();
    }
    line(&text)
}
