//! Another machine, reached by ssh: the agent is copied there, and removed afterwards.

use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

use tare_io::DurationNs;
use tare_model::places::SshSpec;
use tare_model::plain;
use tare_model::samples::Proof;

use super::{
    LabResources, Place, PlaceContext, PlaceKind, SystemIdentity, agent_file, proof, ssh_command,
};
use crate::agent::clock::Offset;
use crate::agent::{Agent, TIMEOUT};
use crate::executor::requests::ReadClocks;
use crate::journal::resources::SshFolder;
use crate::machine::commands::{self, run, run_checked};
use crate::machine::programs;
use tare_model::Failure;

const HELLO_WITHIN: DurationNs = DurationNs::from_secs(30);
const COMMAND_TIMEOUT: DurationNs = DurationNs::from_secs(60);

pub fn check_program() -> Result<String, Failure> {
    let program = programs::need(&["ssh"], "openssh-client")?;
    agent_file::find()?;
    let version = commands::version(&program, "-V").unwrap_or_default();
    Ok(format!("yes: {version}; whether a host answers shows when it is named"))
}

impl PlaceKind for SshSpec {
    /// Connects to the host and checks its system.
    fn check_machine(&self) -> Result<String, Failure> {
        check_program()?;
        let machine = ask(self, "uname -sm")?;
        match machine.trim() {
            "Linux x86_64" => Ok("yes".into()),
            other => Err(Failure::environment(format!(
                "ssh {}: it is {}, and the agent is for Linux x86_64",
                self.host,
                plain::line(&other.chars().take(100).collect::<String>())
            ))),
        }
    }

    fn slow_step(&self) -> Option<&'static str> {
        Some("the agent is copied to other machines")
    }

    fn place(&self, context: PlaceContext) -> Option<Box<dyn Place>> {
        let address = Ipv4Addr::UNSPECIFIED.into();
        Some(Box::new(Ssh { spec: self.clone(), context, address, copied: false, starts: 0 }))
    }
}

fn ask(spec: &SshSpec, remote: &str) -> Result<String, Failure> {
    let argv = ssh_command::command_line(&spec.host, &spec.options, remote);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    let done = run(&argv, COMMAND_TIMEOUT);
    match done.worked {
        true => Ok(done.out),
        false => Err(Failure::environment(format!(
            "ssh {}: cannot run a command there: {} (try: ssh {} true)",
            spec.host, done.said, spec.host
        ))),
    }
}

#[derive(Debug)]
pub struct Ssh {
    spec: SshSpec,
    context: PlaceContext,
    address: IpAddr,
    copied: bool,
    starts: u32,
}

impl Ssh {
    /// Named after the tag, like everything that this place creates.
    fn remote_folder(&self) -> String {
        format!("/tmp/{}", self.context.tag)
    }

    fn copy(&mut self, resources: &mut LabResources<'_>) -> Result<(), Failure> {
        let folder = self.remote_folder();
        resources.journal.record_before_create(SshFolder {
            host: self.spec.host.clone(),
            options: self.spec.options.clone(),
            path: folder.clone(),
        })?;
        let agent = agent_file::find()?.display().to_string();
        let remote = format!(
            "umask 077 && mkdir {folder} && cat >{folder}/tare-agent && chmod 700 {folder}/tare-agent"
        );
        let script = "exec \"$@\" <\"$0\"";
        let mut argv = vec!["sh".to_owned(), "-c".into(), script.into(), agent];
        argv.extend(ssh_command::command_line(&self.spec.host, &self.spec.options, &remote));
        let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
        run_checked(&argv, COMMAND_TIMEOUT, &format!("copy the agent to {}", self.spec.host))
            .map(drop)
    }

    /// Returns the configured address, or else the one that ssh connected to.
    fn find_address(&self) -> Result<IpAddr, Failure> {
        if let Some(address) = self.spec.address {
            return Ok(address);
        }
        // sshd sets it to "client port server port".
        let said = ask(&self.spec, "echo $SSH_CONNECTION")?;
        let found = said.split_whitespace().nth(2).and_then(|text| text.parse().ok());
        found.ok_or_else(|| {
            Failure::environment(format!(
                "ssh {}: sshd did not report its address; give one (address = \"…\")",
                self.spec.host
            ))
        })
    }
}

impl Place for Ssh {
    fn start(&mut self, resources: &mut LabResources<'_>) -> Result<Agent, Failure> {
        if !self.copied {
            self.copy(resources)?;
            self.address = self.find_address()?;
            self.copied = true;
        }
        let (folder, journal) = (self.remote_folder(), SshFolder::journal(&self.remote_folder()));
        let start = format!("exec {folder}/tare-agent --drop-capabilities --journal {journal}");
        // Processes left by a killed agent would be measured with the next one.
        let remote = match self.starts {
            0 => start,
            _ => format!("sh -c '{folder}/tare-agent clean {journal} >/dev/null 2>&1; {start}'"),
        };
        self.starts += 1;
        let argv = ssh_command::command_line(&self.spec.host, &self.spec.options, &remote);
        let agent = self.context.start_agent(&argv, HELLO_WITHIN, resources.halt)?;
        let clocks = Offset::find(|| agent.ask(ReadClocks {}, TIMEOUT));
        if let Ok(Offset { unix_ns, trip, .. }) = clocks {
            let ms = unix_ns as f64 / 1e6;
            self.context.note(format!(
                "its clock is {ms:+.1} ms from this machine's (± {trip}); latencies are of one clock"
            ));
        }
        Ok(agent)
    }

    fn prove(&self, agent: &Agent) -> Proof {
        let (hello, here) = (&agent.hello, SystemIdentity::probe());
        let whose = match hello.boot_id == here.boot_id {
            true => "this very machine",
            false => "another machine",
        };
        let mut wrong = Vec::new();
        if !hello.addresses.is_empty()
            && self.address.is_ipv4()
            && !hello.addresses.contains(&self.address.to_string())
        {
            wrong.push(format!("it does not have the address {}", self.address));
        }
        let seen = format!(
            "{} is {whose}, {}, kernel {}, address {}",
            self.spec.host, hello.hostname, hello.kernel_release, self.address
        );
        proof(format!("ssh {}", self.spec.host), wrong, seen)
    }

    fn address(&self) -> IpAddr {
        self.address
    }

    fn folder(&self) -> Option<PathBuf> {
        Some(PathBuf::from(self.remote_folder()).join("server"))
    }

    fn is_metered_from_here(&self) -> bool {
        false
    }

    fn has_our_cpus(&self) -> bool {
        false
    }
}
