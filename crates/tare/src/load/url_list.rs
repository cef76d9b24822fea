//! `--urls FILE`: a URL or path per line.

use std::path::Path;

use tare_io::files::read_input;
use tare_model::url::Url;

use crate::failure::Failure;

const URLS_MAX_BYTES: u64 = 16 << 20;
/// Each is a request, kept for as long as the program runs.
const URLS_MAX: usize = 200_000;

/// The file's URLs, all on one server; paths are on that of `base`, or of the first URL.
pub fn read(path: &Path, base: Option<&Url>) -> Result<Vec<Url>, Failure> {
    let cannot = |why: String| Failure::Usage(format!("--urls {}: {why}", path.display()));
    let bytes = read_input(path, URLS_MAX_BYTES).map_err(|error| cannot(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8 text".into()))?;
    let mut urls: Vec<Url> = Vec::new();
    // Some editors begin a file with a byte order mark.
    for (at, line) in text.trim_start_matches('\u{feff}').lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let from = format!("--urls {}:{}", path.display(), at + 1);
        if urls.len() == URLS_MAX {
            return Err(Failure::Usage(format!("{from}: more than {URLS_MAX} URLs")));
        }
        let url = match (line.starts_with('/'), urls.first().or(base)) {
            (true, Some(server)) => Url { target: line.to_owned(), ..server.clone() },
            (true, None) => {
                let why = "a path needs a server: give a URL too, or start with a whole one";
                return Err(Failure::Usage(format!("{from} '{line}': {why}")));
            }
            (false, _) => parse(line, &from)?,
        };
        if let Some(first) = urls.first()
            && (&first.host, first.port, first.tls) != (&url.host, url.port, url.tls)
        {
            let why = format!("is on another server than {}", first.host_header());
            return Err(Failure::Usage(format!("{from} '{line}': {why}")));
        }
        urls.push(url);
    }
    if urls.is_empty() {
        return Err(Failure::Usage(format!("--urls {}: there is no URL in it", path.display())));
    }
    Ok(urls)
}

pub fn parse(text: &str, from: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|why| Failure::Usage(format!("{from} '{text}': {why}")))
}
