//! A user's own configuration of a proxy: a file with placeholders in braces that tare replaces.

use std::net::SocketAddr;
use std::path::Path;

use super::ProxySettings;
use tare_model::Failure;

const BYTES_MAX: u64 = 1 << 20;

/// Reads the file and replaces its placeholders.
pub fn read(path: &Path, job: &ProxySettings) -> Result<String, Failure> {
    let wrong = |text: String| Failure::usage(format!("config {}: {text}", path.display()));
    let size = std::fs::metadata(path).map_err(|e| wrong(e.to_string()))?;
    if !size.is_file() || size.len() > BYTES_MAX {
        return Err(wrong(format!("a file of at most {} KiB is allowed", BYTES_MAX >> 10)));
    }
    let text = std::fs::read_to_string(path).map_err(|e| wrong(e.to_string()))?;
    filled(&text, job).map_err(wrong)
}

fn filled(text: &str, job: &ProxySettings) -> Result<String, String> {
    let mut words = Vec::new();
    let mut address = |name: &str, at: SocketAddr| {
        words.push((format!("{{{name}_ip}}"), at.ip().to_string()));
        words.push((format!("{{{name}_port}}"), at.port().to_string()));
    };
    address("listen", job.listen);
    address("to", job.to);
    address("admin", job.statistics);
    words.push(("{threads}".into(), job.threads.to_string()));
    if let Some(tls) = job.accepts.as_ref().or(job.makes.as_ref()) {
        let own = tls.own.iter().flat_map(|own| {
            [("{cert}", &own.cert), ("{key}", &own.key), ("{cert_and_key}", &own.both)]
        });
        for (name, file) in own.chain([("{ca}", &tls.authority)]) {
            words.push((name.to_owned(), file.display().to_string()));
        }
    }
    if let Some(makes) = &job.makes {
        words.push(("{to_ca}".into(), makes.authority.display().to_string()));
    }
    for needed in ["{listen_port}", "{admin_port}"] {
        if !text.contains(needed) {
            let known: Vec<&str> = words.iter().map(|(word, _)| word.as_str()).collect();
            return Err(format!(
                "{needed} is not in it, where it must listen; tare knows {}",
                known.join(" ")
            ));
        }
    }
    Ok(words.iter().fold(text.to_owned(), |text, (word, value)| text.replace(word, value)))
}
