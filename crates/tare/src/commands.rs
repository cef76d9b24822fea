//! The command line: which command, and its own file.

mod load;
mod target;

use clap::{Parser, Subcommand};

use crate::failure::Failure;

/// What does this layer cost? tare puts the same load on servers and says what each costs, with an
/// interval, or honestly that it cannot tell yet.
#[derive(Parser)]
#[command(name = "tare", version, max_term_width = 100)]
struct Tare {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Load(load::Load),
    Target(target::TargetArgs),
}

pub fn run() -> Result<(), Failure> {
    match Tare::parse().command {
        Command::Load(args) => load::run(&args),
        Command::Target(args) => target::run(&args),
    }
}
