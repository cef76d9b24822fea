//! URL filters in nginx: which there are, where their files lie, and how one is put in the path.
//!
//! [`shared`] is the memory that some of them share with their controller, [`caller`] calls one
//! without nginx, [`status`] reads what nginx's module counted.

pub mod caller;
pub mod shared;
pub mod status;

use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::companion::CompanionRecipe;
use crate::error::LabError;
use crate::programs;

/// One way to filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FilterKind {
    Off,
    Identity,
    Shm,
    Library,
    Wasm,
    Wasm2c,
    RlboxNoop,
    Lua,
    Ebpf,
    Mpk,
}

impl FilterKind {
    pub const ALL: [(Self, &'static str, &'static str); 10] = [
        (Self::Off, "off", "no module is loaded"),
        (Self::Identity, "identity", "the module does everything but the call"),
        (
            Self::Shm,
            "shm",
            "C in the module; prefix and counters in the controller's shared memory",
        ),
        (Self::Library, "library", "C in a shared library"),
        (Self::Wasm, "wasm", "WebAssembly in wasmtime, compiled before the first request"),
        (Self::Wasm2c, "wasm2c", "the same module turned into C by wasm2c: RLBox's sandbox"),
        (Self::RlboxNoop, "rlbox-noop", "a C++ boundary of tainted types, without isolation"),
        (Self::Lua, "lua", "Lua in LuaJIT"),
        (Self::Ebpf, "ebpf", "eBPF compiled to machine code in user space; maps in shared memory"),
        (Self::Mpk, "mpk", "C with its data behind a protection key, in ERIM's manner"),
    ];

    pub fn parse(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|(_, name, _)| *name == text);
        found.map(|(kind, ..)| kind).ok_or_else(|| {
            let names = Self::ALL.map(|(_, name, _)| name).join(", ");
            format!("'{text}' is not a filter; choose among {names}")
        })
    }

    pub fn name(self) -> &'static str {
        Self::ALL.into_iter().find(|(kind, ..)| *kind == self).map_or("", |(_, name, _)| name)
    }

    /// Whether a controller makes its shared memory.
    pub fn is_controlled(self) -> bool {
        matches!(self, Self::Shm | Self::Ebpf)
    }

    /// Whether this machine can run it.
    pub fn check_machine(self) -> Result<(), LabError> {
        let cpus = || std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        if self == Self::Mpk && !cpus().split_whitespace().any(|flag| flag == "ospke") {
            let text = "filter mpk: protection keys cannot be used: this CPU has none, or the \
                        kernel does not use them (no ospke in /proc/cpuinfo)";
            return Err(LabError::Environment(text.into()));
        }
        Ok(())
    }

    /// The file behind the plug-in interface, for the filters that have one.
    fn library(self) -> Option<String> {
        (self != Self::Off).then(|| format!("libtare_filter_{}.so", self.name().replace('-', "_")))
    }

    /// The variable that names the file a library runs, and the file's name by default.
    fn code(self) -> Option<(&'static str, &'static str)> {
        match self {
            Self::Wasm => Some(("WASM_MODULE_PATH", "rule.wasm")),
            Self::Lua => Some(("LUA_MODULE_PATH", "filter.lua")),
            Self::Ebpf => Some(("EBPF_MODULE_PATH", "rule.bpf.o")),
            _ => None,
        }
    }
}

/// A filter in the path of a variant.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FilterSpec {
    pub filter: FilterKind,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub prefix: String,
    /// `library`: another one than tare's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// `wasm`, `lua`, `ebpf`: other code than tare's.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<PathBuf>,
}

/// The longest prefix that filters take, in bytes; TARE_PREFIX_MAX in filters/include.
pub const PREFIX_MAX: usize = 127;

impl FilterSpec {
    pub fn plain(filter: FilterKind, prefix: &str) -> Self {
        Self { filter, prefix: prefix.to_owned(), path: None, code: None }
    }

    /// Checks what can be checked before anything starts; what it does, in words.
    pub fn describe(&self) -> Result<String, LabError> {
        let name = self.filter.name();
        if self.filter == FilterKind::Off {
            return Ok("no filter".into());
        }
        check_prefix(&self.prefix)
            .map_err(|why| LabError::Usage(format!("filter {name}: {why}")))?;
        if self.path.is_some() && self.filter != FilterKind::Library {
            let text = format!("filter {name}: path goes with the filter 'library'");
            return Err(LabError::Usage(text));
        }
        if self.code.is_some() && self.filter.code().is_none() {
            let text = format!("filter {name}: code goes with the filters wasm, lua and ebpf");
            return Err(LabError::Usage(text));
        }
        for path in [self.module()?, self.library_path()?].into_iter().chain(self.code_path()?) {
            if !path.is_file() {
                let text = format!("filter {name}: {} is not a file", path.display());
                return Err(LabError::Usage(text));
            }
        }
        Ok(format!("filter {name} in nginx, accepts {}…", self.prefix))
    }

    /// nginx's module.
    pub fn module(&self) -> Result<PathBuf, LabError> {
        built("ngx_http_tare_filter_module.so")
    }

    /// The library behind the plug-in interface; that of `identity` and `shm` is for calls without
    /// nginx.
    pub fn library_path(&self) -> Result<PathBuf, LabError> {
        match (&self.path, self.filter.library()) {
            (Some(path), _) => Ok(path.clone()),
            (None, Some(name)) => built(&name),
            (None, None) => Err(LabError::Usage("the filter 'off' has no library".into())),
        }
    }

    fn code_path(&self) -> Result<Option<PathBuf>, LabError> {
        match (&self.code, self.filter.code()) {
            (Some(path), _) => Ok(Some(path.clone())),
            (None, Some((_, name))) => built(name).map(Some),
            (None, None) => Ok(None),
        }
    }

    /// What its library reads from the environment.
    pub fn environment(&self, shared: Option<&str>) -> Result<Vec<(String, String)>, LabError> {
        let mut all = Vec::new();
        if let (Some((variable, _)), Some(path)) = (self.filter.code(), self.code_path()?) {
            // Who sets the variable means it, unless the file says otherwise.
            if self.code.is_some() || std::env::var_os(variable).is_none() {
                all.push((variable.to_owned(), path.display().to_string()));
            }
        }
        all.extend(shared.map(|name| ("TARE_FILTER_SHM".to_owned(), name.to_owned())));
        Ok(all)
    }

    /// nginx's directives in `http`.
    pub fn directives(&self, shared: Option<&str>) -> Result<String, LabError> {
        let kind = match self.filter {
            FilterKind::Off => return Ok(String::new()),
            FilterKind::Identity => "identity".to_owned(),
            FilterKind::Shm => "shm".to_owned(),
            _ => format!("library \"{}\"", self.library_path()?.display()),
        };
        let shared = shared.map_or(String::new(), |name| format!(" tare_filter_shm {name};"));
        Ok(format!("tare_filter {kind}; tare_filter_prefix \"{}\";{shared}", self.prefix))
    }

    /// The shared memory of one launch, by the folder that this launch has to itself.
    pub fn shared_name(&self, folder: &Path) -> Option<String> {
        let mut names = folder.components().rev().map(|part| part.as_os_str().to_string_lossy());
        let (own, lab) = (names.next()?, names.next()?);
        self.filter.is_controlled().then(|| format!("{lab}-{own}"))
    }

    /// Its controller, which makes that memory.
    pub fn controller(&self, shared: &str) -> Result<CompanionRecipe, LabError> {
        let program = programs::own()?.display().to_string();
        let name = self.filter.name();
        let argv = [&program, "filter", "control", name, "--prefix", &self.prefix, "--shm", shared];
        let argv = argv.map(str::to_owned).to_vec();
        Ok(CompanionRecipe { argv, ready: shared::path_of(shared) })
    }

    /// The files that it needs where nginx runs.
    pub fn needs(&self) -> Result<Vec<PathBuf>, LabError> {
        if self.filter == FilterKind::Off {
            return Ok(Vec::new());
        }
        let mut all = vec![self.module()?, self.library_path()?];
        all.extend(self.code_path()?);
        all.extend(self.filter.is_controlled().then(programs::own).transpose()?);
        Ok(all)
    }

    /// A path that it must refuse: as its prefix, but for the last character.
    pub fn refused_path(&self) -> String {
        let kept = &self.prefix[..self.prefix.len().saturating_sub(1)];
        let last = if self.prefix.ends_with('b') { 'c' } else { 'b' };
        format!("{kept}{last}")
    }
}

/// What nginx passes to filters is a decoded path that begins with a slash.
pub fn check_prefix(prefix: &str) -> Result<(), String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "/-_.~!*+,:@=".contains(c);
    let n = prefix.len();
    if n > PREFIX_MAX {
        return Err(format!("its prefix has {n} bytes; 2 to {PREFIX_MAX} are allowed"));
    }
    if n < 2 || !prefix.starts_with('/') || prefix.contains("//") || prefix.contains("/.") {
        return Err(format!(
            "prefix '{prefix}': write a slash and at least one character, such as /aaaa; nginx \
             resolves // and /. before it asks"
        ));
    }
    match prefix.chars().find(|c| !is_plain(*c)) {
        Some(c) => Err(format!(
            "prefix '{}': {c:?} cannot be in it; letters, digits and / - _ . ~ ! * + , : @ = can",
            prefix.escape_debug()
        )),
        None => Ok(()),
    }
}

/// A file that `make filters` builds.
fn built(name: &str) -> Result<PathBuf, LabError> {
    let folders = folders();
    let all = folders.iter().map(|folder| folder.join(name));
    all.into_iter().find(|path| path.is_file()).ok_or_else(|| {
        let looked: Vec<String> = folders.iter().map(|f| f.display().to_string()).collect();
        LabError::Environment(format!(
            "{name} is not built: make filters (looked in {})",
            looked.join(", ")
        ))
    })
}

/// Where filters may lie: as `$TARE_FILTERS` says, else beside the program or above it.
fn folders() -> Vec<PathBuf> {
    if let Some(given) = std::env::var_os("TARE_FILTERS").filter(|path| !path.is_empty()) {
        return vec![given.into()];
    }
    let program = std::env::current_exe().unwrap_or_default();
    // target/release/tare, target/debug/tare, target/debug/deps/test; or an installed one.
    let above: Vec<&Path> = program.ancestors().skip(1).take(3).collect();
    let mut found: Vec<PathBuf> = above.iter().map(|folder| folder.join("filters")).collect();
    found.extend(above.get(1).map(|folder| folder.join("lib/tare/filters")));
    found.retain(|folder| programs::is_ours(folder));
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn prefixes_are_what_nginx_can_pass() {
        assert_eq!(check_prefix("/aaaa"), Ok(()));
        assert_eq!(check_prefix(&format!("/{}", "a".repeat(126))), Ok(()));
        for (prefix, complaint) in [
            ("", "at least one character"),
            ("/", "at least one character"),
            ("aaaa", "write a slash"),
            ("/a//b", "resolves //"),
            ("/../a", "resolves //"),
            ("/a b", "' ' cannot be in it"),
            ("/a\"; x", "cannot be in it"),
            ("/ä", "cannot be in it"),
        ] {
            let found = check_prefix(prefix).unwrap_err();
            assert!(found.contains(complaint), "{prefix}: {found}");
        }
        let long = check_prefix(&"/".repeat(200)).unwrap_err();
        assert_eq!(long, "its prefix has 200 bytes; 2 to 127 are allowed");
    }

    #[test]
    fn what_must_be_refused_does_not_begin_with_the_prefix() {
        for prefix in ["/aaaa", "/b", "/ab", "/x/"] {
            let refused = FilterSpec::plain(FilterKind::Library, prefix).refused_path();
            assert!(!refused.starts_with(prefix) && refused.starts_with('/'), "{refused}");
        }
    }

    #[test]
    fn kinds_are_found_by_their_names_and_stored_under_them() {
        for (kind, name, _) in FilterKind::ALL {
            assert_eq!(FilterKind::parse(name), Ok(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{name}\""));
        }
        assert!(FilterKind::parse("wsm").unwrap_err().starts_with("'wsm' is not a filter"));
    }
}
