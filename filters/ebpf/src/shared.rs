//! The shared memory of `tare filter control`; its layout is that of include/shared.h.

use std::fs::OpenOptions;
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

const MAGIC: u64 = 0x3165_7261_742d_6673;
const BYTES: usize = 4096 + SEATS * SEAT_BYTES;
const SEATS: usize = 256;
const SEATS_TAKEN_AT: usize = 12;
const PREFIX_AT: usize = 16;
const TEXT_AT: usize = PREFIX_AT + 12;
const SEATS_AT: usize = 4096;

pub const PREFIX_BYTES: usize = 12 + 2 * TEXT_BYTES;
pub const SEAT_BYTES: usize = 64;
const TEXT_BYTES: usize = 128;

/// Where maps are, for the program's look-ups: addresses, 0 where there is none.
pub static PREFIX: AtomicUsize = AtomicUsize::new(0);
pub static SEAT: AtomicUsize = AtomicUsize::new(0);

/// The mapped object. It stays mapped until the process ends.
#[derive(Clone, Copy)]
pub struct Shared {
    start: usize,
}

impl Shared {
    pub fn open(name: &str) -> Result<Self, String> {
        if name.is_empty() || name.contains('/') {
            return Err("no shared memory is named: set TARE_FILTER_SHM (nginx: tare_filter_shm \
                        NAME)"
                .into());
        }
        let path = format!("/dev/shm/{name}");
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(&path)
            .map_err(|error| format!("{path}: {error}: start `tare filter control` first"))?;
        let found = file.metadata().map_err(|error| format!("{path}: {error}"))?.len();
        if found != BYTES as u64 {
            return Err(format!("{path} is not shared memory of this version of tare"));
        }
        // SAFETY: a new mapping of a whole file, of the size just seen.
        let at = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                BYTES,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        if at == libc::MAP_FAILED {
            return Err(format!("{path}: {}", std::io::Error::last_os_error()));
        }
        let shared = Self { start: at as usize };
        if shared.number64(0).load(Ordering::Acquire) != MAGIC {
            // SAFETY: the mapping made above, which nobody else knows.
            unsafe { libc::munmap(at, BYTES) };
            return Err(format!("{path} is not shared memory of tare"));
        }
        Ok(shared)
    }

    fn number64(&self, at: usize) -> &'static AtomicU64 {
        // SAFETY: inside of the mapping, which is never undone once `open` has returned, and
        // aligned: all offsets are multiples of eight.
        unsafe { &*((self.start + at) as *const AtomicU64) }
    }

    fn number32(&self, at: usize) -> &'static AtomicU32 {
        // SAFETY: as above, with multiples of four.
        unsafe { &*((self.start + at) as *const AtomicU32) }
    }

    pub fn prefix_address(&self) -> usize {
        self.start + PREFIX_AT
    }

    /// The controller's prefix, as far as it is valid.
    pub fn prefix(&self) -> Vec<u8> {
        let at = (self.number32(PREFIX_AT).load(Ordering::Acquire) & 1) as usize;
        let length = self.number32(PREFIX_AT + 4 + 4 * at).load(Ordering::Relaxed) as usize;
        let start = (self.start + TEXT_AT + at * TEXT_BYTES) as *const u8;
        // SAFETY: inside of the mapping.
        (0..length.min(TEXT_BYTES)).map(|i| unsafe { start.add(i).read_volatile() }).collect()
    }

    /// A seat for this process; `None` when all were given away.
    pub fn sit(&self) -> Option<usize> {
        let seat = self.number32(SEATS_TAKEN_AT).fetch_add(1, Ordering::Relaxed) as usize;
        (seat < SEATS).then(|| self.start + SEATS_AT + seat * SEAT_BYTES)
    }

    pub fn totals(&self) -> (u64, u64) {
        let seats = (0..SEATS).map(|seat| SEATS_AT + seat * SEAT_BYTES);
        seats.fold((0, 0), |(accepted, refused), at| {
            let read = |at| self.number64(at).load(Ordering::Relaxed);
            (accepted + read(at), refused + read(at + 8))
        })
    }
}
