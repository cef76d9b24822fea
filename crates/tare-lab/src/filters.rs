//! URL filters in nginx: their files, and how to put one in the path.
//!
//! [`shared`] is the memory that some filters share with their controller, [`caller`] calls a
//! filter without nginx (with [`memory`] of its own), [`status`] reads the counts of nginx's
//! module, and [`proof`] uses all of these to prove that a filter is in the path.

pub mod caller;
pub mod memory;
pub mod proof;
pub mod shared;
pub mod status;

use std::path::{Path, PathBuf};

use tare_io::owned::{own_folder, own_program};
use tare_model::filters::{FilterKind, FilterSpec};

use crate::launch::spec::CompanionSpec;
use crate::machine::programs;
use tare_model::Failure;

/// Checks whether this machine can run it.
pub fn check_machine(kind: FilterKind) -> Result<(), Failure> {
    let cpus = || std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    if kind == FilterKind::Mpk && !cpus().split_whitespace().any(|flag| flag == "ospke") {
        let text = "filter mpk: protection keys cannot be used: this CPU has none, or the \
                    kernel does not use them (no ospke in /proc/cpuinfo)";
        return Err(Failure::environment(text));
    }
    Ok(())
}

/// Returns the file name of the plug-in library, if the filter has one.
fn library(kind: FilterKind) -> Option<String> {
    (kind != FilterKind::Off)
        .then(|| format!("libtare_filter_{}.so", kind.name().replace('-', "_")))
}

/// Checks what can be checked before anything starts, and describes the filter.
pub fn describe(spec: &FilterSpec) -> Result<String, Failure> {
    let name = spec.filter.name();
    spec.check_settings()?;
    if spec.filter == FilterKind::Off {
        return Ok("no filter".into());
    }
    for path in [module()?, library_path(spec)?].into_iter().chain(code_path(spec)?) {
        if !path.is_file() {
            let text = format!("filter {name}: {} is not a file", path.display());
            return Err(Failure::usage(text));
        }
    }
    Ok(format!("filter {name} in nginx, accepts {}…", spec.prefix))
}

/// Returns the path of nginx's module.
pub fn module() -> Result<PathBuf, Failure> {
    built("ngx_http_tare_filter_module.so")
}

/// Returns the path of the plug-in library, which `identity` and `shm` use only for calls without
/// nginx.
pub fn library_path(spec: &FilterSpec) -> Result<PathBuf, Failure> {
    match (&spec.path, library(spec.filter)) {
        (Some(path), _) => Ok(path.clone()),
        (None, Some(name)) => built(&name),
        (None, None) => Err(Failure::usage("the filter 'off' has no library")),
    }
}

fn code_path(spec: &FilterSpec) -> Result<Option<PathBuf>, Failure> {
    match (&spec.code, spec.filter.code()) {
        (Some(path), _) => Ok(Some(path.clone())),
        (None, Some((_, name))) => built(name).map(Some),
        (None, None) => Ok(None),
    }
}

/// Returns the environment variables that its library reads.
pub fn environment(
    spec: &FilterSpec,
    shared: Option<&str>,
) -> Result<Vec<(String, String)>, Failure> {
    let mut all = Vec::new();
    if let (Some((variable, _)), Some(path)) = (spec.filter.code(), code_path(spec)?) {
        // A variable set by the user wins, unless the filter's settings name a file.
        if spec.code.is_some() || std::env::var_os(variable).is_none() {
            all.push((variable.to_owned(), path.display().to_string()));
        }
    }
    all.extend(shared.map(|name| ("TARE_FILTER_SHM".to_owned(), name.to_owned())));
    Ok(all)
}

/// Returns nginx's directives for `http`.
pub fn directives(spec: &FilterSpec, shared: Option<&str>) -> Result<String, Failure> {
    let kind = match spec.filter {
        FilterKind::Off => return Ok(String::new()),
        FilterKind::Identity => "identity".to_owned(),
        FilterKind::Shm => "shm".to_owned(),
        _ => format!("library \"{}\"", library_path(spec)?.display()),
    };
    let shared = shared.map_or(String::new(), |name| format!(" tare_filter_shm {name};"));
    Ok(format!("tare_filter {kind}; tare_filter_prefix \"{}\";{shared}", spec.prefix))
}

/// Names the shared memory of a launch after the launch's own folder.
pub fn shared_name(spec: &FilterSpec, folder: &Path) -> Option<String> {
    let mut names = folder.components().rev().map(|part| part.as_os_str().to_string_lossy());
    let (own, lab) = (names.next()?, names.next()?);
    spec.filter.is_controlled().then(|| format!("{lab}-{own}"))
}

/// Plans the process that controls a filter; it creates the shared memory named `shared`.
pub fn controller(spec: &FilterSpec, shared: &str) -> Result<CompanionSpec, Failure> {
    let program = own_program().display().to_string();
    let name = spec.filter.name();
    let argv = [&program, "filter", "control", name, "--prefix", &spec.prefix, "--shm", shared];
    let argv = argv.map(str::to_owned).to_vec();
    Ok(CompanionSpec { argv, ready: shared::path_of(shared) })
}

/// The files that it needs where nginx runs.
pub fn needs(spec: &FilterSpec) -> Result<Vec<PathBuf>, Failure> {
    if spec.filter == FilterKind::Off {
        return Ok(Vec::new());
    }
    let mut all = vec![module()?, library_path(spec)?];
    all.extend(code_path(spec)?);
    all.extend(spec.filter.is_controlled().then(own_program));
    Ok(all)
}

/// Finds a file that `make filters` builds.
fn built(name: &str) -> Result<PathBuf, Failure> {
    let folders = folders();
    let all = folders.iter().map(|folder| folder.join(name));
    all.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let looked: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        let looked = match looked.is_empty() {
            true => String::new(),
            false => format!(" (looked in {})", looked.join(", ")),
        };
        Failure::environment(format!("{name} is not built: make filters{looked}"))
    })
}

/// Folders to search for filters: `$TARE_FILTERS`, or else beside or above tare.
fn folders() -> Vec<PathBuf> {
    if let Some(given) = std::env::var_os("TARE_FILTERS").filter(|path| !path.is_empty()) {
        return vec![given.into()];
    }
    let own = own_folder().unwrap_or_default();
    // tare is target/release/tare, target/debug/tare, target/debug/deps/TEST, or installed.
    let above: Vec<&Path> = own.ancestors().take(3).collect();
    let mut found: Vec<PathBuf> = above.iter().map(|folder| folder.join("filters")).collect();
    found.extend(above.get(1).map(|folder| folder.join("lib/tare/filters")));
    found.retain(|folder| programs::is_ours(folder));
    found
}
