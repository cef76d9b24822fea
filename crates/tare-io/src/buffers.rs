//! A ring of receive buffers shared with the kernel (io_uring's provided-buffer ring).

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::io;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU16, Ordering};

use io_uring::{IoUring, types::BufRingEntry};

use crate::reactor::Chunk;

/// Must outlive the ring it is registered with.
pub struct BufferRing {
    entries: NonNull<BufRingEntry>,
    memory: Box<[u8]>,
    shape: Buffers,
    tail: u16,
}

/// The receive buffers of a reactor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Buffers {
    /// A power of two, as the kernel demands.
    pub count: u16,
    pub bytes: usize,
}

impl Buffers {
    /// Few enough to stay in the cache, but enough for the completions of one turn.
    pub const SMALL: Self = Self { count: 128, bytes: 16 * 1024 };
    /// Large enough for streams, and for datagrams, which are cut at the end of a buffer.
    pub const LARGE: Self = Self { count: 16, bytes: 64 * 1024 };

    /// The kernel requires a page-aligned ring.
    fn layout(self) -> Layout {
        match Layout::from_size_align(usize::from(self.count) * size_of::<BufRingEntry>(), 4096) {
            Ok(layout) => layout,
            Err(_) => panic!("a page-aligned ring of buffers"),
        }
    }
}

impl BufferRing {
    pub fn register(ring: &IoUring, group: u16, shape: Buffers) -> io::Result<Self> {
        let layout = shape.layout();
        // SAFETY: the layout's size is not zero.
        let entries = unsafe { alloc_zeroed(layout) }.cast::<BufRingEntry>();
        let Some(entries) = NonNull::new(entries) else { handle_alloc_error(layout) };
        let memory = vec![0; usize::from(shape.count) * shape.bytes].into_boxed_slice();
        let mut buffers = Self { entries, memory, shape, tail: 0 };
        // SAFETY: the ring's memory is page-aligned, has that many entries, and lives in `buffers`,
        // which the reactor drops after the ring.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                entries.as_ptr() as u64,
                shape.count,
                group,
                0,
            )?;
        }
        for index in 0..shape.count {
            buffers.offer(index);
        }
        Ok(buffers)
    }

    pub fn bytes(&self, chunk: &Chunk) -> &[u8] {
        let at = chunk.index as usize * self.shape.bytes;
        &self.memory[at..at + chunk.len as usize]
    }

    pub fn release(&mut self, chunk: Chunk) {
        self.offer(chunk.index as u16);
    }

    fn offer(&mut self, index: u16) {
        let start = &raw mut self.memory[usize::from(index) * self.shape.bytes];
        let at = usize::from(self.tail & (self.shape.count - 1));
        // SAFETY: the masked position is inside the ring, and the kernel does not read the entry
        // before the tail moves past it.
        let entry = unsafe { &mut *self.entries.as_ptr().add(at) };
        entry.set_addr(start as u64);
        entry.set_len(self.shape.bytes as u32);
        entry.set_bid(index);
        self.tail = self.tail.wrapping_add(1);
        // SAFETY: the pointer is that of the first entry, whose reserved field is the tail; the
        // kernel reads it concurrently, hence the atomic store, after the entry was written.
        unsafe {
            let tail = BufRingEntry::tail(self.entries.as_ptr()).cast::<AtomicU16>();
            (*tail).store(self.tail, Ordering::Release);
        }
    }
}

impl Drop for BufferRing {
    fn drop(&mut self) {
        // SAFETY: allocated in `register` with this layout; the ring that used it is gone.
        unsafe { dealloc(self.entries.as_ptr().cast(), self.shape.layout()) };
    }
}
