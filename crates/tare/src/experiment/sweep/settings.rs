//! Sweeps of servers: a setting of their kind, or a parameter written as `{name}` in a command, its
//! environment, a URL or a header.

use serde_json::Value as Json;
use tare_model::layers::clients_use_tls;
use tare_model::plan::Draft;
use tare_model::servers::ServerSpec;
use tare_model::variant::Variant;

use super::{KEYS, Value};
use crate::experiment::Source;

/// Parameters that tare fills in for each launch.
const TAKEN: [&str; 3] = ["port", "address", "folder"];

/// Puts the value into every variant that has such a setting or parameter.
pub(super) fn put(
    plan: &mut Draft,
    key: &str,
    value: &Value,
    source: &Source<'_>,
) -> Result<(), String> {
    if TAKEN.contains(&key) {
        return Err(format!("{{{key}}} is given by tare to each launch"));
    }
    let mut found = false;
    for variant in &mut plan.variants {
        found |= put_setting(variant, key, value)? | put_parameter(variant, key, value);
        for path in variant.server.paths() {
            *path = source.resolve(path);
        }
    }
    let known = KEYS.map(|(name, _)| name).join(", ");
    match found {
        true => Ok(()),
        false => Err(format!(
            "it cannot be swept; {known}, settings of servers (workers, body_bytes, …) and \
             {{{key}}} in a command or URL can"
        )),
    }
}

/// Whether `{key}` occurs in a variant's URL, headers, command or environment.
pub(super) fn is_parameter(plan: &Draft, key: &str) -> bool {
    let name = format!("{{{key}}}");
    let mut variants = plan.variants.clone();
    variants.iter_mut().any(|variant| words(variant).iter().any(|word| word.contains(&name)))
}

/// Changes the server's setting of that name; returns whether it has one.
fn put_setting(variant: &mut Variant, key: &str, value: &Value) -> Result<bool, String> {
    if matches!(variant.server, ServerSpec::External) {
        return Ok(false);
    }
    let scheme = |server: &ServerSpec| clients_use_tls(&variant.layers, server.facts().tls());
    let scheme_before = scheme(&variant.server);
    let mut json = serde_json::to_value(&variant.server).map_err(|error| error.to_string())?;
    // `{"nginx": {…}}`: the kind, and its settings.
    let kinds = json.as_object_mut().into_iter().flat_map(|kinds| kinds.values_mut());
    for settings in kinds.filter_map(Json::as_object_mut) {
        settings.insert(key.to_owned(), value.json());
    }
    match serde_json::from_value::<ServerSpec>(json) {
        Ok(server) if scheme(&server) != scheme_before => {
            Err("this changes the scheme of the URL: write a variant with TLS and one without"
                .into())
        }
        Ok(server) => {
            variant.server = server;
            Ok(true)
        }
        Err(error) if error.to_string().contains("unknown field") => Ok(false),
        Err(error) => Err(format!("{}: {error}", variant.name)),
    }
}

/// Replaces `{key}` in the variant; returns whether it occurred.
fn put_parameter(variant: &mut Variant, key: &str, value: &Value) -> bool {
    let (name, text) = (format!("{{{key}}}"), value.text(key));
    let mut found = false;
    for word in words(variant) {
        if word.contains(&name) {
            *word = word.replace(&name, &text);
            found = true;
        }
    }
    found
}

fn words(variant: &mut Variant) -> Vec<&mut String> {
    let mut words: Vec<&mut String> = vec![&mut variant.url];
    words.extend(&mut variant.headers);
    if let ServerSpec::Command(spec) = &mut variant.server {
        words.push(&mut spec.command);
        words.extend(spec.env.values_mut());
    }
    words
}
