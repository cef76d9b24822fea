//! An object in /dev/shm, which a filter and its controller share.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::filters::shared;
use crate::journal::prefix::has_our_name;
use crate::journal::removal::{Removal, Removed};
use crate::machine::processes::Stat;

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct SharedMemory(pub PathBuf);

impl Removal for SharedMemory {
    fn remove(&self) -> Removed {
        let path = &self.0;
        if path.parent() != Some(Path::new("/dev/shm")) || !has_our_name(path) {
            return Ok(None);
        }
        // Any user can write to /dev/shm: the name may belong to another user or process by now.
        let own = tare_io::process::effective_uid();
        if path.symlink_metadata().map_or(true, |object| object.uid() != own) {
            return Ok(None);
        }
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let owner = shared::SharedMemory::open(&name).ok().and_then(|memory| memory.owner());
        let is_alive = |pid: u32| Stat::read(pid).is_some_and(|stat| !stat.zombie);
        if owner.is_some_and(|owner| owner != std::process::id() && is_alive(owner)) {
            return Ok(None);
        }
        match std::fs::remove_file(path) {
            Ok(()) => Ok(Some(format!("shared memory {}", path.display()))),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(format!("cannot remove {}: {error}", path.display())),
        }
    }

    fn ends_with_the_boot(&self) -> bool {
        true
    }
}
