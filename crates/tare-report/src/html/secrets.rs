//! Masks secrets, recognised by their names, because pages are passed on.

use serde_json::Value;

/// Parts of names that mark a header, parameter or key as secret.
const NAMES: [&str; 7] =
    ["authorization", "cookie", "api-key", "apikey", "token", "secret", "password"];
const MASK: &str = "…";

/// Masks a command line word by word, as a shell splits it, so that words after a secret are kept.
pub fn mask_command(command: &str) -> String {
    let mut told = String::new();
    let mut word = String::new();
    let mut quoted = false;
    for c in command.chars() {
        if c == '\'' {
            quoted = !quoted;
        }
        if c == ' ' && !quoted {
            told.push_str(&mask_word(&word));
            told.push(' ');
            word.clear();
        } else {
            word.push(c);
        }
    }
    told + &mask_word(&word)
}

/// Masks a word and keeps its quotes.
fn mask_word(word: &str) -> String {
    let inner = word.strip_prefix('\'').and_then(|rest| rest.strip_suffix('\''));
    match inner {
        Some(inner) => format!("'{}'", mask_text(inner)),
        None => mask_text(word),
    }
}

/// Masks values of secret keys, and secrets within texts.
pub fn mask_json(value: &Value) -> Value {
    match value {
        Value::String(text) => Value::String(mask_text(text)),
        Value::Array(values) => Value::Array(values.iter().map(mask_json).collect()),
        Value::Object(fields) => {
            let field = |(key, value): (&String, &Value)| match (is_secret(key), value) {
                (true, Value::String(_) | Value::Number(_)) => (key.clone(), MASK.into()),
                _ => (key.clone(), mask_json(value)),
            };
            Value::Object(fields.iter().map(field).collect())
        }
        other => other.clone(),
    }
}

fn is_secret(name: &str) -> bool {
    let lower = name.to_ascii_lowercase().replace('_', "-");
    NAMES.iter().any(|part| lower.contains(part))
}

/// Masks secrets in "Authorization: Bearer x", "/?token=x&y", "http://user:word@host/".
fn mask_text(text: &str) -> String {
    let text = without_user(text);
    let mut told = String::new();
    let mut rest = text.as_str();
    // A name ends at `:` or `=`; its value follows.
    while let Some(at) = rest.find([':', '=']) {
        let (name, mark) = (&rest[..at], &rest[at..=at]);
        let start = name.rfind(|c: char| !(c.is_ascii_alphanumeric() || "-_ ".contains(c)));
        let name = name[start.map_or(0, |at| at + 1)..].trim();
        told.push_str(&rest[..=at]);
        rest = &rest[at + 1..];
        if is_secret(name) && !rest.starts_with("//") {
            // A header's value is all the rest; a parameter's value ends where the next one begins.
            let end = if mark == ":" { None } else { rest.find(['&', ' ', ';', '"', '\'']) };
            let end = end.unwrap_or(rest.len());
            told.push_str(if rest[..end].trim().is_empty() { "" } else { MASK });
            rest = &rest[end..];
        }
    }
    told + rest
}

fn without_user(text: &str) -> String {
    let Some((scheme, rest)) = text.split_once("://") else { return text.to_owned() };
    let authority = rest.split(['/', '?', ' ']).next().unwrap_or_default();
    match authority.rsplit_once('@') {
        Some((user, _)) => format!("{scheme}://{MASK}{}", &rest[user.len()..]),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn what_is_secret_is_left_out_and_nothing_else() {
        for (command, expected) in [
            (
                "tare compare -H 'Authorization: Bearer abc' -H 'X-API-Key: q' -c 20",
                "tare compare -H 'Authorization:…' -H 'X-API-Key:…' -c 20",
            ),
            (
                "tare compare http://h/tokens/list-all -H X-Token:abc -c 20 http://u:pw@h/?a=1",
                "tare compare http://h/tokens/list-all -H X-Token:… -c 20 http://…@h/?a=1",
            ),
            ("tare x 'a:Cookie: sid=\"abc\"; b' -q", "tare x 'a:Cookie:…' -q"),
            ("tare x 'http://h/?token=1&y=2'", "tare x 'http://h/?token=…&y=2'"),
            ("tare x a=http://h:1/ --seed 7", "tare x a=http://h:1/ --seed 7"),
        ] {
            assert_eq!(mask_command(command), expected);
        }
    }

    #[test]
    fn keys_and_texts_of_a_plan_are_looked_through() {
        let plan = json!({
            "password": "hunter2", "token_count": 3, "path": "/x?secret=1", "seed": 7,
            "headers": ["Cookie: sid=\"abc\"", "X: 1"], "inner": { "API_KEY": "k", "tokens": [1] },
        });
        assert_eq!(
            mask_json(&plan),
            json!({
                "password": "…", "token_count": "…", "path": "/x?secret=…", "seed": 7,
                "headers": ["Cookie:…", "X: 1"], "inner": { "API_KEY": "…", "tokens": [1] },
            })
        );
    }
}
