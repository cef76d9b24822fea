//! `tare target`, tare's own server with known behaviour.

use std::path::PathBuf;

use tare_io::DurationNs;
use tare_io::owned::own_program;
use tare_model::servers::TargetSpec;

use super::ServerKind;
use crate::launch::context::{LaunchContext, utf8};
use crate::launch::spec::{CountPage, CountSource};
use crate::launch::spec::{LaunchSpec, OWN_PROGRAM};
use tare_model::Failure;

const READY_WITHIN: DurationNs = DurationNs::from_secs(5);

impl ServerKind for TargetSpec {
    fn describe(&self) -> Result<String, Failure> {
        Ok(format!("starts: tare target {}", self.flags().join(" ")))
    }

    fn describe_elsewhere(&self) -> String {
        format!("its agent is the target, {}", self.flags().join(" "))
    }

    fn needs(&self) -> Result<Vec<PathBuf>, Failure> {
        Ok(vec![own_program()])
    }

    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
        let program = match context.our_programs {
            true => utf8(&own_program())?.to_owned(),
            false => OWN_PROGRAM.to_owned(),
        };
        let address = context.address()?;
        let mut argv: Vec<String> = vec![program, "target".into(), "--listen".into()];
        argv.push(address.to_string());
        argv.extend(self.flags());
        let path = "/stats".to_owned();
        // Its count can only be read over HTTP/1.1 without TLS.
        let count = CountSource::Page { address, path, page: CountPage::TareTarget };
        let launch_spec = context.launch_spec(argv, address, READY_WITHIN);
        let count = (!self.tls && !self.http2).then_some(count);
        Ok(LaunchSpec { tls: self.tls, count, ..launch_spec })
    }
}
