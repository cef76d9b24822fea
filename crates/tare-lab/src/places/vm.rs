//! A virtual machine in QEMU, with a kernel and an initramfs built here from the agent, the
//! server's programs and the modules they need.

use std::io::{Read, Seek, SeekFrom};
use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Mutex;

use serde::{Deserialize, Serialize};
use tare_io::DurationNs;
use tare_model::places::{Accel, Confidential, PlaceFacts, VmSpec};
use tare_model::samples::Proof;

use super::guest_kernel::{self, GuestKernel};
use super::network::Network;
use super::qemu_command::Machine;
use super::root_files::Root;
use super::{
    LabResources, Place, PlaceContext, PlaceKind, SystemIdentity, agent_file, cpio, proof,
};
use crate::agent::Agent;
use crate::journal::Journal;
use crate::machine::commands;
use crate::machine::programs;
use tare_model::{Failure, Fault};

/// Timeout with KVM, under which a guest usually answers within two seconds.
const KVM_WITHIN: DurationNs = DurationNs::from_secs(12);
/// Timeout under emulation.
const TCG_WITHIN: DurationNs = DurationNs::from_secs(120);
/// Whether a guest has booted with KVM on this machine; `None` until one was tried.
static KVM_BOOTS: Mutex<Option<bool>> = Mutex::new(None);

/// Returns what this machine lacks for such a guest. `root` is `/`, or a test's folder.
fn missing(kind: Confidential, root: &Path) -> Option<String> {
    let (parameter, what) = match kind {
        Confidential::Tdx => ("/sys/module/kvm_intel/parameters/tdx", "TDX"),
        Confidential::SevSnp => ("/sys/module/kvm_amd/parameters/sev_snp", "SEV-SNP"),
    };
    let at = |path: &str| root.join(path.trim_start_matches('/'));
    let on = std::fs::read_to_string(at(parameter));
    if !on.as_ref().is_ok_and(|text| matches!(text.trim(), "Y" | "1")) {
        let hint = match kind {
            Confidential::Tdx => "a Xeon with TDX on in its firmware, and kvm_intel.tdx=1",
            Confidential::SevSnp => "an EPYC with SNP on in its firmware, and kvm_amd.sev_snp=1",
        };
        return Some(format!("{what} is not enabled here: {parameter} is not Y; it needs {hint}"));
    }
    match kind {
        Confidential::SevSnp if !at("/dev/sev").exists() => {
            Some("SEV-SNP: /dev/sev is not here".into())
        }
        _ => None,
    }
}

/// The CPU flag and the device that only such a guest has.
fn seen_inside(kind: Confidential) -> (&'static str, &'static str) {
    match kind {
        Confidential::Tdx => ("tdx_guest", "/dev/tdx_guest"),
        Confidential::SevSnp => ("sev_snp", "/dev/sev-guest"),
    }
}

fn program(spec: &VmSpec) -> Result<PathBuf, Failure> {
    match &spec.program {
        Some(path) if path.is_file() => Ok(path.clone()),
        Some(path) => Err(Failure::usage(format!("vm: program {} is not a file", path.display()))),
        None => programs::need(&["qemu-system-x86_64"], "qemu-system-x86"),
    }
}

impl PlaceKind for VmSpec {
    fn check_machine(&self) -> Result<String, Failure> {
        let usage = |text: String| Err(Failure::usage(format!("vm: {text}")));
        super::check_files("vm", &self.programs)?;
        let mut files = self.kernel.iter().chain(&self.firmware);
        if let Some(path) = files.find(|path| !path.is_file()) {
            return usage(format!("{} is not a file", path.display()));
        }
        if let Some(why) = self.confidential.and_then(|kind| missing(kind, Path::new("/"))) {
            return Err(Failure::environment(why));
        }
        if self.confidential.is_some() && self.firmware.is_none() {
            let text = "vm: a confidential guest needs firmware = \"/path/OVMF.fd\", built for it";
            return Err(Failure::environment(text));
        }
        if self.confidential.is_some() && self.kernel.is_none() {
            let text = "vm: a confidential guest needs kernel = \"/path/vmlinuz\", built for it: \
                        Debian's for clouds is not";
            return Err(Failure::environment(text));
        }
        let program = program(self)?;
        let kvm = open_kvm();
        if let (Accel::Kvm, Err(why)) = (self.accel, &kvm) {
            return Err(Failure::environment(format!("vm: {why}; accel = \"tcg\" emulates")));
        }
        super::need_root("a virtual machine on tare's network")?;
        if self.kernel.is_none() {
            guest_kernel::can_provide()?;
        }
        agent_file::find()?;
        let version = commands::version(&program, "--version").unwrap_or_default();
        let how = match kvm {
            Ok(()) => "/dev/kvm is here, and is tried before emulation".to_owned(),
            Err(why) => format!("emulated: {why}"),
        };
        Ok(format!("yes: {version}; {how}"))
    }

    fn slow_step(&self) -> Option<&'static str> {
        Some(match self.kernel.is_none() && GuestKernel::cached().is_none() {
            true => "the kernel for virtual machines is downloaded, once",
            false => "virtual machines boot",
        })
    }

    fn place(&self, context: PlaceContext) -> Option<Box<dyn Place>> {
        Some(Box::new(Vm {
            spec: self.clone(),
            context,
            address: Ipv4Addr::UNSPECIFIED.into(),
            kernel: None,
            emulated: false,
        }))
    }
}

fn open_kvm() -> Result<(), String> {
    let opened = std::fs::File::options().read(true).write(true).open("/dev/kvm");
    opened.map(drop).map_err(|error| format!("/dev/kvm: {error}"))
}

#[derive(Debug)]
pub struct Vm {
    spec: VmSpec,
    context: PlaceContext,
    address: IpAddr,
    kernel: Option<GuestKernel>,
    emulated: bool,
}

/// Setup that the agent reads from the guest's root and applies before it greets.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GuestPlan {
    /// In load order.
    pub modules: Vec<PathBuf>,
    /// With the prefix length: `10.213.0.2/24`.
    pub address: String,
    pub port: String,
}

pub const GUEST_PLAN: &str = "/tare-guest.json";
const MODULES: &str = "/lib/tare-modules";

impl Vm {
    fn initramfs(&self) -> PathBuf {
        self.context.folder.join("initramfs")
    }

    fn console(&self) -> PathBuf {
        self.context.folder.join("console.log")
    }

    fn tap_script(&self) -> PathBuf {
        self.context.folder.join("tap-up")
    }

    /// Prepares the kernel, the initramfs and the script that puts the tap on the bridge, once.
    fn prepare(&self, network: &Network, journal: &Journal) -> Result<GuestKernel, Failure> {
        let kernel = match &self.spec.kernel {
            Some(image) => GuestKernel::own(image, self.spec.modules.as_deref())?,
            None => GuestKernel::provide(journal)?,
        };
        let root = self.context.folder.join("root");
        std::fs::create_dir_all(&root).map_err(|e| Failure::file("make", &root, e))?;
        let mut needs = self.context.needs.clone();
        needs.extend(self.spec.programs.iter().cloned());
        Root(&root).fill(&agent_file::find()?, &needs)?;
        let mut plan = GuestPlan {
            modules: Vec::new(),
            address: Network::with_bits(network.address(self.context.index)),
            port: "tare.agent".into(),
        };
        let modules = root.join(MODULES.trim_start_matches('/'));
        std::fs::create_dir_all(&modules).map_err(|e| Failure::file("make", &modules, e))?;
        for path in kernel.needed(self.spec.confidential.is_some())? {
            let name = path.file_name().unwrap_or_default();
            std::fs::copy(&path, modules.join(name))
                .map_err(|e| Failure::file("copy", &path, e))?;
            plan.modules.push(Path::new(MODULES).join(name));
        }
        let write = |path: PathBuf, text: String| {
            std::fs::write(&path, text).map_err(|e| Failure::file("write", &path, e))
        };
        let text = serde_json::to_string(&plan).unwrap_or_default();
        write(root.join(GUEST_PLAN.trim_start_matches('/')), text)?;
        let init = root.join("init");
        let _ = std::fs::remove_file(&init);
        std::os::unix::fs::symlink(super::root_files::AGENT, &init)
            .map_err(|e| Failure::file("make", &init, e))?;
        cpio::write(&root, &self.initramfs())
            .map_err(|e| Failure::file("write", &self.initramfs(), e))?;
        self.check_memory()?;
        let _ = std::fs::remove_dir_all(&root);
        let bridge = network.bridge();
        write(
            self.tap_script(),
            format!("#!/bin/sh\nexec ip link set \"$1\" master {bridge} up\n"),
        )?;
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        std::fs::set_permissions(self.tap_script(), mode)
            .map_err(|e| Failure::file("open up", &self.tap_script(), e))?;
        Ok(kernel)
    }

    /// Rejects an archive that is too large. The guest unpacks it into at most half of its memory,
    /// beside the archive itself, and silently drops what does not fit.
    fn check_memory(&self) -> Result<(), Failure> {
        let archive = self.initramfs();
        let bytes = std::fs::metadata(&archive).map_err(|e| Failure::file("read", &archive, e))?;
        let (bytes, memory) = (bytes.len(), self.spec.memory.0);
        if bytes <= memory / ARCHIVE_PART {
            return Ok(());
        }
        Err(Failure::usage(format!(
            "vm: the programs in it take {} MiB, which is too much for its memory of {} MiB: give it \
             memory = \"{}M\" or more",
            bytes >> 20,
            memory >> 20,
            (bytes * ARCHIVE_PART).div_ceil(1 << 20)
        )))
    }

    fn boot(
        &self,
        kernel: &GuestKernel,
        network: &Network,
        kvm: bool,
        resources: &LabResources<'_>,
    ) -> Result<Agent, Failure> {
        // Under emulation the kernel's timer check may fail, as its clock runs on while the host
        // emulates something else. With KVM, kernels skip the check by themselves.
        let timer = if kvm { "" } else { "no_timer_check " };
        // The last occurrence of an option wins; panic=-1 makes a guest that panics exit.
        let append = format!("console=ttyS0 quiet {timer}{} panic=-1", self.spec.append);
        let program = program(&self.spec)?;
        let (initramfs, console, script) = (self.initramfs(), self.console(), self.tap_script());
        let machine = Machine {
            program: &program,
            kvm,
            cpus: self.spec.cpus,
            memory_bytes: self.spec.memory.0,
            kernel: &kernel.image,
            initramfs: &initramfs,
            append: append.trim_end(),
            console: &console,
            tap: &network.tap(self.context.index),
            tap_script: &script,
            mac: &network.place_mac(self.context.index),
            confidential: self.spec.confidential,
            firmware: self.spec.firmware.as_deref(),
        };
        let asked = self.spec.boot_within_s.map(|s| DurationNs::from_secs(u64::from(s)));
        let tried = kvm && self.spec.accel == Accel::Auto && self.spec.confidential.is_none();
        let within = match (asked, tried) {
            (Some(asked), _) => asked,
            (None, true) => KVM_WITHIN,
            (None, false) => TCG_WITHIN,
        };
        let _ = std::fs::remove_file(&console);
        self.context.start_agent(&machine.argv(), within, resources.halt).map_err(|error| {
            let said = last_words(&console);
            match (error, said) {
                (Failure { fault: Fault::Environment, text }, Some(said)) => {
                    Failure::environment(format!("{text}; the guest said last: {said}"))
                }
                (Failure { fault: Fault::Environment, text }, None)
                    if self.spec.kernel.is_some() =>
                {
                    Failure::environment(format!(
                        "{text}; the guest's kernel said nothing: is {} one for this machine?",
                        kernel.image.display()
                    ))
                }
                (error, _) => error,
            }
        })
    }
}

/// Text of the console line that reports a panic; the trace after it is left out.
const PANIC: &str = "Kernel panic";
/// Start of the agent's lines on the console.
const AGENT: &str = "tare-agent: ";

/// Reads why a guest ended from its console: a panic, or else the last line.
fn last_words(console: &Path) -> Option<String> {
    let mut file = tare_io::files::open_regular(console).ok()?;
    let length = file.metadata().ok()?.len();
    file.seek(SeekFrom::Start(length.saturating_sub(CONSOLE_BYTES))).ok()?;
    let mut bytes = Vec::new();
    file.take(CONSOLE_BYTES).read_to_end(&mut bytes).ok()?;
    last_console_lines(&String::from_utf8_lossy(&bytes))
}

/// The archive may take at most a third of the guest's memory.
const ARCHIVE_PART: u64 = 3;
const CONSOLE_BYTES: u64 = 16 << 10;

fn last_console_lines(text: &str) -> Option<String> {
    let lines = || text.lines().map(str::trim).filter(|line| !line.is_empty());
    let telling = lines().filter(|line| line.contains(PANIC) || line.starts_with(AGENT));
    let mut told: Vec<&str> = telling.collect();
    if told.is_empty() {
        told.extend(lines().next_back());
    }
    let line = told.join("; ");
    (!line.is_empty()).then(|| line.chars().filter(|c| !c.is_control()).collect())
}

impl Place for Vm {
    fn start(&mut self, resources: &mut LabResources<'_>) -> Result<Agent, Failure> {
        let network = super::network_of(resources)?;
        let kernel = match &self.kernel {
            Some(kernel) => kernel.clone(),
            None => self.prepare(network, resources.journal)?,
        };
        self.kernel = Some(kernel.clone());
        self.address = network.address(self.context.index);
        let tried = KVM_BOOTS.lock().unwrap_or_else(|e| e.into_inner()).to_owned();
        let must = self.spec.accel == Accel::Kvm || self.spec.confidential.is_some();
        let may = self.spec.accel == Accel::Auto && tried != Some(false) && open_kvm().is_ok();
        if must || may {
            let booted = self.boot(&kernel, network, true, resources);
            let boots = &mut *KVM_BOOTS.lock().unwrap_or_else(|e| e.into_inner());
            match booted {
                Ok(agent) => {
                    *boots = Some(true);
                    self.emulated = false;
                    return Ok(agent);
                }
                // No fallback to emulation if KVM was required or has worked before.
                Err(error) if must || *boots == Some(true) => return Err(error),
                Err(_) if resources.halt.is_raised() => {
                    return Err(Failure::environment("interrupted"));
                }
                Err(error) => {
                    *boots = Some(false);
                    self.context.note(format!(
                        "hardware virtualization does not work here ({error}): emulated"
                    ));
                }
            }
        }
        self.emulated = true;
        self.boot(&kernel, network, false, resources)
    }

    fn prove(&self, agent: &Agent) -> Proof {
        let (hello, here) = (&agent.hello, SystemIdentity::probe());
        let mut wrong = Vec::new();
        if hello.boot_id == here.boot_id {
            wrong.push("it is this machine itself (the same boot)".to_owned());
        }
        let release = self.kernel.as_ref().map_or("", |kernel| &kernel.release);
        if !release.is_empty() && hello.kernel_release != release {
            wrong.push(format!("it runs kernel {}, not {release}", hello.kernel_release));
        }
        if !hello.cpu_flags.iter().any(|flag| flag == "hypervisor") {
            wrong.push("its CPU does not say that it is virtual".into());
        }
        let mut confidential = String::new();
        if let Some(kind) = self.spec.confidential {
            let (flag, device) = seen_inside(kind);
            let has_flag = hello.cpu_flags.iter().any(|seen| seen == flag);
            let has_device = hello.devices.iter().any(|seen| seen == device);
            if !has_flag && !has_device {
                let name = kind.name();
                wrong.push(format!(
                    "inside there is neither {device} nor the CPU flag {flag}: not {name}"
                ));
            }
            confidential = format!(", {} seen inside", kind.name());
        }
        let how = if self.emulated { "emulated" } else { "by the hardware" };
        let seen = format!(
            "a guest of its own boot, kernel {}, {} CPUs, {how}{confidential}",
            hello.kernel_release, hello.cpus
        );
        proof(self.spec.name(), wrong, seen)
    }

    fn link(&self, network: &Network) -> Option<String> {
        Some(network.tap(self.context.index))
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn is_emulated(&self) -> bool {
        self.emulated
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(super::server_folder(&self.context))
    }

    fn has_our_cpus(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_guest_that_ended_is_told_by_its_panic_or_its_newest_line() {
        let panicked = "[    6.89] Kernel panic - not syncing: Attempted to kill init!\r\n\
                        [    6.89] CPU: 0 PID: 1\r\n[    6.89] Call Trace:\r\n\
                        [    6.89] Kernel Offset: 0x7200000 from 0xffffffff81000000\r\n";
        assert_eq!(
            last_console_lines(panicked).as_deref(),
            Some("[    6.89] Kernel panic - not syncing: Attempted to kill init!")
        );
        let agent = format!("tare-agent: no port to tare came up\n{panicked}");
        assert!(
            last_console_lines(&agent)
                .unwrap()
                .starts_with("tare-agent: no port to tare came up; [")
        );
        assert_eq!(last_console_lines("one\n\ntwo\n\n").as_deref(), Some("two"));
        assert_eq!(last_console_lines(" \r\n"), None);
    }

    #[test]
    fn a_confidential_guest_needs_what_its_kind_needs() {
        let root = std::env::temp_dir().join(format!("tare-sev-{}", std::process::id()));
        let write = |path: &str, text: &str| {
            let path = root.join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let lacks = |kind| missing(kind, &root);
        let says = |kind, words: &str| assert!(lacks(kind).unwrap().contains(words), "{words}");
        says(Confidential::Tdx, "TDX is not enabled here: /sys/module/kvm_intel/parameters/tdx");
        says(Confidential::SevSnp, "SEV-SNP is not enabled here: /sys/module/kvm_amd/");
        write("sys/module/kvm_intel/parameters/tdx", "N\n");
        says(Confidential::Tdx, "it needs a Xeon with TDX on in its firmware");
        write("sys/module/kvm_intel/parameters/tdx", "Y\n");
        assert_eq!(lacks(Confidential::Tdx), None);
        write("sys/module/kvm_amd/parameters/sev_snp", "1\n");
        says(Confidential::SevSnp, "/dev/sev is not here");
        write("dev/sev", "");
        assert_eq!(lacks(Confidential::SevSnp), None);
        std::fs::remove_dir_all(root).unwrap();
    }
}
