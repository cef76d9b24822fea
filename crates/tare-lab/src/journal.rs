//! What was made outside this process's memory, written down before it is made, so that it is
//! removed, processes first and the rest in reverse order: at the end, on errors, and by
//! `tare clean` after `kill -9`.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_io::process::{Watched, signal, signal_group};

use crate::error::LabError;
use crate::filters::shared::SharedMemory;
use crate::processes::{self, Stat};
use crate::removal;

/// Something to remove.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Made {
    Folder(PathBuf),
    /// A control group, with all that runs in it.
    Cgroup(PathBuf),
    /// An object in /dev/shm.
    SharedMemory(PathBuf),
    /// The process group of the process that wrote its number into this file.
    ProcessesOf(PathBuf),
    /// A network link; its hardware address tells it from another of the same name.
    Link {
        name: String,
        mac: String,
    },
    NetworkNamespace(String),
    /// A route that leads nowhere, behind a bridge's own.
    BlockedRange {
        range: String,
        bridge: String,
        mac: String,
    },
    /// What an OCI runtime keeps of a container.
    OciContainer {
        program: PathBuf,
        state: PathBuf,
        id: String,
    },
    /// A container of an engine.
    EngineContainer {
        program: PathBuf,
        name: String,
    },
    /// A folder on another machine.
    SshFolder {
        host: String,
        options: Vec<String>,
        path: String,
    },
}

/// Everything this process has made. Removed when dropped.
#[derive(Debug)]
pub struct Journal {
    path: PathBuf,
    file: File,
    made: Vec<Made>,
}

/// Everything tare makes bears it, and nothing else is ever removed.
pub const PREFIX: &str = "tare-";

impl Journal {
    /// Opens this process's journal in `folder`.
    pub fn create(folder: &Path) -> Result<Self, LabError> {
        fs::create_dir_all(folder).map_err(|e| LabError::file("make", folder, e))?;
        let pid = std::process::id();
        let started = Stat::of(pid).map_or(0, |stat| stat.started_ticks);
        // A process may have several, one after another or at once.
        let path = (0..1000)
            .map(|n| folder.join(format!("{PREFIX}{pid}-{started}-{n}.journal")))
            .find(|path| !path.exists())
            .unwrap_or_else(|| folder.join(format!("{PREFIX}{pid}-{started}.journal")));
        let file = OpenOptions::new()
            .create_new(true)
            .append(true)
            .open(&path)
            .map_err(|e| LabError::file("write the journal", &path, e))?;
        Ok(Self { path, file, made: Vec::new() })
    }

    /// Writes down what is about to be made.
    pub fn about_to_make(&mut self, made: Made) -> Result<(), LabError> {
        let line = serde_json::to_string(&made).unwrap_or_default() + "\n";
        // In the page cache it outlives this process; only the machine's end can lose it, and that
        // ends what it tells of too.
        self.file
            .write_all(line.as_bytes())
            .map_err(|e| LabError::file("write the journal", &self.path, e))?;
        self.made.push(made);
        Ok(())
    }

    /// Removes everything; complaints about what could not be removed.
    pub fn remove_all(&mut self) -> Vec<String> {
        let mut complaints = Vec::new();
        let mut left = Vec::new();
        for made in in_order(self.made.drain(..)) {
            if let Err(complaint) = remove(&made) {
                complaints.push(complaint);
                left.push(made);
            }
        }
        // What could not be removed stays written down, for `tare clean`.
        left.reverse();
        self.made = left;
        if complaints.is_empty() {
            let _ = fs::remove_file(&self.path);
        }
        complaints
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.remove_all();
    }
}

/// What `tare clean` found and did.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// In words, one a thing.
    pub removed: Vec<String>,
    pub complaints: Vec<String>,
    /// Journals of processes that still run.
    pub running: u32,
}

/// Removes what processes that are no more left behind.
pub fn clean(folder: &Path) -> Cleaned {
    // Who is ended for one journal may have one of his own, which was looked at already.
    let mut cleaned = clean_once(folder);
    for _ in 0..CLEAN_AGAIN {
        let more = clean_once(folder);
        if more.removed.is_empty() {
            break;
        }
        cleaned.removed.extend(more.removed);
        cleaned.running = more.running;
    }
    cleaned
}

const CLEAN_AGAIN: u32 = 3;

fn clean_once(folder: &Path) -> Cleaned {
    let mut cleaned = Cleaned::default();
    let Ok(entries) = fs::read_dir(folder) else { return cleaned };
    let mut paths: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    paths.sort();
    for path in paths {
        let Some(owner) = owner(&path) else { continue };
        let alive = Stat::of(owner.0).is_some_and(|s| s.started_ticks == owner.1 && !s.zombie);
        if alive {
            cleaned.running += 1;
            continue;
        }
        let text = fs::read_to_string(&path).unwrap_or_default();
        let mut left = 0;
        // A line cut short by the kill tells of something that was not made.
        let made = text.lines().filter_map(|line| serde_json::from_str(line).ok());
        for made in in_order(made) {
            match remove(&made) {
                Ok(Some(text)) => cleaned.removed.push(text),
                Ok(None) => {}
                Err(text) => {
                    left += 1;
                    cleaned.complaints.push(text);
                }
            }
        }
        if left == 0 {
            let _ = fs::remove_file(&path);
        }
    }
    cleaned
}

/// Last made first; but processes before all, for they might make more meanwhile.
fn in_order(made: impl Iterator<Item = Made>) -> Vec<Made> {
    let (mut made, mut others): (Vec<Made>, Vec<Made>) =
        made.partition(|made| matches!(made, Made::ProcessesOf(_)));
    made.reverse();
    others.reverse();
    made.extend(others);
    made
}

/// The process and start time in a journal's name.
fn owner(path: &Path) -> Option<(u32, u64)> {
    let name = path.file_name()?.to_str()?.strip_prefix(PREFIX)?.strip_suffix(".journal")?;
    let mut parts = name.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

/// Removes one thing: what was done in words, or `None` where it was gone already.
fn remove(made: &Made) -> Result<Option<String>, String> {
    match made {
        Made::Folder(path) => remove_folder(path),
        Made::SharedMemory(path) => remove_shared_memory(path),
        Made::Cgroup(path) => remove_cgroup(path),
        Made::ProcessesOf(path) => Ok(end_processes_of(path)),
        Made::Link { name, mac } => removal::link(name, mac),
        Made::BlockedRange { range, bridge, mac } => removal::blocked_range(range, bridge, mac),
        Made::NetworkNamespace(name) => removal::network_namespace(name),
        Made::OciContainer { program, state, id } => removal::oci_container(program, state, id),
        Made::EngineContainer { program, name } => removal::engine_container(program, name),
        Made::SshFolder { host, options, path } => removal::ssh_folder(host, options, path),
    }
}

fn is_ours(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(PREFIX))
}

fn remove_folder(path: &Path) -> Result<Option<String>, String> {
    if !path.exists() || !is_ours(path) {
        return Ok(None);
    }
    removal::unmount_below(path)?;
    match fs::remove_dir_all(path) {
        Ok(()) => Ok(Some(format!("folder {}", path.display()))),
        Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
    }
}

fn remove_shared_memory(path: &Path) -> Result<Option<String>, String> {
    if !path.starts_with("/dev/shm") || !is_ours(path) {
        return Ok(None);
    }
    // The name may have been given to somebody else's since.
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let owner = SharedMemory::open(&name).ok().and_then(|memory| memory.owner());
    let is_alive = |pid: u32| Stat::of(pid).is_some_and(|stat| !stat.zombie);
    if owner.is_some_and(|owner| owner != std::process::id() && is_alive(owner)) {
        return Ok(None);
    }
    match fs::remove_file(path) {
        Ok(()) => Ok(Some(format!("shared memory {}", path.display()))),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
    }
}

/// Attempts to empty a group whose processes may be starting others.
const KILL_ATTEMPTS: u32 = 50;

fn remove_cgroup(path: &Path) -> Result<Option<String>, String> {
    if !path.exists() || !is_ours(path) {
        return Ok(None);
    }
    let mut error = String::new();
    for _ in 0..KILL_ATTEMPTS {
        for pid in cgroup_processes(path) {
            kill_and_wait(pid);
        }
        match remove_groups(path) {
            Ok(()) => return Ok(Some(format!("control group {}", path.display()))),
            Err(found) => error = found.to_string(),
        }
    }
    Err(format!("cannot remove {}: {error}", path.display()))
}

/// In a group, and in those below it.
pub fn cgroup_processes(path: &Path) -> Vec<u32> {
    let text = fs::read_to_string(path.join("cgroup.procs")).unwrap_or_default();
    let mut all: Vec<u32> = text.lines().filter_map(|line| line.parse().ok()).collect();
    all.extend(groups_below(path).iter().flat_map(|below| cgroup_processes(below)));
    all
}

fn groups_below(path: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(path) else { return Vec::new() };
    let folders = entries.flatten().filter(|entry| entry.file_type().is_ok_and(|t| t.is_dir()));
    folders.map(|entry| entry.path()).collect()
}

/// Container runtimes make groups in ours.
fn remove_groups(path: &Path) -> std::io::Result<()> {
    for below in groups_below(path) {
        remove_groups(&below)?;
    }
    fs::remove_dir(path)
}

/// A process that was killed is gone within this; a zombie of ours is not there to wait for.
const KILLED_WITHIN: DurationNs = DurationNs::from_ms(200);

fn kill_and_wait(pid: u32) {
    let watched = Watched::new(pid);
    let _ = signal(pid, libc::SIGKILL);
    if let Ok(watched) = watched {
        watched.ends_within(KILLED_WITHIN);
    }
}

fn end_processes_of(path: &Path) -> Option<String> {
    let pid: u32 = fs::read_to_string(path).ok()?.trim().parse().ok()?;
    if pid < 2 || !is_leader_of_ours(pid, path) {
        return None;
    }
    let found = processes::of_group(pid);
    let mut left = found.clone();
    for _ in 0..KILL_ATTEMPTS {
        if left.is_empty() {
            break;
        }
        // All at once: one that is listed may start another meanwhile.
        let _ = signal_group(pid, libc::SIGKILL);
        left.iter().for_each(|pid| kill_and_wait(*pid));
        left = processes::of_group(pid);
    }
    (!found.is_empty()).then(|| format!("{} processes of group {pid}", found.len()))
}

/// Numbers of processes are used again. The leader wrote the file as its first act, so it started
/// just before; and as long as its group has members, nobody else can have its number.
fn is_leader_of_ours(pid: u32, path: &Path) -> bool {
    let Some(stat) = Stat::of(pid) else { return true };
    let written = fs::metadata(path).and_then(|file| file.modified()).ok();
    let started = boot_time().map(|boot| {
        boot + Duration::from_millis(stat.started_ticks.saturating_mul(1000 / TICKS_PER_S))
    });
    let (Some(written), Some(started)) = (written, started) else { return false };
    let apart = written.duration_since(started).unwrap_or_else(|earlier| earlier.duration());
    apart < Duration::from_secs(3)
}

/// The unit of times in /proc on Linux.
pub const TICKS_PER_S: u64 = 100;

fn boot_time() -> Option<SystemTime> {
    let text = fs::read_to_string("/proc/stat").ok()?;
    let seconds = text.lines().find_map(|line| line.strip_prefix("btime "))?.parse().ok()?;
    Some(SystemTime::UNIX_EPOCH + Duration::from_secs(seconds))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command};

    fn folder(name: &str) -> PathBuf {
        let path = std::env::temp_dir().join(format!("tare-journal-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        path
    }

    fn sleeper(pidfile: &Path) -> Child {
        process("echo $$ >\"$0\"; sleep 1000 & exec sleep 1000", pidfile)
    }

    /// One that writes its number into a file, which is its `$0`.
    fn process(script: &str, pidfile: &Path) -> Child {
        use std::os::unix::process::CommandExt;
        let child =
            Command::new("sh").args(["-c", script]).arg(pidfile).process_group(0).spawn().unwrap();
        let watched = Watched::new(child.id()).unwrap();
        while fs::read_to_string(pidfile).map_or(true, |text| !text.ends_with('\n')) {
            assert!(!watched.ends_within(DurationNs::from_ms(1)));
        }
        child
    }

    #[test]
    fn what_was_made_is_gone_when_the_journal_is_dropped() {
        let state = folder("drop");
        let made = state.join("tare-made");
        let mut journal = Journal::create(&state).unwrap();
        journal.about_to_make(Made::Folder(made.clone())).unwrap();
        fs::create_dir(&made).unwrap();
        let pidfile = made.join("pid");
        journal.about_to_make(Made::ProcessesOf(pidfile.clone())).unwrap();
        let mut child = sleeper(&pidfile);
        assert_eq!(clean(&state).running, 1, "it is ours, and we live");
        drop(journal);
        child.wait().unwrap();
        assert!(!made.exists() && processes::of_group(child.id()).is_empty());
        assert_eq!(fs::read_dir(&state).unwrap().count(), 0);
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn processes_end_before_what_they_make_is_removed() {
        let state = folder("order");
        let (pidfile, made) = (state.join("pid"), state.join("tare-made"));
        // As a runtime that is about to make control groups: these are noted after its process.
        let script =
            format!("echo $$ >\"$0\"; while [ -e \"$0\" ]; do mkdir -p {}; done", made.display());
        let mut child = process(&script, &pidfile);
        let mut journal = Journal::create(&state).unwrap();
        journal.about_to_make(Made::ProcessesOf(pidfile.clone())).unwrap();
        journal.about_to_make(Made::Folder(made.clone())).unwrap();
        assert_eq!(journal.remove_all(), Vec::<String>::new());
        assert!(!made.exists(), "it was made again");
        drop(journal);
        child.wait().unwrap();
        fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn clean_removes_what_the_dead_left_and_nothing_else() {
        let state = folder("clean");
        let (ours, theirs) = (state.join("tare-left"), state.join("precious"));
        fs::create_dir(&ours).unwrap();
        fs::create_dir(&theirs).unwrap();
        let pidfile = ours.join("pid");
        let mut child = sleeper(&pidfile);
        let mut stranger = Command::new("sleep").arg("1000").spawn().unwrap();
        let strange = ours.join("strange");
        fs::write(&strange, stranger.id().to_string()).unwrap();
        // As if that number had been written long before the process that has it now.
        let old = SystemTime::now_for_test() - Duration::from_secs(3600);
        File::options().write(true).open(&strange).unwrap().set_modified(old).unwrap();
        let lines = [Made::Folder(theirs.clone()), Made::Folder(ours.clone())];
        let lines =
            lines.into_iter().chain([Made::ProcessesOf(strange), Made::ProcessesOf(pidfile)]);
        let text: Vec<_> = lines.map(|made| serde_json::to_string(&made).unwrap()).collect();
        // No process has this number and this start.
        fs::write(state.join("tare-1-1-0.journal"), text.join("\n") + "\n{\"folder\":\"/cut")
            .unwrap();
        let cleaned = clean(&state);
        child.wait().unwrap();
        assert_eq!(cleaned.removed.len(), 2, "{cleaned:?}");
        assert_eq!(cleaned.complaints, Vec::<String>::new());
        assert!(theirs.exists() && !ours.exists());
        assert!(stranger.try_wait().unwrap().is_none(), "not ours to end");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert_eq!(clean(&state), Cleaned::default(), "nothing is left");
        fs::remove_dir_all(state).unwrap();
    }

    trait NowForTest {
        fn now_for_test() -> SystemTime;
    }

    impl NowForTest for SystemTime {
        fn now_for_test() -> SystemTime {
            Self::UNIX_EPOCH + Duration::from_millis(tare_io::time::wall_unix_ms())
        }
    }
}
