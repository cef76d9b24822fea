//! The frame of a page, and its parts that hold text.

use crate::run::words::Table;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A page as it grows.
pub struct Page {
    title: String,
    body: String,
}

impl Page {
    pub fn new(title: &str) -> Self {
        let body = format!("<header><h1>{}</h1></header>\n<main>\n", escape(title));
        Self { title: title.to_owned(), body }
    }

    pub fn section(&mut self, title: &str, inner: &str) {
        if !inner.is_empty() {
            self.body
                .push_str(&format!("<section><h2>{}</h2>\n{inner}</section>\n", escape(title)));
        }
    }

    /// Without a heading of its own.
    pub fn opening(&mut self, inner: &str) {
        self.body.push_str(&format!("<section class=\"opening\">{inner}</section>\n"));
    }

    pub fn finish(self) -> String {
        let Self { title, body } = self;
        // Characters that turn the direction of what follows round are for no report.
        let body = body.replace(is_direction, "\u{fffd}");
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'unsafe-inline'\">\n\
             <meta name=\"generator\" content=\"tare\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</main>\n\
             <div id=\"tip\" role=\"status\" hidden></div>\n\
             <script>\n{SCRIPT}</script>\n</body>\n</html>\n",
            escape(&title)
        )
    }
}

/// Text from outside must not become markup.
pub fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' => escaped.push('\n'),
            c if c.is_control() || is_direction(c) => escaped.push('\u{fffd}'),
            c => escaped.push(c),
        }
    }
    escaped
}

fn is_direction(c: char) -> bool {
    matches!(c, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

pub fn paragraph(text: &str) -> String {
    format!("<p>{}</p>\n", escape(text))
}

pub fn list(class: &str, items: &[String]) -> String {
    if items.is_empty() {
        return String::new();
    }
    let items: String = items.iter().map(|item| format!("<li>{item}</li>\n")).collect();
    format!("<ul class=\"{class}\">\n{items}</ul>\n")
}

/// The answer: the first sentences to be read, further ones for those who ask.
pub fn sentences(all: &[String]) -> String {
    const SHOWN: usize = 12;
    let items: Vec<String> = all.iter().map(|text| with_whole_flags(&escape(text))).collect();
    let (shown, more) = items.split_at(items.len().min(SHOWN));
    let more = match more.len() {
        0 => String::new(),
        n => details(&format!("{n} more"), &list("verdicts", more)),
    };
    list("verdicts", shown) + &more
}

/// Flags in a sentence are not broken at their hyphens.
fn with_whole_flags(markup: &str) -> String {
    let word = |word: &str| match word.trim_start_matches('(').starts_with("--") {
        true => format!("<span class=\"flag\">{word}</span>"),
        false => word.to_owned(),
    };
    markup.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// What is there for those who ask for it.
pub fn details(summary: &str, inner: &str) -> String {
    format!("<details><summary>{}</summary>\n{inner}</details>\n", escape(summary))
}

/// Names and what they are.
pub fn definitions(pairs: &[(String, String)]) -> String {
    let rows = pairs
        .iter()
        .map(|(name, what)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(what)));
    format!("<dl>\n{}</dl>\n", rows.collect::<String>())
}

/// A table; where there is little room each row becomes a card, its cells bearing their titles.
pub fn table(caption: &str, table: &Table) -> String {
    let is_word = |at: usize| at == 0 || table.header[at] == "verdict";
    let class = |at: usize| if is_word(at) { "" } else { " class=\"number\"" };
    let head: String = table
        .header
        .iter()
        .enumerate()
        .map(|(at, title)| format!("<th scope=\"col\"{}>{}</th>", class(at), escape(title)))
        .collect();
    let row = |cells: &Vec<String>| {
        let cells = cells.iter().enumerate().map(|(at, cell)| match at {
            0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
            _ if cell.is_empty() => "<td class=\"empty\"></td>".to_owned(),
            _ => {
                let title = escape(&table.header[at]);
                format!("<td{} data-title=\"{title}\">{}</td>", class(at), escape(cell))
            }
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = table.rows.iter().map(row).collect();
    // As many columns as a page holds at its usual size.
    const USUAL: usize = 9;
    let class = if table.header.len() > USUAL { "many" } else { "usual" };
    format!(
        "<div class=\"{class}\"><table><caption>{}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\
         </table></div>\n",
        escape(caption)
    )
}
