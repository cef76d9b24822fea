//! Collects what an agent sees of its place.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use tare_io::{net_config, process, system};
use tare_lab::agent::VERSION;
use tare_lab::agent::protocol::Hello;
use tare_lab::meters::groups::Group;
use tare_lab::places::agent_file;

/// CPU flags that indicate virtual and confidential machines.
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
        // Set by the kubelet.
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
