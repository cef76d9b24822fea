//! Names the command that installs a missing program on this system.

use std::path::Path;
use std::sync::LazyLock;

use tare_io::process::is_root;

/// A system's package manager.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manager {
    Apt,
    Dnf,
    Apk,
    Brew,
}

/// Names of packages, by manager; a package that is missing here has Debian's name everywhere.
const NAMES: &[(&str, [&str; 3])] = &[
    // Debian, and Fedora, Alpine, Homebrew.
    ("apache2-bin", ["httpd", "apache2", "httpd"]),
    ("docker.io", ["moby-engine", "docker", "docker"]),
    ("iproute2", ["iproute iproute-tc", "iproute2", "iproute2"]),
    ("iptables", ["iptables-nft", "iptables", "iptables"]),
    ("libc-bin", ["glibc-common", "musl-utils", "glibc"]),
    ("openssh-client", ["openssh-clients", "openssh-client", "openssh"]),
    ("qemu-system-x86", ["qemu-system-x86", "qemu-system-x86_64", "qemu"]),
    ("util-linux", ["util-linux", "util-linux setpriv", "util-linux"]),
];

/// Tells how to install a package, which is given by its name on Debian. Text with a space in it is
/// a hint of another kind, and is returned as it is.
pub fn how_to_install(package: &str) -> String {
    static MANAGER: LazyLock<Option<Manager>> = LazyLock::new(|| {
        let release = std::fs::read_to_string("/etc/os-release").unwrap_or_default();
        let has_brew = || Path::new("/home/linuxbrew/.linuxbrew/bin/brew").exists();
        by_release(&release).or_else(|| has_brew().then_some(Manager::Brew))
    });
    match *MANAGER {
        _ if package.contains(' ') => package.to_owned(),
        Some(manager) => command(manager, package, is_root()),
        None => format!("Debian's package: {package}"),
    }
}

fn by_release(text: &str) -> Option<Manager> {
    let value = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
    let ids = ["ID=", "ID_LIKE="].into_iter().filter_map(value);
    ids.flat_map(|ids| ids.trim_matches(['"', '\'']).split_whitespace()).find_map(|id| match id {
        "debian" | "ubuntu" => Some(Manager::Apt),
        "fedora" | "rhel" | "centos" => Some(Manager::Dnf),
        "alpine" => Some(Manager::Apk),
        _ => None,
    })
}

fn command(manager: Manager, package: &str, is_root: bool) -> String {
    let others = NAMES.iter().find(|(debian, _)| *debian == package).map(|(_, names)| names);
    let other = |at: usize| others.map_or(package, |names| names[at]);
    let (install, name) = match manager {
        Manager::Apt => ("apt-get install", package),
        Manager::Dnf => ("dnf install", other(0)),
        Manager::Apk => ("apk add", other(1)),
        Manager::Brew => ("brew install", other(2)),
    };
    let sudo = if is_root || manager == Manager::Brew { "" } else { "sudo " };
    format!("{sudo}{install} {name}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn systems_are_known_by_their_release_files() {
        let debian = "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nID=debian\n";
        assert_eq!(by_release(debian), Some(Manager::Apt));
        assert_eq!(by_release("ID=linuxmint\nID_LIKE=\"ubuntu debian\"\n"), Some(Manager::Apt));
        assert_eq!(
            by_release("ID=\"rocky\"\nID_LIKE=\"rhel centos fedora\"\n"),
            Some(Manager::Dnf)
        );
        assert_eq!(by_release("VERSION_ID=3.20\nID=alpine\n"), Some(Manager::Apk));
        assert_eq!(by_release("ID=nixos\n"), None);
        assert_eq!(by_release(""), None);
    }

    #[test]
    fn packages_have_their_systems_names() {
        assert_eq!(command(Manager::Apt, "apache2-bin", true), "apt-get install apache2-bin");
        assert_eq!(command(Manager::Dnf, "apache2-bin", false), "sudo dnf install httpd");
        assert_eq!(command(Manager::Apk, "util-linux", true), "apk add util-linux setpriv");
        assert_eq!(command(Manager::Brew, "nginx", false), "brew install nginx");
        assert_eq!(how_to_install("see example.org"), "see example.org");
    }
}
