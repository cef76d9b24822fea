//! Makes one call into the kernel over and over, and times all of them together.
//!
//! Timing model: the clock is read before the first batch of calls and after each batch. Batches
//! grow to an eighth of the whole length, so that reading the clock costs next to nothing. Calls
//! that a library might answer from a cache use bare `syscall(2)`, as in UnixBench.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use crate::time::{DurationNs, monotonic_now};

/// A system call, or a short sequence of them, to be timed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[repr(u8)]
pub enum Call {
    /// UnixBench's system-call mix: close(dup(0)), getpid, getuid, umask; one pass is one "loop".
    Mix,
    GetPid,
    /// fork, exec of /bin/true in the child, wait: UnixBench's `syscall exec`.
    Exec,
    /// One byte written to a pipe, and read from it.
    Pipe,
    /// Waking a futex that nobody waits for.
    FutexWake,
    /// A page mapped and unmapped, never touched.
    Mmap,
    /// An eventfd written, waited for by epoll, and read.
    Epoll,
    /// Reading the clock through the vDSO, which makes no system call where it works.
    ClockVdso,
    /// Reading that clock through a system call.
    ClockCall,
    /// A fresh page touched for the first time.
    PageFault,
    /// Forking a child that exits at once, and waiting for it.
    Fork,
    /// A byte sent to another thread through a pipe, and one back: two context switches.
    Switch,
}

impl Call {
    pub const ALL: [Self; 12] = [
        Self::Mix,
        Self::GetPid,
        Self::Exec,
        Self::Pipe,
        Self::FutexWake,
        Self::Mmap,
        Self::Epoll,
        Self::ClockVdso,
        Self::ClockCall,
        Self::PageFault,
        Self::Fork,
        Self::Switch,
    ];

    pub fn name(self) -> &'static str {
        match self {
            Self::Mix => "mix",
            Self::GetPid => "getpid",
            Self::Exec => "exec",
            Self::Pipe => "pipe",
            Self::FutexWake => "futex-wake",
            Self::Mmap => "mmap",
            Self::Epoll => "epoll",
            Self::ClockVdso => "clock-vdso",
            Self::ClockCall => "clock-call",
            Self::PageFault => "page-fault",
            Self::Fork => "fork",
            Self::Switch => "switch",
        }
    }

    /// Describes one such call.
    pub fn text(self) -> &'static str {
        match self {
            Self::Mix => "a pass of UnixBench's mix: dup, close, getpid, getuid, umask",
            Self::GetPid => "getpid()",
            Self::Exec => "fork, exec of /bin/true, wait",
            Self::Pipe => "1 byte written to a pipe and read",
            Self::FutexWake => "futex wake, nobody waiting",
            Self::Mmap => "mmap and munmap of a page",
            Self::Epoll => "eventfd written, epoll_wait, read",
            Self::ClockVdso => "clock_gettime by the vDSO",
            Self::ClockCall => "clock_gettime by system call",
            Self::PageFault => "first touch of a page",
            Self::Fork => "fork, exit, wait",
            Self::Switch => "thread to thread and back by pipes",
        }
    }

    pub fn parse(text: &str) -> Result<Self, String> {
        Self::ALL.into_iter().find(|call| call.name() == text).ok_or_else(|| {
            let names = Self::ALL.map(Self::name).join(", ");
            format!("'{text}' is not a call that tare makes; choose among {names}")
        })
    }
}

/// How often a call was made, and how long that took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallCount {
    pub calls: u64,
    pub elapsed: DurationNs,
}

/// Repeats a call until `length` has passed.
pub fn repeat_for(call: Call, length: DurationNs) -> io::Result<CallCount> {
    let mut made = CallRunner::new(call)?;
    // Warm-up: starts threads and faults pages in.
    made.batch(1)?;
    let begun = monotonic_now();
    let mut calls = 0;
    let mut batch = 1;
    loop {
        made.batch(batch)?;
        calls += batch;
        let elapsed = monotonic_now().since(begun);
        if elapsed >= length {
            return Ok(CallCount { calls, elapsed });
        }
        // Fills the time left, but at most an eighth of the whole, at the pace measured so far.
        let each = (elapsed.as_ns() / calls).max(1);
        let left = length.as_ns() - elapsed.as_ns();
        batch = (left.min(length.as_ns() / 8) / each).clamp(1, BATCH_MAX);
    }
}

const BATCH_MAX: u64 = 1 << 20;
const PAGE: usize = 4096;
/// Pages that are mapped, touched and unmapped together.
const REGION_PAGES: usize = 256;
const TRUE: [&CStr; 2] = [c"/bin/true", c"/usr/bin/true"];

/// A call and the resources it needs.
struct CallRunner {
    call: Call,
    pipe: Option<(OwnedFd, OwnedFd)>,
    epoll: Option<(OwnedFd, OwnedFd)>,
    partner: Option<Partner>,
    program: &'static CStr,
    futex: u32,
}

impl CallRunner {
    fn new(call: Call) -> io::Result<Self> {
        let program = match call {
            Call::Exec => {
                let found = TRUE.into_iter().find(|path| is_executable(path));
                found.ok_or_else(|| io::Error::other("there is no /bin/true to exec"))?
            }
            _ => TRUE[0],
        };
        Ok(Self {
            call,
            pipe: (call == Call::Pipe).then(pipe).transpose()?,
            epoll: (call == Call::Epoll).then(watched_event).transpose()?,
            partner: (call == Call::Switch).then(Partner::start).transpose()?,
            program,
            futex: 0,
        })
    }

    fn batch(&mut self, n: u64) -> io::Result<()> {
        match self.call {
            Call::Mix => repeat(n, mix),
            Call::GetPid => repeat(n, || plain(libc::SYS_getpid)),
            Call::Exec => {
                let program = self.program;
                repeat(n, || in_child(Some(program)))
            }
            Call::Fork => repeat(n, || in_child(None)),
            Call::Pipe => {
                let Some((from, to)) = &self.pipe else { return Ok(()) };
                let (from, to) = (from.as_raw_fd(), to.as_raw_fd());
                repeat(n, || write_one(to).and_then(|()| read_one(from)))
            }
            Call::Epoll => {
                let Some((epoll, event)) = &self.epoll else { return Ok(()) };
                let (epoll, event) = (epoll.as_raw_fd(), event.as_raw_fd());
                repeat(n, || epoll_round(epoll, event))
            }
            Call::Switch => {
                let Some(partner) = &self.partner else { return Ok(()) };
                let (to, from) = (partner.to.as_raw_fd(), partner.from.as_raw_fd());
                repeat(n, || write_one(to).and_then(|()| read_one(from)))
            }
            Call::FutexWake => {
                let word = &raw const self.futex;
                repeat(n, || futex_wake(word))
            }
            Call::Mmap => repeat(n, || map(PAGE).and_then(|page| unmap(page, PAGE))),
            Call::ClockVdso => repeat(n, clock_vdso),
            Call::ClockCall => repeat(n, clock_call),
            Call::PageFault => touch_pages(n),
        }
    }
}

fn repeat(n: u64, mut once: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    (0..n).try_for_each(|_| once())
}

fn checked(result: libc::c_long) -> io::Result<libc::c_long> {
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(result) }
}

/// A call without arguments that cannot fail.
fn plain(number: libc::c_long) -> io::Result<()> {
    // SAFETY: getpid and getuid take nothing and touch nothing.
    unsafe { libc::syscall(number) };
    Ok(())
}

fn mix() -> io::Result<()> {
    // SAFETY: plain calls without pointers. The duplicate is closed at once; the mask of this
    // process becomes UnixBench's, which is what new processes have anyway.
    unsafe {
        libc::syscall(libc::SYS_close, libc::syscall(libc::SYS_dup, 0));
        libc::syscall(libc::SYS_getpid);
        libc::syscall(libc::SYS_getuid);
        libc::syscall(libc::SYS_umask, 0o022);
    }
    Ok(())
}

/// Forks a child that execs `program` or exits at once, and waits for it.
fn in_child(program: Option<&'static CStr>) -> io::Result<()> {
    let path = program.map(CStr::as_ptr);
    // SAFETY: the child only calls execve with immortal pointers, or ends: both are allowed after a
    // fork of a process with threads.
    let child = unsafe { libc::fork() };
    if child == 0 {
        // SAFETY: as above; the vectors end in null.
        unsafe {
            if let Some(path) = path {
                let argv = [path, std::ptr::null()];
                let envp = [std::ptr::null()];
                libc::execve(path, argv.as_ptr(), envp.as_ptr());
                libc::_exit(127);
            }
            libc::_exit(0);
        }
    }
    checked(i64::from(child))?;
    let mut status = 0;
    loop {
        // SAFETY: `status` is valid for the call.
        let waited = unsafe { libc::waitpid(child, &raw mut status, 0) };
        match checked(i64::from(waited)) {
            Ok(_) if status == 0 => return Ok(()),
            Ok(_) => return Err(io::Error::other("the child could not be started")),
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

fn is_executable(path: &CStr) -> bool {
    // SAFETY: the path ends in null.
    unsafe { libc::access(path.as_ptr(), libc::X_OK) == 0 }
}

fn pipe() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut ends = [0; 2];
    // SAFETY: the array has room for both descriptors, which nobody else owns.
    unsafe {
        checked(i64::from(libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC)))?;
        Ok((OwnedFd::from_raw_fd(ends[0]), OwnedFd::from_raw_fd(ends[1])))
    }
}

fn write_one(to: RawFd) -> io::Result<()> {
    let byte = [0u8; 1];
    // SAFETY: one byte is read from an array of one.
    checked(unsafe { libc::syscall(libc::SYS_write, to, byte.as_ptr(), 1) }).map(drop)
}

fn read_one(from: RawFd) -> io::Result<()> {
    let mut byte = [0u8; 1];
    // SAFETY: at most one byte is written to an array of one.
    match checked(unsafe { libc::syscall(libc::SYS_read, from, byte.as_mut_ptr(), 1) })? {
        1 => Ok(()),
        _ => Err(io::Error::other("the pipe has ended")),
    }
}

/// An epoll instance that watches an eventfd.
fn watched_event() -> io::Result<(OwnedFd, OwnedFd)> {
    let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
    // SAFETY: both descriptors are new and checked before they are owned; `event` is valid.
    unsafe {
        let epoll = checked(i64::from(libc::epoll_create1(libc::EPOLL_CLOEXEC)))?;
        let epoll = OwnedFd::from_raw_fd(epoll as RawFd);
        let watched = checked(i64::from(libc::eventfd(0, libc::EFD_CLOEXEC)))?;
        let watched = OwnedFd::from_raw_fd(watched as RawFd);
        let (of, fd) = (epoll.as_raw_fd(), watched.as_raw_fd());
        checked(i64::from(libc::epoll_ctl(of, libc::EPOLL_CTL_ADD, fd, &mut event)))?;
        Ok((epoll, watched))
    }
}

fn epoll_round(epoll: RawFd, event: RawFd) -> io::Result<()> {
    let mut word = 1u64.to_ne_bytes();
    let mut events = [libc::epoll_event { events: 0, u64: 0 }; 1];
    // SAFETY: the word has eight bytes, and there is room for one event.
    unsafe {
        checked(libc::syscall(libc::SYS_write, event, word.as_ptr(), 8))?;
        checked(i64::from(libc::epoll_wait(epoll, events.as_mut_ptr(), 1, -1)))?;
        checked(libc::syscall(libc::SYS_read, event, word.as_mut_ptr(), 8))?;
    }
    Ok(())
}

fn futex_wake(word: *const u32) -> io::Result<()> {
    const WAKE_PRIVATE: i32 = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
    // SAFETY: the word is a live u32; waking does not write to it.
    checked(unsafe { libc::syscall(libc::SYS_futex, word, WAKE_PRIVATE, 1) }).map(drop)
}

fn map(bytes: usize) -> io::Result<*mut libc::c_void> {
    let protection = libc::PROT_READ | libc::PROT_WRITE;
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
    // SAFETY: a new mapping where the kernel likes; the result is checked.
    let at = unsafe { libc::mmap(std::ptr::null_mut(), bytes, protection, flags, -1, 0) };
    if at == libc::MAP_FAILED { Err(io::Error::last_os_error()) } else { Ok(at) }
}

fn unmap(at: *mut libc::c_void, bytes: usize) -> io::Result<()> {
    // SAFETY: the caller mapped exactly this and keeps no reference into it.
    checked(i64::from(unsafe { libc::munmap(at, bytes) })).map(drop)
}

/// Touches `n` fresh pages. One mmap, madvise and munmap serve up to [`REGION_PAGES`] of them.
fn touch_pages(n: u64) -> io::Result<()> {
    let mut left = n as usize;
    while left > 0 {
        let pages = left.min(REGION_PAGES);
        let region = map(pages * PAGE)?;
        // SAFETY: the region is ours and of that size; each write is inside it.
        unsafe {
            // Each page must cost one fault.
            libc::madvise(region, pages * PAGE, libc::MADV_NOHUGEPAGE);
            for page in 0..pages {
                region.cast::<u8>().add(page * PAGE).write_volatile(1);
            }
        }
        unmap(region, pages * PAGE)?;
        left -= pages;
    }
    Ok(())
}

fn clock_vdso() -> io::Result<()> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is valid for the call.
    checked(unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut time) }.into()).map(drop)
}

fn clock_call() -> io::Result<()> {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    let (number, clock) = (libc::SYS_clock_gettime, libc::CLOCK_MONOTONIC);
    // SAFETY: `time` is valid for the call.
    checked(unsafe { libc::syscall(number, clock, &raw mut time) }).map(drop)
}

/// A thread that answers each byte with one.
struct Partner {
    to: OwnedFd,
    from: OwnedFd,
}

impl Partner {
    /// Starts the thread, which ends when its pipe is closed.
    fn start() -> io::Result<Self> {
        let (theirs, to) = pipe()?;
        let (from, back) = pipe()?;
        let answer = move || {
            let (theirs, back) = (theirs.as_raw_fd(), back.as_raw_fd());
            while read_one(theirs).and_then(|()| write_one(back)).is_ok() {}
        };
        // The closure owns its two ends, which must live as long as the thread.
        std::thread::Builder::new().name("partner".into()).spawn(answer)?;
        Ok(Self { to, from })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_made_and_counted() {
        for call in Call::ALL {
            let counted = repeat_for(call, DurationNs::from_ms(1)).unwrap();
            assert!(counted.calls > 0, "{call:?}");
            assert!(counted.elapsed >= DurationNs::from_ms(1), "{call:?}");
            assert_eq!(Call::parse(call.name()), Ok(call));
        }
        assert!(Call::parse("getpit").unwrap_err().contains("choose among mix, getpid"));
    }
}
