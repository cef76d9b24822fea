//! `tare man FOLDER`: manual pages, from the same text as `--help`.

use std::path::PathBuf;

use clap::Args;
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
    let written = clap_mangen::generate_to(super::command(), &args.folder);
    written.map_err(|error| Failure::file("write manual pages to", &args.folder, error))
}
