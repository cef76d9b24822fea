//! Defaults of precision and time, shared by `compare` and `run`.

use tare_io::DurationNs;

/// Parses `2%` or `0.5 %` as a share.
pub fn percent(text: &str) -> Result<f64, String> {
    let bad = || format!("'{text}' is not a percentage; write 2% or 0.5%");
    let number = text.strip_suffix('%').ok_or_else(bad)?.trim();
    let value: f64 = number.parse().map_err(|_| bad())?;
    if value > 0.0 && value <= 100.0 { Ok(value / 100.0) } else { Err(bad()) }
}

/// Default half width of intervals.
pub const PRECISION: f64 = 0.02;
/// Default half width of large overheads, as a share of the overhead.
pub const EFFECT_PRECISION: f64 = 0.1;
pub const MAX_TIME: DurationNs = DurationNs::from_secs(120);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentages() {
        assert_eq!(percent("2%"), Ok(0.02));
        assert_eq!(percent("0.5 %"), Ok(0.005));
        for text in ["2", "%", "0%", "-1%", "101%", "nan%", ""] {
            assert!(percent(text).unwrap_err().contains("write 2% or 0.5%"), "{text}");
        }
    }
}
