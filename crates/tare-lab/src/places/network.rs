//! tare's own network: a bridge with an unused private range, and links to it.
//!
//! The bridge's name contains the number of its range. The kernel allows a name only once, so the
//! run that created the bridge owns the range. Places have no route beyond the bridge, and it
//! forwards nothing: no other machine can reach them.

use std::net::{IpAddr, Ipv4Addr};
use std::path::Path;

use tare_io::DurationNs;

use crate::journal::Journal;
use crate::journal::resources::{BlockedRange, Link, NetworkNamespace};
use crate::machine::commands::{run, run_checked};
use tare_model::Failure;

#[derive(Debug)]
pub struct Network {
    range: Range,
    /// Part of the MAC addresses; distinguishes this run's links from others.
    owner: [u8; 3],
}

/// 256 addresses; `.1` is this machine's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range(u16);

/// First two bytes of the ranges to try; each gives 256 ranges.
const BASES: [[u8; 2]; 3] = [[10, 213], [172, 29], [192, 168]];
const PREFIX_BITS: u8 = 24;
/// Lower priority than any route of the kernel or of others.
pub const BLOCKED_METRIC: &str = "4000000000";
const TIMEOUT: DurationNs = DurationNs::from_secs(10);

impl Range {
    fn all() -> impl Iterator<Item = Self> {
        (0..BASES.len() as u16 * 256).map(Range)
    }

    fn address(self, host: u8) -> Ipv4Addr {
        let [a, b] = BASES[usize::from(self.0 / 256)];
        Ipv4Addr::new(a, b, (self.0 % 256) as u8, host)
    }

    fn bridge(self) -> String {
        format!("tare-br{}", self.0)
    }

    fn overlaps(self, address: Ipv4Addr, bits: u8) -> bool {
        let shared = bits.min(PREFIX_BITS);
        let mask = u32::MAX.checked_shl(32 - u32::from(shared)).unwrap_or(0);
        u32::from(self.address(0)) & mask == u32::from(address) & mask
    }
}

/// Rate limit and delay of a link.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shape {
    /// As `tc` writes it: `1gbit`.
    pub rate: Option<String>,
    /// As `tc` writes it: `1ms`.
    pub delay: Option<String>,
}

impl Network {
    /// Creates a bridge with the first free range.
    pub fn make(journal: &Journal) -> Result<Self, Failure> {
        super::need_root("a network of its own")?;
        let taken = taken();
        let owner = owner();
        for range in Range::all() {
            // An existing bridge means that its range is taken; `tare clean` frees stale ones.
            let bridge = range.bridge();
            let exists = Path::new("/sys/class/net").join(&bridge).exists();
            if exists || taken.iter().any(|(address, bits)| range.overlaps(*address, *bits)) {
                continue;
            }
            let network = Self { range, owner };
            let mac = network.mac(1, 0);
            journal.record_before_create(Link { name: bridge.clone(), mac: mac.clone() })?;
            let made =
                run(&["ip", "link", "add", &bridge, "address", &mac, "type", "bridge"], TIMEOUT);
            if made.worked {
                network.set_up(journal)?;
                return Ok(network);
            }
            if !made.said.contains("exists") {
                let text = format!("cannot make the bridge {bridge}: {}", made.said);
                return Err(Failure::environment(text));
            }
        }
        Err(Failure::environment(
            "no private range of addresses is free: all of 10.213/16, 172.29/16 and 192.168/16 \
             are in use (tare clean removes what killed runs left)",
        ))
    }

    fn set_up(&self, journal: &Journal) -> Result<(), Failure> {
        let bridge = self.range.bridge();
        // If the bridge disappears during a run, load must not take another route.
        let range = format!("{}/{PREFIX_BITS}", self.range.address(0));
        journal.record_before_create(BlockedRange {
            range: range.clone(),
            bridge: bridge.clone(),
            mac: self.mac(1, 0),
        })?;
        let blocked = ["ip", "route", "add", "unreachable", &range, "metric", BLOCKED_METRIC];
        run_checked(&blocked, TIMEOUT, "keep a range of addresses to this machine")?;
        let own = format!("{}/{PREFIX_BITS}", self.range.address(1));
        run_checked(
            &["ip", "addr", "add", &own, "dev", &bridge],
            TIMEOUT,
            "give the bridge an address",
        )?;
        run_checked(&["ip", "link", "set", &bridge, "up"], TIMEOUT, "start the bridge")?;
        // Traffic of places is never forwarded, even if this machine is a router.
        for (family, key, value) in [("ipv4", "forwarding", "0"), ("ipv6", "disable_ipv6", "1")] {
            let path = format!("/proc/sys/net/{family}/conf/{bridge}/{key}");
            if Path::new(&path).exists() && std::fs::write(&path, value).is_err() {
                let text = format!("cannot keep {bridge} to this machine: {path} cannot be set");
                return Err(Failure::environment(text));
            }
        }
        Ok(())
    }

    pub fn own_address(&self) -> IpAddr {
        self.range.address(1).into()
    }

    pub fn address(&self, index: u8) -> IpAddr {
        self.range.address(host_number(index)).into()
    }

    pub fn with_bits(address: IpAddr) -> String {
        format!("{address}/{PREFIX_BITS}")
    }

    pub fn bridge(&self) -> String {
        self.range.bridge()
    }

    /// The MAC address of one end of a link: locally administered, with `owner` in the middle.
    pub fn mac(&self, host: u8, end: u8) -> String {
        let [a, b, c] = self.owner;
        format!("02:{a:02x}:{b:02x}:{c:02x}:{host:02x}:{end:02x}")
    }

    /// The hardware address of a place's own link.
    pub fn place_mac(&self, index: u8) -> String {
        self.mac(host_number(index), 1)
    }

    /// The name of this machine's end of the link to a place's namespace.
    pub fn link(&self, index: u8) -> String {
        format!("tare-v{}-{index}", self.range.0)
    }

    /// The name of this machine's end of the link to a virtual machine.
    pub fn tap(&self, index: u8) -> String {
        format!("tare-t{}-{index}", self.range.0)
    }

    /// Creates a network namespace with one link to the bridge, replacing one of the same name.
    pub fn attach_namespace(
        &self,
        index: u8,
        name: &str,
        shape: &Shape,
        journal: &Journal,
    ) -> Result<IpAddr, Failure> {
        let link = self.link(index);
        let host = host_number(index);
        let (mac, peer_mac) = (self.mac(host, 0), self.mac(host, 1));
        if Path::new("/run/netns").join(name).exists() {
            self.detach_namespace(index, name);
        } else {
            journal.record_before_create(NetworkNamespace(name.to_owned()))?;
            journal.record_before_create(Link { name: link.clone(), mac: mac.clone() })?;
        }
        let what = "make a network namespace";
        let ip = |argv: &[&str]| run_checked(argv, TIMEOUT, what).map(drop);
        ip(&["ip", "netns", "add", name])?;
        ip(&[
            "ip", "link", "add", &link, "address", &mac, "type", "veth", "peer", "name", "eth0",
            "address", &peer_mac, "netns", name,
        ])?;
        ip(&["ip", "link", "set", &link, "master", &self.bridge(), "up"])?;
        let address = self.address(index);
        ip(&["ip", "-n", name, "addr", "add", &Self::with_bits(address), "dev", "eth0"])?;
        ip(&["ip", "-n", name, "link", "set", "lo", "up"])?;
        ip(&["ip", "-n", name, "link", "set", "eth0", "up"])?;
        self.shape(&link, name, shape)?;
        Ok(address)
    }

    pub fn detach_namespace(&self, index: u8, name: &str) {
        let link = self.link(index);
        // Delete the link explicitly: the namespace, with the other end, briefly outlives its name.
        run(&["ip", "link", "delete", &link], TIMEOUT);
        run(&["ip", "netns", "delete", name], TIMEOUT);
    }

    /// Limits the link in both directions.
    fn shape(&self, link: &str, namespace: &str, shape: &Shape) -> Result<(), Failure> {
        if *shape == Shape::default() {
            return Ok(());
        }
        let mut kind: Vec<&str> = Vec::new();
        match (&shape.delay, &shape.rate) {
            (Some(delay), rate) => {
                kind.extend(["netem", "delay", delay]);
                rate.iter().for_each(|rate| kind.extend(["rate", rate]));
            }
            (None, Some(rate)) => {
                kind.extend(["tbf", "rate", rate, "burst", "128kb", "latency", "50ms"]);
            }
            (None, None) => {}
        }
        let here = ["tc", "qdisc", "add", "dev", link, "root"];
        let there = ["tc", "-n", namespace, "qdisc", "add", "dev", "eth0", "root"];
        for argv in [here.to_vec(), there.to_vec()] {
            let argv: Vec<&str> = argv.into_iter().chain(kind.iter().copied()).collect();
            let done = run(&argv, TIMEOUT);
            if !done.worked {
                let text = not_shaped(&done.said, shape.delay.is_some());
                return Err(Failure::environment(text));
            }
        }
        Ok(())
    }
}

/// Explains why `tc` failed.
fn not_shaped(said: &str, is_delayed: bool) -> String {
    let is_absent = ["unknown", "No such file", "not found"].iter().any(|word| said.contains(word));
    if is_absent && is_delayed {
        return "a delay needs netem, which this kernel does not have (module sch_netem): leave \
                out delay"
            .into();
    }
    format!("cannot shape the link: {said}")
}

/// Returns the last byte of a place's address; this machine's is 1.
fn host_number(index: u8) -> u8 {
    index + 2
}

/// Limit of places, as each has an address of the range.
pub const PLACES_MAX: usize = 250;

/// Derives bytes from the pid and start time of this process, since pids are reused.
fn owner() -> [u8; 3] {
    let pid = std::process::id();
    let started = crate::machine::processes::Stat::read(pid).map_or(0, |stat| stat.started_ticks);
    let random = tare_io::Random::stream(started, "owner", u64::from(pid)).next_u64();
    let [a, b, c, ..] = random.to_le_bytes();
    [a, b, c]
}

/// Returns the ranges that this machine's links and routes use.
fn taken() -> Vec<(Ipv4Addr, u8)> {
    let addresses = run(&["ip", "-o", "-4", "addr", "show"], TIMEOUT).out;
    let routes = run(&["ip", "-4", "route", "show", "table", "all"], TIMEOUT).out;
    let words = addresses.split_whitespace().chain(routes.split_whitespace());
    let ranges = words.filter_map(|word| {
        let (address, bits) = word.split_once('/').unwrap_or((word, "32"));
        Some((address.parse().ok()?, bits.parse().ok()?))
    });
    // A default route overlaps every range, so it is left out.
    ranges.filter(|(_, bits)| *bits > 0 && *bits <= 32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_know_who_is_in_their_way() {
        let range = Range(7);
        assert_eq!(range.address(1), Ipv4Addr::new(10, 213, 7, 1));
        assert_eq!(Range(256).address(2), Ipv4Addr::new(172, 29, 0, 2));
        assert!(range.overlaps(Ipv4Addr::new(10, 0, 0, 0), 8));
        assert!(range.overlaps(Ipv4Addr::new(10, 213, 7, 99), 32));
        assert!(!range.overlaps(Ipv4Addr::new(10, 213, 8, 0), 24));
        assert!(!range.overlaps(Ipv4Addr::new(192, 168, 0, 0), 16));
        assert!(Range::all().all(|range| range.bridge().len() <= 15));
    }

    #[test]
    fn a_kernel_without_netem_is_told_from_what_tc_refuses() {
        let absent = "Error: Specified qdisc kind is unknown.";
        assert!(not_shaped(absent, true).starts_with("a delay needs netem"));
        assert_eq!(not_shaped(absent, false), format!("cannot shape the link: {absent}"));
        let refused = "Illegal \"latency\"";
        assert_eq!(not_shaped(refused, true), format!("cannot shape the link: {refused}"));
    }
}
