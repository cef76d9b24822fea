//! Kinds of servers: how each is started. To add a kind, add a file here that implements
//! [`ServerKind`] for its settings (`tare_model::servers`), and a line in `kind`.

mod caddy;
mod command;
mod haproxy;
mod httpd;
mod net;
mod nginx;
mod standing;
mod target;

use std::path::PathBuf;

use tare_model::servers::ServerSpec;

use crate::launch::context::LaunchContext;
use crate::launch::spec::LaunchSpec;
use crate::layers::{self, Inserted};
use tare_model::Failure;

/// How one kind of server is started.
pub trait ServerKind {
    /// Describes what it will start; fails if this machine lacks something for it.
    fn describe(&self) -> Result<String, Failure>;

    /// Describes what it will start in a place with its own programs.
    fn describe_elsewhere(&self) -> String {
        String::new()
    }

    /// Absolute paths of the programs and files that it needs where it runs.
    fn needs(&self) -> Result<Vec<PathBuf>, Failure>;

    /// Returns what to start; called anew for each launch.
    fn launch_spec(&self, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure>;
}

/// The registry: a line for each kind that tare starts.
fn kind(spec: &ServerSpec) -> Option<&dyn ServerKind> {
    Some(match spec {
        ServerSpec::External => return None,
        ServerSpec::Command(spec) => spec,
        ServerSpec::Nginx(spec) => spec,
        ServerSpec::Httpd(spec) => spec,
        ServerSpec::Caddy(spec) => spec,
        ServerSpec::Haproxy(spec) => spec,
        ServerSpec::Target(spec) => spec,
        ServerSpec::Net(spec) => spec,
        ServerSpec::Standing(spec) => spec,
    })
}

/// Checks what can be checked before anything starts, and describes the server.
pub fn describe(spec: &ServerSpec) -> Result<String, Failure> {
    spec.facts().check()?;
    kind(spec).map_or(Ok("already up".into()), ServerKind::describe)
}

/// Describes what a place with its own programs must provide; fails if it cannot run there.
pub fn describe_elsewhere(spec: &ServerSpec) -> Result<String, Failure> {
    spec.facts().check()?;
    spec.facts().check_start_elsewhere()?;
    Ok(kind(spec).map_or("already up".into(), ServerKind::describe_elsewhere))
}

pub fn needs(spec: &ServerSpec) -> Result<Vec<PathBuf>, Failure> {
    kind(spec).map_or(Ok(Vec::new()), ServerKind::needs)
}

pub fn launch_spec(spec: &ServerSpec, context: &LaunchContext<'_>) -> Result<LaunchSpec, Failure> {
    let up = || Failure::usage("a server that is already up is not started");
    let mut launch_spec = kind(spec).ok_or_else(up)?.launch_spec(context)?;
    launch_spec.env.extend(layers::env(context.layers));
    // Without this check, a layer that the server does not support would be ignored silently.
    if !context.layers_taken.get() && layers::inserted(context)? != Inserted::default() {
        return Err(Failure::usage("this kind of server takes no such layer"));
    }
    Ok(launch_spec)
}
