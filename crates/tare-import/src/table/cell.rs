//! Reads one cell: its numbers, with their units, labels and remarks.

use crate::numbers;

/// A number as it is printed.
#[derive(Clone, Debug, PartialEq)]
pub struct Number {
    /// The value in its printed unit.
    pub value: f64,
    /// One unit of its last digit.
    pub step: f64,
    /// A standard deviation behind a ±.
    pub spread: Option<f64>,
    pub unit: String,
    /// Text before a colon: "QPS: 997".
    pub label: String,
    /// Percentage in parentheses after it, "3611.2 (15.8 %)", and one unit of its last digit.
    pub percent: Option<(f64, f64)>,
}

/// Reads all numbers of a cell; `None` if it contains words.
pub fn numbers(cell: &str, decimal_comma: bool) -> Option<Vec<Number>> {
    let cell = cell.trim();
    if cell.is_empty() || matches!(cell, "-" | "–" | "—" | "n/a" | "N/A" | "?") {
        return Some(Vec::new());
    }
    let breaks = cell.replace("<br/>", "<br>").replace("<br />", "<br>").replace(" / ", "<br>");
    let parts = breaks.split("<br>").flat_map(|part| part.split("; ")).flat_map(|part| {
        // "13 us, 1.13 MB/s"; a comma without a space is part of a number.
        part.split(", ")
    });
    let mut found = Vec::new();
    for part in parts.map(str::trim).filter(|part| !part.is_empty()) {
        found.push(number(part, decimal_comma)?);
    }
    (!found.is_empty()).then_some(found)
}

/// Whether any of these cells has a comma that can only be a decimal one, as in "7,8", not "1,024".
pub fn is_decimal_comma<'a>(cells: impl Iterator<Item = &'a str>) -> bool {
    let is_digit = |c: Option<char>| c.is_some_and(|c| c.is_ascii_digit());
    // A comma within a word is not part of a number: "swiotlb=524288,8".
    let is_number = |word: &&str| !word.contains(|c: char| c.is_alphabetic() || c == '=');
    let words = cells.flat_map(|cell| cell.split([' ', '<', '>', '%'])).filter(is_number);
    words.flat_map(|word| word.match_indices(',').map(move |(at, _)| (word, at))).any(
        |(word, at)| {
            let digits = word[at + 1..].chars().take_while(char::is_ascii_digit).count();
            is_digit(word[..at].chars().next_back()) && digits > 0 && digits != 3
        },
    )
}

/// Whether commas in these cells group thousands: each is followed by three digits ("1,024"), or
/// one by three digits and a decimal point ("1,024.5").
pub fn is_grouped_by_comma<'a>(cells: impl Iterator<Item = &'a str>) -> bool {
    let (mut any, mut all) = (false, true);
    for cell in cells {
        for (at, _) in cell.match_indices(',') {
            let rest = &cell[at + 1..];
            let digits = rest.chars().take_while(char::is_ascii_digit).count();
            if !cell[..at].ends_with(|c: char| c.is_ascii_digit()) {
                continue;
            }
            any = true;
            all &= digits == 3;
            if digits == 3 && rest[3..].starts_with('.') {
                return true;
            }
        }
    }
    any && all
}

fn number(part: &str, decimal_comma: bool) -> Option<Number> {
    let (label, rest) = match part.split_once(':') {
        Some((label, rest)) if label.len() <= 30 && label.contains(char::is_alphabetic) => {
            (label.trim(), rest.trim())
        }
        _ => ("", part),
    };
    let rest = rest.trim_start_matches(['~', '≈', '≃', ' ']);
    let end = digits_end(rest);
    let (value, step) = parsed(&rest[..end], decimal_comma)?;
    let after = rest[end..].trim_start();
    let (mut unit, spread) = match after.strip_prefix('±').or(after.strip_prefix("+/-")) {
        Some(more) => {
            let more = more.trim_start();
            let end = digits_end(more);
            let (spread, _) = parsed(&more[..end], decimal_comma)?;
            (more[end..].trim(), Some(spread))
        }
        // "1.2 ms ± 0.3 ms"
        None => match after.split_once(['±']) {
            Some((unit, more)) => {
                let more = more.trim_start();
                (unit.trim(), parsed(&more[..digits_end(more)], decimal_comma).map(|p| p.0))
            }
            None => (after.trim(), None),
        },
    };
    let remark = part.split_once('(').and_then(|(_, rest)| rest.split_once(')')).map(|p| p.0);
    let percent = remark.filter(|text| text.trim_end().ends_with('%')).and_then(numbers::percent);
    // Drop a remark after the unit.
    unit =
        unit.split(" (").next().unwrap_or(unit).trim_end_matches(['*', '†', '‡', '.', ',']).trim();
    let unit = if unit.starts_with('(') { "" } else { unit };
    let words = unit.split_whitespace().count();
    (words <= 2 && unit.len() <= 16).then(|| Number {
        value,
        step,
        spread,
        unit: unit.to_owned(),
        label: label.to_owned(),
        percent,
    })
}

fn digits_end(text: &str) -> usize {
    let signs = text.len() - text.trim_start_matches(['+', '-', '−', '–']).len();
    let rest = &text[signs..];
    let is_part =
        |c: char| c.is_ascii_digit() || matches!(c, '.' | ',' | '\'' | '\u{202f}' | '\u{a0}');
    let mut end = rest.find(|c| !is_part(c)).unwrap_or(rest.len());
    end = rest[..end].trim_end_matches([',', '.', '\'', '\u{202f}', '\u{a0}']).len();
    // "181 876": a space before exactly three digits groups thousands.
    let digits = |text: &str| text.chars().take_while(char::is_ascii_digit).count();
    let mut is_grouped = (1..=3).contains(&end) && digits(rest) == end;
    while is_grouped {
        let Some(more) = rest[end..].strip_prefix(' ').filter(|more| digits(more) == 3) else {
            break;
        };
        end += 4;
        if more[3..].starts_with([',', '.']) && digits(&more[4..]) > 0 {
            end += 1 + digits(&more[4..]);
            is_grouped = false;
        }
    }
    signs + end
}

fn parsed(text: &str, decimal_comma: bool) -> Option<(f64, f64)> {
    let plain = text.replace(['−', '–'], "-").replace(['\'', '\u{202f}', '\u{a0}', '+', ' '], "");
    // "999.98" beside "25,1 %": a point not followed by exactly three digits is a decimal point.
    let is_point = plain.rsplit_once('.').is_some_and(|(_, digits)| digits.len() != 3);
    let plain = match decimal_comma && (!is_point || plain.contains(',')) {
        true => plain.replace('.', "").replace(',', "."),
        false => plain.replace(',', ""),
    };
    let value = numbers::plain(&plain)?;
    let decimals = plain.split_once('.').map_or(0, |(_, digits)| digits.len().min(12));
    Some((value, 10f64.powi(-(decimals as i32))))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(cell: &str) -> Vec<(f64, String, String)> {
        let found = numbers(cell, false).unwrap_or_default();
        found.into_iter().map(|n| (n.value, n.unit, n.label)).collect()
    }

    #[test]
    fn cells_hold_numbers_with_units() {
        let one = |value: f64, unit: &str| vec![(value, unit.to_owned(), String::new())];
        assert_eq!(of("13 us"), one(13.0, "us"));
        assert_eq!(of("1.13 MB/sec"), one(1.13, "MB/sec"));
        assert_eq!(of("162,588.64"), one(162_588.64, ""));
        assert_eq!(of("~35k req/s"), one(35.0, "k req/s"));
        assert_eq!(of("−0.51 %"), one(-0.51, "%"));
        assert_eq!(of("13212.1 (best)"), one(13212.1, ""));
        assert_eq!(of("181 876"), one(181_876.0, ""));
        assert_eq!(of("1 181 876 req/s"), one(1_181_876.0, "req/s"));
        let remark = &numbers("3611.2 (15.8%)", false).unwrap()[0];
        assert_eq!((remark.value, remark.percent), (3611.2, Some((15.8, 0.1))));
        assert_eq!(
            of("QPS: 997.37<br>timeout: 189"),
            [(997.37, String::new(), "QPS".into()), (189.0, String::new(), "timeout".into())]
        );
        assert_eq!(of("13 us, 1.13 MB/s").len(), 2);
        for words in ["nginx", "TDX VM", "nginx 1.22 with a long remark", ""] {
            assert!(of(words).is_empty(), "{words}");
        }
        let spread = &numbers("4536.86 ± 1027.29", false).unwrap()[0];
        assert_eq!((spread.value, spread.spread, spread.step), (4536.86, Some(1027.29), 0.01));
    }

    #[test]
    fn decimal_commas_are_told_by_the_table() {
        assert!(is_decimal_comma(["34.951,7", "1,024"].into_iter()));
        assert!(!is_decimal_comma(["1,024", "a, b"].into_iter()));
        let of = |cell: &str| numbers(cell, true).unwrap()[0].value;
        assert_eq!((of("34.951,7"), of("3,2 ms")), (34_951.7, 3.2));
        assert_eq!((of("100.242"), of("999.98")), (100_242.0, 999.98));
        assert!(!is_decimal_comma(["swiotlb=524288,8", "0.64 ms"].into_iter()));
    }
}
