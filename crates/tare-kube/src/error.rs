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
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
