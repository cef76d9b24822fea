//! The frame of a page, and its parts that hold text.

use aws_lc_rs::digest::{SHA256, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use crate::run::table::Table;
use crate::run::trust::{Check, Warning};
use crate::run::words::Answer;

const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// A page under construction.
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
        self.put("", title, inner);
    }

    /// Adds the section that [`warnings`] link to.
    pub fn guards(&mut self, title: &str, inner: &str) {
        self.put(" id=\"guards\"", title, inner);
    }

    fn put(&mut self, id: &str, title: &str, inner: &str) {
        if !inner.is_empty() {
            let title = escape(title);
            self.body.push_str(&format!("<section{id}><h2>{title}</h2>\n{inner}</section>\n"));
        }
    }

    /// Adds the answer, and why it can be trusted, without a heading.
    pub fn opening(&mut self, answer: &str, trust: &str) {
        let parts = [answer, trust].map(|part| match part.is_empty() {
            true => String::new(),
            false => format!("<div>{part}</div>\n"),
        });
        self.body.push_str(&format!("<section class=\"opening\">\n{}</section>\n", parts.concat()));
    }

    pub fn finish(self) -> String {
        let Self { title, body } = self;
        // Characters that change the direction of text are replaced.
        let body = body.replace(is_direction, "\u{fffd}");
        // The browser runs only this script, even if something got past escaping.
        let hash = BASE64_STANDARD.encode(digest(&SHA256, SCRIPT.as_bytes()));
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; \
             style-src 'unsafe-inline'; script-src 'sha256-{hash}'\">\n\
             <meta name=\"generator\" content=\"tare\">\n\
             <title>{}</title>\n<style>\n{STYLE}</style>\n</head>\n<body>\n{body}</main>\n\
             <div id=\"tip\" role=\"status\" hidden></div>\n\
             <script>{SCRIPT}</script>\n</body>\n</html>\n",
            escape(&title)
        )
    }
}

/// Escapes text from outside, so that it cannot become markup.
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

/// Lists the answers, one verdict per line after its sign.
pub fn answers(all: &[Answer]) -> String {
    let item = |answer: &Answer| {
        let text = with_whole_flags(&escape(&answer.text));
        match answer.sign() {
            Some(sign) => format!("{} {text}", signed(sign)),
            None => text,
        }
    };
    folded(&all.iter().map(item).collect::<Vec<_>>())
}

/// Lists sentences that have no verdict.
pub fn sentences(all: &[String]) -> String {
    folded(&all.iter().map(|text| with_whole_flags(&escape(text))).collect::<Vec<_>>())
}

/// Colours a sign.
fn signed(sign: char) -> String {
    let class = match sign {
        '▼' | '✗' => "bad",
        '▲' | '✓' => "good",
        '!' => "doubted",
        _ => "plain",
    };
    format!("<span class=\"sign {class}\">{sign}</span>")
}

/// Lists what was checked, each with its sign at the end.
pub fn trust(items: &[Check]) -> String {
    let item = |check: &Check| format!("{} {}", escape(&check.text), signed(check.mark.sign()));
    list("trust", &items.iter().map(item).collect::<Vec<_>>())
}

/// Lists the warnings, one line per family, sign first.
pub fn warnings(all: &[Warning]) -> String {
    let item = |warning: &Warning| {
        let cure = match &warning.cure {
            Some(cure) => with_whole_flags(&escape(cure)),
            None => "<a href=\"#guards\">see below</a>".to_owned(),
        };
        let text = with_whole_flags(&escape(&warning.text));
        format!("{} {text} → {cure}", signed(warning.mark.sign()))
    };
    list("warnings", &all.iter().map(item).collect::<Vec<_>>())
}

pub fn evidence(items: &[String]) -> String {
    let items: Vec<String> = items.iter().map(|item| escape(item)).collect();
    list("evidence", &items)
}

/// Lists the first items and folds the others.
fn folded(items: &[String]) -> String {
    const SHOWN: usize = 12;
    let (shown, more) = items.split_at(items.len().min(SHOWN));
    let more = match more.len() {
        0 => String::new(),
        n => details(&format!("{n} more"), &list("verdicts", more)),
    };
    list("verdicts", shown) + &more
}

/// Keeps flags from being broken at their hyphens.
fn with_whole_flags(markup: &str) -> String {
    let word = |word: &str| match word.trim_start_matches('(').starts_with("--") {
        true => format!("<span class=\"flag\">{word}</span>"),
        false => word.to_owned(),
    };
    markup.split(' ').map(word).collect::<Vec<_>>().join(" ")
}

/// Returns a section that is folded at first.
pub fn details(summary: &str, inner: &str) -> String {
    format!("<details><summary>{}</summary>\n{inner}</details>\n", escape(summary))
}

/// Returns a list of names and their values.
pub fn definitions(pairs: &[(String, String)]) -> String {
    let rows = pairs
        .iter()
        .map(|(name, what)| format!("<dt>{}</dt><dd>{}</dd>\n", escape(name), escape(what)));
    format!("<dl>\n{}</dl>\n", rows.collect::<String>())
}

/// Returns a table; on narrow pages each row becomes a card, in which cells show their titles.
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
        // A row with only a first cell is the heading of the rows below it.
        if cells.len() > 2 && cells[1..].iter().all(String::is_empty) {
            let name = escape(&cells[0]);
            let n = cells.len();
            return format!(
                "<tr class=\"rows\"><th scope=\"rowgroup\" colspan=\"{n}\">{name}</th></tr>\n"
            );
        }
        let cells = cells.iter().enumerate().map(|(at, cell)| match at {
            0 => format!("<th scope=\"row\">{}</th>", escape(cell)),
            _ if cell.is_empty() => "<td class=\"empty\"></td>".to_owned(),
            _ if cell == "–" => "<td class=\"number none\">–</td>".to_owned(),
            _ => {
                let title = escape(&table.header[at]);
                format!("<td{} data-title=\"{title}\">{}</td>", class(at), escape(cell))
            }
        });
        format!("<tr>{}</tr>\n", cells.collect::<String>())
    };
    let rows: String = table.rows.iter().map(row).collect();
    // Largest number of columns that fit on a page of the usual width.
    const USUAL: usize = 9;
    let class = if table.header.len() > USUAL { "many" } else { "usual" };
    format!(
        "<div class=\"{class}\"><table><caption>{}</caption>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{rows}</tbody>\
         </table></div>\n",
        escape(caption)
    )
}
