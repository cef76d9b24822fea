//! Small services of the operating system: CPU time, CPU affinity, resource limits, signals.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;

use crate::reactor::SetupError;
use crate::time::DurationNs;

/// CPU time of one thread or one process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// Sampled by the timer tick on most kernels, so only meaningful over many ticks.
    pub user: DurationNs,
    pub system: DurationNs,
    /// User and system time together; exact.
    total: DurationNs,
}

impl CpuTime {
    pub fn total(self) -> DurationNs {
        self.total
    }

    /// Subtracts the time of polling in vain, which was spent in the kernel.
    pub fn without(self, idle: DurationNs) -> Self {
        let minus = |a: DurationNs| DurationNs::from_ns(a.as_ns().saturating_sub(idle.as_ns()));
        Self { user: self.user, system: minus(self.system), total: minus(self.total) }
    }

    pub fn since(self, earlier: Self) -> Self {
        let minus =
            |a: DurationNs, b: DurationNs| DurationNs::from_ns(a.as_ns().saturating_sub(b.as_ns()));
        Self {
            user: minus(self.user, earlier.user),
            system: minus(self.system, earlier.system),
            total: minus(self.total, earlier.total),
        }
    }
}

impl std::ops::Add for CpuTime {
    type Output = Self;
    fn add(self, other: Self) -> Self {
        Self {
            user: self.user + other.user,
            system: self.system + other.system,
            total: self.total + other.total,
        }
    }
}

pub fn thread_cpu_time() -> CpuTime {
    let mut exact = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: an all-zero rusage is valid; both calls fill what they are given. The clock always
    // exists on Linux. Only the clock is up to date: rusage is as of the last tick.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_THREAD, &mut usage);
        libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &mut exact);
        usage
    };
    let ns = |time: libc::timeval| {
        DurationNs::from_ns(time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000)
    };
    let total = DurationNs::from_ns(exact.tv_sec as u64 * 1_000_000_000 + exact.tv_nsec as u64);
    CpuTime { user: ns(usage.ru_utime), system: ns(usage.ru_stime), total }
}

/// Returns how long the calling thread was ready to run but waited for a CPU; 0 if the kernel does
/// not say. It allocates only on a thread's first call.
pub fn thread_wait_time() -> DurationNs {
    thread_local! {
        static SCHEDSTAT: Option<File> = File::open("/proc/thread-self/schedstat").ok();
    }
    let mut buffer = [0; 128];
    let read = SCHEDSTAT.with(|file| file.as_ref()?.read_at(&mut buffer, 0).ok());
    let text = std::str::from_utf8(&buffer[..read.unwrap_or(0)]).unwrap_or_default();
    let waited = text.split_ascii_whitespace().nth(1).and_then(|ns| ns.parse().ok());
    DurationNs::from_ns(waited.unwrap_or(0))
}

/// Runs the calling thread on one CPU only.
pub fn pin_thread(cpu: usize) -> Result<(), SetupError> {
    // SAFETY: an all-zero set is valid, and `cpu` is checked against its size before it is set.
    let done = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        if cpu >= libc::CPU_SETSIZE as usize {
            return Err(SetupError::new(
                format!("cannot run on CPU {cpu}"),
                io::Error::from_raw_os_error(libc::EINVAL),
            ));
        }
        libc::CPU_SET(cpu, &mut set);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set)
    };
    if done < 0 { Err(SetupError::last(format!("cannot run on CPU {cpu}"))) } else { Ok(()) }
}

/// Sets an environment variable for this process and its children. Call this before any thread is
/// started: another thread could be reading the environment.
pub fn set_variable(name: &str, value: &std::ffi::OsStr) {
    // SAFETY: the caller has no other thread.
    unsafe { std::env::set_var(name, value) };
}

/// The CPUs this process may run on.
pub fn allowed_cpus() -> Vec<usize> {
    process_cpus(0)
}

/// The CPUs that a process may run on (0 is this process); none if it has ended.
pub fn process_cpus(pid: u32) -> Vec<usize> {
    // SAFETY: an all-zero set is valid, and the call fills it.
    let set = unsafe {
        let mut set: libc::cpu_set_t = std::mem::zeroed();
        libc::sched_getaffinity(pid as i32, size_of::<libc::cpu_set_t>(), &mut set);
        set
    };
    // SAFETY: every index is below the set's size.
    (0..libc::CPU_SETSIZE as usize).filter(|cpu| unsafe { libc::CPU_ISSET(*cpu, &set) }).collect()
}

/// Lets this thread's timed waits end when they are due, not up to 50 µs later.
pub fn sharpen_timers() {
    // SAFETY: takes no pointers; failure leaves the default.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1u64, 0u64, 0u64, 0u64) };
}

/// Raises the open-file limit to `wanted` if allowed, and returns the resulting limit.
pub fn raise_open_files(wanted: u64) -> u64 {
    raise(libc::RLIMIT_NOFILE, wanted)
}

/// Wanted locked-memory limit in bytes. Without CAP_IPC_LOCK, the rings of all processes of a user
/// count towards the limit of each.
const FOR_RINGS: u64 = 1 << 30;

/// Raises the locked-memory limit to what the rings of many clients need, if allowed. Returns the
/// resulting limit, at most `FOR_RINGS`.
pub fn raise_locked_memory() -> u64 {
    raise(libc::RLIMIT_MEMLOCK, FOR_RINGS).min(FOR_RINGS)
}

fn raise(resource: libc::__rlimit_resource_t, wanted: u64) -> u64 {
    let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
    // SAFETY: `limit` is valid for both calls.
    unsafe {
        libc::getrlimit(resource, &mut limit);
        if limit.rlim_cur >= wanted {
            return limit.rlim_cur;
        }
        // The first call raises the limit up to the hard limit, as anyone may; the second goes
        // beyond, if privileged.
        let soft = libc::rlimit { rlim_cur: wanted.min(limit.rlim_max), ..limit };
        libc::setrlimit(resource, &soft);
        if wanted > limit.rlim_max {
            let hard = libc::rlimit { rlim_cur: wanted, rlim_max: wanted };
            libc::setrlimit(resource, &hard);
        }
        libc::getrlimit(resource, &mut limit);
    }
    limit.rlim_cur
}

/// Returns the C library's text for this error, in lower case.
pub fn errno_text(errno: i32) -> String {
    let text = io::Error::from_raw_os_error(errno).to_string();
    text.split(" (os error").next().unwrap_or(&text).to_lowercase()
}

/// Columns of the terminal on standard error, if it is one.
pub fn terminal_columns() -> Option<u16> {
    terminal_size().map(|(columns, _)| columns)
}

/// Returns the columns and rows of the terminal on standard error.
pub fn terminal_size() -> Option<(u16, u16)> {
    // SAFETY: an all-zero winsize is valid, and the call fills it.
    let (done, size) = unsafe {
        let mut size: libc::winsize = std::mem::zeroed();
        (libc::ioctl(libc::STDERR_FILENO, libc::TIOCGWINSZ, &mut size), size)
    };
    (done == 0 && size.ws_col > 0).then_some((size.ws_col, size.ws_row))
}

/// Calls `handler` at each of these signals. It must only do what a signal handler may: touch
/// atomics, read the clock, [`raise_with_default_action`] and [`exit_at_once`].
pub fn on_signals(signals: &[i32], handler: extern "C" fn(i32)) -> io::Result<()> {
    for signal in signals {
        // SAFETY: an all-zero sigaction is valid, and the handler is a function of the right type.
        let done = unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = handler as *const () as usize;
            action.sa_flags = libc::SA_RESTART;
            libc::sigaction(*signal, &action, std::ptr::null_mut())
        };
        if done < 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Restores a signal's default action and sends the signal to this process. May be called in a
/// handler; the signal takes effect when the handler returns.
pub fn raise_with_default_action(signal: i32) {
    // SAFETY: both take no pointers that matter here, and both may be called in signal handlers.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

/// Ends this process without any cleanup. May be called in a handler.
pub fn exit_at_once(code: i32) -> ! {
    // SAFETY: it takes no pointer, returns to nobody, and may be called in signal handlers.
    unsafe { libc::_exit(code) }
}

/// Whether this process was started with a signal ignored, as nohup does.
pub fn is_ignored(signal: i32) -> bool {
    // SAFETY: an all-zero sigaction is valid, and the call only fills it.
    let action = unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        libc::sigaction(signal, std::ptr::null(), &mut action);
        action
    };
    action.sa_sigaction == libc::SIG_IGN
}

/// Makes a static program resolve names and users by files and DNS alone. The modules that
/// /etc/nsswitch.conf may name belong to the system's C library, which is not this program's. Call
/// this before any thread is started.
pub fn use_own_name_services() {
    #[cfg(all(target_env = "gnu", target_feature = "crt-static"))]
    {
        use std::ffi::{c_char, c_int};
        unsafe extern "C" {
            fn __nss_configure_lookup(database: *const c_char, services: *const c_char) -> c_int;
        }
        for (database, services) in
            [(c"hosts", c"files dns"), (c"passwd", c"files"), (c"group", c"files")]
        {
            // SAFETY: two C strings, which glibc copies; no other thread looks anything up yet.
            unsafe { __nss_configure_lookup(database.as_ptr(), services.as_ptr()) };
        }
    }
}
