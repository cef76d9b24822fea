//! Records what tare creates outside its own memory, before it is created, so that it is removed at
//! the end, on errors, and by `tare clean` after `kill -9`: processes first, the rest in reverse
//! order.
//!
//! A journal decides what root kills and removes. It is therefore trusted only if it is a regular
//! file of this user that nobody else could have written (`tare_io::owned`), and it holds data,
//! never a command line: a [resource](crate::journal::resources) knows how it is removed.

pub mod ours;
pub mod resources;
pub mod temporary;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_io::owned::{self, Folder, Lock, OwnedError};
use tare_io::process::PidFd;

use crate::journal::ours::PREFIX;
use crate::journal::resources::{Cgroup, Processes, Resource};
use crate::machine::processes::{ProcessIdentity, Stat};
use tare_model::Failure;

/// The first line of a journal: the boot and namespaces that its pids and names belong to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Header {
    tare_journal: u32,
    boot_id: String,
    pid_namespace: String,
    net_namespace: String,
    mount_namespace: String,
}

const FORMAT: u32 = 1;

impl Header {
    /// Fails if /proc cannot be read: every process would seem to be gone.
    fn current() -> Result<Self, String> {
        let unknown = |path: &str, error: std::io::Error| {
            format!("{path}: {error}; without /proc nobody knows which processes still run")
        };
        let boot_id = std::fs::read_to_string(BOOT_ID).map_err(|error| unknown(BOOT_ID, error))?;
        let namespace = |kind: Namespace| {
            let path = format!("/proc/self/ns/{}", kind.link());
            let link = std::fs::read_link(&path).map_err(|error| unknown(&path, error))?;
            Ok::<_, String>(link.display().to_string())
        };
        Ok(Self {
            tare_journal: FORMAT,
            boot_id: boot_id.trim().to_owned(),
            pid_namespace: namespace(Namespace::Pid)?,
            net_namespace: namespace(Namespace::Net)?,
            mount_namespace: namespace(Namespace::Mount)?,
        })
    }
}

const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";
/// The initial PID namespace (`PROC_PID_INIT_INO`): its /proc lists the processes of all others.
const FIRST_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Namespaces that a journal's pids and names belong to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Namespace {
    Pid,
    Net,
    Mount,
}

impl Namespace {
    const ALL: [Self; 3] = [Self::Pid, Self::Net, Self::Mount];

    fn words(self) -> &'static str {
        match self {
            Self::Pid => "process",
            Self::Net => "network",
            Self::Mount => "mount",
        }
    }

    /// Its name below `/proc/PID/ns`.
    fn link(self) -> &'static str {
        match self {
            Self::Pid => "pid",
            Self::Net => "net",
            Self::Mount => "mnt",
        }
    }
}

impl Header {
    fn namespace(&self, kind: Namespace) -> &str {
        match kind {
            Namespace::Pid => &self.pid_namespace,
            Namespace::Net => &self.net_namespace,
            Namespace::Mount => &self.mount_namespace,
        }
    }

    /// Returns the namespaces in which `other` differs.
    fn elsewhere(&self, other: &Self) -> Vec<Namespace> {
        let differs = |kind: &Namespace| other.namespace(*kind) != self.namespace(*kind);
        Namespace::ALL.into_iter().filter(differs).collect()
    }

    /// Whether a process may be in that namespace, or a name keeps it.
    fn may_be_there(&self, kind: &Namespace, here: &Self) -> bool {
        if *kind == Namespace::Pid && here.pid_namespace != FIRST_PID_NAMESPACE {
            // Only the first namespace sees the processes of all others.
            return true;
        }
        let wanted = self.namespace(*kind);
        let is_it = |pid: &u32| {
            let link = std::fs::read_link(format!("/proc/{pid}/ns/{}", kind.link()));
            link.is_ok_and(|link| link.as_os_str() == wanted)
        };
        let number: Option<u64> =
            wanted.split(['[', ']']).nth(1).and_then(|number| number.parse().ok());
        // Namespaces that `ip netns` keeps by a name.
        let kept = std::fs::read_dir("/run/netns").into_iter().flatten().flatten();
        let mut kept = kept.filter_map(|entry| std::fs::metadata(entry.path()).ok());
        crate::machine::processes::all().iter().any(is_it)
            || *kind == Namespace::Net && kept.any(|file| Some(file.ino()) == number)
    }
}

/// Everything this process has made. Removed when dropped.
#[derive(Debug)]
pub struct Journal(Entries);

/// A handle for adding entries to a journal.
#[derive(Clone, Debug)]
pub struct Entries(Arc<Mutex<Inner>>);

#[derive(Debug)]
struct Inner {
    folder: Folder,
    name: OsString,
    /// Locked as long as this process lives.
    file: File,
    made: Vec<Resource>,
}

/// Limit of journals that one process has at a time.
const JOURNALS_MAX: u32 = 1000;
/// A line is about 100 bytes: this is some 600,000 launches.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
const LINE_BYTES_MAX: u64 = 64 << 10;

impl Journal {
    /// Creates a journal of this process in `folder`, which is created if it is missing.
    pub fn create(folder: &Path) -> Result<Self, Failure> {
        let folder = Folder::make(folder).map_err(unusable)?;
        let pid = std::process::id();
        let started = Stat::read(pid).map_or(0, |stat| stat.started_ticks);
        // A process may have several, one after another or at once.
        for n in 0..JOURNALS_MAX {
            let name = OsString::from(format!("{PREFIX}{pid}-{started}-{n}.journal"));
            match folder.create(&name) {
                Ok(file) => return Self::begin(folder, name, file),
                Err(error) if error.kind() == Some(std::io::ErrorKind::AlreadyExists) => {}
                Err(error) => return Err(unusable(error)),
            }
        }
        let text = format!("{}: too many journals of process {pid}", folder.path().display());
        Err(Failure::environment(text))
    }

    fn begin(folder: Folder, name: OsString, file: File) -> Result<Self, Failure> {
        // On file systems without locks, the pid in the name must suffice.
        owned::try_lock(&file);
        let mut inner = Inner { folder, name, file, made: Vec::new() };
        let header = Header::current().map_err(|why| {
            let _ = inner.folder.remove(&inner.name);
            Failure::environment(format!("the journal of what is to be removed: {why}"))
        })?;
        inner.append(&header)?;
        Ok(Self(Entries(Arc::new(Mutex::new(inner)))))
    }

    pub fn entries(&self) -> Entries {
        self.0.clone()
    }

    /// Records a resource that is about to be created.
    pub fn record_before_create(&self, made: impl Into<Resource>) -> Result<(), Failure> {
        self.0.record_before_create(made)
    }

    /// Removes everything. Returns complaints about what could not be removed.
    pub fn remove_all(&self) -> Vec<String> {
        let mut inner = self.0.inner();
        let mut complaints = Vec::new();
        let mut left = Vec::new();
        for made in in_order(inner.made.drain(..)) {
            if let Err(complaint) = made.removal().remove() {
                complaints.push(complaint);
                left.push(made);
            }
        }
        // Keep what could not be removed, for `tare clean`.
        left.reverse();
        inner.made = left;
        if complaints.is_empty() {
            let _ = inner.folder.remove(&inner.name);
        }
        complaints
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        self.remove_all();
    }
}

impl Entries {
    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.0.lock().unwrap_or_else(|e| e.into_inner())
    }

    pub fn record_before_create(&self, made: impl Into<Resource>) -> Result<(), Failure> {
        let made = made.into();
        let mut inner = self.inner();
        inner.append(&made)?;
        inner.made.push(made);
        Ok(())
    }

    /// Forgets a resource that is already gone.
    pub fn forget(&self, made: &Resource) {
        self.inner().made.retain(|other| other != made);
    }
}

impl Inner {
    fn append(&mut self, line: &impl Serialize) -> Result<(), Failure> {
        let line = serde_json::to_string(line).unwrap_or_default() + "\n";
        // It is in the page cache and outlives this process. Only a crash of the machine loses it,
        // which ends most of what it lists, too.
        self.file.write_all(line.as_bytes()).map_err(|error| {
            Failure::file("write the journal", &self.folder.path().join(&self.name), error)
        })
    }
}

fn unusable(error: OwnedError) -> Failure {
    Failure::environment(format!(
        "the journal of what is to be removed cannot be kept: {error}; set XDG_DATA_HOME to a \
         folder that only you can write to (with sudo: sudo -H)"
    ))
}

/// Result of `tare clean`.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Descriptions, one per resource.
    pub removed: Vec<String>,
    pub complaints: Vec<String>,
    /// Journals of processes that still run.
    pub running: u32,
}

/// Kills the processes that own journals in `folder`; the caller knows that they are not needed.
pub fn end_holders(folder: &Path) {
    let names = Folder::open(folder).and_then(|folder| folder.names()).unwrap_or_default();
    for (pid, started_ticks) in names.iter().filter_map(|name| owner(name)) {
        let Ok(watched) = PidFd::new(pid) else { continue };
        if Stat::read(pid).is_some_and(|stat| stat.started_ticks == started_ticks) {
            let _ = watched.signal(libc::SIGKILL);
            watched.wait_timeout(KILLED_WITHIN);
        }
    }
}

/// Timeout for a killed process to end.
const KILLED_WITHIN: DurationNs = DurationNs::from_secs(2);

/// Removes what dead processes left behind.
pub fn clean(folder: &Path) -> Cleaned {
    let refused = |why: String| Cleaned { complaints: vec![why], ..Cleaned::default() };
    let folder = match Folder::open(folder) {
        Ok(folder) => folder,
        Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => {
            return Cleaned::default();
        }
        Err(error) => return refused(format!("nothing was removed: {error}")),
    };
    let here = match Header::current() {
        Ok(here) => here,
        Err(why) => return refused(format!("nothing was removed: {why}")),
    };
    if !lock_within(&folder) {
        return refused("another tare clean is at work; try again when it has ended".into());
    }
    // A process ended for one journal may have its own, which was already checked: try again.
    let mut cleaned = clean_once(&folder, &here);
    for _ in 0..CLEAN_AGAIN {
        let more = clean_once(&folder, &here);
        if more.removed.is_empty() {
            break;
        }
        cleaned.removed.extend(more.removed);
        cleaned.running = more.running;
        cleaned.complaints = more.complaints;
    }
    cleaned
}

const CLEAN_AGAIN: u32 = 3;
/// Interval and number of checks for another process's lock: a minute in all.
const LOCK_CHECK: Duration = Duration::from_millis(20);
const LOCK_CHECKS: u32 = 3000;

fn lock_within(folder: &Folder) -> bool {
    (0..LOCK_CHECKS).any(|_| {
        let is_free = folder.try_lock() != Lock::Held;
        if !is_free {
            std::thread::park_timeout(LOCK_CHECK);
        }
        is_free
    })
}

fn clean_once(folder: &Folder, here: &Header) -> Cleaned {
    let mut cleaned = Cleaned::default();
    let names = match folder.names() {
        Ok(names) => names,
        Err(error) => {
            cleaned.complaints.push(error.to_string());
            return cleaned;
        }
    };
    for name in names {
        let Some(owner) = owner(&name) else { continue };
        match clean_journal(folder, &name, owner, here, &mut cleaned) {
            Ok(()) => {}
            Err(why) => cleaned.complaints.push(format!("{why}; it was left as it is")),
        }
    }
    cleaned
}

/// Removes what one journal lists, and then the journal. An error is the reason it is not trusted.
fn clean_journal(
    folder: &Folder,
    name: &OsStr,
    owner: (u32, u64),
    here: &Header,
    cleaned: &mut Cleaned,
) -> Result<(), String> {
    let file = match folder.read(name, JOURNAL_BYTES_MAX) {
        Ok(file) => file,
        // Its process has just ended, and removed it.
        Err(error) if error.kind() == Some(std::io::ErrorKind::NotFound) => return Ok(()),
        Err(error) => return Err(format!("not a journal to go by: {error}")),
    };
    let path = folder.path().join(name);
    let lives = Stat::read(owner.0).is_some_and(|s| s.started_ticks == owner.1 && !s.zombie);
    if owned::try_lock(&file) == Lock::Held || lives {
        cleaned.running += 1;
        return Ok(());
    }
    let written = read_journal(&file, here).map_err(|why| format!("{}: {why}", path.display()))?;
    let same_boot = written.header.boot_id == here.boot_id;
    let elsewhere = here.elsewhere(&written.header);
    if let Some(kind) =
        elsewhere.iter().copied().find(|kind| written.header.may_be_there(kind, here))
        && same_boot
    {
        return Err(format!(
            "{}: it was written in another {} namespace (a container's, or the host's): run tare \
             clean there, or on the host",
            path.display(),
            kind.words()
        ));
    }
    // Processes ended with their pid namespace.
    let has_processes = same_boot && !elsewhere.contains(&Namespace::Pid);
    // If servers have control groups, those find the processes of a dead leader: its pid may by now
    // belong to another group of the same session. A listed control group may never have been
    // created, and then the pid is all there is.
    let is_group =
        |made: &Resource| matches!(made, Resource::Cgroup(Cgroup(path)) if path.is_dir());
    let has_groups = written.made.iter().any(is_group);
    let leads =
        |birth: &ProcessIdentity| Stat::read(birth.pid).is_some_and(|stat| birth.matches(&stat));
    let still_there = |made: &Resource| match made {
        Resource::Processes(Processes(birth)) => has_processes && (!has_groups || leads(birth)),
        made => same_boot || !made.removal().ends_with_the_boot(),
    };
    let mut left = 0;
    for made in in_order(written.made.into_iter().filter(still_there)) {
        match made.removal().remove() {
            Ok(Some(text)) => cleaned.removed.push(text),
            Ok(None) => {}
            Err(text) => {
                left += 1;
                cleaned.complaints.push(text);
            }
        }
    }
    if left == 0 {
        let _ = folder.remove(name);
    }
    Ok(())
}

struct ParsedJournal {
    header: Header,
    made: Vec<Resource>,
}

/// Reads all lines. If one of them is not understood, it fails, and none is acted on.
fn read_journal(file: &File, here: &Header) -> Result<ParsedJournal, String> {
    let mut lines = BufReader::new(file.take(JOURNAL_BYTES_MAX));
    let mut header = None;
    let mut made = Vec::new();
    let mut line = Vec::new();
    for number in 1.. {
        line.clear();
        let read = lines.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let n = read.map_err(|error| format!("cannot be read: {error}"))?;
        // A line cut short by a kill names something that was never created.
        if n == 0 || line.last() != Some(&b'\n') && (n as u64) < LINE_BYTES_MAX {
            break;
        }
        let unknown = || {
            format!(
                "line {number} is not understood; if another version of tare wrote it, that \
                 version's tare clean reads it"
            )
        };
        if header.is_none() {
            let found: Header = serde_json::from_slice(&line).map_err(|_| unknown())?;
            if found.tare_journal != FORMAT {
                return Err(unknown());
            }
            header = Some(found);
        } else {
            made.push(serde_json::from_slice(&line).map_err(|_| unknown())?);
        }
    }
    // Without a complete first line, nothing had been created.
    let header = header.unwrap_or_else(|| here.clone());
    Ok(ParsedJournal { header, made })
}

/// Last created first, but processes before everything else, as they could create more.
fn in_order(made: impl Iterator<Item = Resource>) -> Vec<Resource> {
    let (mut made, mut others): (Vec<Resource>, Vec<Resource>) =
        made.partition(|made| matches!(made, Resource::Processes(_)));
    made.reverse();
    others.reverse();
    made.extend(others);
    made
}

/// Parses the pid and start time in a journal's name.
fn owner(name: &OsStr) -> Option<(u32, u64)> {
    let name = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(".journal")?;
    let mut parts = name.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests;
