//! The command line: selects the command, each of which has its own file.

mod agent;
mod check;
mod clean;
mod compare;
mod completions;
mod doctor;
mod filter;
mod import;
mod kubernetes;
mod load;
mod man;
mod net;
mod qperf;
mod report;
mod run;
mod runs;
mod steps;
mod sys;
mod target;
mod version;
mod wrk;

use std::ffi::OsStr;
use std::path::Path;

use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::args::help::group;
use crate::load::outputs::print;
use crate::paint::{self, When};

use tare_model::Failure;

/// What does this layer cost? tare puts the same load on several servers and reports what each
/// costs, with a confidence interval, or that it is unresolved.
#[derive(Parser)]
#[command(name = "tare", max_term_width = 100)]
struct Tare {
    /// Colour signs in reports: auto (if standard output is a terminal and NO_COLOR is not set),
    /// always or never
    #[arg(
        long,
        global = true,
        value_name = "WHEN",
        default_value = "auto",
        hide_short_help = true
    )]
    color: When,
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Compare(Box<compare::Compare>),
    Run(Box<run::Run>),
    Check(Box<check::Check>),
    Report(report::Report),
    Runs(runs::Runs),
    Steps(steps::Steps),
    Import(import::Import),
    Filter(filter::Filter),
    Load(Box<load::Load>),
    Net(Box<net::Net>),
    Qperf(qperf::Qperf),
    Sys(sys::Sys),
    Target(Box<target::TargetArgs>),
    Wrk(Box<wrk::Wrk>),
    Doctor(doctor::Doctor),
    Agent(agent::Agent),
    #[command(hide = true)]
    Kubernetes(kubernetes::Kubernetes),
    Clean(clean::Clean),
    Completions(completions::Completions),
    #[command(hide = true)]
    Man(man::Man),
}

const INTRODUCTION: &str = "\
tare measures what a layer costs a server: the same load on several servers in turn, and what each
costs, with a confidence interval, or the answer that it is unresolved.

  tare compare './old --port {port}' './new --port {port}'     two commands
  tare compare http://127.0.0.1:8081/ http://127.0.0.1:8082/   two servers that are running
  tare run --list                                              ready-made experiments
  tare load http://127.0.0.1:8081/ -c 20 -d 10s                load on one server
  tare doctor                                                  what this machine can measure
  tare report last --html report.html                          the last run as a page

'tare COMMAND -h' explains a command, 'tare --help' lists all of them.
";

/// The whole command line.
pub fn command() -> clap::Command {
    let mut command = Tare::command().version(version::SHORT);
    // Whether io_uring works is tried only where it is asked for.
    if std::env::args_os().any(|word| word == "--version") {
        let long: &'static str = version::long().leak();
        command = command.long_version(long);
    }
    for name in ["compare", "run", "check", "load"] {
        command = command.mut_subcommand(name, group);
    }
    command
}

pub fn run() -> Result<(), Failure> {
    let called = std::env::args_os().next().unwrap_or_default();
    let name = Path::new(&called).file_name().and_then(OsStr::to_str).unwrap_or_default();
    if matches!(name, "wrk" | "wrk2") {
        return wrk::run_linked(name);
    }
    if name == "qperf" {
        return qperf::run_linked();
    }
    completions::answer_shell();
    if std::env::args_os().len() == 1 {
        let _ = print(INTRODUCTION);
        return Err(Failure::usage("no command given; try 'tare --help'"));
    }
    let matches = command().try_get_matches().map_err(one_line)?;
    let mut tare = Tare::from_arg_matches(&matches).map_err(one_line)?;
    if let (Command::Compare(args), Some((_, own))) = (&mut tare.command, matches.subcommand()) {
        args.record_order(own);
    }
    paint::set(tare.color);
    match tare.command {
        Command::Compare(args) => compare::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Check(args) => check::run(&args),
        Command::Report(args) => report::run(&args),
        Command::Runs(args) => runs::run(&args),
        Command::Steps(args) => steps::run(&args),
        Command::Import(args) => import::run(&args),
        Command::Filter(args) => filter::run(&args),
        Command::Load(args) => load::run(&args),
        Command::Net(args) => net::run(&args),
        Command::Qperf(args) => qperf::run(&args),
        Command::Sys(args) => sys::run(&args),
        Command::Target(args) => target::run(&args),
        Command::Wrk(args) => wrk::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Agent(args) => agent::run(&args),
        Command::Kubernetes(args) => kubernetes::run(&args),
        Command::Clean(args) => clean::run(&args),
        Command::Completions(args) => completions::run(&args),
        Command::Man(args) => man::run(&args),
    }
}

/// Prints help or the version and exits; turns an error into one line.
pub fn one_line(error: clap::Error) -> Failure {
    if !error.use_stderr() {
        error.exit();
    }
    if error.kind() == clap::error::ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        return Failure::usage("no command given; try 'tare --help'");
    }
    let text = error.render().to_string();
    // The rest is the usage and a pointer to --help.
    let text = text.split("\n\nUsage:").next().unwrap_or(&text);
    let text = text.split("\n\nFor more information").next().unwrap_or(text);
    let words: Vec<&str> = text.trim_start_matches("error:").split_whitespace().collect();
    let text = words.join(" ").replace(" tip: ", "; tip: ");
    Failure::usage(text.replace("invalid digit found in string", "write a whole number"))
}
