//! What an agent sees of the place it is in.

use std::collections::BTreeMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use tare_io::process::{Watched, reap};
use tare_io::{DurationNs, net_config, process, system};
use tare_lab::agent::VERSION;
use tare_lab::agent::protocol::Hello;
use tare_lab::groups::Group;
use tare_lab::places::agent_file;
use tare_lab::processes;

/// CPU flags that tell of virtual and confidential machines.
const FLAGS: [&str; 5] = ["hypervisor", "tdx_guest", "sev", "sev_es", "sev_snp"];
const DEVICES: [&str; 4] = ["/dev/tdx_guest", "/dev/tdx-guest", "/dev/sev-guest", "/dev/kvm"];
const NAMESPACES: [&str; 6] = ["net", "pid", "mnt", "uts", "ipc", "user"];

pub fn hello(in_pod: bool) -> Hello {
    let in_group = in_pod && Group::own().is_some();
    Hello {
        version: VERSION.into(),
        can: ["serve", "probe", "load"].map(str::to_owned).to_vec(),
        kernel_release: line("/proc/sys/kernel/osrelease"),
        kernel: line("/proc/version"),
        boot_id: line("/proc/sys/kernel/random/boot_id"),
        uid: process::effective_uid(),
        cpus: system::allowed_cpus().len(),
        memory_bytes: memory_bytes(),
        namespaces: namespaces(),
        addresses: net_config::addresses(),
        cpu_flags: cpu_flags(),
        devices: DEVICES
            .into_iter()
            .filter(|path| fs::exists(path).unwrap_or(false))
            .map(str::to_owned)
            .collect(),
        capabilities: capabilities(),
        hostname: line("/proc/sys/kernel/hostname"),
        program_sha256: agent_file::hash(Path::new("/proc/self/exe")).unwrap_or_default(),
        meters_by: if in_group { "its container's control group" } else { "process" }.into(),
        // As the kubelet tells it.
        node: std::env::var("TARE_NODE").unwrap_or_default(),
    }
}

fn line(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default().trim().to_owned()
}

fn memory_bytes() -> u64 {
    let text = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let total = text.lines().find_map(|line| line.strip_prefix("MemTotal:"));
    let kb = total.and_then(|rest| rest.split_whitespace().next()?.parse::<u64>().ok());
    kb.unwrap_or_default() * 1024
}

fn namespaces() -> BTreeMap<String, String> {
    let link = |kind: &str| fs::read_link(format!("/proc/self/ns/{kind}")).ok();
    let all = NAMESPACES
        .into_iter()
        .filter_map(|kind| Some((kind.to_owned(), link(kind)?.to_string_lossy().into_owned())));
    all.collect()
}

fn cpu_flags() -> Vec<String> {
    let text = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let flags = text.lines().find(|line| line.starts_with("flags")).unwrap_or_default();
    let seen = flags.split_whitespace().filter(|flag| FLAGS.contains(flag));
    seen.map(str::to_owned).collect()
}

fn capabilities() -> String {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let found = text.lines().find_map(|line| line.strip_prefix("CapEff:"));
    found.unwrap_or_default().trim().to_owned()
}

/// Who has connections to a port here, and how many.
pub fn peers(port: u16) -> BTreeMap<IpAddr, u64> {
    let mut found = BTreeMap::new();
    for path in ["/proc/net/tcp", "/proc/net/tcp6"] {
        let text = fs::read_to_string(path).unwrap_or_default();
        for ip in text.lines().filter_map(|line| peer(line, port)) {
            *found.entry(ip).or_default() += 1;
        }
    }
    found
}

/// `sl: LOCAL:PORT REMOTE:PORT STATE …`, addresses in hexadecimal words of this machine's order.
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

/// Ends whatever a server left to itself.
pub fn end_children() {
    // Children of those that end become this process's own.
    for _ in 0..GENERATIONS {
        let children = processes::children(std::process::id());
        if children.is_empty() {
            return;
        }
        for pid in children {
            if let Ok(watched) = Watched::new(pid) {
                let _ = watched.signal(libc::SIGKILL);
                watched.ends_within(KILLED_WITHIN);
            }
            reap(pid);
        }
    }
}

const GENERATIONS: u32 = 50;

const KILLED_WITHIN: DurationNs = DurationNs::from_secs(1);

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
