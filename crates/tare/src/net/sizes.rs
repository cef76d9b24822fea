//! Parses message sizes: `64`, `4K`, a list of them, or qperf's `1:256K:*64`.

/// Maximum number of sizes in a list.
const SIZES_MAX: usize = 1000;

/// Parses a list of sizes; each part may be a loop, `first:last:step` or `first:last:*factor`.
pub fn sizes(text: &str) -> Result<Vec<u32>, String> {
    let mut all = Vec::new();
    for part in text.split(',') {
        match part.split(':').collect::<Vec<_>>().as_slice() {
            [one] => all.push(size(one)?),
            [first, last, step] => all.extend(looped(first, last, step)?),
            _ => return Err(format!("'{part}' is not a size or loop; {ALLOWED}")),
        }
        if all.len() > SIZES_MAX {
            return Err(format!("'{text}' makes more than {SIZES_MAX} sizes"));
        }
    }
    Ok(all)
}

const ALLOWED: &str = "write 64, 4K or 1M, a list of these, or 1:256K:*64";

/// Parses a size as qperf does: K and Ki are 1,024, k and kb are 1,000.
pub fn size(text: &str) -> Result<u32, String> {
    let bad = || format!("'{text}' is not a size in bytes; {ALLOWED}");
    let digits = text.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    let scale: f64 = match &text[digits.len()..] {
        "" => 1.0,
        "k" | "kb" => 1e3,
        "K" | "Ki" | "Kib" | "KiB" | "kib" => 1024.0,
        "m" | "mb" => 1e6,
        "M" | "Mi" | "Mib" | "MiB" | "mib" => 1024.0 * 1024.0,
        _ => return Err(bad()),
    };
    let number: f64 = digits.parse().map_err(|_| bad())?;
    match number * scale {
        bytes if bytes >= 1.0 && bytes.fract() == 0.0 && bytes <= 1e9 => Ok(bytes as u32),
        _ => Err(bad()),
    }
}

fn looped(first: &str, last: &str, step: &str) -> Result<Vec<u32>, String> {
    let (first, last) = (size(first)?, size(last)?);
    let bad = || format!("'{step}' is not a step; write 64 to add, *2 to multiply");
    let next: Box<dyn Fn(u64) -> u64> = match step.strip_prefix('*') {
        Some(factor) => {
            let factor: u64 = factor.parse().ok().filter(|f| *f >= 2).ok_or_else(bad)?;
            Box::new(move |size| size.saturating_mul(factor))
        }
        None => {
            let step = u64::from(size(step).map_err(|_| bad())?);
            Box::new(move |size| size + step)
        }
    };
    let sizes = std::iter::successors(Some(u64::from(first)), |size| Some(next(*size)));
    let within = sizes.take_while(|size| *size <= u64::from(last)).take(SIZES_MAX + 1);
    let sizes: Vec<u32> = within.map(|size| size as u32).collect();
    match sizes.is_empty() {
        true => Err(format!("a loop from {first} up to {last} has no value")),
        false => Ok(sizes),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loops_are_those_of_qperf() {
        assert_eq!(sizes("1:256K:*64"), Ok(vec![1, 64, 4096, 262_144]));
        assert_eq!(sizes("1,64,4K"), Ok(vec![1, 64, 4096]));
        assert_eq!(sizes("100:250:64"), Ok(vec![100, 164, 228]));
        assert_eq!(sizes("1k,1:2:*2"), Ok(vec![1000, 1, 2]));
        assert_eq!(size("1.5K"), Ok(1536));
        for wrong in ["", "x", "1:2", "4:1:*2", "1:9:*1", "1:9:0", "1:9:-1", "0", "-1", "1.5", "9G"]
        {
            assert!(sizes(wrong).is_err(), "{wrong}");
        }
        assert!(sizes("1:1M:1").unwrap_err().contains("more than 1000"));
    }
}
