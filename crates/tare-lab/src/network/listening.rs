//! Finds listening ports in the kernel's tables.

use std::collections::BTreeSet;
use std::fs;
use std::net::IpAddr;

/// A socket that accepts connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Listener {
    ip: IpAddr,
    port: u16,
    inode: u64,
}

/// Returns the TCP ports on which any of these processes accepts connections.
pub fn ports_of(pids: &[u32]) -> BTreeSet<u16> {
    let (own, _) = listeners(pids);
    own.iter().map(|listener| listener.port).collect()
}

/// Returns the port of these processes, if they have exactly one and accept connections to it at
/// `ip`; or why it is unclear which process gets the connections.
pub fn only_port(pids: &[u32], ip: IpAddr) -> Result<Option<u16>, String> {
    let (own, others) = listeners(pids);
    decide(&own, &others, ip)
}

fn decide(own: &[Listener], others: &[Listener], ip: IpAddr) -> Result<Option<u16>, String> {
    let ports: BTreeSet<u16> = own.iter().map(|listener| listener.port).collect();
    let answers_at_ip = |one: &&Listener| one.ip == ip || one.ip.is_unspecified();
    let (Some(port), 1) = (ports.first().copied(), ports.len()) else { return Ok(None) };
    if own.iter().find(answers_at_ip).is_none() {
        return Ok(None);
    }
    match others.iter().filter(answers_at_ip).any(|other| other.port == port) {
        true => Err(format!("port {port} is also another process's")),
        false => Ok(Some(port)),
    }
}

/// Returns the listeners of these processes, and all others that they could be taken for.
fn listeners(pids: &[u32]) -> (Vec<Listener>, Vec<Listener>) {
    let inodes: BTreeSet<u64> = pids.iter().flat_map(|pid| sockets_of(*pid)).collect();
    // The processes may have a network namespace of their own; its tables are read through the
    // first process.
    let Some(first) = pids.first() else { return Default::default() };
    let tables = ["tcp", "tcp6"].map(|name| format!("/proc/{first}/net/{name}"));
    let texts = tables.iter().filter_map(|path| fs::read_to_string(path).ok());
    let all = texts.flat_map(|text| text.lines().filter_map(listener).collect::<Vec<_>>());
    all.partition(|listener| inodes.contains(&listener.inode))
}

/// Returns the inodes of a process's open sockets.
fn sockets_of(pid: u32) -> Vec<u64> {
    let Ok(files) = fs::read_dir(format!("/proc/{pid}/fd")) else { return Vec::new() };
    let links = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
    let inode = |link: std::path::PathBuf| {
        link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.parse().ok()
    };
    links.filter_map(inode).collect()
}

/// Parses `sl: LOCAL:PORT REMOTE:PORT STATE tx:rx tr:when retrnsmt uid timeout INODE …` of a
/// listening socket.
fn listener(line: &str) -> Option<Listener> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != LISTEN {
        return None;
    }
    let (ip, port) = local.rsplit_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    Some(Listener { ip: address(ip)?, port, inode: inode.parse().ok()? })
}

/// Parses an address: words of 32 bits, in the machine's order of bytes.
fn address(hex: &str) -> Option<IpAddr> {
    let word = |at: usize| u32::from_str_radix(hex.get(at..at + 8)?, 16).ok();
    let bytes = |at: usize| word(at).map(u32::to_ne_bytes);
    match hex.len() {
        8 => Some(IpAddr::from(bytes(0)?)),
        32 => {
            let all = [bytes(0)?, bytes(8)?, bytes(16)?, bytes(24)?].concat();
            let all: [u8; 16] = all.try_into().ok()?;
            Some(IpAddr::from(all).to_canonical())
        }
        _ => None,
    }
}

const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_from_the_kernels_tables() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    0 0 4711 1 0000000000000000 100 0 0 10 0";
        let found = listener(line).unwrap();
        let ip = IpAddr::from([127, 0, 0, 1]);
        assert_eq!(found, Listener { ip, port: 8080, inode: 4711 });
        assert_eq!(listener(&line.replace(" 0A ", " 01 ")), None, "it is connected");
        for bad in ["", "  sl  local_address rem_address   st", "0: x y 0A a b c d e f"] {
            assert_eq!(listener(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_process_is_found_to_listen_where_it_does() {
        let socket = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = socket.local_addr().unwrap().port();
        assert!(ports_of(&[std::process::id()]).contains(&port));
        drop(socket);
        assert!(!ports_of(&[std::process::id()]).contains(&port));
        assert!(ports_of(&[]).is_empty());
    }

    #[test]
    fn a_port_is_taken_only_where_its_connections_are_the_servers() {
        let ip = IpAddr::from([127, 0, 0, 1]);
        let at = |ip: &str, port| Listener { ip: ip.parse().unwrap(), port, inode: 1 };
        assert_eq!(decide(&[at("127.0.0.1", 80)], &[], ip), Ok(Some(80)));
        assert_eq!(decide(&[at("0.0.0.0", 80), at("::", 80)], &[], ip), Ok(Some(80)));
        assert_eq!(decide(&[at("::1", 80)], &[], ip), Ok(None), "another address");
        assert_eq!(decide(&[at("::", 80), at("::", 81)], &[], ip), Ok(None), "two ports");
        assert_eq!(decide(&[], &[at("::", 80)], ip), Ok(None));
        let shared = decide(&[at("127.0.0.1", 80)], &[at("0.0.0.0", 80)], ip);
        assert_eq!(shared, Err("port 80 is also another process's".into()));
        let elsewhere = [at("127.0.0.1", 81), at("10.0.0.1", 80), at("::1", 80)];
        assert_eq!(decide(&[at("127.0.0.1", 80)], &elsewhere, ip), Ok(Some(80)));
    }

    #[test]
    fn addresses_are_read_in_the_machines_order() {
        #[cfg(target_endian = "little")]
        for (hex, ip) in [
            ("0100007F", "127.0.0.1"),
            ("00000000000000000000000000000000", "::"),
            ("00000000000000000000000001000000", "::1"),
            ("0000000000000000FFFF00000100007F", "127.0.0.1"),
        ] {
            assert_eq!(address(hex), ip.parse().ok(), "{hex}");
        }
        assert_eq!(address("0100"), None);
    }
}
