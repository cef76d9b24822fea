//! Formats dates and times.

/// Returns `2026-11-21 05:40`, in UTC.
pub fn utc(unix_ms: u64) -> String {
    let minutes = unix_ms / 60_000;
    format!("{} {:02}:{:02}", day(unix_ms), minutes / 60 % 24, minutes % 60)
}

/// Returns `2026-11-21 05:40:07`, in UTC.
pub fn utc_with_seconds(unix_ms: u64) -> String {
    format!("{}:{:02}", utc(unix_ms), unix_ms / 1000 % 60)
}

/// Returns `2026-11-21T05:40:07.123Z` (RFC 3339).
pub fn rfc3339(unix_ms: u64) -> String {
    let text = utc_with_seconds(unix_ms).replace(' ', "T");
    format!("{text}.{:03}Z", unix_ms % 1000)
}

fn day(unix_ms: u64) -> String {
    // Howard Hinnant's days-to-civil: years begin in March, so that the leap day ends them.
    let days = unix_ms / 86_400_000 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates() {
        for (unix_ms, text) in [
            (0, "1970-01-01 00:00"),
            (951_782_399_000, "2000-02-28 23:59"),
            (951_782_400_000, "2000-02-29 00:00"),
            (1_795_239_600_000, "2026-11-21 05:40"),
        ] {
            assert_eq!(utc(unix_ms), text);
        }
        assert_eq!(rfc3339(1_795_239_607_123), "2026-11-21T05:40:07.123Z");
    }
}
