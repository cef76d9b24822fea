//! `tare man FOLDER`: manual pages, from the same text as `--help`.

use std::path::PathBuf;

use clap::{Args, Command};
use tare_model::Failure;

/// Write the manual pages, tare.1 and one for each command, into a folder
///
/// Example: tare man ~/.local/share/man/man1
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Man {
    /// Folder, which must exist
    #[arg(value_name = "FOLDER")]
    folder: PathBuf,
}

pub fn run(args: &Man) -> Result<(), Failure> {
    let written = clap_mangen::generate_to(with_all_flags(super::command()), &args.folder);
    written.map_err(|error| Failure::file("write manual pages to", &args.folder, error))
}

/// Shows the text of flags that `-h` leaves out.
fn with_all_flags(command: Command) -> Command {
    let command = command.mut_args(|arg| arg.hide_short_help(false));
    command.mut_subcommands(with_all_flags)
}
