//! URL filters in nginx, as named in a plan. `tare_lab::filters` knows what each needs on this
//! machine.

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::Invalid;

/// An implementation of the filter.
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

    /// Whether a controller process creates the filter's shared memory.
    pub fn is_controlled(self) -> bool {
        matches!(self, Self::Shm | Self::Ebpf)
    }

    /// The environment variable with the path of the library's code file, and the file's default
    /// name.
    pub fn code(self) -> Option<(&'static str, &'static str)> {
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
    /// A library other than tare's; only with the filter `library`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<PathBuf>,
    /// Code other than tare's; only with the filters `wasm`, `lua` and `ebpf`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub code: Option<PathBuf>,
}

/// The longest prefix that filters take, in bytes; TARE_PREFIX_MAX in filters/include.
pub const PREFIX_MAX: usize = 127;

impl FilterSpec {
    pub fn plain(filter: FilterKind, prefix: &str) -> Self {
        Self { filter, prefix: prefix.to_owned(), path: None, code: None }
    }

    /// Checks the settings, independently of the server.
    pub fn check_settings(&self) -> Result<(), Invalid> {
        let of_filter = |text: &str| Err(Invalid(format!("filter {}: {text}", self.filter.name())));
        if self.filter == FilterKind::Off {
            return Ok(());
        }
        if let Err(why) = check_prefix(&self.prefix) {
            return of_filter(&why);
        }
        if self.path.is_some() && self.filter != FilterKind::Library {
            return of_filter("path goes with the filter 'library'");
        }
        if self.code.is_some() && self.filter.code().is_none() {
            return of_filter("code goes with the filters wasm, lua and ebpf");
        }
        Ok(())
    }

    /// A path that the filter must refuse: the prefix with another last character.
    pub fn refused_path(&self) -> String {
        let kept = &self.prefix[..self.prefix.len().saturating_sub(1)];
        let last = if self.prefix.ends_with('b') { 'c' } else { 'b' };
        format!("{kept}{last}")
    }
}

/// Checks a prefix against what nginx passes to filters: a decoded path with a leading slash.
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
