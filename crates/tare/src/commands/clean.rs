//! `tare clean`: removes what a killed run left behind.

use clap::Args;
use tare_lab::journal;

use crate::failure::Failure;
use crate::load::outputs::print;
use crate::run::places::journal_folder;

/// Remove what a killed run left behind: processes, control groups, folders, namespaces, containers
///
/// When they end, even after errors and signals, runs remove everything they created; only kill -9
/// and crashes leave something behind. What belongs to a running tare, or was not created by tare,
/// is not touched.
///
/// Example: tare clean
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Clean {}

pub fn run(_args: &Clean) -> Result<(), Failure> {
    let cleaned = journal::clean(&journal_folder()?);
    let mut text: String = cleaned.removed.iter().map(|what| format!("removed {what}\n")).collect();
    if cleaned.removed.is_empty() && cleaned.complaints.is_empty() {
        text.push_str("nothing was left behind\n");
    }
    if cleaned.running > 0 {
        text.push_str(&format!(
            "{} runs are under way; what they have made is left alone\n",
            cleaned.running
        ));
    }
    print(&text).map_err(|error| Failure::Environment(format!("standard output: {error}")))?;
    match cleaned.complaints.is_empty() {
        true => Ok(()),
        false => Err(Failure::Environment(cleaned.complaints.join("; "))),
    }
}
