//! Formats numbers for people.

/// A duration with three significant digits: `87.0µs`, `1.24ms`.
pub fn duration(ns: u64) -> String {
    let (value, unit) = match ns {
        0..1_000 => return format!("{ns}ns"),
        1_000..999_500 => (ns as f64 / 1e3, "µs"),
        999_500..999_500_000 => (ns as f64 / 1e6, "ms"),
        _ => (ns as f64 / 1e9, "s"),
    };
    format!("{}{unit}", three_digits(value))
}

/// A number with its digits grouped: `1,234,567`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number with its noun: `1 round`, `20 rounds`.
pub fn counted(n: u64, one: &str, many: &str) -> String {
    if n == 1 { format!("1 {one}") } else { format!("{} {many}", count(n)) }
}

/// A rate: whole above 100, three digits below.
pub fn rate(per_s: f64) -> String {
    if per_s >= 100.0 { count(per_s.round() as u64) } else { three_digits(per_s) }
}

/// Bytes in powers of 1,000: `1.24 MB`.
pub fn bytes(n: f64) -> String {
    for (scale, unit) in [(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")] {
        if n >= scale * 0.9995 {
            return format!("{} {unit}", three_digits(n / scale));
        }
    }
    format!("{n:.0} B")
}

/// A share as a percentage: `12.3 %`.
pub fn percent(share: f64) -> String {
    match share * 100.0 {
        0.0 => "0 %".into(),
        p if p < 0.01 => "< 0.01 %".into(),
        p if p < 10.0 => format!("{p:.2} %"),
        p => format!("{p:.1} %"),
    }
}

fn three_digits(value: f64) -> String {
    let decimals = match value {
        v if v < 9.995 => 2,
        v if v < 99.95 => 1,
        _ => 0,
    };
    format!("{value:.decimals$}")
}

pub fn signed(value: f64) -> String {
    let sign = if value < 0.0 { "−" } else { "+" };
    format!("{sign}{}", digits(value.abs()))
}

/// Percentages: two decimals below 1, one below 100.
pub fn digits(value: f64) -> String {
    match value.abs() {
        v if v < 0.995 => format!("{value:.2}"),
        v if v < 99.95 => format!("{value:.1}"),
        _ => format!("{value:.0}"),
    }
}

/// An overhead with its interval: `+4.1 % ± 0.9`.
pub fn overhead(point: f64, lower: f64, upper: f64) -> String {
    let half = (upper - lower) / 2.0;
    if half > BEYOND {
        // Two very different rounds can give bounds so large that they would fill the line.
        return format!("{} % ± {BEYOND:.0} or more", signed(point));
    }
    format!("{} % ± {}", signed(point), digits(half))
}

/// Wider intervals in percent are not worth printing.
pub const BEYOND: f64 = 99_999.0;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(
            [999, 87_000, 999_500, 1_240_000, 12_000_000_000].map(duration),
            ["999ns", "87.0µs", "1.00ms", "1.24ms", "12.0s"]
        );
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([1, 2].map(|n| counted(n, "launch", "launches")), ["1 launch", "2 launches"]);
        assert_eq!([0.5, 99.94, 12345.6].map(rate), ["0.50", "99.9", "12,346"]);
        assert_eq!([612.0, 999.9, 1.24e6].map(bytes), ["612 B", "1.00 kB", "1.24 MB"]);
        assert_eq!(
            [0.0, 0.00001, 0.0123, 0.5].map(percent),
            ["0 %", "< 0.01 %", "1.23 %", "50.0 %"]
        );
    }
}
