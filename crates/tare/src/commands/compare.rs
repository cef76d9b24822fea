//! `tare compare URL URL …`, `tare compare COMMAND COMMAND …`: compares servers.

mod image;
pub mod variants;

use std::path::PathBuf;

use clap::Args;
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_model::Metric;
use tare_model::cold::Cold;
use tare_model::load::LoadSpec;
use tare_model::plan::{self, Draft, Plan, PlanParts, ReconnectEach, Slices, Stop};
use tare_model::variant::{Difference, Variant};

use crate::args::load::LoadArgs;
use crate::args::words::{cpu_list, positive_duration};
use crate::load::addresses::random_seed;
use crate::load::outputs::FormFiles;
use crate::load::url_list;
use crate::run::RunOptions;
use crate::run::begin::run_new;
use crate::run::choices::{EFFECT_PRECISION, MAX_TIME, PRECISION, percent};
use crate::run::cpus_and_folders::{divide_cpus, store_path};
use crate::run::gate::Gate;
use crate::run::machine::check_machine;
use tare_model::Failure;

/// Compare servers under the same load, with confidence intervals
///
/// Every variant gets the same load in short slices, in random order, many times. Servers that are
/// given as commands are started and restarted by tare: identical servers differ by several percent
/// from launch to launch, and only restarts can separate that from a real cost. {port} and $PORT
/// are the port that tare chooses; a command that uses neither is found by the port it listens on.
/// docker://IMAGE is an image that an engine (podman, docker, nerdctl) has here.
///
/// Example: tare compare './server-1.0 --port {port}' './server-1.1 --port {port}' -c 20
///
/// Example: tare compare a=http://127.0.0.1:8081/ b=http://127.0.0.1:8082/ --fail-if 'p99 > 3%'
///
/// Headers for one variant only: -H 'NAME:Header: value'.
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Compare {
    /// http://host:port/path, 'command' or docker://image, each with NAME= before it or without; for
    /// a command with a URL of its own, give NAME=URL and --launch NAME='command'
    #[arg(id = "variants", value_name = "[NAME=]URL|COMMAND|IMAGE")]
    words: Vec<String>,
    /// Start and stop this server in each round: NAME='command'; repeatable; default URL:
    /// http://127.0.0.1:{port}/
    #[arg(long, value_name = "NAME=COMMAND")]
    launch: Vec<String>,
    /// Unix socket of a variant; its URL still gives the host name and path; repeatable
    #[arg(long, value_name = "NAME=PATH")]
    unix_socket: Vec<String>,
    /// Path to request if a URL has none
    #[arg(long, value_name = "PATH", conflicts_with = "urls", value_parser = path)]
    path: Option<String>,
    /// File of paths to request in turn, one per line, instead of the URLs' paths
    #[arg(long, value_name = "FILE")]
    urls: Option<PathBuf>,
    /// With --urls: request them in random order
    #[arg(long, requires = "urls")]
    random_order: bool,
    /// Time limit for a launched server's first good reply; default: 10s
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    ready_within: Option<DurationNs>,
    /// Variant to compare the others with; default: the first on the command line
    #[arg(long, value_name = "NAME")]
    baseline: Option<String>,
    /// Run only one variant at a time; machine drift then does not cancel out
    #[arg(long)]
    exclusive: bool,

    #[command(flatten)]
    load: LoadArgs,
    #[command(flatten)]
    choices: Choices,
    /// CPUs for the servers that tare starts: 0,2-3; default: those not used for load
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    server_cpus: Option<std::vec::Vec<usize>>,
    /// Name of the run
    #[arg(long, value_name = "TEXT")]
    name: Option<String>,
    #[command(flatten)]
    outputs: OutputArgs,
    /// Variant names in the order in which they were typed.
    #[arg(skip)]
    typed: Vec<String>,
}

/// Settings of a plan that flags can override.
#[derive(Args)]
pub struct Choices {
    /// Stop when every interval is within ± this; default: 2%, or a tenth of the overhead
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    precision: Option<f64>,
    /// Treat differences up to this as the same; default: the precision
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    tolerance: Option<f64>,
    /// Time limit for the whole command; default: 2m
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    max_time: Option<DurationNs>,
    /// Allowed differences from the baseline: status, body, headers, connection, tls; any other
    /// difference makes the comparison void
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Difference::parse)]
    may_differ: Vec<Difference>,
    /// Stop after this many rounds, whatever the precision
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    rounds: Option<u32>,
    /// Tolerate this many rounds in which a server, client or place fails; default: 0
    #[arg(long, value_name = "N")]
    lost_rounds: Option<u32>,
    /// Metrics to resolve: throughput, p50, p99, cpu, … (an invalid name lists them all);
    /// default: throughput, or p50 with --rate
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Metric::parse)]
    metric: Vec<Metric>,
    /// Length of a slice; default: determined in the first round
    #[arg(long, value_name = "DURATION", value_parser = slice_length)]
    slice: Option<DurationNs>,
    /// Warm-up of each launch before its first slice; default: determined in the first rounds
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    warmup: Option<DurationNs>,
    /// Longest warm-up; default: 20s, or a quarter of a short --max-time
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    warmup_max: Option<DurationNs>,
    /// Length of the sustained load that confirms the slices, on all variants at once in a few
    /// launches; default: 3s
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    sustained: Option<DurationNs>,
    /// Skip the sustained load; misses effects longer than a slice
    #[arg(long, conflicts_with = "sustained")]
    no_sustained: bool,
    /// Measure cold servers: count only the first load of each launch: a time (200ms) or a number
    /// of requests (5000)
    #[arg(long, value_name = "AMOUNT", value_parser = Cold::parse,
          conflicts_with_all = ["slice", "warmup", "warmup_max", "sustained", "cycles"])]
    cold: Option<Cold>,
    /// Slices of each variant per round; default: determined in the first rounds
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(plan::CYCLES_MAX)))]
    cycles: Option<u32>,
    /// Open new connections for each launch or slice: chance decides which of a server's workers
    /// gets them; default: launch
    #[arg(long, value_name = "launch|slice", value_parser = ReconnectEach::parse)]
    reconnect_each: Option<ReconnectEach>,
    /// Random seed; default: a random one, which is printed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
}

/// Outputs of a run, and its exit code.
#[derive(Args)]
pub struct OutputArgs {
    /// Exit with 1 if an overhead's entire interval exceeds this limit: 'p99 > 5%', 'NAME: cpu >
    /// 3%'; with 5 if the run is too imprecise to tell, or for 'unresolved'; repeatable
    #[arg(long, value_name = "LIMIT", value_parser = Gate::parse)]
    fail_if: Vec<Gate>,
    /// Exit with 0 even if a verdict is void, and do not stop early because of it
    #[arg(long)]
    allow_void: bool,
    #[command(flatten)]
    forms: FormFiles,
    /// Run store; default: $TARE_STORE, or tare.db in your data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// No progress output
    #[arg(short, long)]
    quiet: bool,
}

pub fn run(args: &Compare) -> Result<(), Failure> {
    let plan = plan(args)?;
    let options = args.outputs.options(&plan)?;
    run_new(&plan, &options)
}

impl OutputArgs {
    pub fn options<L>(&self, plan: &PlanParts<L>) -> Result<RunOptions, Failure> {
        let others = plan.variants.iter().filter(|variant| !variant.baseline);
        let names: Vec<&str> = others.map(|variant| variant.name.as_str()).collect();
        self.fail_if.iter().try_for_each(|gate| gate.check_names(&names))?;
        self.options_unchecked()
    }

    /// Like [`Self::options`], but does not check gates, because the plan is not read yet.
    pub fn options_unchecked(&self) -> Result<RunOptions, Failure> {
        Ok(RunOptions {
            store: store_path(self.store.as_ref())?,
            forms: self.forms.wanted(),
            gates: self.fail_if.clone(),
            quiet: self.quiet,
            allows_void: self.allow_void,
            began: monotonic_now(),
        })
    }
}

impl Choices {
    /// Overrides the plan with what the user chose.
    pub fn change<L>(&self, plan: &mut PlanParts<L>) {
        let stop = &mut plan.stop;
        if let Some(precision) = self.precision {
            // A tolerance that was not chosen follows the precision.
            if stop.tolerance == stop.precision {
                stop.tolerance = precision;
            }
            (stop.precision, stop.of_effect) = (precision, 0.0);
        }
        stop.tolerance = self.tolerance.unwrap_or(stop.tolerance);
        stop.max_time = self.max_time.unwrap_or(stop.max_time);
        stop.rounds = self.rounds.or(stop.rounds);
        stop.lost_rounds = self.lost_rounds.unwrap_or(stop.lost_rounds);
        if !self.metric.is_empty() {
            stop.metrics.clone_from(&self.metric);
        }
        for variant in &mut plan.variants {
            let new = self.may_differ.iter().filter(|one| !variant.may_differ.contains(one));
            let new: Vec<Difference> = new.copied().collect();
            variant.may_differ.extend(new);
        }
        plan.slices.window = self.slice.or(plan.slices.window);
        plan.slices.warmup = self.warmup.or(plan.slices.warmup);
        plan.slices.warmup_max = self.warmup_max.or(plan.slices.warmup_max);
        plan.slices.sustained = self.sustained.or(plan.slices.sustained);
        plan.slices.no_sustained |= self.no_sustained;
        plan.slices.cold = self.cold.or(plan.slices.cold);
        plan.slices.cycles = self.cycles.or(plan.slices.cycles);
        plan.slices.reconnect_each = self.reconnect_each.or(plan.slices.reconnect_each);
        plan.seed = self.seed.unwrap_or(plan.seed);
    }
}

pub fn path(text: &str) -> Result<String, String> {
    if text.starts_with('/') { Ok(text.to_owned()) } else { Err("must begin with /".into()) }
}

fn slice_length(text: &str) -> Result<DurationNs, String> {
    let length = positive_duration(text)?;
    if plan::SLICE_LENGTHS.contains(&length) { Ok(length) } else { Err("write 1ms to 60s".into()) }
}

fn plan(args: &Compare) -> Result<Plan, Failure> {
    let mut variants = args.variants()?;
    variants.iter_mut().take(1).for_each(|first| first.baseline = true);
    let of_launches = [
        ("--server-cpus", args.server_cpus.is_some()),
        ("--ready-within", args.ready_within.is_some()),
    ];
    let given = of_launches.iter().find(|(_, given)| *given);
    if let (Some((flag, _)), true) = (given, !variants.iter().any(Variant::is_launched)) {
        let text = format!("{flag} is for servers that tare starts (NAME='command')");
        return Err(Failure::usage(text));
    }
    let mut load = args.load.spec().absolute(std::path::Path::new(""));
    load.headers = share_headers(&load.headers, &mut variants);
    (load.paths, load.random_order) = (paths(args)?, args.random_order);
    if let Some(path) = &args.path {
        load.path = Some(path.clone());
        for variant in &mut variants {
            let asked = variant.ask_for(path);
            asked.map_err(|why| why.named(&format!("variant '{}'", variant.name)))?;
        }
    }
    let all: Vec<&str> = variants.iter().map(|variant| variant.name.as_str()).collect();
    let name = args.name.clone().unwrap_or_else(|| all.join(" vs. "));
    let mut plan = draft(name, load, args.server_cpus.clone(), variants);
    if let Some(name) = &args.baseline {
        plan.rebase(name)?;
    }
    args.choices.change(&mut plan);
    let plan = Plan::try_from(plan)?;
    check_machine(&plan)?;
    Ok(plan)
}

/// A plan with the defaults of the command line.
pub fn draft(
    name: String,
    mut load: LoadSpec,
    server_cpus: Option<Vec<usize>>,
    variants: Vec<Variant>,
) -> Draft {
    let (load_cpus, server_cpus) = divide_cpus(load.cpus.clone(), server_cpus, load.threads);
    load.threads = Some(load.threads.unwrap_or(load_cpus.len().max(1) as u32));
    Draft {
        name,
        seed: random_seed(),
        stop: Stop {
            precision: PRECISION,
            of_effect: EFFECT_PRECISION,
            tolerance: PRECISION,
            max_time: MAX_TIME,
            metrics: Vec::new(),
            rounds: None,
            lost_rounds: 0,
        },
        slices: Slices::default(),
        load,
        load_cpus,
        server_cpus,
        variants,
        skipped: Vec::new(),
        cell: Default::default(),
        check: None,
    }
}

/// Returns the paths listed in the --urls file; the variants give the servers.
fn paths(args: &Compare) -> Result<Vec<String>, Failure> {
    let Some(file) = &args.urls else { return Ok(Vec::new()) };
    url_list::paths(file)
}

/// Moves headers with a variant's name to that variant; returns those that all variants share.
fn share_headers(headers: &[String], variants: &mut [Variant]) -> Vec<String> {
    let mut shared = Vec::new();
    for header in headers {
        let own = header.split_once(':').filter(|(_, rest)| rest.contains(':'));
        let owner = own.and_then(|(name, rest)| {
            Some((variants.iter_mut().find(|variant| variant.name == name)?, rest))
        });
        match owner {
            Some((variant, rest)) => variant.headers.push(rest.to_owned()),
            None => shared.push(header.clone()),
        }
    }
    shared
}
