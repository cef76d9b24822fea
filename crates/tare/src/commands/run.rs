//! `tare run FILE.toml` or `tare run NAME`: runs an experiment.

mod list;

use std::path::{Path, PathBuf};

use clap::Args;
use clap_complete::{ArgValueCandidates, ArgValueCompleter};
use tare_model::plan::{Draft, Plan};
use tare_model::{Failure, Fault};
use tare_report::format::counted;

use super::compare::{Choices, OutputArgs};
use super::completions;
use crate::experiment;
use crate::load::outputs::{print, print_report};
use crate::run::begin::{resume, run_new};
use crate::run::machine::{absent, check_machine, describe, without};
use crate::run::sweep::{self, run_sweep};
use crate::shipped::{self, Shipped};
use crate::toml_file::Source;

/// Run an experiment: compare its variants under load, with confidence intervals
///
/// An experiment defines servers, variants, load, and when to stop. tare has ready-made ones
/// (--list); docs/experiments.md explains how to write a file. Flags override the file.
///
/// Example: tare run nginx-access-log --precision 1%
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Run {
    /// Experiment file, or the name of a ready-made experiment
    #[arg(value_name = "FILE|NAME", add = ArgValueCompleter::new(completions::experiments),
          required_unless_present_any = ["resume", "list"],
          conflicts_with_all = ["resume", "list"])]
    file: Option<PathBuf>,
    /// List the ready-made experiments, and what this machine lacks for each
    #[arg(long, conflicts_with_all = ["resume", "dry_run", "copy"])]
    list: bool,
    /// Copy the ready-made experiment into the current folder, to change it; start nothing
    #[arg(long, conflicts_with_all = ["resume", "dry_run"])]
    copy: bool,
    /// Resume a stored run (its number, or 'last') with the same plan and seed
    #[arg(long, value_name = "RUN", add = ArgValueCandidates::new(completions::runs))]
    resume: Option<String>,
    /// Variant to compare the others with; default: the file's baseline
    #[arg(long, value_name = "NAME", add = ArgValueCandidates::new(completions::variants))]
    baseline: Option<String>,
    /// Print the plan with all defaults and what would be started; start nothing
    #[arg(long, conflicts_with = "resume")]
    dry_run: bool,
    #[command(flatten)]
    choices: Choices,
    #[command(flatten)]
    outputs: OutputArgs,
}

pub fn run(args: &Run) -> Result<(), Failure> {
    if let Some(text) = &args.resume {
        let options = args.outputs.options_unchecked()?;
        return resume(text, &options, |plan| {
            let (seed, slices) = (plan.seed, plan.slices.clone());
            args.choices.change(plan);
            if let Some(name) = &args.baseline {
                plan.rebase(name)?;
            }
            if plan.seed != seed || plan.slices != slices {
                let text = "--seed, --slice, --warmup and --cycles cannot be changed of a run that \
                            is resumed";
                return Err(Failure::usage(text));
            }
            args.outputs.options(plan).map(drop)
        });
    }
    if args.list {
        return print_report(&list::ready_made()).map_err(|error| failed_output(&error));
    }
    let Some(file) = &args.file else {
        return Err(Failure::usage("no experiment given; name one, or --resume RUN"));
    };
    let shipped = shipped::named(file).transpose()?;
    if args.copy {
        return copy(file, shipped);
    }
    let drafts = match shipped {
        None => experiment::read(file)?,
        Some(shipped) => read_shipped(shipped)?,
    };
    let in_file = |failure: Failure| match failure.fault {
        Fault::Usage => failure.map(|text| format!("{}: {text}", file.display())),
        _ => failure,
    };
    let mut plans = Vec::new();
    for mut plan in drafts {
        args.choices.change(&mut plan);
        if let Some(name) = &args.baseline {
            plan.rebase(name)?;
        }
        let plan = Plan::try_from(plan).map_err(|why| in_file(why.into()))?;
        check_machine(&plan).map_err(in_file)?;
        plans.push(plan);
    }
    let Some(first) = plans.first() else {
        return Err(Failure::bug("an experiment without a plan"));
    };
    let options = args.outputs.options(first)?;
    sweep::check(&plans).map_err(in_file)?;
    if args.dry_run {
        let mut text = dry_run(first)?;
        if plans.len() > 1 {
            text.push_str(&format!("the above is the first of {} cells:\n", plans.len()));
            plans.iter().for_each(|plan| text.push_str(&format!("  {}\n", plan.name)));
        }
        return say(&text);
    }
    // Cells of a sweep have the same places.
    let absent = absent(first).map_err(in_file)?;
    let plans: Result<Vec<Plan>, Failure> =
        plans.into_iter().map(|plan| without(plan, &absent)).collect();
    match plans?.as_slice() {
        [plan] if plan.cell.is_empty() => run_new(plan, &options),
        cells => run_sweep(cells, &options),
    }
}

fn say(text: &str) -> Result<(), Failure> {
    print(text).map_err(|error| failed_output(&error))
}

fn failed_output(error: &std::io::Error) -> Failure {
    Failure::environment(format!("standard output: {error}"))
}

/// Reads an experiment of the program's own, which has no files beside it.
fn read_shipped(shipped: Shipped) -> Result<Vec<Draft>, Failure> {
    let Shipped { name, text } = shipped;
    if let Some(needs) = shipped.needs_sources() {
        return Err(Failure::usage(needs));
    }
    let runs_with = match experiment::is_procedure_file(text) {
        true => "steps",
        false if shipped.companions().next().is_some() => "run",
        false => return experiment::parse(&Source { path: Path::new(name), text }),
    };
    Err(Failure::usage(format!(
        "{name} needs files beside it: 'tare run --copy {name}' writes them here, 'tare {runs_with} \
         {name}.toml' then runs it"
    )))
}

fn copy(file: &Path, shipped: Option<Shipped>) -> Result<(), Failure> {
    let Some(shipped) = shipped else {
        let text = "not the name of a ready-made experiment (tare run --list)";
        return Err(Failure::flag("--copy", &file.display().to_string(), text));
    };
    if let Some(needs) = shipped.needs_sources() {
        return Err(Failure::usage(needs));
    }
    let written = shipped.copy_to(Path::new(""))?;
    let lines = written.iter().map(|path| format!("wrote {}\n", path.display()));
    say(&lines.collect::<String>())
}

fn dry_run(plan: &Plan) -> Result<String, Failure> {
    let json = serde_json::to_string_pretty(plan).unwrap_or_default();
    let mut text = format!("{json}\n\nin each round:\n");
    for variant in &plan.variants {
        let (what, layers) = match describe(variant) {
            Err(Failure { fault: Fault::Environment, text: why }) if variant.optional => {
                text.push_str(&format!("  {}: skipped: {why}\n", variant.name));
                continue;
            }
            described => described?,
        };
        text.push_str(&format!("  {}: {what}, asked at {}\n", variant.name, variant.url));
        let (place, clients) = (variant.place.name(), variant.clients.name());
        if place != "host" || clients != "host" {
            text.push_str(&format!("    server in: {place}; client in: {clients}\n"));
        }
        layers.iter().for_each(|layer| text.push_str(&format!("    {layer}\n")));
    }
    text.push_str(&format!(
        "  load by {} on CPUs {:?}, servers on CPUs {:?}\n",
        counted(plan.load.workers().into(), "thread", "threads"),
        plan.load_cpus,
        plan.server_cpus
    ));
    text.push_str(
        "created, and removed at the end: a folder tare-… for temporary files, a control group \
         tare-… for each server and proxy that tare starts; for places what they need: a bridge \
         tare-br…, network namespaces, links, containers\n",
    );
    Ok(text)
}
