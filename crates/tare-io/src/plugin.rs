//! A filter library with the plug-in interface (filters/include/tare_filter.h), loaded into this
//! process. Its code is not under tare's control, so it is loaded only into a process that was
//! started for this purpose.

use std::ffi::{CStr, CString, c_char, c_int, c_void};
use std::path::Path;

/// A library that was loaded and initialised. It stays loaded until the process ends.
#[derive(Debug)]
pub struct Plugin {
    filter: Filter,
    counters: Counters,
}

type Initialize = unsafe extern "C" fn(*const c_char) -> c_int;
type Filter = unsafe extern "C" fn(*const c_char) -> c_int;
type Counters = unsafe extern "C" fn(*mut u64, *mut u64);

impl Plugin {
    /// Loads a library and initialises it with `prefix`. An error has one line.
    pub fn load(path: &Path, prefix: &CStr) -> Result<Self, String> {
        let text = path.to_string_lossy();
        if cfg!(target_feature = "crt-static") {
            let text = format!(
                "{text} cannot be loaded by this static program; tare built from its sources (make \
                 build, cargo install) loads it"
            );
            return Err(text);
        }
        let name = CString::new(text.as_bytes()).map_err(|_| format!("{text}: a zero byte"))?;
        // SAFETY: a C string, and constants that dlopen knows. The library's own code runs.
        let library = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        if library.is_null() {
            return Err(last_error());
        }
        let need = |name: &CStr| {
            symbol(library, name).ok_or_else(|| {
                let name = name.to_string_lossy();
                format!("{text} has no function {name}, which the interface asks for")
            })
        };
        let initialize = need(c"module_initialize")?;
        let filter = need(c"module_url_filter")?;
        let counters = need(c"module_get_counters")?;
        // SAFETY: the interface says that symbols of these names are functions of these types.
        let (initialize, plugin) = unsafe {
            let initialize = std::mem::transmute::<*mut c_void, Initialize>(initialize);
            let filter = std::mem::transmute::<*mut c_void, Filter>(filter);
            let counters = std::mem::transmute::<*mut c_void, Counters>(counters);
            (initialize, Self { filter, counters })
        };
        // SAFETY: called as the interface says.
        match unsafe { initialize(prefix.as_ptr()) } {
            0 => Ok(plugin),
            result => {
                let why = reason(library).map_or(String::new(), |why| format!(": {why}"));
                Err(format!("{text} did not start (module_initialize returned {result}){why}"))
            }
        }
    }

    /// Returns 1 if the URL is accepted and 0 if it is refused; anything else is a failure.
    pub fn filter_url(&self, url: &CStr) -> i32 {
        // SAFETY: called as the interface says.
        unsafe { (self.filter)(url.as_ptr()) }
    }

    /// Returns the numbers of accepted and of refused URLs.
    pub fn counters(&self) -> (u64, u64) {
        let (mut accepted, mut refused) = (0, 0);
        // SAFETY: called as the interface says.
        unsafe { (self.counters)(&mut accepted, &mut refused) };
        (accepted, refused)
    }
}

fn symbol(library: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: a handle that dlopen gave and that is never closed.
    let found = unsafe { libc::dlsym(library, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

fn last_error() -> String {
    // SAFETY: called right after the failure, on its thread; the text is copied at once.
    unsafe {
        let text = libc::dlerror();
        if text.is_null() {
            return "the library cannot be loaded".into();
        }
        CStr::from_ptr(text).to_string_lossy().into_owned()
    }
}

/// Returns the library's own error text, if it has one.
fn reason(library: *mut c_void) -> Option<String> {
    let found = symbol(library, c"module_error")?;
    // SAFETY: our own symbol, a function of this type; what it returns is null or a C string.
    unsafe {
        let error: extern "C" fn() -> *const c_char = std::mem::transmute(found);
        let text = error();
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
    }
}

/// Returns this process's standard output, and sends everything else that is written to standard
/// output or standard error from now on, such as by a library, to /dev/null.
pub fn take_stdout() -> std::io::Result<std::fs::File> {
    use std::os::fd::{AsFd, AsRawFd};
    let own = std::io::stdout().as_fd().try_clone_to_owned()?;
    let nowhere = std::fs::OpenOptions::new().write(true).open("/dev/null")?;
    for standard in [libc::STDOUT_FILENO, libc::STDERR_FILENO] {
        // SAFETY: takes no pointers; both descriptors are open.
        if unsafe { libc::dup2(nowhere.as_raw_fd(), standard) } < 0 {
            return Err(std::io::Error::last_os_error());
        }
    }
    Ok(own.into())
}
