//! The endpoint of `tare net` and `tare sys`.

use std::path::PathBuf;

use tare_io::DurationNs;
use tare_io::owned::own_program;
use tare_model::servers::NetSpec;

use super::ServerKind;
use crate::launch::context::{LaunchContext, utf8};
use crate::launch::spec::{LaunchSpec, OWN_PROGRAM};
use tare_model::Failure;

const READY_WITHIN: DurationNs = DurationNs::from_secs(5);

fn flags(spec: &NetSpec) -> Vec<String> {
    let mut flags = vec!["--calls".to_owned()];
    let mut add = |name: &str, value: Option<String>| {
        if let Some(value) = value {
            flags.extend([format!("--{name}"), value]);
        }
    };
    add("delay", spec.delay.clone());
    add("loss", spec.loss.map(|share| share.to_string()));
    add("socket-buffer", spec.socket_buffer.map(|bytes| bytes.to_string()));
    flags
}

impl ServerKind for NetSpec {
    fn describe(&self) -> Result<String, Failure> {
        Ok(format!("starts: tare net --serve {}", flags(self).join(" ")))
    }

    fn describe_elsewhere(&self) -> String {
        "its agent is the endpoint".into()
    }

    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        // The program that `exec` runs.
        Ok(vec![own_program(), "/bin/true".into()])
    }

    /// In a place with its own programs, the agent is the endpoint.
    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
        let program = match context.our_programs {
            true => utf8(&own_program())?.to_owned(),
            false => OWN_PROGRAM.to_owned(),
        };
        let address = context.address()?;
        let mut argv: Vec<String> = vec![program];
        argv.extend(["net", "--serve", "--listen"].map(str::to_owned));
        argv.push(address.to_string());
        argv.extend(flags(self));
        Ok(context.launch_spec(argv, address, READY_WITHIN))
    }
}
