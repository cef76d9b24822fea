//! `tare clean`: removes what a killed run left behind.

use clap::Args;
use tare_lab::journal;
use tare_lab::places::kubernetes::sweep;

use crate::load::outputs::print;
use crate::run::cpus_and_folders::journal_folder;
use tare_model::Failure;

/// Remove what a killed run left behind: processes, control groups, folders, namespaces, containers
///
/// Runs remove everything they created when they end, even after errors and signals; only kill -9
/// and crashes leave something behind. What a running tare uses, or tare did not create, is left
/// alone.
///
/// Example: tare clean
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Clean {
    /// Also clean the Kubernetes cluster of this kubeconfig context, whichever machine ran tare;
    /// what a run under way uses is not touched
    #[arg(long, value_name = "CONTEXT")]
    context: Option<String>,
}

pub fn run(args: &Clean) -> Result<(), Failure> {
    let mut cleaned = journal::clean(&journal_folder()?);
    let swept = args.context.as_deref().map(sweep::sweep).transpose();
    // Report what was removed locally even if cleaning the cluster failed.
    let swept = swept.unwrap_or_else(|error| {
        cleaned.complaints.push(error.to_string());
        None
    });
    let swept = swept.unwrap_or_default();
    cleaned.removed.extend(swept.removed);
    let mut text: String = cleaned.removed.iter().map(|what| format!("removed {what}\n")).collect();
    if cleaned.removed.is_empty() && cleaned.complaints.is_empty() {
        text.push_str("nothing was left behind\n");
    }
    if cleaned.running > 0 {
        text.push_str(&format!(
            "runs under way: {}; what they created is left alone\n",
            cleaned.running
        ));
    }
    for what in swept.in_use.iter().take(IN_USE_SHOWN) {
        text.push_str(&format!("{what}: in use, or created a moment ago; not removed\n"));
    }
    if let Some(more @ 1..) = swept.in_use.len().checked_sub(IN_USE_SHOWN) {
        text.push_str(&format!("… and {more} more\n"));
    }
    print(&text).map_err(|error| Failure::environment(format!("standard output: {error}")))?;
    match cleaned.complaints.is_empty() {
        true => Ok(()),
        false => Err(Failure::environment(cleaned.complaints.join("; "))),
    }
}

const IN_USE_SHOWN: usize = 100;
