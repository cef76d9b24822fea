//! `--urls FILE`: a URL or path per line.

use std::path::Path;

use tare_io::files::read_input;
use tare_model::url::Url;

use tare_model::Failure;

const URLS_MAX_BYTES: u64 = 16 << 20;
/// Each URL is a request that stays in memory while the load runs.
const URLS_MAX: usize = 200_000;

/// Reads URLs, all on one server; paths are on the server of the first URL, or else of `base`.
pub fn read(path: &Path, base: Option<&Url>) -> Result<Vec<Url>, Failure> {
    let mut urls: Vec<Url> = Vec::new();
    for (from, line) in lines(path)? {
        let url = match (line.starts_with('/'), urls.first().or(base)) {
            (true, Some(server)) => Url { target: line.clone(), ..server.clone() },
            (true, None) => {
                let why = "a path needs a server: give a URL too, or start with a whole one";
                return Err(Failure::usage(format!("{from} '{line}': {why}")));
            }
            (false, _) => parse(&line, &from)?,
        };
        if let Some(first) = urls.first()
            && (&first.host, first.port, first.tls) != (&url.host, url.port, url.tls)
        {
            let why = format!("is on another server than {}", first.host_header());
            return Err(Failure::usage(format!("{from} '{line}': {why}")));
        }
        urls.push(url);
    }
    Ok(urls)
}

/// Reads a file that has only paths.
pub fn paths(path: &Path) -> Result<Vec<String>, Failure> {
    let lines = lines(path)?.into_iter().map(|(from, line)| match line.starts_with('/') {
        true => Ok(line),
        false => {
            let why = "write a path, such as /index.html: the servers are the variants'";
            Err(Failure::usage(format!("{from} '{line}': {why}")))
        }
    });
    lines.collect()
}

/// Returns the lines that are not empty or comments, each with its position.
fn lines(path: &Path) -> Result<Vec<(String, String)>, Failure> {
    let cannot = |why: String| Failure::usage(format!("--urls {}: {why}", path.display()));
    let bytes = read_input(path, URLS_MAX_BYTES).map_err(|error| cannot(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| cannot("it is not UTF-8 text".into()))?;
    // Some editors begin a file with a byte order mark.
    let all = text.trim_start_matches('\u{feff}').lines().map(str::trim).enumerate();
    let all = all.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'));
    let at = |at: usize| format!("--urls {}:{}", path.display(), at + 1);
    let all = all.take(URLS_MAX + 1);
    let lines: Vec<_> = all.map(|(number, line)| (at(number), line.to_owned())).collect();
    match lines.get(URLS_MAX) {
        Some((from, _)) => Err(Failure::usage(format!("{from}: more than {URLS_MAX} URLs"))),
        None if lines.is_empty() => Err(cannot("there is no URL in it".into())),
        None => Ok(lines),
    }
}

pub fn parse(text: &str, from: &str) -> Result<Url, Failure> {
    Url::parse(text).map_err(|why| Failure::usage(format!("{from} '{text}': {why}")))
}
