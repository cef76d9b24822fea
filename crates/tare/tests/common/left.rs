//! Proofs that runs in places show, and leftovers that they must not have.

use std::path::PathBuf;

use tare_report::run::RunReport;

/// Returns everything that these tare processes could have left on this machine.
pub fn left_by(pids: &[u32]) -> Vec<String> {
    let ours = |name: &str| pids.iter().any(|pid| name.contains(&format!("tare-{pid}-")));
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = vec!["/run/netns".into(), "/dev/shm".into()];
    let groups = std::fs::read_dir("/sys/fs/cgroup").into_iter().flatten().flatten();
    folders.extend(groups.map(|entry| entry.path()));
    for folder in folders {
        let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
        let names = entries.map(|entry| entry.path().display().to_string());
        found.extend(names.filter(|name| ours(name)));
    }
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    found.extend(mounts.lines().filter(|line| ours(line)).map(str::to_owned));
    for pid in tare_lab::machine::processes::all() {
        let command = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if ours(&command) {
            found.push(format!("process {pid}: {command}"));
        }
    }
    found
}

#[track_caller]
pub fn proven(report: &RunReport, name: &str, seen: &str) {
    let variant = report.variant(name).unwrap();
    let proofs = variant.proofs.join("\n");
    assert!(proofs.contains("held in 2 of 2"), "{name}: {proofs}");
    assert!(proofs.contains(seen), "{name}: {proofs}");
    assert!(variant.metric(tare_model::Metric::Throughput).unwrap().point > 0.0);
    assert!(variant.requests > 0 && variant.launches == 2, "{variant:#?}");
}
