//! Writes an initramfs: a root file system's folder as a cpio archive in "newc" format.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Writes everything below `root`; in the guest, paths begin at `/`.
pub fn write(root: &Path, to: &Path) -> io::Result<()> {
    let mut archive = Archive { out: BufWriter::new(fs::File::create(to)?), written: 0, inode: 0 };
    archive.folder(root, "")?;
    archive.entry("TRAILER!!!", 0, &[])?;
    archive.out.flush()
}

struct Archive<W> {
    out: W,
    written: usize,
    inode: u32,
}

const FOLDER: u32 = 0o040_755;
const LINK: u32 = 0o120_777;
const FILE: u32 = 0o100_000;

impl<W: Write> Archive<W> {
    fn folder(&mut self, path: &Path, name: &str) -> io::Result<()> {
        let mut entries: Vec<_> = fs::read_dir(path)?.collect::<Result<_, _>>()?;
        entries.sort_by_key(fs::DirEntry::file_name);
        for entry in entries {
            let (path, kind) = (entry.path(), entry.file_type()?);
            let below = entry.file_name();
            let below = below.to_str().ok_or(io::ErrorKind::InvalidFilename)?;
            let name = if name.is_empty() { below.to_owned() } else { format!("{name}/{below}") };
            if kind.is_dir() {
                self.entry(&name, FOLDER, &[])?;
                self.folder(&path, &name)?;
            } else if kind.is_symlink() {
                let target = fs::read_link(&path)?;
                self.entry(&name, LINK, target.as_os_str().as_encoded_bytes())?;
            } else {
                let mode = FILE | (fs::metadata(&path)?.mode() & 0o7777);
                self.entry(&name, mode, &fs::read(&path)?)?;
            }
        }
        Ok(())
    }

    fn entry(&mut self, name: &str, mode: u32, bytes: &[u8]) -> io::Result<()> {
        self.inode += 1;
        let length = u32::try_from(bytes.len()).map_err(|_| io::ErrorKind::FileTooLarge)?;
        let name_length = name.len() as u32 + 1;
        // inode, mode, uid, gid, links, mtime, size, device twice, name's length, checksum.
        let fields = [self.inode, mode, 0, 0, 1, 0, length, 0, 0, 0, 0, name_length, 0];
        let head: String = fields.iter().map(|field| format!("{field:08x}")).collect();
        self.write(format!("070701{head}{name}\0").as_bytes())?;
        self.pad()?;
        self.write(bytes)?;
        self.pad()
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.written += bytes.len();
        self.out.write_all(bytes)
    }

    /// Pads to a multiple of four bytes, as "newc" requires after names and contents.
    fn pad(&mut self) -> io::Result<()> {
        let missing = self.written.next_multiple_of(4) - self.written;
        self.write(&[0; 3][..missing])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_made_of_aligned_entries() {
        let mut archive = Archive { out: Vec::new(), written: 0, inode: 0 };
        archive.entry("ab", FILE | 0o755, b"hello").unwrap();
        archive.entry("TRAILER!!!", 0, &[]).unwrap();
        let text = String::from_utf8(archive.out).unwrap();
        assert!(text.starts_with("07070100000001000081ed"), "{text}");
        assert_eq!(text.len() % 4, 0);
        // 110 bytes of head, "ab\0" and padding to 116, then the content.
        assert_eq!(&text[116..121], "hello");
        assert_eq!(&text[124..130], "070701");
    }
}
