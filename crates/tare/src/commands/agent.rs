//! `tare agent`: writes the agent, the program that runs inside places, as an image.

use std::path::PathBuf;

use clap::{Args, Subcommand};
use tare_lab::places::kubernetes::image;

use crate::load::outputs::print;
use tare_model::Failure;

/// Write the agent, the program that runs inside places, as a container image
///
/// Example: tare agent image agent.tar --name registry.example/tare-agent:1
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Agent {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Write the agent's image as an OCI archive, to be loaded (podman load, ctr images import) or
    /// pushed (skopeo copy); set agent_image of a Kubernetes place to the image's name
    Image(Image),
}

#[derive(Args)]
struct Image {
    /// The archive
    file: PathBuf,
    /// The image's name
    #[arg(long, value_name = "NAME", default_value = "localhost/tare-agent:1")]
    name: String,
    /// Write an image of this program and the agent instead, both static
    #[arg(long, value_name = "PROGRAM", hide = true, requires = "agent")]
    tare: Option<PathBuf>,
    #[arg(long, value_name = "PROGRAM", hide = true, requires = "tare")]
    agent: Option<PathBuf>,
}

pub fn run(args: &Agent) -> Result<(), Failure> {
    let Command::Image(Image { file, name, tare, agent }) = &args.command;
    match tare.as_ref().zip(agent.as_ref()) {
        Some((tare, agent)) => image::write_tare(file, name, tare, agent)?,
        None => image::write_agent(file, name)?,
    }
    let text = format!("{}: image {name}\n", file.display());
    print(&text).map_err(|error| Failure::environment(format!("standard output: {error}")))
}
