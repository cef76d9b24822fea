//! Command lines of OCI runtimes.

use std::path::Path;

use crate::machine::programs;

/// Whether control groups of both versions are mounted.
pub fn has_both_cgroups() -> bool {
    Path::new("/sys/fs/cgroup/unified").is_dir()
}

/// The command line of a runtime. crun fails if cgroup v2 is mounted beside v1, so it runs in a
/// mount namespace without v2.
pub fn command_line(program: &Path, arguments: &[&str]) -> Vec<String> {
    let name = program.file_name().unwrap_or_default().to_string_lossy();
    let mut argv: Vec<String> = Vec::new();
    if name.contains("crun") && has_both_cgroups() {
        let script = "\"$0\" /sys/fs/cgroup/unified && exec \"$@\"";
        let [unshare, umount] = [("unshare", "/usr/bin/unshare"), ("umount", "/usr/bin/umount")]
            .map(|(name, usual)| programs::find(&[name]).unwrap_or_else(|| usual.into()));
        argv.push(unshare.display().to_string());
        argv.extend(["-m", "/bin/sh", "-c", script].map(str::to_owned));
        argv.push(umount.display().to_string());
    }
    argv.push(program.display().to_string());
    argv.extend(arguments.iter().map(|text| (*text).to_owned()));
    argv
}
