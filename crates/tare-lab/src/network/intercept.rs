//! Redirects connections through a sidecar that neither end knows of, as meshes do, with iptables'
//! REDIRECT. The rules are in a network namespace of tare's own and are removed with it.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::Path;

use tare_io::DurationNs;

use crate::machine::commands::{run, run_checked};
use crate::machine::programs;
use tare_model::Failure;

/// A network namespace that tare made, and the address reached in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Namespace {
    pub name: String,
    pub address: IpAddr,
}

/// Which connections are redirected: those leaving the namespace for an address, or those arriving
/// at one in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    Outbound,
    Inbound,
}

/// The address from which a server's sidecar connects, as in Istio; the server's peers show it.
pub const SIDECAR: IpAddr = IpAddr::V4(Ipv4Addr::new(127, 0, 0, 6));

const TIMEOUT: DurationNs = DurationNs::from_secs(10);
/// Groups to which no process should belong, by their names on different systems.
const NO_GROUPS: [&str; 2] = ["nogroup", "nobody"];

pub fn check_machine() -> Result<(), Failure> {
    programs::need(&["iptables-restore"], "iptables")?;
    programs::need(&["ip"], "iproute2")?;
    programs::need(&["setpriv"], "util-linux")?;
    group().map(drop)
}

/// Returns the group of all sidecars. Connections from this group are not redirected again.
pub fn group() -> Result<(&'static str, u32), Failure> {
    let groups = std::fs::read_to_string("/etc/group").unwrap_or_default();
    let found = NO_GROUPS.into_iter().find_map(|name| {
        let mut fields = groups.lines().find_map(|line| {
            let mut fields = line.split(':');
            (fields.next() == Some(name)).then_some(fields)
        })?;
        Some((name, fields.nth(1)?.parse().ok()?))
    });
    found.ok_or_else(|| {
        Failure::environment("sidecars need a group nogroup or nobody in /etc/group")
    })
}

impl Namespace {
    /// Returns the command that starts a sidecar in this namespace, in the group that its rules
    /// exempt, with no capability but CAP_SETGID.
    pub fn enter(&self, argv: Vec<String>) -> Result<Vec<String>, Failure> {
        let found = |name: &str, from: &str| -> Result<String, Failure> {
            Ok(programs::need(&[name], from)?.display().to_string())
        };
        let (_, gid) = group()?;
        let mut all = vec![found("ip", "iproute2")?, "netns".into(), "exec".into()];
        all.extend([self.name.clone(), found("setpriv", "util-linux")?]);
        all.extend(["--regid".into(), gid.to_string(), "--clear-groups".into()]);
        all.extend(["--bounding-set".into(), "-all,+setgid".into()]);
        all.extend(argv);
        Ok(all)
    }

    /// Replaces its rules: redirects connections for `to` to this local port.
    pub fn intercept(
        &self,
        direction: Direction,
        to: SocketAddr,
        port: u16,
        folder: &Path,
    ) -> Result<(), Failure> {
        let path = folder.join("redirect.rules");
        let text = rules(direction, to, port, group()?.1);
        std::fs::write(&path, text).map_err(|e| Failure::file("write", &path, e))?;
        let path = path.display().to_string();
        let argv = ["ip", "netns", "exec", &self.name, "iptables-restore", "-w", "5", &path];
        run_checked(&argv, TIMEOUT, "send connections through a sidecar").map(drop)
    }

    /// Counts the connections that its rules redirected.
    pub fn intercepted(&self) -> Option<u64> {
        let argv = ["ip", "netns", "exec", &self.name, "iptables-save", "-c", "-t", "nat"];
        let saved = run(&argv, TIMEOUT);
        saved.worked.then(|| counted(&saved.out))
    }
}

fn rules(direction: Direction, to: SocketAddr, port: u16, group: u32) -> String {
    let (chain, whose) = match direction {
        Direction::Outbound => ("OUTPUT", format!(" -m owner ! --gid-owner {group}")),
        Direction::Inbound => ("PREROUTING", String::new()),
    };
    format!(
        "*nat\n:PREROUTING ACCEPT [0:0]\n:INPUT ACCEPT [0:0]\n:OUTPUT ACCEPT [0:0]\n\
         :POSTROUTING ACCEPT [0:0]\n-A {chain} -d {}/32 -p tcp -m tcp --dport {}{whose} -j \
         REDIRECT --to-ports {port}\nCOMMIT\n",
        to.ip(),
        to.port()
    )
}

/// Sums the packets of `[packets:bytes] -A … -j REDIRECT …`: only the first packet of each
/// connection is counted.
fn counted(saved: &str) -> u64 {
    let lines = saved.lines().filter(|line| line.contains("-j REDIRECT"));
    let packets =
        lines.filter_map(|line| line.strip_prefix('[')?.split_once(':')?.0.parse::<u64>().ok());
    packets.sum()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_name_one_address_and_leave_the_sidecars_own_alone() {
        let to = "10.213.0.2:20000".parse().unwrap();
        let leaving = rules(Direction::Outbound, to, 15_001, 65_534);
        assert!(
            leaving.contains(
                "-A OUTPUT -d 10.213.0.2/32 -p tcp -m tcp --dport 20000 -m owner ! --gid-owner \
                 65534 -j REDIRECT --to-ports 15001\n"
            ),
            "{leaving}"
        );
        let coming = rules(Direction::Inbound, to, 15_006, 65_534);
        assert!(coming.contains("-A PREROUTING -d 10.213.0.2/32") && !coming.contains("owner"));
    }

    #[test]
    fn packets_of_redirections_are_counted_and_of_nothing_else() {
        let saved = "*nat\n:OUTPUT ACCEPT [9:540]\n[3:180] -A OUTPUT -d 10.0.0.1/32 -p tcp -j \
                     REDIRECT --to-ports 15001\n[7:7] -A OUTPUT -j ACCEPT\nCOMMIT\n";
        assert_eq!(counted(saved), 3);
        assert_eq!(counted(""), 0);
    }
}
