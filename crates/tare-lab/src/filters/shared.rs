//! The controller's side of shared memory: creates it, reads the counters, changes the prefix. The
//! layout is in filters/include/shared.h. Filters map it; here it is read and written as a file.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use tare_io::process::{lock, unlock};
use tare_model::filters::PREFIX_MAX;

use crate::journal::prefix::PREFIX;
use crate::machine::processes::Stat;
use tare_model::Failure;

const MAGIC: u64 = 0x3165_7261_742d_6673;
const OWNER_AT: u64 = 8;
const SEATS_TAKEN_AT: u64 = 12;
const GENERATION_AT: u64 = 16;
const LENGTHS_AT: u64 = 20;
const TEXTS_AT: u64 = 28;
const TEXT_BYTES: u64 = 128;
const SEATS_AT: u64 = 4096;
const SEAT_BYTES: usize = 64;
const SEATS: usize = 256;
const BYTES: u64 = SEATS_AT + (SEATS * SEAT_BYTES) as u64;

/// An object in /dev/shm.
#[derive(Debug)]
pub struct SharedMemory {
    path: PathBuf,
    file: File,
}

/// Counters, summed over all processes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub accepted: u64,
    pub refused: u64,
}

pub fn path_of(name: &str) -> PathBuf {
    PathBuf::from("/dev/shm").join(name)
}

/// Checks that tare may create and remove an object of this name.
pub fn check_name(name: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let ours = name.strip_prefix(PREFIX).is_some_and(|rest| !rest.is_empty());
    match ours && name.len() <= 64 && name.chars().all(is_plain) {
        true => Ok(()),
        false => Err(format!(
            "'{name}': write {PREFIX}… with letters, digits, - _ . (at most 64 characters)"
        )),
    }
}

impl SharedMemory {
    /// Creates shared memory; `note` is called with each path before it is created.
    pub(super) fn create(
        name: &str,
        prefix: &str,
        note: impl Fn(&Path) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let path = path_of(name);
        if path.symlink_metadata().is_ok() {
            return Err(Failure::environment(Self::whose(name)));
        }
        // Fill it under another name first, so that it appears complete or not at all.
        let unfinished = path_of(&format!("{name}.{}", std::process::id()));
        note(&unfinished)?;
        note(&path)?;
        let failed = |error| Failure::file("make shared memory", &path, error);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&unfinished)
            .map_err(failed)?;
        // 0600 is enough: nginx maps it before its workers drop root.
        let mine = std::os::unix::fs::PermissionsExt::from_mode(0o600);
        let fill = || -> io::Result<()> {
            file.set_permissions(mine)?;
            file.set_len(BYTES)?;
            file.write_all_at(&MAGIC.to_ne_bytes(), 0)?;
            file.write_all_at(&std::process::id().to_ne_bytes(), OWNER_AT)?;
            file.write_all_at(&0_u32.to_ne_bytes(), SEATS_TAKEN_AT)
        };
        fill().map_err(failed)?;
        let mut memory = Self { path: path.clone(), file };
        memory.set_prefix(prefix)?;
        // Unlike a rename, a link does not replace an object created in the meantime.
        std::fs::hard_link(&unfinished, &path).map_err(failed)?;
        std::fs::remove_file(&unfinished).map_err(failed)?;
        Ok(memory)
    }

    /// Opens the memory of a running controller.
    pub fn open(name: &str) -> Result<Self, Failure> {
        let path = path_of(name);
        // Any user can write to /dev/shm: links and other users' objects are refused.
        let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
        let open = OpenOptions::new().read(true).write(true).custom_flags(flags).open(&path);
        let file = open.map_err(|error| {
            Failure::environment(format!(
                "{}: {error}: no controller runs under that name",
                path.display()
            ))
        })?;
        let memory = Self { path, file };
        let of = memory.file.metadata();
        let (length, owner) = of.map_or((0, u32::MAX), |file| (file.len(), file.uid()));
        if owner != tare_io::process::effective_uid() {
            let text = format!("{} belongs to another user", memory.path.display());
            return Err(Failure::environment(text));
        }
        if length != BYTES || memory.number(0).ok() != Some(MAGIC) {
            let text = format!("{} is not shared memory of tare", memory.path.display());
            return Err(Failure::environment(text));
        }
        Ok(memory)
    }

    /// The pid of the process that created the memory, as recorded there.
    pub fn owner(&self) -> Option<u32> {
        self.number32(OWNER_AT).ok()
    }

    /// Explains why a name is not free.
    fn whose(name: &str) -> String {
        let path = path_of(name);
        let shown = path.display();
        let owner = Self::open(name).ok().and_then(|memory| memory.owner());
        let Some(owner) = owner else {
            return format!("{shown} is there already, and not of tare's making");
        };
        match Stat::read(owner).is_some_and(|stat| !stat.zombie) {
            true => format!("{shown} belongs to process {owner}, which runs; give another --shm"),
            false => format!(
                "{shown} was left behind by process {owner}, which was killed; tare clean removes \
                 it"
            ),
        }
    }

    /// Writes to the slot that is not in use, then switches all readers to it at once.
    pub fn set_prefix(&mut self, prefix: &str) -> Result<(), Failure> {
        if prefix.is_empty() || prefix.len() > PREFIX_MAX {
            let text = format!("the prefix has {} bytes; 1 to {PREFIX_MAX} do", prefix.len());
            return Err(Failure::usage(text));
        }
        let write = || -> io::Result<()> {
            // Without the lock, two writers would use the same slot.
            lock(&self.file)?;
            let next = self.number32(GENERATION_AT)?.wrapping_add(1);
            let place = u64::from(next & 1);
            let mut text = prefix.as_bytes().to_vec();
            text.push(0);
            let length = (prefix.len() as u32).to_ne_bytes();
            self.file.write_all_at(&text, TEXTS_AT + place * TEXT_BYTES)?;
            self.file.write_all_at(&length, LENGTHS_AT + place * 4)?;
            self.file.write_all_at(&next.to_ne_bytes(), GENERATION_AT)
        };
        let written = write();
        unlock(&self.file);
        written.map_err(|error| Failure::file("write", &self.path, error))
    }

    pub fn prefix(&self) -> Result<String, Failure> {
        let read = || -> io::Result<String> {
            let place = u64::from(self.number32(GENERATION_AT)? & 1);
            let length = self.number32(LENGTHS_AT + place * 4)?.min(TEXT_BYTES as u32);
            let mut text = vec![0; length as usize];
            self.file.read_exact_at(&mut text, TEXTS_AT + place * TEXT_BYTES)?;
            Ok(String::from_utf8_lossy(&text).into_owned())
        };
        read().map_err(|error| Failure::file("read", &self.path, error))
    }

    pub fn totals(&self) -> Result<Totals, Failure> {
        let mut slots = vec![0; SEATS * SEAT_BYTES];
        self.file
            .read_exact_at(&mut slots, SEATS_AT)
            .map_err(|error| Failure::file("read", &self.path, error))?;
        let number = |bytes: &[u8]| bytes.try_into().map_or(0, u64::from_ne_bytes);
        let each = slots.chunks_exact(SEAT_BYTES);
        Ok(each.fold(Totals::default(), |sum, slot| Totals {
            accepted: sum.accepted + number(&slot[..8]),
            refused: sum.refused + number(&slot[8..16]),
        }))
    }

    fn number(&self, at: u64) -> io::Result<u64> {
        let mut bytes = [0; 8];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u64::from_ne_bytes(bytes))
    }

    fn number32(&self, at: u64) -> io::Result<u32> {
        let mut bytes = [0; 4];
        self.file.read_exact_at(&mut bytes, at)?;
        Ok(u32::from_ne_bytes(bytes))
    }
}
