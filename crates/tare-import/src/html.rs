//! Converts HTML to text with the same line numbers. Headings and tables keep their tags, which are
//! read later.

use std::borrow::Cow;

/// Removes text tags and decodes entities.
pub fn plain(text: &str) -> Cow<'_, str> {
    if !text.contains(['<', '&']) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    for line in text.split_inclusive('\n') {
        match line.contains(['<', '&']) {
            true => plain_line(line, &mut out),
            false => out.push_str(line),
        }
    }
    Cow::Owned(out)
}

/// Tags that say nothing about an output.
const DROPPED: [&str; 30] = [
    "p",
    "span",
    "div",
    "i",
    "em",
    "code",
    "pre",
    "ul",
    "ol",
    "a",
    "tt",
    "font",
    "blockquote",
    "section",
    "article",
    "body",
    "html",
    "head",
    "small",
    "sub",
    "sup",
    "hr",
    "img",
    "u",
    "kbd",
    "samp",
    "main",
    "header",
    "footer",
    "figure",
];

fn plain_line(line: &str, out: &mut String) {
    let is_inline = line.contains("<code>") && has_prose(line);
    let mut rest = line;
    while let Some(at) = rest.find(['<', '&']) {
        out.push_str(&rest[..at]);
        let after = &rest[at..];
        let (taken, text) = match after.as_bytes().first() {
            Some(b'<') => tag(after, is_inline).unwrap_or((1, "<")),
            _ => entity(after),
        };
        out.push_str(text);
        rest = &after[taken..];
    }
    out.push_str(rest);
}

/// Whether a line has words outside of `code`.
fn has_prose(line: &str) -> bool {
    let (mut in_code, mut in_tag) = (false, false);
    line.char_indices().any(|(at, c)| {
        match c {
            '<' => (in_code, in_tag) = (is_in_code(&line[at..], in_code), true),
            '>' => in_tag = false,
            _ => return !(in_code || in_tag) && c.is_alphanumeric(),
        }
        false
    })
}

fn is_in_code(tag: &str, was: bool) -> bool {
    (was || tag.starts_with("<code")) && !tag.starts_with("</code")
}

/// Returns a tag's length and its replacement; `None` if it is kept, or is not a tag.
fn tag(text: &str, is_inline: bool) -> Option<(usize, &'static str)> {
    const LONGEST: usize = 300;
    let end = text.bytes().take(LONGEST).position(|byte| byte == b'>')? + 1;
    let inner = text[1..end - 1].trim_end_matches('/');
    let (name, is_end) = inner.strip_prefix('/').map_or((inner, false), |name| (name, true));
    let name = name.split_ascii_whitespace().next()?.to_ascii_lowercase();
    // Unknown names stay: "<host>" in a command is not a tag.
    match name.as_str() {
        "b" | "strong" => Some((end, "**")),
        // Only in a line with other words.
        "code" if is_inline => Some((end, "`")),
        "li" => Some((end, if is_end { "" } else { "- " })),
        "!--" => None,
        name if DROPPED.contains(&name) => Some((end, "")),
        _ => None,
    }
}

fn entity(text: &str) -> (usize, &'static str) {
    const KNOWN: [(&str, &str); 17] = [
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&amp;", "&"),
        ("&nbsp;", " "),
        ("&quot;", "\""),
        ("&#39;", "'"),
        ("&apos;", "'"),
        ("&plusmn;", "±"),
        ("&#177;", "±"),
        ("&micro;", "µ"),
        ("&mu;", "µ"),
        ("&#181;", "µ"),
        ("&minus;", "−"),
        ("&ndash;", "–"),
        ("&mdash;", "—"),
        ("&rarr;", "→"),
        ("&times;", "×"),
    ];
    let known = KNOWN.iter().find(|(name, _)| text.starts_with(name));
    known.map_or((1, "&"), |(name, stands)| (name.len(), *stands))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_stay_lines() {
        let text = "<h2>Mesh</h2>\n<p>p99 &gt; 5&nbsp;ms <b>with</b> sidecar</p>\n<pre><code>$ wrk \
                    http://&lt;host&gt;/\n>= 0.001 <= 0.004\n<td>1 &plusmn; 2</td>\n";
        assert_eq!(
            plain(text),
            "<h2>Mesh</h2>\np99 > 5 ms **with** sidecar\n$ wrk http://<host>/\n>= 0.001 <= 0.004\n\
             <td>1 ± 2</td>\n"
        );
        assert!(matches!(plain("Running 10s test"), Cow::Borrowed(_)));
        assert_eq!(
            plain("<p><code>wrk http://h/</code>, as ever:</p>"),
            "`wrk http://h/`, as ever:"
        );
        assert_eq!(plain("<p><code>Requests/sec: 5</code></p>"), "Requests/sec: 5");
    }
}
