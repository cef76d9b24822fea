//! A container from an image, run by an engine: podman, docker or nerdctl.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use tare_io::DurationNs;
use tare_model::places::{ContainerSpec, ENGINES, Kernel, PlaceFacts};
use tare_model::samples::Proof;

use super::oci::{CAPABILITIES, KernelCheck as _};
use super::{
    LabResources, Place, PlaceContext, PlaceKind, RUNNING, SystemIdentity, agent_file, proof,
    runtime_command, wait_until_running,
};
use crate::agent::Agent;
use crate::journal::resources;
use crate::machine::commands::{self, run, run_checked};
use crate::machine::programs;
use tare_model::Failure;

const HELLO_WITHIN: DurationNs = DurationNs::from_secs(60);
const TIMEOUT: DurationNs = DurationNs::from_secs(30);
const ADDRESS_CHECKS: u32 = 30;
const ADDRESS_CHECK: Duration = Duration::from_millis(100);
const INSIDE: &str = "/run/tare-agent";

/// podman with a runtime that works with this machine's control groups.
pub fn podman_here() -> ContainerSpec {
    let runtime = runtime_command::has_both_cgroups().then(|| "runc".to_owned());
    ContainerSpec { runtime, ..ContainerSpec::of_engine("podman") }
}

fn program(spec: &ContainerSpec) -> Result<PathBuf, Failure> {
    if !ENGINES.contains(&spec.engine.as_str()) {
        return Err(Failure::usage(format!("container: '{}' is no engine", spec.engine)));
    }
    let package = match spec.engine.as_str() {
        "docker" => "docker.io",
        "nerdctl" => "see github.com/containerd/nerdctl",
        other => other,
    };
    programs::need(&[&spec.engine], package)
}

impl PlaceKind for ContainerSpec {
    /// Checks that the engine answers and has the image.
    fn check_machine(&self) -> Result<String, Failure> {
        let program = program(self)?;
        let program_text = program.display().to_string();
        let answered = run(&[&program_text, "info"], TIMEOUT);
        if !answered.worked {
            return Err(Failure::environment(format!(
                "container: {} does not work here: {}",
                self.engine, answered.said
            )));
        }
        agent_file::find()?;
        check_runtime(self, &program_text)?;
        let image = run(&[&program_text, "image", "inspect", &self.image], TIMEOUT);
        if !self.image.is_empty() && !image.worked {
            return Err(Failure::environment(format!(
                "container: {} has no image '{}': get it first ({} pull {}, or {} load)",
                self.engine, self.image, self.engine, self.image, self.engine
            )));
        }
        let version = commands::version(&program, "--version").unwrap_or_default();
        let with = self.runtime.as_ref().map_or(String::new(), |r| format!(" (runtime = \"{r}\")"));
        Ok(format!("yes: {version}{with}"))
    }

    fn slow_step(&self) -> Option<&'static str> {
        Some("containers start")
    }

    fn place(&self, context: PlaceContext) -> Option<Box<dyn Place>> {
        Some(Box::new(Container {
            spec: self.clone(),
            context,
            address: Ipv4Addr::UNSPECIFIED.into(),
            starts: 0,
            program: String::new(),
            groups_are_ours: false,
        }))
    }
}

/// Checks podman's default runtime: crun fails if both cgroup versions are mounted.
fn check_runtime(spec: &ContainerSpec, program: &str) -> Result<(), Failure> {
    if spec.engine != "podman" || spec.runtime.is_some() || !runtime_command::has_both_cgroups() {
        return Ok(());
    }
    let argv = [program, "info", "--format", "{{.Host.OCIRuntime.Name}}"];
    match run(&argv, TIMEOUT).out.trim() {
        "crun" => Err(Failure::environment(
            "container: podman's crun refuses the control groups of this machine (versions 1 \
             and 2 at once): say runtime = \"runc\"",
        )),
        _ => Ok(()),
    }
}

#[derive(Debug)]
pub struct Container {
    spec: ContainerSpec,
    context: PlaceContext,
    address: IpAddr,
    starts: u32,
    program: String,
    /// Whether the engine lets tare choose a container's control group.
    groups_are_ours: bool,
}

impl Container {
    fn container(&self) -> String {
        format!("{}-{}", self.context.tag, self.starts)
    }

    fn argv(&self) -> Result<Vec<String>, Failure> {
        let agent = agent_file::find()?;
        let name = self.container();
        let mut argv: Vec<String> = ["run", "--rm"].map(str::to_owned).to_vec();
        let mut add = |words: &[&str]| argv.extend(words.iter().map(|word| (*word).to_owned()));
        add(&["--interactive", "--name", &name, "--pull", "never"]);
        add(&["--volume", &format!("{}:{INSIDE}:ro", agent.display()), "--entrypoint", INSIDE]);
        add(&["--user", "0"]);
        if !self.spec.writable {
            add(&["--read-only", "--tmpfs", "/tmp:rw,nosuid,nodev,exec"]);
            add(&["--tmpfs", "/run:rw,nosuid,nodev,exec"]);
            add(&["--cap-drop", "ALL", "--security-opt", "no-new-privileges"]);
            for capability in CAPABILITIES {
                add(&["--cap-add", capability.trim_start_matches("CAP_")]);
            }
        }
        // Engines request higher limits than a root without all capabilities may set.
        for (ulimit, name, most) in LIMITS {
            if let Some(limit) = hard_limit(name) {
                let limit = limit.min(most);
                add(&["--ulimit", &format!("{ulimit}={limit}:{limit}")]);
            }
        }
        if let Some(runtime) = &self.spec.runtime {
            // podman takes this flag before its command (see below), other engines after it.
            match self.spec.engine.as_str() {
                "podman" => {}
                _ => add(&["--runtime", runtime]),
            }
        }
        if let Some(network) = &self.spec.network {
            add(&["--network", network]);
        }
        if let Some(cpus) = self.spec.cpus {
            add(&["--cpus", &cpus.to_string()]);
        }
        if let Some(memory) = self.spec.memory {
            add(&["--memory", &memory.0.to_string()]);
        }
        if let Some(cgroup) = self.context.cgroup.as_ref().filter(|_| self.groups_are_ours) {
            add(&["--cgroup-parent", &cgroup.name]);
        }
        add(&[&self.spec.image]);
        if let (Some(runtime), "podman") = (&self.spec.runtime, self.spec.engine.as_str()) {
            argv.splice(0..0, ["--runtime".to_owned(), runtime.clone()]);
        }
        argv.insert(0, self.program.clone());
        Ok(argv)
    }

    /// Returns one value from the engine's inspection of the container.
    fn inspect(&self, format: &str) -> String {
        let name = self.container();
        let argv = [self.program.as_str(), "container", "inspect", "--format", format, &name];
        run(&argv, TIMEOUT).out.trim().to_owned()
    }

    /// Returns the address that the engine reports, or loopback if the network is the host's.
    fn find_address(&self) -> Result<IpAddr, Failure> {
        if self.spec.network.as_deref() == Some("host") {
            return Ok(Ipv4Addr::LOCALHOST.into());
        }
        // Engines report an address a little after they assign it.
        for _ in 0..ADDRESS_CHECKS {
            let all = self.inspect("{{range .NetworkSettings.Networks}}{{.IPAddress}} {{end}}");
            let one = self.inspect("{{.NetworkSettings.IPAddress}}");
            let mut words = all.split_whitespace().chain(one.split_whitespace());
            if let Some(address) = words.find_map(|word| word.parse().ok()) {
                return Ok(address);
            }
            std::thread::park_timeout(ADDRESS_CHECK);
        }
        Err(Failure::environment(format!(
            "{}: {} gave its container no address (network = \"host\" shares this machine's)",
            self.context.who, self.spec.engine
        )))
    }
}

/// Resource limits: the engine's name, the name in /proc, and a sufficient value.
const LIMITS: [(&str, &str, u64); 2] =
    [("nofile", "Max open files", 65_536), ("nproc", "Max processes", 32_768)];

/// Returns this process's hard limit, which a container cannot exceed.
fn hard_limit(name: &str) -> Option<u64> {
    let text = std::fs::read_to_string("/proc/self/limits").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().nth(1)?.parse().ok()
}

impl Place for Container {
    fn start(&mut self, resources: &mut LabResources<'_>) -> Result<Agent, Failure> {
        self.program = program(&self.spec)?.display().to_string();
        self.starts += 1;
        let key = match self.spec.engine.as_str() {
            "podman" => "{{.Host.CgroupManager}}",
            _ => "{{.CgroupDriver}}",
        };
        // An engine that uses systemd accepts only systemd's slices as parents.
        let manager = run(&[&self.program, "info", "--format", key], TIMEOUT).out;
        self.groups_are_ours = manager.trim() == "cgroupfs";
        if let Some(cgroup) = self.context.cgroup.as_ref().filter(|_| self.starts == 1) {
            for path in cgroup.paths_in_all_hierarchies(&cgroup.name) {
                if !path.exists() {
                    resources.journal.record_before_create(resources::Cgroup(path))?;
                }
            }
        }
        let (engine, name) = (self.spec.engine.clone(), self.container());
        resources.journal.record_before_create(resources::EngineContainer { engine, name })?;
        let agent = self.context.start_agent(&self.argv()?, HELLO_WITHIN, resources.halt)?;
        self.address = self.find_address()?;
        Ok(agent)
    }

    fn prove(&self, agent: &Agent) -> Proof {
        let (hello, here) = (&agent.hello, SystemIdentity::probe());
        let mut wrong = Vec::new();
        let state = wait_until_running(|| self.inspect("{{.State.Status}}"));
        if state != RUNNING {
            wrong.push(format!("{} says '{state}' of it", self.spec.engine));
        }
        let image = self.inspect("{{.Config.Image}} {{.ImageName}}");
        let runtime = match self.spec.engine.as_str() {
            "podman" => self.inspect("{{.OCIRuntime}}"),
            _ => self.inspect("{{.HostConfig.Runtime}}"),
        };
        let given = Path::new(&runtime).file_name().unwrap_or_default().to_string_lossy();
        let asked = self.spec.runtime.as_deref().map(|asked| {
            Path::new(asked).file_name().unwrap_or_default().to_string_lossy().into_owned()
        });
        if asked.as_ref().is_some_and(|asked| *asked != given) {
            wrong.push(format!("it runs by '{given}', not '{}'", asked.unwrap_or_default()));
        }
        if given.is_empty() {
            wrong.push(format!("{} does not say by which runtime it runs", self.spec.engine));
        }
        wrong.extend(Kernel::from_runtime_name(&given).mismatch(hello, &here));
        let seen = format!(
            "container {} is {state} by {given}, image {}, kernel {}, address {}",
            self.container(),
            image.split_whitespace().next().unwrap_or(&self.spec.image),
            hello.kernel_release,
            self.address
        );
        proof(self.spec.name(), wrong, seen)
    }

    fn stop(&mut self) {
        let name = self.container();
        let listed =
            run(&[&self.program, "ps", "-aq", "--filter", &format!("name=^{name}$")], TIMEOUT);
        if !listed.out.trim().is_empty() {
            let argv = [self.program.as_str(), "rm", "--force", "--time", "0", &name];
            let plain = [self.program.as_str(), "rm", "--force", &name];
            let argv = if self.spec.engine == "podman" { &argv[..] } else { &plain };
            let _ = run_checked(argv, TIMEOUT, "remove a container");
        }
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn is_metered_from_here(&self) -> bool {
        self.context.cgroup.is_some() && self.groups_are_ours
    }

    fn has_helpers(&self) -> bool {
        true
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(super::server_folder(&self.context))
    }

    fn has_our_cpus(&self) -> bool {
        let runtime = self.spec.runtime.as_deref().unwrap_or_default();
        Kernel::from_runtime_name(runtime) != Kernel::Machine
    }
}
