//! `tare kubernetes exec`: carries the streams of a program in a pod. tare starts it as a separate
//! process, so that waiting for the cluster does not disturb the load.

use clap::{Args, Subcommand};
use tare_kube::exec::{self, Exec};
use tare_kube::{ClusterSelector, KubeError};

use tare_model::Failure;

/// Carry the streams of a program in a pod; tare starts this itself
///
/// Example: tare kubernetes exec --namespace default --pod web --container web -- /bin/true
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Kubernetes {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Run a program in a pod, with this process's standard streams
    Exec(ExecArgs),
}

#[derive(Args)]
struct ExecArgs {
    #[arg(long)]
    context: Option<String>,
    #[arg(long)]
    namespace: String,
    #[arg(long)]
    pod: String,
    #[arg(long)]
    container: String,
    /// Do not tell it that standard input has ended
    #[arg(long)]
    ends_itself: bool,
    #[arg(last = true, required = true)]
    argv: Vec<String>,
}

pub fn run(args: &Kubernetes) -> Result<(), Failure> {
    let Command::Exec(args) = &args.command;
    let exec = Exec {
        which: ClusterSelector::from_context(args.context.as_deref()),
        namespace: args.namespace.clone(),
        pod: args.pod.clone(),
        container: args.container.clone(),
        argv: args.argv.clone(),
        ends_itself: args.ends_itself,
    };
    match exec::run(&exec) {
        Ok(0) => Ok(()),
        Ok(code) => Err(Failure::environment(format!("it ended with status {code}"))),
        Err(error @ KubeError::Usage(_)) => Err(Failure::usage(error.to_string())),
        Err(error) => Err(Failure::environment(error.to_string())),
    }
}
