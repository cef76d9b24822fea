//! `tare steps`: measures what it takes to put something in place.

use std::collections::BTreeMap;
use std::io::{BufRead, IsTerminal};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use serde::Deserialize;
use tare_io::DurationNs;
use tare_lab::journal::Journal;
use tare_lab::machine::commands;
use tare_model::steps::{Procedure, Repetition, Step};
use tare_report::format::duration;
use tare_report::formats::Document;
use tare_report::steps::{StepsAsked, analyse};
use tare_steps::{Observer, Order, StepsError, carry_out, unmet_need};

use crate::args::words::positive_duration;
use crate::load::addresses::random_seed;
use crate::load::interrupt;
use crate::load::outputs::{FormFiles, Outputs, print_stderr};
use crate::run::choices::percent;
use crate::run::cpus_and_folders::journal_folder;
use crate::toml_file::{self, Source};
use tare_model::Failure;

/// Measure what it takes to deploy something: time, waiting, steps, commands, values
///
/// A procedure is a file of steps. tare carries out each one several times, from a verified clean
/// state, in turn with the others and in random order; intervals are over repetitions.
///
/// Example: tare steps by-hand.toml from-one-manifest.toml --repetitions 8 --html steps.html
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Steps {
    /// Procedure files, the baseline first; or one file with a [[variant]] for each
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Repetitions of each procedure; default: 5, or the file's number
    #[arg(short, long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1000))]
    repetitions: Option<u32>,
    /// Start no new round after this time
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    max_time: Option<DurationNs>,
    /// Treat differences up to this as the same
    #[arg(long, value_name = "PERCENT", default_value = "5%", value_parser = percent)]
    tolerance: f64,
    /// Prompt for manual steps and time them; default: report their recorded times separately
    #[arg(long)]
    by_hand: bool,
    /// Only count steps, commands, lines and values; run nothing
    #[arg(long, conflicts_with_all = ["by_hand", "from", "keep"])]
    count: bool,
    /// Resume one procedure at this step, once; earlier steps that give values rerun
    #[arg(long, value_name = "STEP")]
    from: Option<String>,
    /// Leave what was done in place, even if a step fails; runs one procedure once
    #[arg(long)]
    keep: bool,
    /// Random seed of the order; default: a random one, which is printed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Print no progress
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    outputs: FormFiles,
}

/// An experiment file, which lists procedures.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Experiment {
    name: String,
    repetitions: Option<u32>,
    #[serde(rename = "variant")]
    variants: Vec<ExperimentVariant>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ExperimentVariant {
    procedure: PathBuf,
    #[serde(default)]
    name: Option<String>,
    #[serde(default)]
    baseline: bool,
    /// Added to the procedure's variables; overrides those of the same name.
    #[serde(default)]
    env: BTreeMap<String, String>,
}

/// Contents of all files.
struct StepsPlan {
    name: String,
    repetitions: u32,
    baseline: usize,
    procedures: Vec<(Procedure, PathBuf)>,
}

const REPETITIONS: u32 = 5;

pub fn run(args: &Steps) -> Result<(), Failure> {
    let mut asking = read(args)?;
    let mut outputs = Outputs::create(&args.outputs.wanted())?;
    let seed = args.seed.unwrap_or_else(random_seed);
    let skipped = if args.count { Vec::new() } else { skip_unavailable(&mut asking)? };
    let procedures: Vec<Procedure> = asking.procedures.iter().map(|(p, _)| p.clone()).collect();
    let told = |failed: Option<String>, interrupted: bool| StepsAsked {
        name: asking.name.clone(),
        skipped: skipped.clone(),
        tare_version: env!("CARGO_PKG_VERSION").into(),
        seed,
        tolerance: args.tolerance,
        baseline: asking.baseline,
        interrupted,
        failed,
    };
    if args.count {
        let report = analyse(told(None, false), &procedures, Vec::new());
        return outputs.write(&report as &dyn Document, None);
    }
    check(args, &asking)?;
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    commands::install_stop_flag(&stop);
    let once = args.from.is_some() || args.keep;
    let order = Order {
        procedures: asking.procedures.clone(),
        repetitions: if once { 1 } else { asking.repetitions },
        seed,
        max_time: args.max_time,
        by_hand: args.by_hand,
        from: args.from.clone(),
        keeps: args.keep,
    };
    let journal = Journal::create(&journal_folder()?)?;
    let mut teller =
        ProgressPrinter { quiet: args.quiet, procedures: &procedures, all: order.repetitions };
    let (done, ended) = carry_out(&order, &journal, &stop, &mut teller);
    let complaints = journal.remove_all();
    let failed = ended.as_ref().err().filter(|error| **error != StepsError::Interrupted);
    let told = told(failed.map(ToString::to_string), ended == Err(StepsError::Interrupted));
    if !done.is_empty() {
        outputs.write(&analyse(told, &procedures, done) as &dyn Document, None)?;
    }
    match ended {
        Err(StepsError::Interrupted) => Err(Failure::interrupted()),
        Err(error @ StepsError::Step { .. }) => Err(Failure::target(error.to_string())),
        Err(error) => Err(Failure::environment(error.to_string())),
        Ok(()) if !complaints.is_empty() => Err(Failure::environment(complaints.join("; "))),
        Ok(()) => Ok(()),
    }
}

fn read(args: &Steps) -> Result<StepsPlan, Failure> {
    let mut asking = match args.files.as_slice() {
        [one] => read_one(one)?,
        several => {
            let procedures: Result<Vec<_>, _> =
                several.iter().map(|path| procedure(path)).collect();
            let procedures = procedures?;
            let names: Vec<&str> = procedures.iter().map(|(p, _)| p.name.as_str()).collect();
            let name = names.join(", ");
            StepsPlan { name, repetitions: REPETITIONS, baseline: 0, procedures }
        }
    };
    asking.repetitions = args.repetitions.unwrap_or(asking.repetitions);
    let names = asking.procedures.iter().map(|(procedure, _)| &procedure.name);
    let mut seen: Vec<&String> = Vec::new();
    for name in names {
        if seen.contains(&name) {
            return Err(Failure::usage(format!("two procedures are called '{name}'")));
        }
        seen.push(name);
    }
    Ok(asking)
}

/// Reads a procedure, or an experiment that lists several.
fn read_one(path: &Path) -> Result<StepsPlan, Failure> {
    let text = toml_file::read(path)?;
    let source = Source { path, text: &text };
    let table: toml::Table = source.parse()?;
    if !table.contains_key("variant") {
        let procedures = vec![procedure(path)?];
        let name = procedures[0].0.name.clone();
        return Ok(StepsPlan { name, repetitions: REPETITIONS, baseline: 0, procedures });
    }
    let experiment: Experiment = source.parse()?;
    let in_file = |why: &str| Failure::usage(format!("{}: {why}", path.display()));
    let mut procedures = Vec::new();
    for variant in &experiment.variants {
        let (mut one, home) = procedure(&source.resolve(&variant.procedure))?;
        one.name = variant.name.clone().unwrap_or(one.name);
        one.env.extend(variant.env.clone());
        one.check().map_err(|why| in_file(&why.0))?;
        procedures.push((one, home));
    }
    let baselines = experiment.variants.iter().filter(|variant| variant.baseline).count();
    if baselines > 1 || procedures.is_empty() {
        return Err(in_file("write variants, and baseline = true at one of them at most"));
    }
    let repetitions = experiment.repetitions.unwrap_or(REPETITIONS);
    if !(1..=1000).contains(&repetitions) {
        return Err(in_file(&format!("repetitions = {repetitions}: write 1 to 1000")));
    }
    let baseline = experiment.variants.iter().position(|variant| variant.baseline).unwrap_or(0);
    Ok(StepsPlan { name: experiment.name, repetitions, baseline, procedures })
}

fn procedure(path: &Path) -> Result<(Procedure, PathBuf), Failure> {
    let text = toml_file::read(path)?;
    let procedure: Procedure = Source { path, text: &text }.parse()?;
    let in_file = |why: String| Failure::usage(format!("{}: {why}", path.display()));
    procedure.check().map_err(|why| in_file(why.0))?;
    let whole = std::path::absolute(path).unwrap_or_else(|_| path.to_owned());
    Ok((procedure, whole.parent().unwrap_or(Path::new("/")).to_owned()))
}

/// Removes procedures that cannot be carried out here; returns their names and the reasons.
fn skip_unavailable(asking: &mut StepsPlan) -> Result<Vec<(String, String)>, Failure> {
    let mut skipped = Vec::new();
    let baseline = asking.procedures[asking.baseline].0.name.clone();
    asking.procedures.retain(|(procedure, home)| match unmet_need(procedure, home) {
        None => true,
        Some(why) => {
            print_stderr(&format!("tare: {}: skipped: {why}\n", procedure.name));
            skipped.push((procedure.name.clone(), why));
            false
        }
    });
    match asking.procedures.iter().position(|(procedure, _)| procedure.name == baseline) {
        Some(at) => asking.baseline = at,
        None => {
            let why = skipped.into_iter().find(|(name, _)| *name == baseline);
            let why = why.map_or(String::new(), |(_, why)| why);
            return Err(Failure::environment(format!(
                "{baseline}: the baseline cannot be carried out here: {why}"
            )));
        }
    }
    Ok(skipped)
}

/// Rejects flags that do not suit the procedures.
fn check(args: &Steps, asking: &StepsPlan) -> Result<(), Failure> {
    let wrong = |text: String| Err(Failure::usage(text));
    if (args.from.is_some() || args.keep) && asking.procedures.len() > 1 {
        return wrong("--from and --keep are for one procedure".into());
    }
    if args.by_hand && !std::io::stdin().is_terminal() {
        return wrong("--by-hand needs a terminal as standard input".into());
    }
    for (procedure, _) in &asking.procedures {
        let own = |text: &str| wrong(format!("{}: {text}", procedure.name));
        if let Some(from) = &args.from
            && !procedure.steps.iter().any(|step| step.name == *from)
        {
            return own(&format!("--from '{from}': no step has this name"));
        }
        let untimed = procedure.steps.iter().find(|step| step.manual && step.took.is_none());
        if let Some(step) = untimed.filter(|_| !args.by_hand) {
            return own(&format!(
                "step '{}' is manual and has no recorded time: time it with --by-hand, set took = \
                 \"…\", or only count steps (--count)",
                step.name
            ));
        }
        let found = procedure.steps.iter().find(|step| step.manual && step.gives.is_some());
        if let Some(step) = found.filter(|_| !args.by_hand) {
            return own(&format!(
                "step '{}' needs a value from a person: enter it with --by-hand, or only count \
                 steps (--count)",
                step.name
            ));
        }
        let comes_back = asking.repetitions > 1 && args.from.is_none() && !args.keep;
        if comes_back && procedure.reset.is_none() {
            return own(
                "it has no [reset], and is to be carried out more than once: write what makes a \
                 clean state (run = \"…\", clean = \"…\"), or --repetitions 1",
            );
        }
    }
    Ok(())
}

/// Reports progress on standard error.
struct ProgressPrinter<'a> {
    quiet: bool,
    procedures: &'a [Procedure],
    all: u32,
}

impl Observer for ProgressPrinter<'_> {
    fn round_begins(&mut self, round: u32) {
        self.say(&format!("round {} of {}", round + 1, self.all));
    }

    fn step_begins(&mut self, variant: usize, step: &Step) {
        let procedure = &self.procedures[variant].name;
        self.say(&format!("  {procedure}: {} ({})", step.name, step.kind().word()));
    }

    fn is_done(&mut self, done: &Repetition) {
        let last = done.steps.iter().map(|step| step.started_ns + step.took_ns).max();
        let took = duration(last.unwrap_or(0));
        self.say(&format!("  {}: {took}", self.procedures[done.variant as usize].name));
    }

    fn by_hand(&mut self, step: &Step) -> String {
        let then = match &step.gives {
            Some(name) => format!("write the {name} that it gives"),
            None => "press Enter".to_owned(),
        };
        print_stderr(&format!("tare: now do '{}', then {then}: ", step.name));
        let mut said = String::new();
        let _ = std::io::stdin().lock().read_line(&mut said);
        said
    }
}

impl ProgressPrinter<'_> {
    fn say(&self, text: &str) {
        if !self.quiet {
            print_stderr(&format!("tare: {text}\n"));
        }
    }
}
