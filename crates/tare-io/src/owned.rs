//! Files and folders that no other user can change: checked before they are trusted, and opened
//! and removed without following links.
//!
//! tare runs as root on machines that others use too. What decides which processes are killed,
//! which folders are removed or which programs run must therefore lie where only root or this user
//! can write: [`check`] walks the whole path, [`Folder`] keeps a folder that passed open.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};
use std::sync::OnceLock;

use rustix::fs::{AtFlags, Dir, FileType, FlockOperation, Mode, OFlags, Stat};
use rustix::process::geteuid;

use crate::system;

/// Why a file or folder is not trusted.
#[derive(Debug, thiserror::Error)]
pub enum OwnedError {
    #[error("{path} belongs to another user (uid {owner})")]
    Foreign { path: String, owner: u32 },
    #[error("{path} can be changed by other users (mode {mode:04o})")]
    Writable { path: String, mode: u32 },
    #[error("{path} is not {expected}")]
    Kind { path: String, expected: &'static str },
    #[error("{path} has {links} names (hard links); 1 is expected")]
    Linked { path: String, links: u64 },
    #[error("{path} has {bytes} bytes; at most {limit} are read")]
    TooLarge { path: String, bytes: u64, limit: u64 },
    #[error("{path}: {source}")]
    Io { path: String, source: io::Error },
}

impl OwnedError {
    fn io(path: &Path, error: impl Into<io::Error>) -> Self {
        Self::Io { path: shown(path), source: error.into() }
    }

    pub fn kind(&self) -> Option<ErrorKind> {
        match self {
            Self::Io { source, .. } => Some(source.kind()),
            _ => None,
        }
    }
}

fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Keeps other users from changing what this process and its children create, whatever the umask.
/// If it is root, also removes from PATH the folders in which other users can put programs.
/// Call this before any thread is started.
pub fn restrict_umask_and_path() {
    let others = Mode::WGRP | Mode::WOTH;
    let before = rustix::process::umask(others);
    rustix::process::umask(before | others);
    if geteuid().is_root() {
        tighten_path();
    }
}

/// Returns the folders that were removed from root's PATH, and why.
pub fn removed_from_path() -> &'static [(PathBuf, String)] {
    PASSED_OVER.get().map_or(&[], Vec::as_slice)
}

static PASSED_OVER: OnceLock<Vec<(PathBuf, String)>> = OnceLock::new();

fn tighten_path() {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let (mut kept, mut passed_over) = (Vec::new(), Vec::new());
    for folder in std::env::split_paths(&path) {
        match folder.is_absolute().then(|| check_closed(&folder)) {
            Some(Ok(_)) => kept.push(folder),
            // A missing folder fails too: another user may create it later.
            Some(Err(error)) => passed_over.push((folder, error.to_string())),
            None => passed_over.push((folder, "it is relative".into())),
        }
    }
    if passed_over.is_empty() {
        return;
    }
    if let Ok(path) = std::env::join_paths(kept) {
        system::set_variable("PATH", &path);
    }
    let _ = PASSED_OVER.set(passed_over);
}

/// Checks that only root and this user can add to a folder. It fails if others can write there,
/// even if the sticky bit is set.
pub fn check_closed(folder: &Path) -> Result<(), OwnedError> {
    let real = check(folder)?;
    let stat = rustix::fs::stat(&real).map_err(|error| OwnedError::io(&real, error))?;
    match others_write(&stat, || has_list_at(&real)) {
        true => Err(OwnedError::Writable { path: shown(&real), mode: stat.st_mode & 0o7777 }),
        false => Ok(()),
    }
}

/// Returns the real path of something that exists, if only root and this user can replace it: no
/// folder or link on the way may belong to another user, and no folder may be writable by others
/// unless it is sticky (as /tmp is).
pub fn check(path: &Path) -> Result<PathBuf, OwnedError> {
    check_with(path, None)
}

/// Like [`check`], for files that come with this program: they may also belong to the program's
/// owner, who decides what it does anyway.
pub fn check_near_program(path: &Path) -> Result<PathBuf, OwnedError> {
    let own = Path::new("/proc/self/exe");
    let stat = rustix::fs::stat(own).map_err(|error| OwnedError::io(own, error))?;
    check_with(path, Some(stat.st_uid))
}

/// Returns a path from which to start this program again: its own path, if this still leads to the
/// program and nobody else can change that; otherwise /proc/PID/exe. The kernel reports a replaced
/// program's path with " (deleted)" at the end, and anybody may have made a file of that name.
pub fn own_program() -> PathBuf {
    let running = PathBuf::from(format!("/proc/{}/exe", std::process::id()));
    let file = |path: &Path| rustix::fs::stat(path).map(|stat| (stat.st_dev, stat.st_ino)).ok();
    let is_running = |path: &PathBuf| {
        file(path).is_some() && file(path) == file(&running) && check(path).is_ok()
    };
    std::env::current_exe().ok().filter(is_running).unwrap_or(running)
}

/// Returns the folder of this program, even after the program was replaced.
pub fn own_folder() -> Option<PathBuf> {
    Some(std::env::current_exe().ok()?.parent()?.to_owned())
}

fn check_with(path: &Path, trusted: Option<u32>) -> Result<PathBuf, OwnedError> {
    resolve(path, |path| check_one(path, trusted))
}

/// Resolves a path to the real one; each part of the way must pass `check`.
fn resolve(
    path: &Path,
    check: impl Fn(&Path) -> Result<Stat, OwnedError>,
) -> Result<PathBuf, OwnedError> {
    let start = match path.is_absolute() {
        true => PathBuf::new(),
        false => std::env::current_dir().map_err(|error| OwnedError::io(path, error))?,
    };
    let mut real = PathBuf::from("/");
    let mut left: Vec<OsString> = Vec::new();
    push_components(&mut left, &start.join(path));
    let mut links = 0;
    check(&real)?;
    while let Some(name) = left.pop() {
        if name == ".." {
            real.pop();
            continue;
        }
        real.push(name);
        let stat = check(&real)?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::Symlink {
            continue;
        }
        links += 1;
        if links > LINKS_MAX {
            return Err(OwnedError::Kind { path: shown(path), expected: "free of circular links" });
        }
        // The link and its folder passed `check`, so its target can be used.
        let target = std::fs::read_link(&real).map_err(|error| OwnedError::io(&real, error))?;
        real.pop();
        if target.is_absolute() {
            real = PathBuf::from("/");
        }
        push_components(&mut left, &target);
    }
    Ok(real)
}

/// Opens a folder that a user named. A link in a sticky folder is followed only if it belongs to
/// this user or root, as the kernel does with `fs.protected_symlinks`.
pub fn open_folder(folder: &Path) -> io::Result<OwnedFd> {
    let see = |path: &Path| {
        let stat = rustix::fs::lstat(path).map_err(|error| OwnedError::io(path, error))?;
        let above = path.parent().map(rustix::fs::stat);
        let is_sticky =
            above.and_then(Result::ok).is_some_and(|above| above.st_mode & Mode::SVTX.bits() != 0);
        match is_link(&stat) && is_sticky {
            true => check_owner(path, &stat, None).map(|()| stat),
            false => Ok(stat),
        }
    };
    let real = resolve(folder, see).map_err(io::Error::other)?;
    let open = open_without_links(&real).map_err(io::Error::other)?;
    open.ok_or_else(|| ErrorKind::NotFound.into())
}

/// The kernel's own limit of links in a path.
const LINKS_MAX: u32 = 40;

/// Pushes the components of `path` in reverse, so that the first is popped first.
fn push_components(left: &mut Vec<OsString>, path: &Path) {
    let named = path.components().filter_map(|component| match component {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    left.extend(named.collect::<Vec<_>>().into_iter().rev());
}

fn check_one(path: &Path, trusted: Option<u32>) -> Result<Stat, OwnedError> {
    let stat = rustix::fs::lstat(path).map_err(|error| OwnedError::io(path, error))?;
    check_owner(path, &stat, trusted)?;
    let kind = FileType::from_raw_mode(stat.st_mode);
    let sticky = stat.st_mode & Mode::SVTX.bits() != 0 && kind == FileType::Directory;
    // A link's own mode means nothing.
    if !sticky && kind != FileType::Symlink && others_write(&stat, || has_list_at(path)) {
        return Err(OwnedError::Writable { path: shown(path), mode: stat.st_mode & 0o7777 });
    }
    Ok(stat)
}

/// Like [`check`], for a file that need not exist yet.
pub fn check_new_file(path: &Path) -> Result<PathBuf, OwnedError> {
    let name = path
        .file_name()
        .ok_or_else(|| OwnedError::Kind { path: shown(path), expected: "the name of a file" })?;
    let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
    let place = check(parent.unwrap_or(Path::new(".")))?.join(name);
    match rustix::fs::lstat(&place) {
        Err(rustix::io::Errno::NOENT) => Ok(place),
        _ => check(&place),
    }
}

fn check_owner(path: &Path, stat: &Stat, trusted: Option<u32>) -> Result<(), OwnedError> {
    match stat.st_uid {
        0 => Ok(()),
        own if own == geteuid().as_raw() => Ok(()),
        owner if trusted == Some(owner) || unmapped_owner() == Some(owner) => Ok(()),
        owner => Err(OwnedError::Foreign { path: shown(path), owner }),
    }
}

/// In a user namespace, returns the uid shown for file owners that are not mapped into it, such as
/// the machine's root.
fn unmapped_owner() -> Option<u32> {
    static OWNER: OnceLock<Option<u32>> = OnceLock::new();
    *OWNER.get_or_init(|| {
        let map = std::fs::read_to_string("/proc/self/uid_map").ok()?;
        let owner = std::fs::read_to_string("/proc/sys/kernel/overflowuid").ok()?;
        owner.trim().parse().ok().filter(|owner| !is_mapped(&map, *owner))
    })
}

/// Whether `uid` is mapped in a user namespace with this map. Each line has the first uid inside,
/// the first uid outside, and a count. True if a line cannot be parsed.
fn is_mapped(map: &str, uid: u32) -> bool {
    let mut lines = map.lines().map(|line| {
        let numbers: Vec<u64> = line.split_whitespace().filter_map(|n| n.parse().ok()).collect();
        <[u64; 3]>::try_from(numbers)
    });
    lines.any(|line| {
        line.is_err() || line.is_ok_and(|[first, _, n]| (first..first + n).contains(&uid.into()))
    })
}

/// Whether others can write to a file. Group write permission counts only if this is root and the
/// group is not 0: many systems give each ordinary user a group of one, and its write bit.
///
/// With an access control list, the group bits are the most that the list grants to anyone it
/// names, so that they always count.
fn others_write(stat: &Stat, has_list: impl FnOnce() -> bool) -> bool {
    let by_group = stat.st_mode & Mode::WGRP.bits() != 0
        && (stat.st_gid != 0 && geteuid().is_root() || has_list());
    by_group || stat.st_mode & Mode::WOTH.bits() != 0
}

const ACCESS_LIST: &str = "system.posix_acl_access";

fn has_list_at(path: &Path) -> bool {
    is_list(rustix::fs::lgetxattr(path, ACCESS_LIST, &mut [0; LIST_BYTES]))
}

fn has_list(file: BorrowedFd<'_>) -> bool {
    is_list(rustix::fs::fgetxattr(file, ACCESS_LIST, &mut [0; LIST_BYTES]))
}

/// Whether an access control list was found, even if it is too long for the buffer.
fn is_list(read: rustix::io::Result<usize>) -> bool {
    matches!(read, Ok(1..) | Err(rustix::io::Errno::RANGE))
}

const LIST_BYTES: usize = 256;

/// Makes a folder and its missing parents with mode 0700, and returns its real path. Only root and
/// this user may control the parents that exist.
pub fn create_dirs(path: &Path) -> Result<PathBuf, OwnedError> {
    let mut missing: Vec<&OsStr> = Vec::new();
    let mut above = path;
    // Climbs to the first parent that exists; a dangling link counts as existing.
    while let Err(error) = rustix::fs::lstat(above) {
        let (Some(name), Some(parent)) = (above.file_name(), above.parent()) else {
            return Err(OwnedError::io(above, error));
        };
        if io::Error::from(error).kind() != ErrorKind::NotFound {
            return Err(OwnedError::io(above, error));
        }
        missing.push(name);
        above = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
    }
    let mut real = check(above)?;
    for name in missing.into_iter().rev() {
        real.push(name);
        match rustix::fs::mkdir(&real, Mode::RWXU) {
            // Another tare may have made it meanwhile; opening it checks the owner.
            Ok(()) | Err(rustix::io::Errno::EXIST) => {}
            Err(error) => return Err(OwnedError::io(&real, error)),
        }
    }
    Ok(real)
}

/// An open folder that belongs to this user.
#[derive(Debug)]
pub struct Folder {
    path: PathBuf,
    fd: OwnedFd,
}

const OPEN_FOLDER: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

impl Folder {
    /// Opens a folder, and makes it if it is missing.
    pub fn make(path: &Path) -> Result<Self, OwnedError> {
        Self::open(&create_dirs(path)?)
    }

    /// Opens an existing folder. It must belong to this user, and nobody else may write to it.
    pub fn open(path: &Path) -> Result<Self, OwnedError> {
        let real = check(path)?;
        let fd = rustix::fs::open(&real, OPEN_FOLDER, Mode::empty())
            .map_err(|error| OwnedError::io(&real, error))?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| OwnedError::io(&real, error))?;
        if stat.st_uid != geteuid().as_raw() {
            return Err(OwnedError::Foreign { path: shown(&real), owner: stat.st_uid });
        }
        // Even if the folder is sticky, others could add files to it, such as a journal.
        if others_write(&stat, || has_list(fd.as_fd())) {
            return Err(OwnedError::Writable { path: shown(&real), mode: stat.st_mode & 0o7777 });
        }
        // A user who can open the folder could lock it and keep tare waiting.
        if stat.st_mode & (Mode::RWXG | Mode::RWXO).bits() != 0 {
            rustix::fs::fchmod(&fd, Mode::RWXU).map_err(|error| OwnedError::io(&real, error))?;
        }
        Ok(Self { path: real, fd })
    }

    pub fn path(&self) -> &Path {
        &self.path
    }

    pub fn names(&self) -> Result<Vec<OsString>, OwnedError> {
        let mut names =
            names(self.fd.as_fd()).map_err(|error| OwnedError::io(&self.path, error))?;
        names.sort();
        Ok(names)
    }

    /// Makes a new file that only this user can read and write.
    pub fn create(&self, name: &OsStr) -> Result<File, OwnedError> {
        let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::APPEND;
        let flags = flags | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        rustix::fs::openat(&self.fd, name, flags, Mode::RUSR | Mode::WUSR)
            .map(File::from)
            .map_err(|error| OwnedError::io(&self.path.join(name), error))
    }

    /// Opens a file to read. It must be a regular file of at most `limit` bytes with one hard
    /// link, and only this user can have written it.
    pub fn read(&self, name: &OsStr, limit: u64) -> Result<File, OwnedError> {
        let path = self.path.join(name);
        // Some file systems lock only files that are open for writing.
        let flags = OFlags::RDWR | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let fd =
            rustix::fs::openat(&self.fd, name, flags, Mode::empty()).map_err(
                |error| match error {
                    rustix::io::Errno::LOOP | rustix::io::Errno::ISDIR => {
                        OwnedError::Kind { path: shown(&path), expected: "a regular file" }
                    }
                    error => OwnedError::io(&path, error),
                },
            )?;
        let stat = rustix::fs::fstat(&fd).map_err(|error| OwnedError::io(&path, error))?;
        if FileType::from_raw_mode(stat.st_mode) != FileType::RegularFile {
            return Err(OwnedError::Kind { path: shown(&path), expected: "a regular file" });
        }
        if stat.st_uid != geteuid().as_raw() {
            return Err(OwnedError::Foreign { path: shown(&path), owner: stat.st_uid });
        }
        if stat.st_mode & (Mode::WGRP | Mode::WOTH).bits() != 0 {
            return Err(OwnedError::Writable { path: shown(&path), mode: stat.st_mode & 0o7777 });
        }
        if stat.st_nlink != 1 {
            return Err(OwnedError::Linked { path: shown(&path), links: stat.st_nlink });
        }
        let bytes = stat.st_size.max(0) as u64;
        if bytes > limit {
            return Err(OwnedError::TooLarge { path: shown(&path), bytes, limit });
        }
        Ok(File::from(fd))
    }

    pub fn remove(&self, name: &OsStr) -> io::Result<()> {
        Ok(rustix::fs::unlinkat(&self.fd, name, AtFlags::empty())?)
    }

    /// Locks the folder until `self` is dropped, unless it is locked already.
    pub fn try_lock(&self) -> Lock {
        try_lock(&self.fd)
    }
}

/// Result of trying to lock a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lock {
    /// Locked by this process, as long as it has the file open.
    Taken,
    Held,
    /// The file system has no locks (some network file systems).
    Unsupported,
}

pub fn try_lock(file: impl AsFd) -> Lock {
    match rustix::fs::flock(file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Lock::Taken,
        Err(rustix::io::Errno::WOULDBLOCK) => Lock::Held,
        Err(_) => Lock::Unsupported,
    }
}

/// Makes a new folder with mode 0700; only root and this user may control its parent.
pub fn make_new_folder(path: &Path) -> io::Result<()> {
    Ok(rustix::fs::mkdir(path, Mode::RWXU)?)
}

/// Returns a name that nobody can guess: random bytes from the kernel, as hexadecimal digits.
pub fn random_name() -> io::Result<String> {
    let mut bytes = [0u8; 8];
    let n = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
    if n != bytes.len() {
        return Err(io::Error::other("the kernel gave too few random bytes"));
    }
    Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect())
}

/// Why a tree was not removed.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    #[error("{0} is a symbolic link; it was left")]
    Link(String),
    #[error(transparent)]
    Owned(#[from] OwnedError),
    #[error("{path} is nested deeper than {limit} folders")]
    TooDeep { path: String, limit: usize },
}

/// Deepest nesting that is followed, since each level takes an open file. Deeper folders are moved
/// to the top of the tree, at most `MOVES_MAX` times.
const DEPTH_MAX: usize = 200;
const MOVES_MAX: usize = 10_000;

/// Removes a folder of this user with all its contents, and returns whether it existed. No part of
/// `path` may be a link, and nothing is removed behind a link or on another file system.
pub fn remove_tree(path: &Path) -> Result<bool, TreeError> {
    let (Some(name), Some(parent)) = (path.file_name(), path.parent()) else {
        return Err(OwnedError::Kind { path: shown(path), expected: "a folder in another" }.into());
    };
    let Some(parent_fd) = open_without_links(parent)? else { return Ok(false) };
    let fd = match rustix::fs::openat(&parent_fd, name, OPEN_FOLDER, Mode::empty()) {
        Ok(fd) => fd,
        Err(rustix::io::Errno::NOENT) => return Ok(false),
        Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
            return match rustix::fs::statat(&parent_fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                Ok(stat) if is_link(&stat) => Err(TreeError::Link(shown(path))),
                _ => Err(OwnedError::Kind { path: shown(path), expected: "a folder" }.into()),
            };
        }
        Err(error) => return Err(OwnedError::io(path, error).into()),
    };
    let stat = rustix::fs::fstat(&fd).map_err(|error| OwnedError::io(path, error))?;
    if stat.st_uid != geteuid().as_raw() {
        return Err(OwnedError::Foreign { path: shown(path), owner: stat.st_uid }.into());
    }
    let mut tree = Tree { top: fd.as_fd(), device: stat.st_dev, moved: 0 };
    loop {
        let moved = tree.moved;
        tree.empty(fd.as_fd(), path, 0)?;
        if tree.moved == moved {
            break;
        }
    }
    rustix::fs::unlinkat(&parent_fd, name, AtFlags::REMOVEDIR)
        .map_err(|error| OwnedError::io(path, error))?;
    Ok(true)
}

/// Opens a folder by its absolute path, no part of which may be a link; `None` if it is missing.
fn open_without_links(path: &Path) -> Result<Option<OwnedFd>, TreeError> {
    if !path.is_absolute() {
        return Err(OwnedError::Kind { path: shown(path), expected: "an absolute path" }.into());
    }
    // With O_PATH, passing through a folder needs no permission to read it.
    let through = OPEN_FOLDER.union(OFlags::PATH);
    let mut at = PathBuf::from("/");
    let mut fd = rustix::fs::open("/", through, Mode::empty())
        .map_err(|error| OwnedError::io(&at, error))?;
    for component in path.components() {
        let name = match component {
            Component::RootDir => continue,
            Component::Normal(name) => name,
            _ => {
                let expected = "a path without '..'";
                return Err(OwnedError::Kind { path: shown(path), expected }.into());
            }
        };
        at.push(name);
        fd = match rustix::fs::openat(&fd, name, through, Mode::empty()) {
            Ok(fd) => fd,
            Err(rustix::io::Errno::NOENT) => return Ok(None),
            Err(rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR) => {
                return match rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW) {
                    Ok(stat) if is_link(&stat) => Err(TreeError::Link(shown(&at))),
                    // A file on the way: nothing can be below it.
                    _ => Ok(None),
                };
            }
            Err(error) => return Err(OwnedError::io(&at, error).into()),
        };
    }
    Ok(Some(fd))
}

fn is_link(stat: &Stat) -> bool {
    FileType::from_raw_mode(stat.st_mode) == FileType::Symlink
}

/// A folder that is being removed.
struct Tree<'a> {
    top: BorrowedFd<'a>,
    device: u64,
    /// Folders moved to the top so far.
    moved: usize,
}

impl Tree<'_> {
    fn empty(
        &mut self,
        folder: BorrowedFd<'_>,
        path: &Path,
        depth: usize,
    ) -> Result<(), TreeError> {
        for name in names(folder).map_err(|error| OwnedError::io(path, error))? {
            let below = path.join(&name);
            match rustix::fs::unlinkat(folder, &*name, AtFlags::empty()) {
                Ok(()) | Err(rustix::io::Errno::NOENT) => continue,
                Err(rustix::io::Errno::ISDIR | rustix::io::Errno::PERM) => {}
                Err(error) => return Err(OwnedError::io(&below, error).into()),
            }
            let fd = rustix::fs::openat(folder, &*name, OPEN_FOLDER, Mode::empty())
                .map_err(|error| OwnedError::io(&below, error))?;
            let stat = rustix::fs::fstat(&fd).map_err(|error| OwnedError::io(&below, error))?;
            if stat.st_dev != self.device {
                let expected = "on the file system of the folder that holds it";
                return Err(OwnedError::Kind { path: shown(&below), expected }.into());
            }
            if depth == DEPTH_MAX {
                if self.moved == MOVES_MAX {
                    return Err(TreeError::TooDeep {
                        path: shown(path),
                        limit: DEPTH_MAX * MOVES_MAX,
                    });
                }
                self.moved += 1;
                let higher = random_name().map_err(|error| OwnedError::io(&below, error))?;
                rustix::fs::renameat(folder, &*name, self.top, &*higher)
                    .map_err(|error| OwnedError::io(&below, error))?;
                continue;
            }
            self.empty(fd.as_fd(), &below, depth + 1)?;
            rustix::fs::unlinkat(folder, &*name, AtFlags::REMOVEDIR)
                .map_err(|error| OwnedError::io(&below, error))?;
        }
        Ok(())
    }
}

fn names(folder: BorrowedFd<'_>) -> io::Result<Vec<OsString>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(folder)? {
        let entry = entry?;
        let name = OsStr::from_bytes(entry.file_name().to_bytes());
        if name != "." && name != ".." {
            names.push(name.to_owned());
        }
    }
    Ok(names)
}

/// Whether this is a folder of a control group file system, of either version.
pub fn is_cgroup(path: &Path) -> bool {
    let known = [libc::CGROUP_SUPER_MAGIC, libc::CGROUP2_SUPER_MAGIC];
    rustix::fs::statfs(path).is_ok_and(|stat| known.contains(&stat.f_type))
}

#[cfg(test)]
mod tests;
