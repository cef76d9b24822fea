//! The plug-in interface for filters that are written in Rust: a trait, and the C functions over one
//! filter of that kind, as a process has one.

use std::cell::UnsafeCell;
use std::ffi::{CStr, CString, OsString, c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;

/// The longest prefix that filters take, in bytes.
pub const PREFIX_MAX: usize = 127;

pub trait Filter: Sized {
    /// Accept URLs that begin with `prefix`; or the reason why not, in one line.
    fn start(prefix: &[u8], files: &Files) -> Result<Self, String>;
    /// 1 accepts, 0 refuses; everything else is a failure.
    fn answer(&mut self, url: &CStr) -> c_int;
    /// Accepted and refused.
    fn counters(&mut self) -> (u64, u64);
}

/// Where a filter's files are.
pub struct Files {
    own_folder: PathBuf,
}

impl Files {
    /// As the environment says, else beside the library.
    pub fn path(&self, variable: &str, name: &str) -> PathBuf {
        let given: Option<OsString> = std::env::var_os(variable).filter(|path| !path.is_empty());
        given.map_or_else(|| self.own_folder.join(name), PathBuf::from)
    }
}

/// What the interface keeps between calls. Its callers have one thread: plug-ins are C with static
/// variables, and nginx's workers are processes.
pub struct Kept<F> {
    filter: UnsafeCell<Option<F>>,
    error: UnsafeCell<Option<CString>>,
}

// SAFETY: the interface is called from one thread at a time, see above.
unsafe impl<F> Sync for Kept<F> {}

impl<F> Default for Kept<F> {
    fn default() -> Self {
        Self::new()
    }
}

impl<F> Kept<F> {
    pub const fn new() -> Self {
        Self { filter: UnsafeCell::new(None), error: UnsafeCell::new(None) }
    }
}

impl<F: Filter> Kept<F> {
    /// # Safety
    /// `prefix` is null or a C string, and `own` the address of something in the library.
    pub unsafe fn initialize(&self, prefix: *const c_char, own: *const c_void) -> c_int {
        // SAFETY: as promised by the caller.
        let prefix = if prefix.is_null() { c"" } else { unsafe { CStr::from_ptr(prefix) } };
        // SAFETY: as promised by the caller.
        let files = Files { own_folder: unsafe { folder_of(own) } };
        let started = match prefix.to_bytes().len() {
            // A panic must not cross into C, and engines may panic on what they cannot read.
            1..=PREFIX_MAX => {
                catch_unwind(AssertUnwindSafe(|| F::start(prefix.to_bytes(), &files)))
                    .unwrap_or_else(|_| Err("the engine failed on its code".into()))
            }
            n => Err(format!("the prefix has {n} bytes; 1 to {PREFIX_MAX} are allowed")),
        };
        match started {
            Ok(filter) => {
                // SAFETY: one thread calls, and no reference outlives a call.
                unsafe { *self.filter.get() = Some(filter) };
                0
            }
            Err(why) => {
                // SAFETY: as above.
                unsafe { *self.error.get() = CString::new(why).ok() };
                -1
            }
        }
    }

    /// # Safety
    /// `url` is a C string.
    pub unsafe fn answer(&self, url: *const c_char) -> c_int {
        // SAFETY: one thread calls, and no reference outlives a call; the rest as promised.
        unsafe {
            (*self.filter.get()).as_mut().map_or(-1, |filter| filter.answer(CStr::from_ptr(url)))
        }
    }

    /// # Safety
    /// Both point to a number each.
    pub unsafe fn counters(&self, accepted: *mut u64, refused: *mut u64) {
        // SAFETY: one thread calls, and no reference outlives a call; the rest as promised.
        unsafe {
            (*accepted, *refused) = (*self.filter.get()).as_mut().map_or((0, 0), F::counters);
        }
    }

    /// Lives until the next failure.
    pub fn error(&self) -> *const c_char {
        // SAFETY: one thread calls.
        unsafe { (*self.error.get()).as_ref().map_or(std::ptr::null(), |text| text.as_ptr()) }
    }
}

/// The folder of the library that an address lies in.
///
/// # Safety
/// The library stays loaded meanwhile.
unsafe fn folder_of(own: *const c_void) -> PathBuf {
    // SAFETY: all zero is a valid Dl_info, and dladdr fills it; the name it gives lives as long as
    // the library.
    let name = unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(own, &mut info) == 0 || info.dli_fname.is_null() {
            return PathBuf::new();
        }
        CStr::from_ptr(info.dli_fname)
    };
    let path = PathBuf::from(name.to_string_lossy().into_owned());
    path.parent().map(PathBuf::from).unwrap_or_default()
}

/// The C functions of the interface, over a [`Filter`].
#[macro_export]
macro_rules! export_filter {
    ($filter:ty) => {
        static KEPT: $crate::Kept<$filter> = $crate::Kept::new();

        /// # Safety
        /// `prefix` is null or a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn module_initialize(
            prefix: *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            let own = module_error as *const () as *const ::std::ffi::c_void;
            // SAFETY: as promised by the caller; this library is loaded.
            unsafe { KEPT.initialize(prefix, own) }
        }

        /// # Safety
        /// `url` is a C string.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn module_url_filter(
            url: *const ::std::ffi::c_char,
        ) -> ::std::ffi::c_int {
            // SAFETY: as promised by the caller.
            unsafe { KEPT.answer(url) }
        }

        /// # Safety
        /// Both point to a number each.
        #[unsafe(no_mangle)]
        pub unsafe extern "C" fn module_get_counters(accepted: *mut u64, refused: *mut u64) {
            // SAFETY: as promised by the caller.
            unsafe { KEPT.counters(accepted, refused) }
        }

        #[unsafe(no_mangle)]
        pub extern "C" fn module_error() -> *const ::std::ffi::c_char {
            KEPT.error()
        }
    };
}
