//! Records what tare creates outside its own memory, before it is created, so that it is removed at
//! the end, on errors, and by `tare clean` after `kill -9`: processes first, the rest in reverse
//! order.
//!
//! A journal decides what root kills and removes. It is therefore trusted only if it is a regular
//! file of this user that nobody else could have written (`tare_io::owned`), and it holds data,
//! never a command line: a [resource](crate::journal::resources) knows how it is removed.

mod clean;
pub mod prefix;
mod removal;
pub mod resources;
pub mod temporary;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard};

use serde::{Deserialize, Serialize};
use tare_io::owned::{self, Folder, OwnedError};

use crate::journal::prefix::PREFIX;
use crate::journal::resources::Resource;
use crate::machine::processes::Stat;
use tare_model::Failure;

pub use clean::{Cleaned, clean, end_holders};

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

    /// Whether the namespace may still exist: a process is in it, or `ip netns` has named it.
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
/// Limit of a journal: some 600,000 lines of about 100 bytes.
const JOURNAL_BYTES_MAX: u64 = 64 << 20;
const LINE_BYTES_MAX: u64 = 64 << 10;

impl Journal {
    /// Creates a journal of this process in `folder`, which is created if it is missing.
    pub fn create(folder: &Path) -> Result<Self, Failure> {
        let folder = Folder::make(folder).map_err(unusable)?;
        let pid = std::process::id();
        let started = Stat::read(pid).map_or(0, |stat| stat.started_ticks);
        // A process may have several journals, one after another or at once.
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
        // The line is in the page cache, so it outlives this process. Only a crash of the machine
        // loses it, and that also ends most of what the journal lists.
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

/// Last created first, but processes before everything else, as they could create more.
fn in_order(made: impl Iterator<Item = Resource>) -> Vec<Resource> {
    let (mut made, mut others): (Vec<Resource>, Vec<Resource>) =
        made.partition(|made| matches!(made, Resource::Processes(_)));
    made.reverse();
    others.reverse();
    made.extend(others);
    made
}

#[cfg(test)]
mod tests;
