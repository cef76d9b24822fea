//! Sets up a virtual machine in which this agent is the first process: file systems, modules, the
//! network, and the port to tare.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_io::vm_init;
use tare_lab::agent::serve::{AgentReader, To};
use tare_lab::places::vm::{GUEST_PLAN, GuestPlan};

/// Whether this process is init of a VM that tare started: its root holds tare's plan.
pub fn is_guest() -> bool {
    std::process::id() == 1 && Path::new(GUEST_PLAN).exists()
}

/// File systems to mount. `/` needs none: the root is in memory, and servers can write there.
const MOUNTS: [(&str, &str); 4] =
    [("devtmpfs", "/dev"), ("proc", "/proc"), ("sysfs", "/sys"), ("tmpfs", "/dev/shm")];
/// Number of checks for a device: under emulation on a busy host, drivers can take long.
const DEVICE_CHECKS: u32 = 12_000;
const DEVICE_CHECK: Duration = Duration::from_millis(5);

pub fn set_up() -> Result<(AgentReader, To), String> {
    let text = fs::read_to_string(GUEST_PLAN).map_err(|e| format!("{GUEST_PLAN}: {e}"))?;
    let plan: GuestPlan =
        serde_json::from_str(&text).map_err(|error| format!("{GUEST_PLAN}: {error}"))?;
    for (kind, path) in MOUNTS {
        let _ = fs::create_dir_all(path);
        vm_init::mount(kind, path).map_err(|error| format!("cannot mount {path}: {error}"))?;
    }
    for path in &plan.modules {
        vm_init::load_module(path)
            .map_err(|error| format!("cannot load the module {}: {error}", path.display()))?;
    }
    let port = wait_for(|| port_named(&plan.port)).ok_or("no port to tare came up")?;
    let link = wait_for(|| links().into_iter().find(|name| name != "lo"))
        .ok_or("no network link came up")?;
    tare_io::net_config::set_up("lo", None).map_err(|error| format!("lo: {error}"))?;
    tare_io::net_config::set_up(&link, Some(&plan.address))
        .map_err(|error| format!("{link}: {error}"))?;
    let open = || File::options().read(true).write(true).open(&port);
    let port_file = open().map_err(|error| format!("{}: {error}", port.display()))?;
    let to = port_file.try_clone().map_err(|error| error.to_string())?;
    Ok((Box::new(port_file), Box::new(to)))
}

/// Finds the device of the virtio port of this name.
fn port_named(wanted: &str) -> Option<PathBuf> {
    let entries = fs::read_dir("/sys/class/virtio-ports").ok()?;
    let found = entries.flatten().find(|entry| {
        let name = fs::read_to_string(entry.path().join("name")).unwrap_or_default();
        name.trim() == wanted
    })?;
    let device = Path::new("/dev").join(found.file_name());
    device.exists().then_some(device)
}

fn links() -> Vec<String> {
    let Ok(entries) = fs::read_dir("/sys/class/net") else { return Vec::new() };
    entries.flatten().filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

fn wait_for<T>(look: impl Fn() -> Option<T>) -> Option<T> {
    for _ in 0..DEVICE_CHECKS {
        if let Some(found) = look() {
            return Some(found);
        }
        std::thread::park_timeout(DEVICE_CHECK);
    }
    None
}

/// Powers the machine off, if it is a guest of tare's.
pub fn power_off() {
    if is_guest() {
        vm_init::power_off();
    }
}
