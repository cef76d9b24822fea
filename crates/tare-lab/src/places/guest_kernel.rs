//! The kernel of a virtual machine: the user's, or Debian's cloud kernel, unpacked into tare's
//! cache and not installed.

use std::fs;
use std::path::{Path, PathBuf};

use tare_io::DurationNs;
use tare_io::owned::{self, Folder, Lock};
use tare_io::time::monotonic_now;

use crate::journal::Journal;
use crate::journal::temporary;
use crate::machine::commands::{is_stopped, run, run_checked};
use crate::machine::programs;
use tare_model::Failure;

/// A kernel to boot in a virtual machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GuestKernel {
    pub image: PathBuf,
    /// The folder that holds `lib/modules`.
    pub modules: Option<PathBuf>,
    /// As `uname -r` prints it in the guest; empty if it is not known.
    pub release: String,
}

/// Debian's cloud kernel: small, with everything that virtual machines need.
const PACKAGE: &str = "linux-image-cloud-amd64";
/// Modules that the guest's agent and network need.
const WANTED: [&str; 3] = ["virtio_pci", "virtio_console", "virtio_net"];
/// Confidential guests load these if the kernel has them.
const CONFIDENTIAL: [&str; 2] = ["tdx_guest", "sev-guest"];
/// Name of the kernel's folder in the cache.
const NAME: &str = "guest-kernel";
const DOWNLOAD_WITHIN: DurationNs = DurationNs::from_secs(180);
const TIMEOUT: DurationNs = DurationNs::from_secs(60);

/// Waits while another tare downloads, for at most twice the download's timeout.
fn wait_for(lock: &fs::File) -> Result<(), Failure> {
    let until = monotonic_now() + DOWNLOAD_WITHIN + DOWNLOAD_WITHIN;
    while owned::try_lock(lock) == Lock::Held {
        if is_stopped() || monotonic_now() >= until {
            let text = "another tare is getting the kernel for guests, and does not end";
            return Err(Failure::environment(text));
        }
        std::thread::park_timeout(std::time::Duration::from_millis(100));
    }
    Ok(())
}

impl GuestKernel {
    /// The user's kernel, with the modules of the release below `modules`.
    pub fn own(image: &Path, modules: Option<&Path>) -> Result<Self, Failure> {
        if !image.is_file() {
            let text = format!("vm: kernel {} is not a file", image.display());
            return Err(Failure::usage(text));
        }
        let Some(modules) = modules else {
            return Ok(Self { image: image.into(), modules: None, release: String::new() });
        };
        let release = release_in(modules).ok_or_else(|| {
            let text = format!("vm: modules {}: holds no lib/modules/RELEASE", modules.display());
            Failure::usage(text)
        })?;
        Ok(Self { image: image.into(), modules: Some(modules.into()), release })
    }

    /// The distribution's kernel, if it was unpacked before.
    pub fn cached() -> Option<Self> {
        // Check the owner: anyone who can write there decides what is booted.
        let folder = owned::check(&folder()?).ok()?;
        let release = release_in(&folder)?;
        let image = folder.join(format!("boot/vmlinuz-{release}"));
        let ready = folder.join(READY).is_file() && image.is_file();
        ready.then_some(Self { image, modules: Some(folder), release })
    }

    /// The distribution's kernel, downloaded and unpacked once; a lock makes other runs wait.
    pub fn provide(journal: &Journal) -> Result<Self, Failure> {
        if let Some(kept) = Self::cached() {
            return Ok(kept);
        }
        let folder = folder().ok_or_else(|| {
            Failure::environment("HOME is not set: nowhere to keep the kernel for guests")
        })?;
        can_provide()?;
        let parent = folder.parent().unwrap_or(Path::new("/"));
        let own = Folder::make(parent).map_err(|error| {
            Failure::environment(format!(
                "a kernel for guests cannot be kept: {error}; set XDG_CACHE_HOME to a folder that \
                 only you can write to"
            ))
        })?;
        let (parent, folder) = (own.path(), own.path().join(NAME));
        let lock_path = parent.join("guest-kernel.lock");
        let lock =
            fs::File::create(&lock_path).map_err(|e| Failure::file("make", &lock_path, e))?;
        wait_for(&lock)?;
        if let Some(kept) = Self::cached() {
            return Ok(kept);
        }
        let making = temporary::folder_in(parent, journal)?;
        Self::unpack(&making)?;
        owned::remove_tree(&folder)
            .map_err(|error| Failure::environment(format!("cannot replace a kernel: {error}")))?;
        fs::rename(&making, &folder).map_err(|e| Failure::file("keep", &folder, e))?;
        Self::cached().ok_or_else(|| {
            let text = format!("{PACKAGE} holds no kernel: give one (vm = {{ kernel = \"…\" }})");
            Failure::environment(text)
        })
    }

    fn unpack(making: &Path) -> Result<(), Failure> {
        let depends =
            run_checked(&["apt-cache", "depends", PACKAGE], TIMEOUT, &format!("find {PACKAGE}"))?;
        let name =
            depends.lines().find_map(|line| line.trim().strip_prefix("Depends: linux-image-"));
        let name = format!("linux-image-{}", name.unwrap_or("cloud-amd64").trim());
        let script = "cd \"$0\" && apt-get -q download \"$1\" && dpkg-deb -x ./*.deb . && \
                      rm -f ./*.deb && chmod -R u+w .";
        let making_text = making.display().to_string();
        let argv = ["sh", "-c", script, &making_text, &name];
        run_checked(&argv, DOWNLOAD_WITHIN, &format!("download {name} for virtual machines"))?;
        let release = release_in(making).unwrap_or_default();
        run_checked(
            &["depmod", "-b", &making_text, &release],
            TIMEOUT,
            "index the kernel's modules",
        )?;
        fs::write(making.join(READY), "").map_err(|e| Failure::file("write", making, e))
    }

    /// The modules that a guest needs, in the order in which they are loaded.
    pub fn needed(&self, confidential: bool) -> Result<Vec<PathBuf>, Failure> {
        let Some(folder) = &self.modules else { return Ok(Vec::new()) };
        let folder_text = folder.display().to_string();
        let mut all: Vec<PathBuf> = Vec::new();
        let wanted = WANTED.iter().map(|name| (name, true));
        let optional = CONFIDENTIAL.iter().filter(|_| confidential).map(|name| (name, false));
        for (name, must_be) in wanted.chain(optional) {
            let argv =
                ["modprobe", "-d", &folder_text, "-S", &self.release, "--show-depends", name];
            let listed = run(&argv, TIMEOUT);
            if !listed.worked && must_be {
                return Err(Failure::environment(format!(
                    "cannot find the module {name} of the guest's kernel: {}",
                    listed.said
                )));
            }
            let paths = listed.out.lines().filter_map(|line| line.trim().strip_prefix("insmod "));
            for path in paths.filter_map(|rest| rest.split_whitespace().next()) {
                let path = PathBuf::from(path);
                if !all.contains(&path) {
                    all.push(path);
                }
            }
        }
        Ok(all)
    }
}

/// Marker file, written last.
const READY: &str = "tare-ready";

/// Checks that the distribution's kernel is present or can be downloaded.
pub fn can_provide() -> Result<(), Failure> {
    if GuestKernel::cached().is_some() {
        return Ok(());
    }
    for program in ["apt-get", "dpkg-deb"] {
        if programs::find(&[program]).is_none() {
            return Err(Failure::environment(format!(
                "vm: the kernel for guests comes from Debian's packages, and {program} is not \
                 here: give one (vm = {{ kernel = \"/path/vmlinuz\", modules = \"/\" }})"
            )));
        }
    }
    for program in ["depmod", "modprobe"] {
        programs::need(&[program], "kmod")?;
    }
    Ok(())
}

fn folder() -> Option<PathBuf> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let cache = match set("XDG_CACHE_HOME") {
        Some(cache) => PathBuf::from(cache),
        None => PathBuf::from(set("HOME")?).join(".cache"),
    };
    Some(cache.join("tare").join(NAME))
}

/// The only release below `lib/modules`, or the newest by name.
fn release_in(folder: &Path) -> Option<String> {
    let entries = fs::read_dir(folder.join("lib/modules")).ok()?;
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    names.max()
}
