//! Files that users and servers name: opened without waiting, read within limits.

use std::fs::File;
use std::io::{self, ErrorKind, Read};
use std::path::Path;

use rustix::fs::{Access, AtFlags, FileType, Mode, OFlags};

use crate::process::readable_within;
use crate::time::DurationNs;

const OPEN: OFlags =
    OFlags::RDONLY.union(OFlags::NONBLOCK).union(OFlags::CLOEXEC).union(OFlags::NOCTTY);

/// Opens a file that another program writes, such as a log: a regular one only, and at once. A FIFO
/// would wait for its other end, a device may give bytes for ever.
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

/// Opens a file that the user named to be read: a regular one, or a pipe (as of `<(command)`),
/// which is waited for as other programs do.
pub fn open_input(path: &Path) -> io::Result<Input> {
    let fd = rustix::fs::open(path, OPEN, Mode::empty())?;
    let kind = FileType::from_raw_mode(rustix::fs::fstat(&fd)?.st_mode);
    let is_pipe = match kind {
        FileType::RegularFile => false,
        FileType::Fifo | FileType::Socket => true,
        // A terminal, typed to; /dev/null. What never ends is cut by its reader.
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

/// The same, whole, of at most so many bytes.
pub fn read_input(path: &Path, limit_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    open_input(path)?.take(limit_bytes + 1).read_to_end(&mut bytes)?;
    match bytes.len() as u64 > limit_bytes {
        true => Err(io::Error::other(format!("it is over {limit_bytes} bytes"))),
        false => Ok(bytes),
    }
}

/// An open input.
#[derive(Debug)]
pub struct Input {
    file: File,
    is_pipe: bool,
}

/// Between two looks at a pipe; its first writer may be yet to come, and a signal ends a look.
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
