//! Reads JSON values by a path of keys.

use serde_json::Value;

/// Returns the number at a path of keys.
pub fn number(value: &Value, path: &[&str]) -> Option<f64> {
    path.iter().try_fold(value, |value, key| value.get(key))?.as_f64()
}

pub fn text(value: &Value, path: &[&str]) -> Option<String> {
    path.iter().try_fold(value, |value, key| value.get(key))?.as_str().map(str::to_owned)
}

/// Returns a required number.
pub fn needed(tool: &str, value: &Value, path: &[&str]) -> Result<f64, String> {
    number(value, path)
        .ok_or_else(|| format!("is {tool}'s JSON without a number at '{}'", path.join(".")))
}
