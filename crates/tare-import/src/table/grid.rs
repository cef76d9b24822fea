//! Splits tables into cells: Markdown, HTML, and lines with tabs.

/// Most rows read of a table; larger tables are data, not results.
const ROWS_MAX: usize = 300;
/// Most columns read of a table.
const COLUMNS_MAX: usize = 40;
/// Most characters of a cell.
const CELL_MAX: usize = 300;

/// A table: a head, and rows with their line offsets from the first line.
#[derive(Debug, Default)]
pub struct Grid {
    pub head: Vec<String>,
    pub rows: Vec<(usize, Vec<String>)>,
    /// Number of lines that it takes.
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
        rows.enumerate().map(|(at, line)| (at + 2, split_at_bars(line))).collect();
    Some(Grid { head: split_at_bars(lines[0]), length: 2 + rows.len(), rows })
}

fn split_at_bars(line: &str) -> Vec<String> {
    let line = line.trim();
    let inner = line.strip_prefix('|').unwrap_or(line);
    let inner = inner.strip_suffix('|').unwrap_or(inner);
    let cells = inner.replace("\\|", "\u{1}");
    cells.split('|').take(COLUMNS_MAX).map(|cell| cleaned(&cell.replace('\u{1}', "|"))).collect()
}

/// Reads two or more lines with the same number of tabs.
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
    let mut spans = Spans::default();
    let mut heads = 0;
    for (at, line) in lines.iter().take(20 * ROWS_MAX).enumerate() {
        length = at + 1;
        let mut rest = if at == 0 { &line[start..] } else { line };
        let is_end = lower_find(rest, "</table").is_some();
        while let Some((text, tag)) = rest.split_once('<').filter(|_| rows.len() <= ROWS_MAX) {
            take(&mut open, text);
            let (name, after) = tag.split_once('>').unwrap_or((tag, ""));
            let name: String = name.chars().take(8).collect::<String>().to_ascii_lowercase();
            let mut close = || {
                if let (Some(text), Some((_, row))) = (open.take(), rows.last_mut()) {
                    spans.put(row, &cleaned(&text));
                }
            };
            match name.split(|c: char| !c.is_ascii_alphanumeric() && c != '/').next() {
                Some("tr") => {
                    close();
                    rows.push((at, Vec::new()));
                }
                Some(kind @ ("td" | "th")) => {
                    close();
                    // Header rows come first.
                    if kind == "th" && rows.len() == heads + 1 {
                        heads = rows.len().min(2);
                    }
                    spans.open(tag);
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
    if rows.len() < 2 {
        return None;
    }
    let (_, mut head) = rows.remove(0);
    // A second header row, without numbers, adds to the head of each column.
    let has_number = |cell: &String| cell.starts_with(|c: char| c.is_ascii_digit());
    if heads > 1 && rows.len() > 1 && !rows[0].1.iter().skip(1).any(has_number) {
        let (_, second) = rows.remove(0);
        for (at, more) in second.into_iter().enumerate() {
            match head.get_mut(at) {
                Some(own) if *own != more => *own = format!("{more} {own}").trim().to_owned(),
                Some(_) => {}
                None => head.push(more),
            }
        }
    }
    Some(Grid { head, rows, length })
}

/// Cells that take several columns or rows.
#[derive(Default)]
struct Spans {
    columns: usize,
    rows: usize,
    /// A cell from above in each column, and for how many more rows it goes on.
    from_above: Vec<(String, usize)>,
}

impl Spans {
    fn open(&mut self, tag: &str) {
        let tag = tag.split('>').next().unwrap_or(tag).to_ascii_lowercase();
        let of = |name: &str| {
            let value = tag.split(name).nth(1)?.trim_start_matches(['=', '"', '\'', ' ']);
            let digits: String = value.chars().take_while(char::is_ascii_digit).collect();
            digits.parse().ok().filter(|n| (1..=COLUMNS_MAX).contains(n))
        };
        (self.columns, self.rows) = (of("colspan").unwrap_or(1), of("rowspan").unwrap_or(1));
    }

    fn put(&mut self, row: &mut Vec<String>, text: &str) {
        self.fill(row);
        for _ in 0..self.columns {
            if row.len() >= COLUMNS_MAX {
                return;
            }
            if self.rows > 1 {
                let known = self.from_above.len().max(row.len() + 1);
                self.from_above.resize(known, (String::new(), 0));
                self.from_above[row.len()] = (text.to_owned(), self.rows - 1);
            }
            row.push(text.to_owned());
        }
    }

    /// Adds cells from above that span this row.
    fn fill(&mut self, row: &mut Vec<String>) {
        while let Some((text, left)) = self.from_above.get_mut(row.len()).filter(|own| own.1 > 0) {
            *left -= 1;
            row.push(text.clone());
        }
    }
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

/// Strips marks of bold, code and links.
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
    fn cells_that_take_several_places() {
        let lines = [
            "<table><tr><th rowspan=\"2\">mesh</th><th colspan=2>1000 qps</th></tr>",
            "<tr><th>p50</th><th>p99</th></tr>",
            "<tr><td>none</td><td>1 ms</td><td>2 ms</td></tr></table>",
        ];
        let grid = super::found(&lines).unwrap();
        assert_eq!(grid.head, ["mesh", "p50 1000 qps", "p99 1000 qps"]);
        assert_eq!(grid.rows[0].1, ["none", "1 ms", "2 ms"]);
    }

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
