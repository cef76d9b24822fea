//! Errors of a cluster, grouped by the person who can fix them.

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum KubeError {
    /// Invalid input of the user: an unknown context, a manifest that is not an object.
    #[error("{0}")]
    Usage(String),
    /// No answer, or not in time.
    #[error("{0}")]
    Unreachable(String),
    /// The user lacks the permission.
    #[error("not allowed to {verb} {what}: {why}")]
    Forbidden { verb: &'static str, what: String, why: String },
    /// Rejected by the cluster: a quota, an admission webhook, an invalid field.
    #[error("cannot {verb} {what}: {why}")]
    Refused { verb: &'static str, what: String, why: String },
}

/// Puts a cluster's message on one line of limited length.
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

/// Formats an error with its causes on one line.
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
