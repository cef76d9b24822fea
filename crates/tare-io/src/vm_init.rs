//! System calls of a virtual machine's first process: mount, load modules, power off.

use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Mounts a file system that has no device.
pub fn mount(kind: &str, path: &str) -> io::Result<()> {
    let (kind, path) = (CString::new(kind)?, CString::new(path)?);
    // SAFETY: the strings are terminated and live through the call; no data is passed.
    let done =
        unsafe { libc::mount(kind.as_ptr(), path.as_ptr(), kind.as_ptr(), 0, std::ptr::null()) };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Flag of `finit_module`: the kernel decompresses the file.
const COMPRESSED: libc::c_int = 4;

/// Loads a kernel module; one that is loaded already is no error.
pub fn load_module(path: &Path) -> io::Result<()> {
    let file = File::open(path)?;
    let compressed = !path.as_os_str().as_bytes().ends_with(b".ko");
    let flags = if compressed { COMPRESSED } else { 0 };
    let parameters = CString::default();
    // SAFETY: the descriptor is open and the string terminated.
    let done = unsafe {
        libc::syscall(libc::SYS_finit_module, file.as_raw_fd(), parameters.as_ptr(), flags)
    };
    match done {
        0 => Ok(()),
        _ if io::Error::last_os_error().raw_os_error() == Some(libc::EEXIST) => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Powers off the machine; must be called by its first process.
pub fn power_off() {
    // SAFETY: takes no pointers. Without the privilege to reboot, this function returns.
    unsafe {
        libc::sync();
        libc::reboot(libc::RB_POWER_OFF);
    }
}
