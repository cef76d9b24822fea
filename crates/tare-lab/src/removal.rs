//! Removing what other programs made for tare: links, namespaces, containers, folders elsewhere.
//!
//! Each gives what was done in words, `None` where it was gone already, or a complaint. Only what
//! bears tare's prefix is touched.

use std::path::Path;

use tare_io::DurationNs;

use crate::commands::{Outcome, run};
use crate::journal::PREFIX;
use crate::places::network::BLOCKED_METRIC;

type Removed = Result<Option<String>, String>;

const PATIENCE: DurationNs = DurationNs::from_secs(20);

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn of(outcome: Outcome, what: String) -> Removed {
    match outcome {
        Outcome { worked: true, .. } => Ok(Some(what)),
        Outcome { said, .. } => Err(format!("cannot remove {what}: {said}")),
    }
}

/// Container runtimes mount things in folders of ours.
pub fn unmount_below(folder: &Path) -> Result<(), String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1));
    let below: Vec<&str> = points.filter(|point| Path::new(point).starts_with(folder)).collect();
    for point in below.into_iter().rev() {
        let done = run(&["umount", point], PATIENCE);
        if !done.worked {
            return Err(format!("cannot unmount {point}: {}", done.said));
        }
    }
    Ok(())
}

pub fn link(name: &str, mac: &str) -> Removed {
    let address = std::fs::read_to_string(format!("/sys/class/net/{name}/address"));
    if !is_ours(name) || !address.is_ok_and(|address| address.trim() == mac) {
        return Ok(None);
    }
    of(run(&["ip", "link", "delete", name], PATIENCE), format!("link {name}"))
}

/// The range is its bridge's: one that is somebody's by now has its own route.
pub fn blocked_range(range: &str, bridge: &str, mac: &str) -> Removed {
    let address = std::fs::read_to_string(format!("/sys/class/net/{bridge}/address"));
    if address.is_ok_and(|address| address.trim() != mac) {
        return Ok(None);
    }
    let shown = run(&["ip", "route", "show", "type", "unreachable", range], PATIENCE);
    if shown.worked && shown.out.trim().is_empty() {
        return Ok(None);
    }
    let argv = ["ip", "route", "del", "unreachable", range, "metric", BLOCKED_METRIC];
    of(run(&argv, PATIENCE), format!("route for {range}"))
}

pub fn network_namespace(name: &str) -> Removed {
    if !is_ours(name) || !Path::new("/run/netns").join(name).exists() {
        return Ok(None);
    }
    of(run(&["ip", "netns", "delete", name], PATIENCE), format!("network namespace {name}"))
}

pub fn oci_container(program: &Path, state: &Path, id: &str) -> Removed {
    // Its state goes with the folder it is in; what counts is that nothing runs.
    if !is_ours(id) || !state.join(id).exists() && !has_state(state) {
        return Ok(None);
    }
    let root = state.display().to_string();
    let argv = crate::places::oci::wrapped(program, &["--root", &root, "delete", "--force", id]);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    match run(&argv, PATIENCE) {
        Outcome { worked: true, .. } => Ok(Some(format!("container {id}"))),
        // Runtimes differ in how they say that there is none.
        Outcome { said, .. } => {
            let argv = crate::places::oci::wrapped(program, &["--root", &root, "state", id]);
            let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
            match run(&argv, PATIENCE).worked {
                true => Err(format!("cannot remove container {id}: {said}")),
                false => Ok(None),
            }
        }
    }
}

fn has_state(state: &Path) -> bool {
    std::fs::read_dir(state).is_ok_and(|mut entries| entries.next().is_some())
}

pub fn engine_container(program: &Path, name: &str) -> Removed {
    if !is_ours(name) {
        return Ok(None);
    }
    let program = program.display().to_string();
    let listed = run(&[&program, "ps", "-aq", "--filter", &format!("name=^{name}$")], PATIENCE);
    if listed.worked && listed.out.trim().is_empty() {
        return Ok(None);
    }
    of(run(&[&program, "rm", "--force", name], PATIENCE), format!("container {name}"))
}

pub fn ssh_folder(host: &str, options: &[String], path: &str) -> Removed {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    if !is_ours(&name) || !path.starts_with("/tmp/") || !path.chars().all(plain) {
        return Ok(None);
    }
    let argv = crate::places::ssh::command(host, options, &format!("rm -rf {path}"));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    of(run(&argv, PATIENCE), format!("folder {path} on {host}"))
}
