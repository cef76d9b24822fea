//! How each kind of thing that a journal names is removed.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_io::DurationNs;
use tare_io::owned::{self, TreeError};
use tare_model::places::ENGINES;

use crate::commands::{self, Outcome, run};
use crate::ending;
use crate::filters::shared::SharedMemory;
use crate::journal::{Made, PREFIX};
use crate::places::network::BLOCKED_METRIC;
use crate::processes::{self, Birth, Stat};
use crate::programs;

/// What was done in words, `None` where it was gone already, or a complaint. Only what bears tare's
/// prefix is touched.
type Removed = Result<Option<String>, String>;

const PATIENCE: DurationNs = DurationNs::from_secs(20);

pub fn remove(made: &Made) -> Removed {
    match made {
        Made::Folder(path) => folder(path),
        Made::SharedMemory(path) => shared_memory(path),
        Made::Cgroup(path) => cgroup(path),
        Made::Processes(leader) => Ok(group(leader)),
        Made::Link { name, mac } => link(name, mac),
        Made::BlockedRange { range, bridge, mac } => blocked_range(range, bridge, mac),
        Made::NetworkNamespace(name) => network_namespace(name),
        Made::OciContainer { runtime, state, id } => oci_container(runtime, state, id),
        Made::EngineContainer { engine, name } => engine_container(engine, name),
        Made::SshFolder { host, options, path } => ssh_folder(host, options, path),
    }
}

fn is_ours(name: &str) -> bool {
    name.starts_with(PREFIX)
}

fn has_our_name(path: &Path) -> bool {
    path.file_name().is_some_and(|name| is_ours(&name.to_string_lossy()))
}

fn of(outcome: Outcome, what: String) -> Removed {
    match outcome {
        Outcome { worked: true, .. } => Ok(Some(what)),
        Outcome { said, .. } => Err(format!("cannot remove {what}: {said}")),
    }
}

fn folder(path: &Path) -> Removed {
    if !has_our_name(path) {
        return Ok(None);
    }
    unmount_below(path)?;
    match owned::remove_tree(path) {
        Ok(true) => Ok(Some(format!("folder {}", path.display()))),
        Ok(false) => Ok(None),
        Err(error @ TreeError::Link(_)) => Err(error.to_string()),
        Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
    }
}

/// Container runtimes mount things in folders of ours.
fn unmount_below(folder: &Path) -> Result<(), String> {
    let mounts = std::fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let points = mounts.lines().filter_map(|line| line.split(' ').nth(1)).map(unescaped);
    let below: Vec<String> = points.filter(|point| Path::new(point).starts_with(folder)).collect();
    for point in below.into_iter().rev() {
        let done = run(&["umount", "--no-canonicalize", "--", &point], PATIENCE);
        if !done.worked {
            return Err(format!("cannot unmount {point}: {}", done.said));
        }
    }
    Ok(())
}

/// The kernel writes a blank in a path as `\040`.
fn unescaped(text: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(text.to_owned(), |text, (code, plain)| text.replace(code, plain))
}

fn shared_memory(path: &Path) -> Removed {
    if path.parent() != Some(Path::new("/dev/shm")) || !has_our_name(path) {
        return Ok(None);
    }
    // /dev/shm is everybody's: the name may be another user's, or another process's by now.
    let own = tare_io::process::effective_uid();
    if path.symlink_metadata().map_or(true, |object| object.uid() != own) {
        return Ok(None);
    }
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let owner = SharedMemory::open(&name).ok().and_then(|memory| memory.owner());
    let is_alive = |pid: u32| Stat::of(pid).is_some_and(|stat| !stat.zombie);
    if owner.is_some_and(|owner| owner != std::process::id() && is_alive(owner)) {
        return Ok(None);
    }
    match std::fs::remove_file(path) {
        Ok(()) => Ok(Some(format!("shared memory {}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
    }
}

fn cgroup(path: &Path) -> Removed {
    if !path.exists() || !has_our_name(path) {
        return Ok(None);
    }
    if !owned::is_cgroup(path) {
        return Err(format!("{} is not a control group; it was left", path.display()));
    }
    let mut error = String::new();
    for _ in 0..ending::ATTEMPTS {
        for pid in processes::of_cgroup(path) {
            // It may have left, and its number may be another's, since the list was made.
            ending::kill(pid, |_| processes::of_cgroup(path).contains(&pid));
        }
        match remove_groups(path) {
            Ok(()) => return Ok(Some(format!("control group {}", path.display()))),
            Err(found) => error = found.to_string(),
        }
    }
    Err(format!("cannot remove {}: {error}", path.display()))
}

/// Container runtimes make groups in ours.
fn remove_groups(path: &Path) -> std::io::Result<()> {
    for below in processes::groups_below(path) {
        remove_groups(&below)?;
    }
    std::fs::remove_dir(path)
}

fn group(leader: &Birth) -> Option<String> {
    let ended = ending::end_group(leader);
    (ended > 0).then(|| format!("{ended} processes of group {}", leader.pid))
}

fn link(name: &str, mac: &str) -> Removed {
    let address = std::fs::read_to_string(format!("/sys/class/net/{name}/address"));
    if !is_ours(name) || !address.is_ok_and(|address| address.trim() == mac) {
        return Ok(None);
    }
    of(run(&["ip", "link", "delete", name], PATIENCE), format!("link {name}"))
}

/// The range is its bridge's: one that is somebody's by now has its own route.
fn blocked_range(range: &str, bridge: &str, mac: &str) -> Removed {
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

fn network_namespace(name: &str) -> Removed {
    if !is_ours(name) || !Path::new("/run/netns").join(name).exists() {
        return Ok(None);
    }
    of(run(&["ip", "netns", "delete", name], PATIENCE), format!("network namespace {name}"))
}

fn oci_container(runtime: &str, state: &Path, id: &str) -> Removed {
    // Its state goes with the folder it is in; what counts is that nothing runs.
    if !is_ours(id) || !state.join(id).exists() && !has_state(state) {
        return Ok(None);
    }
    let cannot = |why: String| format!("cannot remove container {id}: {why}");
    let state = &owned::check(state).map_err(|error| cannot(error.to_string()))?;
    let program = program(runtime).map_err(cannot)?;
    let root = state.display().to_string();
    let argv = crate::places::oci::wrapped(&program, &["--root", &root, "delete", "--force", id]);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    match run(&argv, PATIENCE) {
        Outcome { worked: true, .. } => Ok(Some(format!("container {id}"))),
        // Runtimes differ in how they say that there is none.
        Outcome { said, .. } => {
            let argv = crate::places::oci::wrapped(&program, &["--root", &root, "state", id]);
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

fn engine_container(engine: &str, name: &str) -> Removed {
    let plain = |c: char| c.is_ascii_alphanumeric() || c == '-';
    if !is_ours(name) || !name.chars().all(plain) || !ENGINES.contains(&engine) {
        return Ok(None);
    }
    let program =
        program(engine).map_err(|why| format!("cannot remove container {name}: {why}"))?;
    let program = program.display().to_string();
    // Its processes were killed a moment ago; while they end, its mounts are busy.
    for _ in 0..BUSY_CHECKS {
        let removed = engine_container_once(&program, name);
        if removed.is_ok() || commands::is_stopped() {
            return removed;
        }
        std::thread::park_timeout(BUSY_CHECK);
    }
    engine_container_once(&program, name)
}

const BUSY_CHECKS: u32 = 10;
const BUSY_CHECK: Duration = Duration::from_millis(200);

fn engine_container_once(program: &str, name: &str) -> Removed {
    let listed = run(&[program, "ps", "-aq", "--filter", &format!("name=^{name}$")], PATIENCE);
    if listed.worked && listed.out.trim().is_empty() {
        return Ok(None);
    }
    of(run(&[program, "rm", "--force", name], PATIENCE), format!("container {name}"))
}

/// A program by its name, or by a path that only root and this user could have put it at.
fn program(name: &str) -> Result<PathBuf, String> {
    match name.contains('/') {
        true => owned::check(Path::new(name)).map_err(|error| error.to_string()),
        false => programs::need(&[name], name).map_err(|error| error.to_string()),
    }
}

fn ssh_folder(host: &str, options: &[String], path: &str) -> Removed {
    let name = Path::new(path).file_name().unwrap_or_default().to_string_lossy().into_owned();
    let plain = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    if !is_ours(&name) || !path.starts_with("/tmp/") || !path.chars().all(plain) {
        return Ok(None);
    }
    let argv = crate::places::ssh::command(host, options, &format!("rm -rf {path}"));
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    of(run(&argv, PATIENCE), format!("folder {path} on {host}"))
}
