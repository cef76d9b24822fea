//! Files that users and servers name: opened without waiting, read within limits, written whole.

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags, Stat};
use rustix::process::geteuid;

use crate::owned::{self, random_name};
use crate::process::readable_within;
use crate::time::DurationNs;

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens a file that another program writes, such as a log. It must be a regular file: a FIFO would
/// wait for its other end, and a device might never end.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = File::from(rustix::fs::open(path, OPEN, Mode::empty())?);
    match file.metadata()?.is_file() {
        true => Ok(file),
        false => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
    }
}

/// Whether this user may write to a file, or make one in a folder.
pub fn is_writable(path: &Path) -> bool {
    let flags = AtFlags::EACCESS;
    rustix::fs::accessat(rustix::fs::CWD, path, Access::WRITE_OK, flags).is_ok()
}

/// Opens an input that the user named: a regular file, a terminal, or a pipe such as `<(command)`,
/// on which reads wait for bytes.
pub fn open_input(path: &Path) -> io::Result<Input> {
    let fd = rustix::fs::open(path, OPEN, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    let is_pipe = match kind {
        FileType::RegularFile => false,
        FileType::Fifo | FileType::Socket => true,
        // A terminal or /dev/null. The reader limits a device that never ends.
        FileType::CharacterDevice => true,
        FileType::Directory => {
            return Err(io::Error::new(ErrorKind::IsADirectory, "it is a folder"));
        }
        _ => {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it is neither a file nor a pipe"));
        }
    };
    Ok(Input { file: File::from(fd), is_pipe })
}

/// Reads an input whole; more than `limit_bytes` is an error.
pub fn read_input(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_input(path)?.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit_bytes {
        true => Err(io::Error::other(format!("it is over {limit_bytes} bytes"))),
        false => Ok(bytes),
    }
}

#[derive(Debug)]
pub struct Input {
    file: File,
    is_pipe: bool,
}

/// Longest single poll of a pipe. Polls are repeated: a pipe may have no writer yet, and a signal
/// ends a poll early.
const LOOK: DurationNs = DurationNs::from_secs(1);

impl Read for Input {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        if !self.is_pipe {
            return self.file.read(into);
        }
        while !readable_within(&self.file, LOOK) {}
        match self.file.read(into) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => {
                Err(ErrorKind::Interrupted.into())
            }
            read => read,
        }
    }
}

/// An output that the user named. A file is written under a temporary name and then renamed, so
/// that a planted link cannot redirect it, and the old file stays until then. Links and streams are
/// trusted only if they belong to this user or root.
#[derive(Debug)]
pub enum OutputFile {
    File {
        folder: OwnedFd,
        name: OsString,
    },
    /// A pipe (such as `>(command)`), a terminal, or /dev/null.
    Stream(File),
}

/// The kernel's own limit of links in a path.
const LINKS_MAX: usize = 40;

impl OutputFile {
    /// Finds the output, but creates and changes nothing yet; an error says why it cannot be
    /// written.
    pub fn find(path: &Path) -> io::Result<Self> {
        let no = |kind, text: &str| Err(io::Error::new(kind, text.to_owned()));
        let mut path = path.to_owned();
        for _ in 0..LINKS_MAX {
            let stat = match rustix::fs::lstat(&path) {
                Ok(stat) => stat,
                Err(rustix::io::Errno::NOENT) => return Self::in_folder(&path, None),
                Err(error) => return Err(error.into()),
            };
            match FileType::from_raw_mode(stat.st_mode) {
                FileType::RegularFile => return Self::in_folder(&path, Some(stat)),
                FileType::Directory => return no(ErrorKind::IsADirectory, "it is a folder"),
                FileType::Symlink if !is_trusted(&stat) => {
                    return no(ErrorKind::PermissionDenied, "it is a link of another user's");
                }
                // A link in /proc/self/fd to a pipe has no path as its target.
                FileType::Symlink if leads_to_stream(&path) => return Self::linked_stream(&path),
                FileType::Symlink => {
                    let target = std::fs::read_link(&path)?;
                    path = path.parent().unwrap_or(Path::new("/")).join(target);
                }
                FileType::Fifo | FileType::CharacterDevice => {
                    return Self::stream(&path, OFlags::NOFOLLOW);
                }
                _ => return no(ErrorKind::InvalidInput, "it is neither a file nor a pipe"),
            }
        }
        no(ErrorKind::InvalidInput, "its links lead in a circle")
    }

    fn in_folder(path: &Path, there: Option<Stat>) -> io::Result<Self> {
        let Some(name) = path.file_name() else {
            return Err(io::Error::new(ErrorKind::InvalidInput, "it names no file"));
        };
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        let folder = folder.unwrap_or(Path::new("."));
        let open = owned::open_folder(folder)?;
        let is_sticky = rustix::fs::fstat(&open)?.st_mode & Mode::SVTX.bits() != 0;
        let may_replace = there.is_none_or(|stat| {
            is_writable(path) && (!is_sticky || is_trusted(&stat) || geteuid().is_root())
        });
        if !is_writable(folder) || !may_replace {
            return Err(rustix::io::Errno::ACCESS.into());
        }
        Ok(Self::File { folder: open, name: name.to_owned() })
    }

    /// Opens a stream through a link that no other user can replace, such as /dev/stdout.
    fn linked_stream(path: &Path) -> io::Result<Self> {
        owned::check_closed(path.parent().unwrap_or(Path::new("/"))).map_err(io::Error::other)?;
        Self::stream(path, OFlags::empty())
    }

    fn stream(path: &Path, more: OFlags) -> io::Result<Self> {
        // With O_NONBLOCK, a pipe that nobody reads is an error instead of a wait.
        let flags = OFlags::WRONLY | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOCTTY | more;
        let fd = match rustix::fs::open(path, flags, Mode::empty()) {
            Err(rustix::io::Errno::NXIO) => {
                return Err(io::Error::new(ErrorKind::NotFound, "nobody reads that pipe"));
            }
            fd => fd?,
        };
        let stat = rustix::fs::fstat(&fd)?;
        if !is_trusted(&stat) || !is_stream(&stat) {
            let text = "it is a pipe of another user's (- is standard output)";
            return Err(io::Error::new(ErrorKind::PermissionDenied, text));
        }
        rustix::fs::fcntl_setfl(&fd, OFlags::empty())?;
        Ok(Self::Stream(File::from(fd)))
    }

    pub fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.write_all(bytes).and_then(|()| stream.flush()),
            Self::File { folder, name } => replace(folder, name, bytes),
        }
    }
}

/// Writes a temporary file and renames it to `name`. The mode of a trusted old file is kept.
fn replace(folder: &OwnedFd, name: &OsStr, bytes: &[u8]) -> io::Result<()> {
    let part = format!(".tare-{}", random_name()?);
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let mut file =
        File::from(rustix::fs::openat(folder, &*part, flags, Mode::from_raw_mode(0o666))?);
    let there = rustix::fs::statat(folder, name, AtFlags::SYMLINK_NOFOLLOW);
    let is_kept = |stat: &Stat| {
        FileType::from_raw_mode(stat.st_mode) == FileType::RegularFile && is_trusted(stat)
    };
    if let Some(stat) = there.ok().filter(is_kept) {
        rustix::fs::fchmod(&file, Mode::from_raw_mode(stat.st_mode & 0o777))?;
    }
    let written = file.write_all(bytes).and_then(|()| {
        match rustix::fs::renameat(folder, &*part, folder, name) {
            // A mounted file, as in containers, cannot be replaced: it is overwritten.
            Err(rustix::io::Errno::BUSY) => {
                let flags = OFlags::WRONLY | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
                let mounted = rustix::fs::openat(folder, name, flags, Mode::empty())?;
                rustix::fs::unlinkat(folder, &*part, AtFlags::empty())?;
                File::from(mounted).write_all(bytes)
            }
            done => Ok(done?),
        }
    });
    if written.is_err() {
        let _ = rustix::fs::unlinkat(folder, &*part, AtFlags::empty());
    }
    written
}

fn is_trusted(stat: &Stat) -> bool {
    stat.st_uid == 0 || stat.st_uid == geteuid().as_raw()
}

fn is_stream(stat: &Stat) -> bool {
    matches!(
        FileType::from_raw_mode(stat.st_mode),
        FileType::Fifo | FileType::CharacterDevice | FileType::Socket
    )
}

fn leads_to_stream(path: &PathBuf) -> bool {
    rustix::fs::stat(path).is_ok_and(|stat| is_stream(&stat))
}
