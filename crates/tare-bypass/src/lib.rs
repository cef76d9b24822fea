//! A bypass of TCP between the processes of one network namespace: see `bypass.bpf.c`.

#![forbid(unsafe_code)]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use aya::maps::{MapData, PerCpuArray, SockHash};
use aya::programs::{CgroupAttachMode, SkMsg, SockOps};
use aya::{Ebpf, EbpfLoader};

/// The programs as clang compiled them; empty without clang.
static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/bypass.bpf.o"));

/// A socket's key in the maps; as large as `struct end`.
type End = [u8; 24];

/// Counts so far, over all watched connections.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Connections of which both ends were found.
    pub paired: u64,
    /// Messages that bypassed TCP.
    pub redirected: u64,
    /// Messages that went through TCP.
    pub passed: u64,
    /// Messages that found the other end gone.
    pub refused: u64,
}

impl Counts {
    #[must_use]
    pub fn since(self, before: Self) -> Self {
        Self {
            paired: self.paired.saturating_sub(before.paired),
            redirected: self.redirected.saturating_sub(before.redirected),
            passed: self.passed.saturating_sub(before.passed),
            refused: self.refused.saturating_sub(before.refused),
        }
    }
}

/// BPF programs, attached until this is dropped or the process ends.
pub struct Bypass {
    loaded: Mutex<Ebpf>,
    groups: Vec<PathBuf>,
}

impl std::fmt::Debug for Bypass {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Bypass").field("groups", &self.groups).finish_non_exhaustive()
    }
}

/// Whether this build contains the BPF programs.
pub fn is_built_in() -> bool {
    !OBJECT.is_empty()
}

impl Bypass {
    /// Watches connections of sockets that are created in these control groups (version 2).
    pub fn attach(groups: &[PathBuf]) -> Result<Self, String> {
        if !is_built_in() {
            return Err("this tare was built without clang, which compiles the bypass".into());
        }
        let mut loaded = EbpfLoader::new()
            .load(OBJECT)
            .map_err(|error| format!("the kernel does not take its maps: {}", causes(&error)))?;
        redirect(&mut loaded)?;
        watch(&mut loaded, groups)?;
        Ok(Self { loaded: Mutex::new(loaded), groups: groups.to_vec() })
    }

    pub fn counts(&self) -> Option<Counts> {
        let loaded = self.loaded.lock().unwrap_or_else(PoisonError::into_inner);
        let counts: PerCpuArray<&MapData, u64> =
            PerCpuArray::try_from(loaded.map("counts")?).ok()?;
        let sum = |at: u32| -> Option<u64> { Some(counts.get(&at, 0).ok()?.iter().sum()) };
        Some(Counts { paired: sum(0)?, redirected: sum(1)?, passed: sum(2)?, refused: sum(3)? })
    }
}

fn redirect(loaded: &mut Ebpf) -> Result<(), String> {
    let sockets: SockHash<&MapData, End> = loaded
        .map("sockets")
        .ok_or("it has no map of sockets")?
        .try_into()
        .map_err(|error| format!("its map of sockets: {}", causes(&error)))?;
    let map = sockets.fd().try_clone().map_err(|error| causes(&error))?;
    let program: &mut SkMsg = loaded
        .program_mut("bypass")
        .ok_or("it has no program bypass")?
        .try_into()
        .map_err(|error| causes(&error))?;
    program.load().map_err(|error| format!("the kernel refuses it: {}", causes(&error)))?;
    program.attach(&map).map(drop).map_err(|error| format!("sk_msg: {}", causes(&error)))
}

fn watch(loaded: &mut Ebpf, groups: &[PathBuf]) -> Result<(), String> {
    let program: &mut SockOps = loaded
        .program_mut("watch")
        .ok_or("it has no program watch")?
        .try_into()
        .map_err(|error| causes(&error))?;
    program.load().map_err(|error| format!("the kernel refuses it: {}", causes(&error)))?;
    for group in groups {
        let opened = open(group)?;
        program
            // Attached as a link, which takes no flags and does not exclude other programs.
            .attach(opened, CgroupAttachMode::Single)
            .map_err(|error| format!("{}: {}", group.display(), causes(&error)))?;
    }
    Ok(())
}

fn open(group: &Path) -> Result<File, String> {
    File::open(group).map_err(|error| format!("{}: {error}", group.display()))
}

/// Formats an error with its causes, as the library's own messages are general.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut next = error.source();
    while let Some(cause) = next {
        text = format!("{text}: {cause}");
        next = cause.source();
    }
    text
}
