//! Formats results as qperf does: names on the left, numbers on the right, units after them.

use super::options::Show;

/// One line of a result.
pub struct Line {
    pub name: &'static str,
    pub value: Value,
}

pub enum Value {
    /// Bytes per second.
    Bandwidth(f64),
    /// Seconds.
    Time(f64),
    /// Messages per second.
    Rate(f64),
    /// Bytes.
    Size(u32),
    Port(u16),
    Percent(f64),
    Text(String),
}

/// Formats the results of one test.
pub fn block(test: &str, lines: &[Line], show: &Show) -> String {
    let cells: Vec<(&str, String, String)> = lines
        .iter()
        .map(|line| {
            let (number, unit) = line.value.shown(show);
            (line.name, number, unit)
        })
        .collect();
    let width = |of: fn(&(&str, String, String)) -> usize| cells.iter().map(of).max().unwrap_or(0);
    let names = width(|(name, ..)| name.len());
    // Text is not aligned to the right and does not widen the column.
    let numbers = width(|(_, number, unit)| if unit.is_empty() { 0 } else { number.len() });
    let mut text = format!("{test}:\n");
    for (name, number, unit) in &cells {
        match unit.is_empty() {
            true => text.push_str(&format!("    {name:<names$}  =  {number}\n")),
            false => text.push_str(&format!("    {name:<names$}  =  {number:>numbers$} {}\n", {
                if unit == NO_UNIT { "" } else { unit }
            })),
        }
    }
    text
}

/// qperf prints a blank after a number even if it has no unit.
const NO_UNIT: &str = " ";

impl Value {
    fn shown(&self, show: &Show) -> (String, String) {
        match self {
            Self::Bandwidth(bytes_per_s) => {
                let (value, unit) = match show.bits {
                    true => (bytes_per_s * 8.0, ["bits", "Kb", "Mb", "Gb", "Tb"]),
                    false => (*bytes_per_s, ["bytes", "KB", "MB", "GB", "TB"]),
                };
                let (number, unit) = scaled(value, &unit, show);
                (number, format!("{unit}/sec"))
            }
            Self::Time(seconds) if show.unify_units => {
                (format!("{:.0}", seconds * 1e9), "ns".into())
            }
            Self::Time(seconds) => {
                let (scale, unit) = match seconds {
                    s if *s < 999.5e-9 => (1e9, "ns"),
                    s if *s < 999.5e-6 => (1e6, "us"),
                    s if *s < 0.9995 => (1e3, "ms"),
                    _ => (1.0, "sec"),
                };
                (significant(seconds * scale, show.digits), unit.into())
            }
            Self::Rate(per_s) => {
                let (number, unit) = scaled(*per_s, &["", "K", "M", "G", "T"], show);
                (number, format!("{unit}/sec"))
            }
            Self::Size(bytes) if show.unify_units => (bytes.to_string(), "bytes".into()),
            Self::Size(bytes) => size(*bytes),
            Self::Port(port) => (grouped(u64::from(*port)), NO_UNIT.into()),
            Self::Percent(percent) => (significant(*percent, show.digits), "% cpus".into()),
            Self::Text(text) => (text.clone(), String::new()),
        }
    }
}

fn scaled<'a>(value: f64, units: &[&'a str], show: &Show) -> (String, &'a str) {
    if show.unify_units {
        return (format!("{value:.0}"), units[0]);
    }
    let mut value = value;
    let mut at = 0;
    while value >= 999.5 && at + 1 < units.len() {
        value /= 1000.0;
        at += 1;
    }
    (significant(value, show.digits), units[at])
}

/// Formats a number with this many significant digits and no trailing zeros, like C's `%g` without
/// an exponent.
fn significant(value: f64, digits: usize) -> String {
    if value == 0.0 || !value.is_finite() {
        return "0".into();
    }
    let before = value.abs().log10().floor() as i32 + 1;
    let decimals = (digits as i32 - before).clamp(0, 15) as usize;
    let text = format!("{value:.decimals$}");
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

fn size(bytes: u32) -> (String, String) {
    let n = u64::from(bytes);
    for (scale, unit) in [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")] {
        if n >= scale && n.is_multiple_of(scale) {
            return (grouped(n / scale), format!("{unit} ({})", grouped(n)));
        }
    }
    for (scale, unit) in [(1_000_000_000u64, "GB"), (1_000_000, "MB"), (1000, "KB")] {
        if n >= scale && n.is_multiple_of(scale) {
            return (grouped(n / scale), unit.into());
        }
    }
    (grouped(n), "bytes".into())
}

fn grouped(n: u64) -> String {
    tare_report::format::count(n)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected output is from the original qperf.
    #[test]
    fn blocks_are_qperfs_to_the_byte() {
        let show = Show::default();
        let lines = [
            Line { name: "bw", value: Value::Bandwidth(16.1e9) },
            Line { name: "msg_size", value: Value::Size(262_144) },
            Line { name: "port", value: Value::Port(4778) },
            Line { name: "time", value: Value::Time(1.0) },
        ];
        assert_eq!(
            block("tcp_bw", &lines, &show),
            "tcp_bw:\n    bw        =   16.1 GB/sec\n    msg_size  =    256 KiB (262,144)\n    port   \
                \u{20}  =  4,778 \n    time      =      1 sec\n"
        );
        let lines = [
            Line { name: "latency", value: Value::Time(5.49e-6) },
            Line { name: "msg_size", value: Value::Size(1000) },
        ];
        assert_eq!(
            block("udp_lat", &lines, &show),
            "udp_lat:\n    latency   =  5.49 us\n    msg_size  =     1 KB\n"
        );
        let show = Show { unify_units: true, ..Show::default() };
        let lines = [Line { name: "latency", value: Value::Time(10_306e-9) }];
        assert_eq!(block("tcp_lat", &lines, &show), "tcp_lat:\n    latency  =  10306 ns\n");
        let lines = [Line { name: "bw", value: Value::Bandwidth(4_712_693_760.0) }];
        assert_eq!(block("tcp_bw", &lines, &show), "tcp_bw:\n    bw  =  4712693760 bytes/sec\n");
        let show = Show { bits: true, digits: 6, ..Show::default() };
        let lines = [Line { name: "bw", value: Value::Bandwidth(36.9308e9 / 8.0) }];
        assert_eq!(block("tcp_bw", &lines, &show), "tcp_bw:\n    bw  =  36.9308 Gb/sec\n");
        let lines = [Line { name: "loc_node", value: Value::Text("vm".into()) }];
        assert_eq!(block("conf", &lines, &show), "conf:\n    loc_node  =  vm\n");
    }
}
