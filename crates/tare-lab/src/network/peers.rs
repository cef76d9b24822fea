//! Finds the peers of a port in the kernel's tables.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// Counts the established connections to a local port, by peer.
pub fn connected_to(port: u16) -> BTreeMap<IpAddr, u64> {
    let mut found = BTreeMap::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(path).unwrap_or_default();
        for ip in text.lines().filter_map(|line| peer(line, port)) {
            *found.entry(ip).or_default() += 1;
        }
    }
    found
}

/// Parses `sl: LOCAL:PORT REMOTE:PORT STATE …`; addresses are hexadecimal words in native byte
/// order.
fn peer(line: &str, port: u16) -> Option<IpAddr> {
    let mut fields = line.split_whitespace().skip(1);
    let (local, remote, state) = (fields.next()?, fields.next()?, fields.next()?);
    let (_, own) = local.split_once(':')?;
    if state != ESTABLISHED || u16::from_str_radix(own, 16).ok()? != port {
        return None;
    }
    let (ip, _) = remote.split_once(':')?;
    let word = |at: usize| -> Option<[u8; 4]> {
        Some(u32::from_str_radix(ip.get(at * 8..at * 8 + 8)?, 16).ok()?.to_ne_bytes())
    };
    if ip.len() == 8 {
        return Some(Ipv4Addr::from(word(0)?).into());
    }
    let words = [word(0)?, word(1)?, word(2)?, word(3)?];
    let bytes: [u8; 16] = words.concat().try_into().ok()?;
    Some(Ipv6Addr::from(bytes).to_canonical())
}

const ESTABLISHED: &str = "01";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peers_are_read_from_the_kernels_tables() {
        let four = "  1: 0501F40A:4E21 FE00620A:C350 01 00000000:00000000 00:00000000 0 0 0 1";
        assert_eq!(peer(four, 20_001), Some("10.98.0.254".parse().unwrap()));
        assert_eq!(peer(four, 20_002), None);
        assert_eq!(peer(&four.replace(" 01 ", " 06 "), 20_001), None, "it has ended");
        let six = "  1: 00000000000000000000000000000000:4E21 \
                   0000000000000000FFFF0000FE00620A:C350 01 0";
        assert_eq!(peer(six, 20_001), Some("10.98.0.254".parse().unwrap()));
        for bad in ["", "sl local rem", "1: x y 01", "1: 0:4E21 ZZ:1 01", "1: 0:4E21 é:1 01"] {
            assert_eq!(peer(bad, 20_001), None, "{bad}");
        }
    }
}
