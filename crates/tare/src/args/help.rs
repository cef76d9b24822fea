//! Order in long lists of flags: their headings in `--help`, and which of them `-h` shows.

use clap::Command;

/// Headings, and the flags below them. Flags that are missing here stand below "Options".
const HEADINGS: &[(&str, &[&str])] = &[
    (
        "What to compare",
        &[
            "variants",
            "base",
            "head",
            "file",
            "list",
            "copy",
            "resume",
            "dry_run",
            "launch",
            "unix_socket",
            "baseline",
            "ready_within",
            "exclusive",
            "may_differ",
            "server_cpus",
            "name",
        ],
    ),
    (
        "Requests",
        &[
            "path",
            "urls",
            "random_order",
            "http2",
            "http1_1",
            "streams",
            "no_hpack_table",
            "method",
            "headers",
            "body",
            "body_file",
            "expect_status",
            "timeout",
        ],
    ),
    (
        "Load",
        &[
            "connections",
            "threads",
            "rate",
            "poisson",
            "max_connections",
            "new_connections",
            "duration",
            "requests",
            "bind",
            "ipv4",
            "ipv6",
            "cpus",
            "idle",
            "spin",
            "linger",
            "reactor",
        ],
    ),
    ("TLS", &["insecure", "cacert", "cert", "key", "sni", "tls_version", "ciphers", "tls_resume"]),
    (
        "Precision and time",
        &[
            "worse_by",
            "screen",
            "precision",
            "tolerance",
            "metric",
            "max_time",
            "rounds",
            "lost_rounds",
            "seed",
        ],
    ),
    (
        "Slices and warm-up",
        &[
            "slice",
            "cycles",
            "warmup",
            "warmup_max",
            "sustained",
            "no_sustained",
            "cold",
            "reconnect_each",
        ],
    ),
    (
        "Output",
        &[
            "fail_if",
            "allow_void",
            "json",
            "markdown",
            "csv",
            "html",
            "junit",
            "annotations",
            "store",
            "quiet",
        ],
    ),
];

/// What `-h` shows of the commands with the most flags.
const EVERYDAY: &[&str] = &[
    "variants",
    "base",
    "head",
    "worse_by",
    "file",
    "files",
    "list",
    "copy",
    "launch",
    "url",
    "path",
    "headers",
    "connections",
    "threads",
    "duration",
    "rate",
    "new_connections",
    "precision",
    "metric",
    "max_time",
    "fail_if",
    "json",
    "html",
    "quiet",
    "help",
];

/// Groups the command's flags, and leaves the rare ones out of `-h`.
pub fn group(command: Command) -> Command {
    command.mut_args(|arg| {
        let id = arg.get_id().as_str().to_owned();
        let heading = HEADINGS.iter().find(|(_, ids)| ids.contains(&id.as_str()));
        let is_rare = !EVERYDAY.contains(&id.as_str());
        let arg = arg.hide_short_help(is_rare);
        match heading.filter(|_| !arg.is_positional()) {
            Some((heading, _)) => arg.help_heading(*heading),
            None => arg,
        }
    })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;
    use crate::commands::command;

    #[test]
    fn headings_name_flags_that_exist() {
        let command = command();
        let grouped =
            ["compare", "run", "check", "load"].map(|name| command.find_subcommand(name).unwrap());
        let args = grouped.iter().flat_map(|command| command.get_arguments());
        let known: BTreeSet<&str> = args.map(|arg| arg.get_id().as_str()).collect();
        let listed = HEADINGS.iter().flat_map(|(_, ids)| *ids).chain(EVERYDAY);
        for id in listed.filter(|id| **id != "help") {
            assert!(known.contains(id), "{id}");
        }
        for name in ["compare", "run", "check"] {
            let args = command.find_subcommand(name).unwrap().get_arguments();
            for arg in args.filter(|arg| !arg.is_positional()) {
                assert!(arg.get_help_heading().is_some(), "{name} {}", arg.get_id());
            }
        }
    }
}
