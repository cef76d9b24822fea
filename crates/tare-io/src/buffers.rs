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
    tail: u16,
}

/// A power of two, as the kernel demands. Few, so that they stay in the cache; enough for the
/// completions of one turn.
const BUFFERS: u16 = 128;
const BUFFER_BYTES: usize = 16 * 1024;
/// The kernel wants the ring page-aligned.
const LAYOUT: Layout =
    match Layout::from_size_align(BUFFERS as usize * size_of::<BufRingEntry>(), 4096) {
        Ok(layout) => layout,
        Err(_) => panic!("a page-aligned ring of buffers"),
    };

impl BufferRing {
    pub fn register(ring: &IoUring, group: u16) -> io::Result<Self> {
        // SAFETY: the layout's size is not zero.
        let entries = unsafe { alloc_zeroed(LAYOUT) }.cast::<BufRingEntry>();
        let Some(entries) = NonNull::new(entries) else { handle_alloc_error(LAYOUT) };
        let memory = vec![0; BUFFERS as usize * BUFFER_BYTES].into_boxed_slice();
        let mut buffers = Self { entries, memory, tail: 0 };
        // SAFETY: the ring's memory is page-aligned, has BUFFERS entries, and lives in `buffers`,
        // which the reactor drops after the ring.
        unsafe {
            ring.submitter().register_buf_ring_with_flags(
                entries.as_ptr() as u64,
                BUFFERS,
                group,
                0,
            )?;
        }
        for index in 0..BUFFERS {
            buffers.offer(index);
        }
        Ok(buffers)
    }

    pub fn bytes(&self, chunk: &Chunk) -> &[u8] {
        let at = chunk.index as usize * BUFFER_BYTES;
        &self.memory[at..at + chunk.len as usize]
    }

    pub fn release(&mut self, chunk: Chunk) {
        self.offer(chunk.index as u16);
    }

    fn offer(&mut self, index: u16) {
        let start = &raw mut self.memory[index as usize * BUFFER_BYTES];
        // SAFETY: the masked position is inside the ring, and the kernel does not read the entry
        // before the tail moves past it.
        let entry =
            unsafe { &mut *self.entries.as_ptr().add((self.tail & (BUFFERS - 1)) as usize) };
        entry.set_addr(start as u64);
        entry.set_len(BUFFER_BYTES as u32);
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
        unsafe { dealloc(self.entries.as_ptr().cast(), LAYOUT) };
    }
}
