//! Which CPUs load and servers run on, and where tare keeps its own files.

use std::path::PathBuf;

use tare_model::Failure;

/// Divides the CPUs between load and servers, by default in halves, so that they do not take time
/// from each other. A single CPU is not divided.
pub fn divide_cpus(
    load: Option<Vec<usize>>,
    servers: Option<Vec<usize>>,
    threads: Option<u32>,
) -> (Vec<usize>, Vec<usize>) {
    let all = tare_io::system::allowed_cpus();
    let without = |taken: &[usize]| -> Vec<usize> {
        let rest: Vec<usize> = all.iter().copied().filter(|cpu| !taken.contains(cpu)).collect();
        if rest.is_empty() { all.clone() } else { rest }
    };
    match (load, servers) {
        (Some(load), Some(servers)) => (load, servers),
        (Some(load), None) => {
            let servers = without(&load);
            (load, servers)
        }
        (None, Some(servers)) => (without(&servers), servers),
        (None, None) if all.len() < 2 => (Vec::new(), Vec::new()),
        (None, None) => {
            let wanted = threads.map_or(all.len() / 2, |threads| threads as usize);
            let for_load = wanted.clamp(1, all.len() - 1);
            let (servers, load) = all.split_at(all.len() - for_load);
            (load.to_vec(), servers.to_vec())
        }
    }
}

/// Returns tare's folder in the user's data directory.
pub fn data_folder() -> Result<PathBuf, Failure> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    if let Some(path) = set("XDG_DATA_HOME") {
        return Ok(PathBuf::from(path).join("tare"));
    }
    if let Some(home) = set("HOME") {
        return Ok(PathBuf::from(home).join(".local/share/tare"));
    }
    let text = "where to keep runs? HOME is not set; give --store FILE and set XDG_DATA_HOME";
    Err(Failure::environment(text))
}

/// Returns the path of the store: the given one, `$TARE_STORE`, or the data directory's.
pub fn store_path(asked: Option<&PathBuf>) -> Result<PathBuf, Failure> {
    if let Some(path) = asked {
        return Ok(path.clone());
    }
    match std::env::var_os("TARE_STORE").filter(|value| !value.is_empty()) {
        Some(path) => Ok(path.into()),
        None => Ok(data_folder()?.join("tare.db")),
    }
}

/// Returns the folder of journals: one for all stores, so that `tare clean` finds them.
pub fn journal_folder() -> Result<PathBuf, Failure> {
    Ok(data_folder()?.join("journal"))
}
