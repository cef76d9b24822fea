//! `tare clean`: removes what dead processes left behind, as their journals list it.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::time::Duration;

use tare_io::DurationNs;
use tare_io::owned::{self, Folder, Lock};
use tare_io::process::PidFd;

use super::prefix::PREFIX;
use super::resources::{Cgroup, Processes, Resource};
use super::{FORMAT, Header, JOURNAL_BYTES_MAX, LINE_BYTES_MAX, Namespace, in_order};
use crate::machine::processes::{ProcessIdentity, Stat};

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
    // Try again: a process that was ended may own a journal that was checked before.
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
        // The journal's process has just ended, and removed it.
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
    // Processes do not outlive their pid namespace.
    let has_processes = same_boot && !elsewhere.contains(&Namespace::Pid);
    // If servers have control groups, use those to find the processes of a leader that has ended:
    // its pid may now lead another group of the same session. Without control groups (a listed one
    // may never have been created), only the pid can be used.
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

/// Reads all lines. Fails if one of them is not understood, so that none is acted on.
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

/// Parses the pid and start time in a journal's name.
fn owner(name: &OsStr) -> Option<(u32, u64)> {
    let name = name.to_str()?.strip_prefix(PREFIX)?.strip_suffix(".journal")?;
    let mut parts = name.split('-');
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}
