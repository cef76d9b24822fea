//! Finds listening ports in the kernel's tables.

use std::collections::BTreeSet;
use std::fs;

/// Returns the TCP ports on which any of these processes accepts connections.
pub fn ports_of(pids: &[u32]) -> BTreeSet<u16> {
    let inodes: BTreeSet<u64> = pids.iter().flat_map(|pid| sockets_of(*pid)).collect();
    // The processes may have a network namespace of their own; its tables are read through the
    // first process.
    let Some(first) = pids.first() else { return BTreeSet::new() };
    let tables = ["tcp", "tcp6"].map(|name| format!("/proc/{first}/net/{name}"));
    let texts = tables.iter().filter_map(|path| fs::read_to_string(path).ok());
    let listening = texts.flat_map(|text| text.lines().filter_map(listener).collect::<Vec<_>>());
    listening.filter(|(_, inode)| inodes.contains(inode)).map(|(port, _)| port).collect()
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

/// Parses `sl: LOCAL:PORT REMOTE:PORT STATE tx:rx tr:when retrnsmt uid timeout INODE …`; returns
/// the port and inode of a listening socket.
fn listener(line: &str) -> Option<(u16, u64)> {
    let fields: Vec<&str> = line.split_whitespace().collect();
    let (local, state, inode) = (fields.get(1)?, fields.get(3)?, fields.get(9)?);
    if *state != LISTEN {
        return None;
    }
    let (_, port) = local.rsplit_once(':')?;
    Some((u16::from_str_radix(port, 16).ok()?, inode.parse().ok()?))
}

const LISTEN: &str = "0A";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listeners_are_read_from_the_kernels_tables() {
        let line = "   0: 0100007F:1F90 00000000:0000 0A 00000000:00000000 00:00000000 00000000 \
                    0 0 4711 1 0000000000000000 100 0 0 10 0";
        assert_eq!(listener(line), Some((8080, 4711)));
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
}
