//! wrk's numbers with units: two decimals, and the unit in the last two places of the field.

struct Scale {
    step: f64,
    first: &'static str,
    next: &'static [&'static str],
}

const MICROSECONDS: Scale = Scale { step: 1000.0, first: "us", next: &["ms"] };
const SECONDS: Scale = Scale { step: 60.0, first: "s", next: &["m"] };
const COUNT: Scale = Scale { step: 1000.0, first: "", next: &["k", "M", "G", "T"] };
const BINARY: Scale = Scale { step: 1024.0, first: "", next: &["K", "M", "G", "T"] };

/// wrk switches to the next unit at this share of it.
const NEXT_UNIT_FROM: f64 = 0.85;

impl Scale {
    fn format(&self, value: f64, decimals: usize) -> String {
        let (mut value, mut unit) = (value, self.first);
        for next in self.next {
            if value < self.step * NEXT_UNIT_FROM {
                break;
            }
            value /= self.step;
            unit = next;
        }
        format!("{value:.decimals$}{unit}")
    }
}

pub fn time_us(us: f64) -> String {
    if us >= 1e6 { SECONDS.format(us / 1e6, 2) } else { MICROSECONDS.format(us, 2) }
}

/// Whole seconds or minutes, as in wrk's first line.
pub fn time_s(seconds: f64) -> String {
    SECONDS.format(seconds, 0)
}

pub fn metric(n: f64) -> String {
    COUNT.format(n, 2)
}

pub fn binary(bytes: f64) -> String {
    BINARY.format(bytes, 2)
}

/// Right-justifies the text; a unit of less than two letters is padded to two.
pub fn field(text: &str, width: usize) -> String {
    let letters = text.chars().rev().take(2).take_while(char::is_ascii_alphabetic).count();
    let pad = 2 - letters;
    format!("{text:>0$}{1}", width - pad, " ".repeat(pad))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_change_where_wrk_changes_them() {
        let times = [384.77, 849.0, 850.0, 999_999.0, 1e6, 50.9e6, 51e6, 3.6e9].map(time_us);
        let expected =
            ["384.77us", "849.00us", "0.85ms", "1000.00ms", "1.00s", "50.90s", "0.85m", "60.00m"];
        assert_eq!(times, expected);
        assert_eq!(
            [849.0, 850.0, 17_800.0, 2.1e6].map(metric),
            ["849.00", "0.85k", "17.80k", "2.10M"]
        );
        assert_eq!([612.0, 900.0, 21_076_377.0].map(binary), ["612.00", "0.88K", "20.10M"]);
        assert_eq!([5.0, 30.0, 60.0].map(time_s), ["5s", "30s", "1m"]);
    }

    #[test]
    fn fields_align_on_the_number() {
        assert_eq!(field("295.53us", 8), "295.53us");
        assert_eq!(field("1.02s", 8), "  1.02s ");
        assert_eq!(field("86.58k", 8), " 86.58k ");
        assert_eq!(field("849.00", 8), "849.00  ");
    }
}
