//! Parses numbers as tools print them, with their units, so that "1.02s" is never 1.02 ms.

/// Parses digits, a point, perhaps an exponent, as tools print them; never "inf".
pub fn plain(text: &str) -> Option<f64> {
    let usual = |c: char| c.is_ascii_digit() || matches!(c, '.' | '-' | '+' | 'e' | 'E');
    if text.is_empty() || !text.chars().all(usual) {
        return None;
    }
    text.parse().ok().filter(|n: &f64| n.is_finite())
}

/// Parses a count; anything above 10^15 is not one.
pub fn whole(text: &str) -> Option<u64> {
    without_groups(text)?.parse().ok().filter(|n| *n <= 1_000_000_000_000_000)
}

/// Parses a rate, up to the highest that could have been measured.
pub fn rate(text: &str) -> Option<f64> {
    plain(text).filter(|rate| (0.0..=1e12).contains(rate))
}

/// Removes thousands separators: "4,096" is 4096; "7,80" has a decimal comma, and is rejected.
fn without_groups(text: &str) -> Option<String> {
    let whole = text.split('.').next().unwrap_or(text);
    let mut groups = whole.split(',').skip(1);
    groups.all(|group| group.len() == 3).then(|| text.replace(',', ""))
}

/// Parses a number in prose: "45.2", "45,2", "4,536.86", "4.536,86". A comma before exactly three
/// digits groups thousands. Also returns one unit of the last digit.
pub fn decimal(text: &str) -> Option<(f64, f64)> {
    let commas = text.matches(',').count();
    let is_grouped = |mark: char| text.split(mark).skip(1).all(|part| part.len() == 3);
    let last = text.rfind(['.', ',']).map(|at| &text[at..=at]);
    let text = match (last, commas) {
        (Some(","), _) if text.contains('.') => text.replace('.', "").replace(',', "."),
        (Some(","), 1) if !is_grouped(',') => text.replace(',', "."),
        (Some(","), _) if !is_grouped(',') => return None,
        _ => text.replace(',', ""),
    };
    let decimals = text.split_once('.').map_or(0, |(_, digits)| digits.len().min(12));
    Some((plain(&text)?, 10f64.powi(-(decimals as i32))))
}

/// Parses "11.66%", "-0.51 %" or "+3 %"; also returns one unit of the last digit.
pub fn percent(text: &str) -> Option<(f64, f64)> {
    let (digits, _) = text.split_once('%')?;
    let digits = digits.trim().replace(['−', '–'], "-");
    let value = plain(digits.trim_start_matches('+'))?;
    let decimals = digits.split_once('.').map_or(0, |(_, digits)| digits.len().min(12));
    Some((value, 10f64.powi(-(decimals as i32))))
}

/// Splits a number from the unit after it, with or without a space: "1.02s", "14.2 us".
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || matches!(c, '.' | ',' | '-')));
    let (digits, unit) = text.split_at(end.unwrap_or(text.len()));
    Some((plain(&without_groups(digits)?)?, unit.trim()))
}

/// Parses "87.00us", "1.02s" or "2.00m" into nanoseconds.
pub fn duration_ns(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "ns" => 1.0,
        "us" | "µs" | "μs" => 1e3,
        "ms" => 1e6,
        "s" | "sec" | "secs" => 1e9,
        "m" | "min" => 60e9,
        "h" => 3600e9,
        _ => return None,
    };
    Some(number * factor)
}

/// Parses wrk's counts, with decimal prefixes: "17.80k", "4.50M".
pub fn count(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let factor = match unit {
        "" => 1.0,
        "k" | "K" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    Some(number * factor)
}

/// Parses bytes with binary prefixes, as wrk, h2load and oha print them: "49.63GB", "74.44 MiB".
pub fn binary_bytes(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    let power = match unit.trim_end_matches("/s").trim_end_matches("/sec") {
        "B" => 0,
        "KB" | "KiB" | "K" => 1,
        "MB" | "MiB" | "M" => 2,
        "GB" | "GiB" | "G" => 3,
        "TB" | "TiB" | "T" => 4,
        "PB" | "PiB" | "P" => 5,
        _ => return None,
    };
    Some(number * 1024f64.powi(power))
}

/// Returns one unit of the last digit of such bytes: 0.01 GB for "49.63GB".
pub fn binary_step(text: &str) -> Option<f64> {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.'))?;
    let (digits, unit) = text.split_at(end);
    let decimals = digits.split_once('.').map_or(0, |(_, digits)| digits.len().min(12));
    Some(binary_bytes(&format!("1{unit}"))? * 10f64.powi(-(decimals as i32)))
}

/// Parses qperf's rates of bits or bytes, with decimal prefixes, into bytes per second:
/// "1.36 MB/sec", "10.9 Gb/sec".
pub fn qperf_rate(text: &str) -> Option<f64> {
    let (number, unit) = split(text)?;
    // A terminal may have cut the end of the line.
    let unit = ["/sec", "/se", "/s"].iter().find_map(|end| unit.strip_suffix(end))?;
    let (prefix, divisor) = match unit.strip_suffix("bytes").or(unit.strip_suffix('B')) {
        Some(prefix) => (prefix.trim(), 1.0),
        None => (unit.strip_suffix("bits").or(unit.strip_suffix('b'))?.trim(), 8.0),
    };
    let factor = match prefix {
        "" => 1.0,
        "K" | "k" => 1e3,
        "M" => 1e6,
        "G" => 1e9,
        "T" => 1e12,
        _ => return None,
    };
    Some(number * factor / divisor)
}

/// Parses a number in a flag: "5000", "5k", "1.5M".
pub fn si(text: &str) -> Option<f64> {
    count(text)
}

/// Parses a time in a flag, or as Go prints it: "30s", "2m", "250ms", "1m30.5s"; bare numbers are
/// seconds.
pub fn seconds(text: &str) -> Option<f64> {
    plain(text).or_else(|| parts_ns(text).map(|ns| ns / 1e9)).filter(|s| *s >= 0.0)
}

/// Adds up durations written one after another.
fn parts_ns(text: &str) -> Option<f64> {
    let is_unit = |c: char| c.is_alphabetic();
    let mut rest = text;
    let mut sum = 0.0;
    loop {
        let unit = rest.find(is_unit)?;
        let end = rest[unit..].find(|c| !is_unit(c)).map_or(rest.len(), |length| unit + length);
        sum += duration_ns(&rest[..end]).filter(|ns| *ns >= 0.0)?;
        rest = &rest[end..];
        if rest.is_empty() {
            return Some(sum);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_and_nothing_else() {
        for (text, expected) in [
            ("870.00us", Some(870_000.0)),
            ("1.02s", Some(1.02e9)),
            ("16.54ms", Some(16.54e6)),
            ("2.00m", Some(120e9)),
            ("14.2 us", Some(14_200.0)),
            ("0.00us", Some(0.0)),
            ("-nan", None),
            ("1.02", None),
            ("inf", None),
            ("7,80ms", None),
            ("1,024 us", Some(1_024_000.0)),
        ] {
            assert_eq!(duration_ns(text), expected, "{text}");
        }
        assert_eq!(binary_bytes("49.63GB"), Some(49.63 * 1024f64.powi(3)));
        assert_eq!(binary_bytes("4.02MB/s"), Some(4.02 * 1024f64.powi(2)));
        assert_eq!(binary_bytes("12"), None);
        assert_eq!(binary_step("49.63GB"), Some(1024f64.powi(3) * 0.01));
        assert_eq!(
            (count("17.80k"), count("121.22"), count("1q")),
            (Some(17_800.0), Some(121.22), None)
        );
        assert_eq!(qperf_rate("1.36 MB/sec"), Some(1.36e6));
        assert_eq!(qperf_rate("8 Gb/sec"), Some(1e9));
        assert_eq!(qperf_rate("64 bytes/sec"), Some(64.0));
        assert_eq!((seconds("30"), seconds("2m"), seconds("x")), (Some(30.0), Some(120.0), None));
        assert_eq!((seconds("1m30.5s"), seconds("1h0m0s")), (Some(90.5), Some(3600.0)));
        assert_eq!((seconds("1m30"), seconds("1m-30s"), seconds("m")), (None, None, None));
        assert_eq!((whole("4,879,138"), whole("-1")), (Some(4_879_138), None));
        let value = |text: &str| decimal(text).map(|(value, _)| value);
        assert_eq!((value("45,2"), value("4,536.86")), (Some(45.2), Some(4536.86)));
        assert_eq!((value("4.536,86"), value("4,536")), (Some(4536.86), Some(4536.0)));
        assert_eq!((value("4,5,6"), decimal("0.25").map(|d| d.1)), (None, Some(0.01)));
    }
}
