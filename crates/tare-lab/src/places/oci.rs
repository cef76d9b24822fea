//! A container, run by any OCI runtime: runc, crun, runsc, Kata, youki.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};

use serde_json::json;
use tare_io::DurationNs;
use tare_model::places::{Kernel, OciSpec, PlaceFacts};
use tare_model::samples::Proof;

use super::network::{Network, Shape};
use super::root_files::{AGENT, Root};
use super::{
    LabResources, Place, PlaceContext, PlaceKind, RUNNING, Restarts, SystemIdentity, agent_file,
    own_namespace, proof, runtime_command, wait_until_running,
};
use crate::agent::Agent;
use crate::agent::protocol::Hello;
use crate::journal::resources;
use crate::machine::commands::{self, run, run_checked};
use crate::machine::programs;
use crate::network::intercept::Namespace;
use tare_model::Failure;

/// The only capabilities that servers get: to drop root, kill their workers and bind low ports.
pub const CAPABILITIES: [&str; 5] =
    ["CAP_CHOWN", "CAP_KILL", "CAP_NET_BIND_SERVICE", "CAP_SETGID", "CAP_SETUID"];
/// Numbers of these capabilities in the kernel's interface.
pub const CAPABILITY_NUMBERS: [u32; 5] = [0, 5, 10, 6, 7];
/// Folders that a user's root must have.
const MOUNT_POINTS: [&str; 4] = ["dev", "proc", "tmp", "run"];
const HELLO_WITHIN: DurationNs = DurationNs::from_secs(30);
const TIMEOUT: DurationNs = DurationNs::from_secs(10);

/// Checks and describes the kernel that an agent saw.
pub(in crate::places) trait KernelCheck {
    fn mismatch(self, hello: &Hello, here: &SystemIdentity) -> Option<String>;
    fn words(self, is_ours: bool) -> &'static str;
}

impl KernelCheck for Kernel {
    /// Returns why the kernel that an agent saw is not the expected one.
    fn mismatch(self, hello: &Hello, here: &SystemIdentity) -> Option<String> {
        let is_ours = hello.boot_id == here.boot_id && hello.kernel_release == here.kernel_release;
        let gvisor = hello.kernel.contains("gvisor") || hello.kernel_release.contains("gvisor");
        let seen = &hello.kernel_release;
        match self {
            Self::Shared if !is_ours => {
                Some(format!("it runs under kernel {seen}, not under this machine's"))
            }
            Self::Gvisor if is_ours || !gvisor => {
                Some(format!("its kernel, {seen}, is not gVisor's"))
            }
            Self::Machine if hello.boot_id == here.boot_id => {
                Some("it runs under this machine's kernel, not in a machine of its own".into())
            }
            _ => None,
        }
    }

    fn words(self, is_ours: bool) -> &'static str {
        match (self, is_ours) {
            (Self::Unknown, true) => "this machine's kernel (which is not checked)",
            (Self::Unknown, false) => "another kernel (which is not checked)",
            (_, true) => "this machine's kernel",
            (_, false) => "a kernel of its own",
        }
    }
}

impl PlaceKind for OciSpec {
    fn check_machine(&self) -> Result<String, Failure> {
        super::check_files("oci", &self.programs)?;
        let program = program(self)?;
        if self.platform.is_some() && kernel(self) != Kernel::Gvisor {
            return Err(Failure::usage("oci: platform goes with the runtime runsc"));
        }
        if let Some(root) = self.root.as_ref().filter(|root| !root.is_dir()) {
            let text = format!("oci: root {} is not a folder", root.display());
            return Err(Failure::usage(text));
        }
        if let Some(root) = &self.root {
            tare_io::owned::check(root).map_err(|error| {
                let text = format!("oci: root: {error}: a runtime runs as root on what is in it");
                Failure::usage(text)
            })?;
        }
        // A runtime would create missing folders in the user's root and leave them there.
        let missing = self.root.iter().flat_map(|root| MOUNT_POINTS.map(|name| root.join(name)));
        // A link does not count: some runtimes would follow it out of the root.
        let is_folder = |path: &PathBuf| path.symlink_metadata().is_ok_and(|found| found.is_dir());
        if let Some(path) = missing.into_iter().find(|path| !is_folder(path)) {
            let text = format!("oci: root has no folder {} to mount on", path.display());
            return Err(Failure::usage(text));
        }
        if kernel(self) == Kernel::Machine && !Path::new("/dev/kvm").exists() {
            let text = format!("{} needs /dev/kvm, which is not here", self.name());
            return Err(Failure::environment(text));
        }
        if kernel(self) == Kernel::Machine {
            let help = run(&[&program.display().to_string(), "--help"], TIMEOUT);
            if !help.out.lines().any(|line| line.trim_start().starts_with("run ")) {
                return Err(Failure::environment(format!(
                    "{} is no OCI runtime with a command line (Kata 2 and later are containerd \
                     shims): use {{ container = {{ engine = \"nerdctl\", runtime = \
                     \"io.containerd.kata.v2\", … }} }}",
                    self.name()
                )));
            }
        }
        super::need_root("a container")?;
        if self.name().contains("crun") && runtime_command::has_both_cgroups() {
            programs::need(&["unshare"], "util-linux")?;
        }
        programs::need(&["ip"], "iproute2")?;
        agent_file::find()?;
        let version = commands::version(&program, "--version").unwrap_or_default();
        Ok(format!("yes: {}, {version}", program.display()))
    }

    fn place(&self, context: PlaceContext) -> Option<Box<dyn Place>> {
        Some(Box::new(Oci {
            spec: self.clone(),
            context,
            address: Ipv4Addr::UNSPECIFIED.into(),
            starts: 0,
            program: PathBuf::new(),
        }))
    }
}

fn program(spec: &OciSpec) -> Result<PathBuf, Failure> {
    let path = Path::new(&spec.runtime);
    if path.components().count() > 1 {
        if !path.is_file() {
            return Err(Failure::usage(format!("oci: {} is not a file", path.display())));
        }
        // `tare clean` starts it later, and only from a path that others cannot write to.
        return tare_io::owned::check(path)
            .map_err(|error| Failure::environment(format!("oci: {error}")));
    }
    let hint = match spec.runtime.as_str() {
        "runc" | "crun" => {
            return programs::need(&[&spec.runtime], &spec.runtime);
        }
        "runsc" => "make runsc builds it",
        "kata-runtime" => "see katacontainers.io; it also needs virtual machines by hardware",
        "youki" => "see github.com/youki-dev/youki",
        _ => "runc, crun, runsc, kata-runtime and youki are known; or give a path",
    };
    programs::find(&[&spec.runtime]).ok_or_else(|| {
        let text = format!("oci: no runtime '{}' is installed ({hint})", spec.runtime);
        Failure::environment(text)
    })
}

fn kernel(spec: &OciSpec) -> Kernel {
    Kernel::from_runtime_name(&spec.name())
}

/// The runtime's own flags.
fn flags(spec: &OciSpec) -> Vec<String> {
    match (kernel(spec), &spec.platform) {
        // systrap works without hardware virtualisation; the other platforms do not everywhere.
        (Kernel::Gvisor, platform) => {
            vec![format!("--platform={}", platform.as_deref().unwrap_or("systrap"))]
        }
        _ => Vec::new(),
    }
}

/// Returns all files below a folder.
fn files_below(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let below = entries.map(|entry| entry.path());
    below.flat_map(|path| if path.is_dir() { files_below(&path) } else { vec![path] }).collect()
}

#[derive(Debug)]
pub struct Oci {
    spec: OciSpec,
    context: PlaceContext,
    address: IpAddr,
    /// Number of starts so far; it makes each container's id unique.
    starts: u32,
    program: PathBuf,
}

impl Oci {
    fn bundle(&self) -> PathBuf {
        self.context.folder.join("bundle")
    }

    /// Folder for the root's files that the tmpfs on /tmp and /run would hide.
    fn covered(&self) -> PathBuf {
        self.context.folder.join("covered")
    }

    fn state(&self) -> PathBuf {
        self.context.folder.join("state")
    }

    fn id(&self) -> String {
        format!("{}-{}", self.context.tag, self.starts)
    }

    /// Returns the container's status from its runtime, or the runtime's error.
    fn status(&self) -> String {
        let (state, id) = (self.state().display().to_string(), self.id());
        let argv = runtime_command::command_line(&self.program, &["--root", &state, "state", &id]);
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let said = run(&argv, TIMEOUT);
        let told: serde_json::Value = serde_json::from_str(&said.out).unwrap_or_default();
        told["status"].as_str().map_or(said.said, str::to_owned)
    }

    /// Prepares the root file system and the journal's entries, once.
    fn prepare(&mut self, resources: &mut LabResources<'_>) -> Result<(), Failure> {
        self.program = program(&self.spec)?;
        let root = self.bundle().join("rootfs");
        std::fs::create_dir_all(&root).map_err(|e| Failure::file("make", &root, e))?;
        let mut needs = self.context.needs.clone();
        needs.extend(self.spec.programs.iter().cloned());
        match &self.spec.root {
            None => Root(&root).fill(&agent_file::find()?, &needs)?,
            // The user's root is not written to; the agent is mounted over it.
            Some(_) => Root(&root).fill(&agent_file::find()?, &[])?,
        }
        // Move /tmp and /run aside, as a mount's source cannot lie under another mount.
        let covered = self.covered();
        std::fs::create_dir_all(&covered).map_err(|e| Failure::file("make", &covered, e))?;
        for name in ["tmp", "run"] {
            let (from, to) = (root.join(name), covered.join(name));
            std::fs::rename(&from, &to).map_err(|e| Failure::file("move", &from, e))?;
            std::fs::create_dir(&from).map_err(|e| Failure::file("make", &from, e))?;
        }
        // Runtimes create control groups of this name in every hierarchy.
        if let Some(cgroup) = &self.context.cgroup {
            for path in cgroup.paths_in_all_hierarchies(&cgroup.name) {
                if !path.exists() {
                    resources.journal.record_before_create(resources::Cgroup(path))?;
                }
            }
        }
        Ok(())
    }

    fn mounts(&self) -> Vec<serde_json::Value> {
        let tmpfs = |path: &Path| {
            json!({"destination": path, "type": "tmpfs", "source": "tmpfs",
                   "options": ["nosuid", "nodev", "mode=755"]})
        };
        let mut mounts = vec![
            json!({"destination": "/proc", "type": "proc", "source": "proc"}),
            json!({"destination": "/dev", "type": "tmpfs", "source": "tmpfs",
                   "options": ["nosuid", "mode=755"]}),
            json!({"destination": "/dev/shm", "type": "tmpfs", "source": "shm",
                   "options": ["nosuid", "nodev", "noexec", "mode=1777"]}),
            tmpfs(Path::new("/tmp")),
            tmpfs(Path::new("/run")),
        ];
        // Bind the files that the tmpfs on /tmp and /run would hide.
        let covered = self.covered();
        for path in files_below(&covered) {
            let inside = Path::new("/").join(path.strip_prefix(&covered).unwrap_or(&path));
            mounts.push(json!({"destination": inside, "type": "bind", "source": path,
                               "options": ["bind", "ro", "nosuid", "nodev"]}));
        }
        if self.spec.root.is_some() {
            let agent = self.bundle().join("rootfs").join(AGENT.trim_start_matches('/'));
            mounts.push(json!({"destination": "/run/tare-agent", "type": "bind",
                               "source": agent, "options": ["bind", "ro"]}));
        }
        mounts
    }

    fn config(&self, namespace: &str) -> serde_json::Value {
        let root = self.spec.root.clone().unwrap_or_else(|| self.bundle().join("rootfs"));
        let mut resources = json!({});
        if let Some(cpus) = self.spec.cpus {
            let quota = (cpus * 100_000.0).round() as u64;
            resources["cpu"] = json!({"quota": quota, "period": 100_000});
        }
        if let Some(memory) = self.spec.memory {
            resources["memory"] = json!({"limit": memory.0});
        }
        let mut linux = json!({
            "namespaces": [
                {"type": "pid"}, {"type": "ipc"}, {"type": "uts"}, {"type": "mount"},
                {"type": "network", "path": namespace},
            ],
            "resources": resources,
            "maskedPaths": ["/proc/kcore", "/proc/keys", "/proc/timer_list", "/sys/firmware"],
            "readonlyPaths": ["/proc/bus", "/proc/fs", "/proc/irq", "/proc/sys",
                              "/proc/sysrq-trigger"],
        });
        if let Some(cgroup) = &self.context.cgroup {
            linux["cgroupsPath"] = json!(format!("{}/tare-box", cgroup.name));
        }
        let agent = if self.spec.root.is_some() { "/run/tare-agent" } else { AGENT };
        // Even root may be unable to raise limits, so the container gets those of this process.
        let files = tare_io::system::raise_open_files(FILES).min(FILES);
        let locked = tare_io::system::raise_locked_memory();
        json!({
            "ociVersion": "1.0.2",
            "process": {
                "terminal": false,
                "user": {"uid": 0, "gid": 0},
                "args": [agent],
                "env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"],
                "cwd": "/",
                "capabilities": {
                    "bounding": CAPABILITIES, "effective": CAPABILITIES, "permitted": CAPABILITIES,
                },
                "rlimits": [
                    {"type": "RLIMIT_NOFILE", "hard": files, "soft": files},
                    {"type": "RLIMIT_MEMLOCK", "hard": locked, "soft": locked},
                ],
                "noNewPrivileges": true,
            },
            "root": {"path": root, "readonly": true},
            "hostname": "tare",
            "mounts": self.mounts(),
            "linux": linux,
        })
    }
}

/// Limit of open files in a container.
const FILES: u64 = 65_536;

impl Place for Oci {
    fn start(&mut self, resources: &mut LabResources<'_>) -> Result<Agent, Failure> {
        if self.starts == 0 {
            self.prepare(resources)?;
        }
        self.starts += 1;
        let network = super::network_of(resources)?;
        let PlaceContext { index, tag, .. } = &self.context;
        // Recreated each time: gVisor removes the namespace's addresses.
        self.address =
            network.attach_namespace(*index, tag, &Shape::default(), resources.journal)?;
        let config = self.config(&format!("/run/netns/{tag}"));
        let path = self.bundle().join("config.json");
        std::fs::write(&path, config.to_string()).map_err(|e| Failure::file("write", &path, e))?;
        let (id, state, program) = (self.id(), self.state(), self.program.clone());
        resources.journal.record_before_create(resources::OciContainer {
            runtime: match self.spec.runtime.contains('/') {
                true => program.display().to_string(),
                false => self.spec.runtime.clone(),
            },
            state: state.clone(),
            id: id.clone(),
        })?;
        let (state, bundle) = (state.display().to_string(), self.bundle().display().to_string());
        let mut arguments = vec!["--root", &state];
        let flags = flags(&self.spec);
        arguments.extend(flags.iter().map(String::as_str));
        arguments.extend(["run", "--bundle", &bundle, &id]);
        let argv = runtime_command::command_line(&program, &arguments);
        self.context.start_agent(&argv, HELLO_WITHIN, resources.halt)
    }

    fn prove(&self, agent: &Agent) -> Proof {
        let (hello, here) = (&agent.hello, SystemIdentity::probe());
        let mut wrong = Vec::new();
        let is_ours = hello.boot_id == here.boot_id && hello.kernel_release == here.kernel_release;
        wrong.extend(kernel(&self.spec).mismatch(hello, &here));
        if kernel(&self.spec) == Kernel::Shared {
            for kind in ["net", "pid", "mnt"] {
                if hello.namespaces.get(kind) == own_namespace(kind).as_ref() {
                    wrong.push(format!("it shares this machine's {kind} namespace"));
                }
            }
        }
        let status = wait_until_running(|| self.status());
        if status != RUNNING {
            wrong.push(format!("its runtime says '{status}' of it"));
        }
        let kernel = kernel(&self.spec).words(is_ours);
        let seen = format!(
            "container {} is {status}, under {kernel} ({}), capabilities {}",
            self.id(),
            hello.kernel_release,
            hello.capabilities
        );
        proof(self.spec.name(), wrong, seen)
    }

    fn stop(&mut self) {
        let (state, id) = (self.state().display().to_string(), self.id());
        let argv = runtime_command::command_line(
            &self.program,
            &["--root", &state, "delete", "--force", &id],
        );
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        let _ = run_checked(&argv, TIMEOUT, "delete a container");
    }

    fn link(&self, network: &Network) -> Option<String> {
        Some(network.link(self.context.index))
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn namespace(&self) -> Option<Namespace> {
        // If the container has another kernel, its packets bypass this kernel's rules.
        let is_ours = kernel(&self.spec) == Kernel::Shared;
        let name = self.context.tag.clone();
        is_ours.then_some(Namespace { name, address: self.address })
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(super::server_folder(&self.context))
    }

    fn has_our_cpus(&self) -> bool {
        kernel(&self.spec) != Kernel::Machine
    }

    fn restarts(&self) -> Restarts {
        Restarts::EachRound
    }

    fn is_metered_from_here(&self) -> bool {
        self.context.cgroup.is_some()
    }
}
