//! Parsers of command-line values that several commands use.

use tare_io::DurationNs;
use tare_model::text::si_number;

pub fn duration(text: &str) -> Result<DurationNs, String> {
    DurationNs::parse(text).map_err(|error| error.to_string())
}

pub fn positive_duration(text: &str) -> Result<DurationNs, String> {
    match duration(text)? {
        DurationNs::ZERO => Err("must be longer than 0".into()),
        duration => Ok(duration),
    }
}

/// Parses a list of CPUs such as `0,2-3`.
pub fn cpu_list(text: &str) -> Result<Vec<usize>, String> {
    let bad = || format!("'{text}' is not a list of CPUs; write 0 or 0,2-3");
    let number = |text: &str| text.parse::<usize>().map_err(|_| bad());
    let mut cpus = Vec::new();
    for part in text.split(',') {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        let (low, high) = (number(low)?, number(high)?);
        if low > high || high >= 4096 {
            return Err(bad());
        }
        cpus.extend(low..=high);
    }
    let allowed = tare_io::system::allowed_cpus();
    match cpus.iter().find(|cpu| !allowed.contains(cpu)) {
        Some(cpu) => {
            Err(format!("CPU {cpu} is not available to this process; choose from {allowed:?}"))
        }
        None => Ok(cpus),
    }
}

pub fn count(text: &str) -> Result<u64, String> {
    let number = si_number(text)?;
    if number >= 1.0 && number.fract() == 0.0 && number <= 1e15 {
        Ok(number as u64)
    } else {
        Err(format!("'{text}' is not a count; write a whole number from 1, as 5000 or 10k"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_suffixes() {
        assert_eq!(si_number("10k"), Ok(10_000.0));
        assert_eq!(si_number("1.5M"), Ok(1_500_000.0));
        assert_eq!(count("3"), Ok(3));
        for text in ["", "k", "-1", "1.5", "nan", "inf", "0", "1e99"] {
            assert!(count(text).is_err(), "{text}");
        }
    }

    #[test]
    fn cpu_lists_are_checked_against_the_machine() {
        assert_eq!(cpu_list("0"), Ok(vec![0]));
        assert!(cpu_list("0,4095").unwrap_err().contains("CPU 4095 is not available"));
        for text in ["", "a", "3-1", "1-", "5000"] {
            assert!(cpu_list(text).unwrap_err().contains("is not a list of CPUs"), "{text}");
        }
    }
}
