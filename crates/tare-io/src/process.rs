//! Processes: signals, waiting with a time limit, CPU affinity, capabilities, memory.

use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::process::{CommandExt, parent_id};
use std::process::Command;

use crate::reactor::SetupError;
use crate::time::{DurationNs, monotonic_now};

/// A process (pidfd) that others than its parent can wait for, with a time limit.
#[derive(Debug)]
pub struct PidFd(OwnedFd);

impl PidFd {
    pub fn new(pid: u32) -> io::Result<Self> {
        // SAFETY: takes no pointers; the descriptor it returns is ours.
        let fd = unsafe { libc::syscall(libc::SYS_pidfd_open, pid as libc::pid_t, 0) };
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: a fresh descriptor that nobody else owns.
        Ok(Self(unsafe { OwnedFd::from_raw_fd(fd as i32) }))
    }

    /// Sends a signal to this process, and never to a later one that was given the same pid.
    pub fn signal(&self, signal: i32) -> io::Result<()> {
        self.send(signal, 0)
    }

    /// Sends a signal to the process group that it leads.
    pub fn signal_group(&self, pid: u32, signal: i32) -> io::Result<()> {
        match self.send(signal, PIDFD_SIGNAL_PROCESS_GROUP) {
            // Linux before 6.9 does not know this flag; then a reused pid cannot be ruled out.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => signal_group(pid, signal),
            done => done,
        }
    }

    fn send(&self, signal: i32, flags: libc::c_uint) -> io::Result<()> {
        let info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: a null info asks for the default one; the descriptor is open.
        let done = unsafe {
            libc::syscall(libc::SYS_pidfd_send_signal, self.0.as_raw_fd(), signal, info, flags)
        };
        if done == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
    }

    /// Waits at most `limit` for the process to end, and returns whether it has.
    pub fn wait_timeout(&self, limit: DurationNs) -> bool {
        let until = monotonic_now() + limit;
        loop {
            let mut poll =
                libc::pollfd { fd: self.0.as_raw_fd(), events: libc::POLLIN, revents: 0 };
            let ns = until.since(monotonic_now()).as_ns();
            let limit = libc::timespec {
                tv_sec: (ns / 1_000_000_000) as i64,
                tv_nsec: (ns % 1_000_000_000) as i64,
            };
            // SAFETY: both structures live through the call, and there is one entry.
            let ready = unsafe { libc::ppoll(&mut poll, 1, &limit, std::ptr::null()) };
            let interrupted =
                ready < 0 && io::Error::last_os_error().kind() == io::ErrorKind::Interrupted;
            if !interrupted {
                return ready > 0;
            }
        }
    }
}

const PIDFD_SIGNAL_PROCESS_GROUP: libc::c_uint = 1 << 2;

/// Makes orphaned descendants children of this process from now on, so that none escapes by
/// becoming a daemon.
pub fn adopt_orphans() -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::prctl(libc::PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Reaps a child that has ended and that nothing else waits for.
pub fn reap(pid: u32) {
    // SAFETY: a null status is allowed.
    unsafe { libc::waitpid(pid as libc::pid_t, std::ptr::null_mut(), libc::WNOHANG) };
}

/// Has this process killed when the thread that started it ends.
pub fn end_with_parent() -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL, 0, 0, 0) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Has the command's process killed when the thread that starts it ends, even by `kill -9`.
pub fn end_with_starter(command: &mut Command) {
    let starter = std::process::id();
    let tie = move || {
        end_with_parent()?;
        // The starter may have ended before prctl took effect.
        match parent_id() == starter {
            true => Ok(()),
            false => Err(io::ErrorKind::BrokenPipe.into()),
        }
    };
    // SAFETY: two system calls, and no memory is allocated between fork and exec.
    unsafe { command.pre_exec(tie) };
}

/// Starts this command with the default actions of SIGINT and SIGQUIT. A process inherits that a
/// signal is ignored, and shells start background jobs with both ignored.
pub fn restore_default_signals(command: &mut Command) {
    let restore = || {
        for signal in [libc::SIGINT, libc::SIGQUIT] {
            // SAFETY: SIG_DFL is not the address of a handler, and signal() may follow a fork.
            if unsafe { libc::signal(signal, libc::SIG_DFL) } == libc::SIG_ERR {
                return Err(io::Error::last_os_error());
            }
        }
        Ok(())
    };
    // SAFETY: it makes system calls only, and allocates no memory between fork and exec.
    unsafe { command.pre_exec(restore) };
}

/// Waits at most `limit` for bytes or the end of the stream, and returns whether they came.
pub fn readable_within(from: &impl AsRawFd, limit: DurationNs) -> bool {
    ready_within(from, libc::POLLIN, limit)
}

/// Waits at most `limit` until `to` is writable (a connection: established or refused), and
/// returns whether it is.
pub fn writable_within(to: &impl AsRawFd, limit: DurationNs) -> bool {
    ready_within(to, libc::POLLOUT, limit)
}

fn ready_within(file: &impl AsRawFd, events: i16, limit: DurationNs) -> bool {
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events, revents: 0 };
    let ms = (limit.as_ns() / 1_000_000).min(i32::MAX as u64) as i32;
    // SAFETY: the structure lives through the call, and there is one entry.
    unsafe { libc::poll(&mut poll, 1, ms) > 0 }
}

/// Locks the file until it is closed, and waits for other holders of the lock first.
pub fn lock(file: &std::fs::File) -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_EX) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Releases a lock taken by [`lock`].
pub fn unlock(file: &std::fs::File) {
    // SAFETY: takes no pointers.
    unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
}

pub fn signal(pid: u32, signal: i32) -> io::Result<()> {
    // SAFETY: takes no pointers.
    match unsafe { libc::kill(pid as libc::pid_t, signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sends a signal to every process of a group.
pub fn signal_group(group: u32, signal: i32) -> io::Result<()> {
    assert!(group > 1, "a group of 0 or 1 is not one that we made");
    // SAFETY: takes no pointers.
    match unsafe { libc::kill(-(group as libc::pid_t), signal) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Pins the calling thread, and everything it starts from then on, to these CPUs.
pub fn pin_to(cpus: &[usize]) -> Result<(), SetupError> {
    let fits = cpus.iter().all(|cpu| *cpu < libc::CPU_SETSIZE as usize);
    // SAFETY: an all-zero set is valid, and every index was checked against its size.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        cpus.iter().filter(|_| fits).for_each(|cpu| libc::CPU_SET(*cpu, &mut set));
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if done < 0 { Err(SetupError::last(format!("cannot run on CPUs {cpus:?}"))) } else { Ok(()) }
}

pub fn is_root() -> bool {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() == 0 }
}

pub fn effective_uid() -> u32 {
    // SAFETY: takes nothing, cannot fail.
    unsafe { libc::geteuid() }
}

/// Drops all capabilities but these, for this process (which must have one thread) and everything
/// it starts, setuid programs included. Does nothing unless this is root.
pub fn keep_capabilities(kept: &[u32]) -> io::Result<()> {
    if !is_root() {
        return Ok(());
    }
    for capability in (0..64).filter(|number| !kept.contains(number)) {
        // SAFETY: takes no pointers. The kernel refuses numbers past its last capability.
        let done =
            unsafe { libc::prctl(libc::PR_CAPBSET_DROP, capability as libc::c_ulong, 0, 0, 0) };
        if done < 0 {
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EINVAL) => break,
                // No CAP_SETPCAP: it was dropped already, or never granted.
                Some(libc::EPERM) => break,
                _ => return Err(error),
            }
        }
    }
    // SAFETY: takes no pointers.
    if unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) } < 0 {
        return Err(io::Error::last_os_error());
    }
    let mask = kept.iter().fold(0u64, |mask, number| mask | 1 << number);
    #[repr(C)]
    struct Header {
        version: u32,
        pid: i32,
    }
    const VERSION_3: u32 = 0x2008_0522;
    let mut header = Header { version: VERSION_3, pid: 0 };
    let mut had = [[0u32; 3]; 2];
    // SAFETY: version 3 reads and writes a header and two sets of three words, which live through
    // the calls.
    let done = unsafe {
        libc::syscall(libc::SYS_capget, &mut header, &mut had) == 0 && {
            for (at, had) in had.iter_mut().enumerate() {
                let kept = (mask >> (32 * at)) as u32;
                // Inheritable is cleared: programs that root executes do not need it.
                *had = [had[0] & kept, had[1] & kept, 0];
            }
            libc::syscall(libc::SYS_capset, &mut header, &had) == 0
        }
    };
    if done { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// CPU time of this whole process.
pub fn own_cpu_time() -> DurationNs {
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid timespec for the call to fill; the clock always exists on Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut now) };
    DurationNs::from_ns(now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64)
}

/// Resident memory of this process; 0 if unknown.
pub fn resident_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kib = line.and_then(|line| line.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

/// Free space on the file system that holds `path`.
pub fn free_bytes(path: &std::path::Path) -> io::Result<u64> {
    use std::os::unix::ffi::OsStrExt;
    let path = std::ffi::CString::new(path.as_os_str().as_bytes())?;
    // SAFETY: an all-zero statvfs is valid, the path is terminated, and the call fills the rest.
    let (done, stat) = unsafe {
        let mut stat: libc::statvfs = std::mem::zeroed();
        (libc::statvfs(path.as_ptr(), &mut stat), stat)
    };
    if done < 0 { Err(io::Error::last_os_error()) } else { Ok(stat.f_bavail * stat.f_frsize) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::process::ExitStatusExt;

    #[test]
    fn a_command_ends_with_the_thread_that_started_it() {
        let start = || {
            let mut command = Command::new("sleep");
            command.arg("20");
            end_with_starter(&mut command);
            command.spawn().unwrap()
        };
        let mut child = std::thread::spawn(start).join().unwrap();
        assert_eq!(child.wait().unwrap().signal(), Some(libc::SIGKILL));
    }

    #[test]
    fn a_command_has_default_signals_where_its_starter_ignores_them() {
        let ignore = || {
            for signal in [libc::SIGINT, libc::SIGQUIT] {
                // SAFETY: SIG_IGN is not the address of a handler, and signal() may follow a fork.
                unsafe { libc::signal(signal, libc::SIG_IGN) };
            }
            Ok(())
        };
        let ignored = |restore: bool| {
            let mut command = Command::new("grep");
            command.args(["SigIgn", "/proc/self/status"]);
            // SAFETY: as above: two system calls.
            unsafe { command.pre_exec(ignore) };
            if restore {
                restore_default_signals(&mut command);
            }
            let said = String::from_utf8(command.output().unwrap().stdout).unwrap();
            u64::from_str_radix(said.split_whitespace().nth(1).unwrap(), 16).unwrap()
        };
        let both = 1 << (libc::SIGINT - 1) | 1 << (libc::SIGQUIT - 1);
        assert_eq!(ignored(false) & both, both);
        assert_eq!(ignored(true) & both, 0);
    }
}
