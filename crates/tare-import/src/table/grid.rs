//! A table's cells: of Markdown, of HTML, of lines with tabs.

/// The most that is read of a table; what is larger is data, and no result.
const ROWS_MAX: usize = 300;
const COLUMNS_MAX: usize = 40;
const CELL_MAX: usize = 300;

/// A table as it stands: a head, and rows with their places below the first line.
#[derive(Debug, Default)]
pub struct Grid {
    pub head: Vec<String>,
    pub rows: Vec<(usize, Vec<String>)>,
    /// Lines that it takes.
    pub length: usize,
}

pub fn found(lines: &[&str]) -> Option<Grid> {
    let grid = markdown(lines).or_else(|| html(lines)).or_else(|| tabs(lines))?;
    (grid.head.len() >= 2 && !grid.rows.is_empty()).then_some(grid)
}

fn markdown(lines: &[&str]) -> Option<Grid> {
    let is_row = |line: &str| line.contains('|');
    let is_rule = |line: &str| {
        let line = line.trim();
        line.contains('-') && line.contains(['|', ':']) && line.chars().all(|c| "|-: ".contains(c))
    };
    if !is_row(lines.first()?) || !is_rule(lines.get(1)?) {
        return None;
    }
    let rows = lines[2..].iter().take(ROWS_MAX).take_while(|line| is_row(line));
    let rows: Vec<(usize, Vec<String>)> =
        rows.enumerate().map(|(at, line)| (at + 2, of_bars(line))).collect();
    Some(Grid { head: of_bars(lines[0]), length: 2 + rows.len(), rows })
}

fn of_bars(line: &str) -> Vec<String> {
    let line = line.trim();
    let inner = line.strip_prefix('|').unwrap_or(line);
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let cells = inner.replace("\\|", "\u{1}");
    cells.split('|').take(COLUMNS_MAX).map(|cell| cleaned(&cell.replace('\u{1}', "|"))).collect()
}

/// Two lines or more with as many tabs.
fn tabs(lines: &[&str]) -> Option<Grid> {
    let count = |line: &str| line.trim_end_matches(['\n', '\r']).matches('\t').count();
    let columns = count(lines.first()?);
    let is_row = |line: &&&str| count(line) == columns && !line.trim().is_empty();
    if columns == 0 || lines[0].starts_with("\t\t") {
        return None;
    }
    let rows = lines[1..].iter().take(ROWS_MAX).take_while(is_row);
    let cells = |line: &str| line.split('\t').take(COLUMNS_MAX).map(cleaned).collect();
    let rows: Vec<(usize, Vec<String>)> =
        rows.enumerate().map(|(at, line)| (at + 1, cells(line))).collect();
    Some(Grid { head: cells(lines[0]), length: 1 + rows.len(), rows })
}

fn html(lines: &[&str]) -> Option<Grid> {
    let start = lower_find(lines.first()?, "<table")?;
    let mut rows: Vec<(usize, Vec<String>)> = Vec::new();
    let mut open: Option<String> = None;
    let mut length = 0;
    for (at, line) in lines.iter().take(20 * ROWS_MAX).enumerate() {
        length = at + 1;
        let mut rest = if at == 0 { &line[start..] } else { line };
        let is_end = lower_find(rest, "</table").is_some();
        while let Some((text, tag)) = rest.split_once('<') {
            take(&mut open, text);
            let (name, after) = tag.split_once('>').unwrap_or((tag, ""));
            let name: String = name.chars().take(8).collect::<String>().to_ascii_lowercase();
            let mut close = || {
                if let (Some(text), Some((_, row))) = (open.take(), rows.last_mut())
                    && row.len() < COLUMNS_MAX
                {
                    row.push(cleaned(&text));
                }
            };
            match name.split(|c: char| !c.is_ascii_alphanumeric() && c != '/').next() {
                Some("tr") => {
                    close();
                    rows.push((at, Vec::new()));
                }
                Some("td" | "th") => {
                    close();
                    open = Some(String::new());
                }
                Some("/td" | "/th" | "/tr" | "/table") => close(),
                Some("br") => take(&mut open, "<br>"),
                _ => {}
            }
            rest = after;
        }
        take(&mut open, rest);
        take(&mut open, " ");
        if is_end || rows.len() > ROWS_MAX {
            break;
        }
    }
    rows.retain(|(_, row)| !row.is_empty());
    (!rows.is_empty()).then(|| {
        let (_, head) = rows.remove(0);
        Grid { head, rows, length }
    })
}

fn take(open: &mut Option<String>, text: &str) {
    if let Some(open) = open.as_mut().filter(|open| open.len() < CELL_MAX) {
        open.push_str(text);
    }
}

fn lower_find(line: &str, tag: &str) -> Option<usize> {
    let start = line.find(['<'])?;
    line[start..].to_ascii_lowercase().find(tag).map(|at| start + at)
}

/// Without marks of bold, code and links.
fn cleaned(cell: &str) -> String {
    let mut text = cell.trim().replace("**", "").replace('`', "").replace("&nbsp;", " ");
    if let Some((before, rest)) = text.split_once("](") {
        let words = before.replacen('[', "", 1);
        text = words + rest.split_once(')').map_or("", |(_, after)| after);
    }
    let text: String =
        text.chars().take(CELL_MAX).map(|c| if c.is_control() { ' ' } else { c }).collect();
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    #[test]
    fn three_kinds_of_tables() {
        let md = ["| | host | VM |", "|---|---:|---|", "| req/s | 10 | **9** |", "", "x"];
        let html = [
            "<table><thead><tr><th></th><th>host</th>",
            "<th>VM</th></tr></thead>",
            "<tr><td>req/s<td>10",
            "<td><b>9</b></td></tr></table>",
        ];
        let tsv = ["-\thost\tVM", "req/s\t10\t9", "end"];
        for (lines, length) in [(&md[..], 3), (&html[..], 4), (&tsv[..], 2)] {
            let grid = super::found(lines).unwrap();
            assert_eq!(grid.length, length);
            assert_eq!(grid.head[1..], ["host", "VM"], "{grid:?}");
            assert_eq!(grid.rows[0].1, ["req/s", "10", "9"], "{grid:?}");
        }
        assert!(super::found(&["a | b", "c | d"]).is_none());
    }
}
