//! Counts lines and bytes of a server's log file; each byte is read once.

use std::io::{ErrorKind, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use tare_io::files::open_regular;

/// Longest file that is read: more than a launch logs, and read in a second or two. A sparse file
/// may be longer than any disk.
const LOG_BYTES_MAX: u64 = 1 << 30;

/// Counts the lines of a file; 0 if it is missing, `None` if it is too long or cannot be read.
pub fn lines(path: &Path) -> Option<u64> {
    let file = match open_regular(path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound => return Some(0),
        Err(_) => return None,
    };
    let length = file.metadata().ok()?.len();
    if length > LOG_BYTES_MAX {
        return None;
    }
    // Lines added meanwhile are left out: the writer may be faster than this loop.
    let mut file = file.take(length);
    let (mut buffer, mut lines) = (vec![0; 64 << 10], 0);
    loop {
        let n = file.read(&mut buffer).ok()?;
        if n == 0 {
            return Some(lines);
        }
        lines += buffer[..n].iter().filter(|byte| **byte == b'\n').count() as u64;
    }
}

#[derive(Debug)]
pub struct LogFile {
    path: PathBuf,
    bytes: u64,
    lines: u64,
}

impl LogFile {
    pub fn new(path: &Path) -> Self {
        Self { path: path.to_owned(), bytes: 0, lines: 0 }
    }

    /// Returns lines and bytes so far; the previous counts if the file cannot be read.
    pub fn count(&mut self) -> (u64, u64) {
        // A log that does not exist yet, or is a pipe to another program, has nothing to count.
        let _ = self.read_on();
        (self.lines, self.bytes)
    }

    fn read_on(&mut self) -> std::io::Result<()> {
        let mut file = open_regular(&self.path)?;
        let length = file.metadata()?.len();
        if length < self.bytes {
            // It was truncated or replaced.
            (self.bytes, self.lines) = (0, 0);
        }
        file.seek(SeekFrom::Start(self.bytes))?;
        // Lines added meanwhile are left to the next call: the writer may be faster than this loop.
        let mut file = file.take((length - self.bytes).min(LOG_BYTES_MAX));
        let mut buffer = vec![0; 64 << 10];
        loop {
            let n = file.read(&mut buffer)?;
            if n == 0 {
                return Ok(());
            }
            self.bytes += n as u64;
            self.lines += buffer[..n].iter().filter(|byte| **byte == b'\n').count() as u64;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_log_is_read_on_and_a_pipe_is_not_waited_for() {
        let folder = std::env::temp_dir().join(format!("tare-log-{}", std::process::id()));
        std::fs::create_dir(&folder).unwrap();
        let path = folder.join("log");
        let mut log = LogFile::new(&path);
        assert_eq!(log.count(), (0, 0));
        std::fs::write(&path, "one\ntwo").unwrap();
        assert_eq!(log.count(), (1, 7));
        std::fs::write(&path, "one\ntwo\nthree\n").unwrap();
        assert_eq!(log.count(), (3, 14));
        std::fs::write(&path, "new\n").unwrap();
        assert_eq!(log.count(), (1, 4));
        std::fs::remove_file(&path).unwrap();
        assert!(std::process::Command::new("mkfifo").arg(&path).status().unwrap().success());
        assert_eq!(log.count(), (1, 4));
        assert_eq!(lines(&path), None);
        std::fs::remove_dir_all(folder).unwrap();
    }
}
