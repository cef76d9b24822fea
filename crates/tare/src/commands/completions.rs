//! `tare completions SHELL`: completion in shells, also of names of experiments, runs and variants.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use clap_complete::CompleteEnv;
use clap_complete::engine::{CompletionCandidate, PathCompleter, ValueCompleter};
use clap_complete::env::Shells;
use tare_model::Failure;
use tare_store::{RunFilter, Store};

use crate::experiment;
use crate::load::outputs::print;
use crate::run::cpus_and_folders::store_path;
use crate::shipped;
use crate::toml_file::{self, Source};

/// Print what a shell needs to complete commands, flags, and names of experiments and runs
///
/// In bash: echo 'source <(tare completions bash)' >> ~/.bashrc
///
/// In zsh: echo 'source <(tare completions zsh)' >> ~/.zshrc
///
/// Example: tare completions fish > ~/.config/fish/completions/tare.fish
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Completions {
    /// Shell to print it for
    #[arg(value_name = "SHELL")]
    shell: Shell,
}

#[derive(Clone, Copy, ValueEnum)]
enum Shell {
    Bash,
    Zsh,
    Fish,
}

/// The variable by which shells ask for completions.
const VARIABLE: &str = "TARE_COMPLETE";
/// Number of runs that are offered.
const RUNS_MAX: usize = 30;

pub fn run(args: &Completions) -> Result<(), Failure> {
    let name = args.shell.to_possible_value();
    let name = name.as_ref().map_or("bash", |value| value.get_name());
    let shells = Shells::builtins();
    let Some(shell) = shells.completer(name) else {
        return Err(Failure::bug(format!("no completion for {name}")));
    };
    let mut script = Vec::new();
    shell
        .write_registration(VARIABLE, "tare", "tare", "tare", &mut script)
        .and_then(|()| print(&String::from_utf8_lossy(&script)))
        .map_err(|error| Failure::environment(format!("standard output: {error}")))
}

/// Answers a shell that asks for completions, and exits; else returns.
pub fn answer_shell() {
    CompleteEnv::with_factory(super::command).var(VARIABLE).complete();
}

/// Offers ready-made experiments, and files.
pub fn experiments(typed: &OsStr) -> Vec<CompletionCandidate> {
    let is_toml = |path: &Path| path.extension().is_some_and(|extension| extension == "toml");
    let files = PathCompleter::file().filter(is_toml).complete(typed);
    let typed = typed.to_string_lossy();
    let shipped = shipped::all().filter(|shipped| shipped.name.starts_with(&*typed));
    files.into_iter().chain(shipped.map(|one| CompletionCandidate::new(one.name))).collect()
}

/// Offers the newest runs by number, with their names.
pub fn runs() -> Vec<CompletionCandidate> {
    let store = store_path(None).ok().and_then(|path| Store::open_existing(&path).ok());
    let rows = store.and_then(|store| store.runs(&RunFilter::default()).ok()).unwrap_or_default();
    let newest = rows.iter().rev().take(RUNS_MAX).map(|row| {
        CompletionCandidate::new(row.id.to_string()).help(Some(row.name.clone().into()))
    });
    std::iter::once(CompletionCandidate::new("last")).chain(newest).collect()
}

/// Offers the variants of the experiment that is being typed.
pub fn variants() -> Vec<CompletionCandidate> {
    let drafts = std::env::args_os().find_map(|word: OsString| {
        let path = PathBuf::from(word);
        match shipped::named(&path) {
            Some(Ok(found)) => {
                experiment::parse(&Source { path: Path::new(found.name), text: found.text }).ok()
            }
            None if path.extension().is_some_and(|extension| extension == "toml") => {
                let text = toml_file::read(&path).ok()?;
                experiment::parse(&Source { path: &path, text: &text }).ok()
            }
            _ => None,
        }
    });
    let variants = drafts.into_iter().flatten().take(1).flat_map(|draft| draft.variants);
    variants.map(|variant| CompletionCandidate::new(variant.name)).collect()
}
