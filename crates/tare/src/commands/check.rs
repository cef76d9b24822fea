//! `tare check --base COMMAND --head COMMAND`: whether a change makes a server worse.

use std::path::PathBuf;

use clap::{Args, FromArgMatches};
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_model::Metric;
use tare_model::check::CheckLimit;
use tare_model::plan::Draft;
use tare_model::variant::{Difference, Variant};

use super::compare::draft;
use super::compare::variants::{READY_WITHIN, variant};
use crate::args::load::LoadArgs;
use crate::args::words::{cpu_list, positive_duration};
use crate::experiment::{self, Checked};
use crate::load::outputs::CheckFiles;
use crate::run::RunOptions;
use crate::run::check::{Asked, MetricLimit, run_check};
use crate::run::choices::percent;
use crate::run::cpus_and_folders::store_path;
use tare_model::Failure;

/// Check whether a change makes a server worse
///
/// Starts base (the old version), base again, and head (the new version) on this machine, and loads
/// them in turn in short slices over several launches, as 'tare compare' does. The answer is
/// whether head is worse by more than --worse-by in any metric: CPU time per request at a rate that
/// base sustains easily, and throughput. At most 1 % of changes within the limits are called worse,
/// however many metrics are checked. Base is also compared with itself, which shows how small a
/// difference this machine can detect.
///
/// Exits with 0 if head is not worse, 1 if it is, 4 if its replies differ, 5 if that is undecided
/// within --max-time, and 6 if this machine allows no verdict.
///
/// Example: tare check --base './old --port {port}' --head './new --port {port}'
///
/// Example: tare check api.toml search.toml --worse-by 5% --markdown comment.md
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Check {
    /// Experiment files with a table [check]; their limits are judged together
    #[arg(value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Old version: 'command', docker://image or http://host:port/
    #[arg(
        long,
        value_name = "COMMAND|IMAGE|URL",
        requires = "head",
        conflicts_with = "files",
        required_unless_present = "files"
    )]
    base: Option<String>,
    /// New version
    #[arg(long, value_name = "COMMAND|IMAGE|URL", requires = "base")]
    head: Option<String>,
    /// How much worse head may be; default: 2%
    #[arg(long, value_name = "PERCENT", value_parser = percent)]
    worse_by: Option<f64>,
    /// Metrics, with or without a limit of their own: cpu,throughput,p99=10%; default:
    /// cpu,throughput, or throughput,p50 for servers that tare does not start; with --rate,
    /// throughput is not measured
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = MetricLimit::parse)]
    metric: Vec<MetricLimit>,
    /// Path to request instead of the one in the URL; repeat it to measure several paths, each
    /// separately
    #[arg(long, value_name = "PATH", conflicts_with = "files", value_parser = super::compare::path)]
    path: Vec<String>,
    /// Time limit for the whole command; default: 3m, or max_time of each file
    #[arg(long, value_name = "DURATION", value_parser = positive_duration)]
    max_time: Option<DurationNs>,
    /// After this time, stop early if the check is unlikely to be decided within --max-time
    #[arg(long, value_name = "DURATION", default_value = "60s", value_parser = positive_duration)]
    screen: DurationNs,
    /// Allowed differences between replies: status, body, headers, connection, tls
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = Difference::parse)]
    may_differ: Vec<Difference>,
    /// Time limit for a started server's first good reply; default: 10s
    #[arg(long, value_name = "DURATION", conflicts_with = "files", value_parser = positive_duration)]
    ready_within: Option<DurationNs>,
    #[command(flatten)]
    load: LoadArgs,
    /// CPUs for the servers that tare starts: 0,2-3; default: those not used for load
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    server_cpus: Option<std::vec::Vec<usize>>,
    /// Random seed; default: a random one, which is stored
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Name of the check; default: base and head
    #[arg(long, value_name = "TEXT", conflicts_with = "files")]
    name: Option<String>,
    #[command(flatten)]
    forms: CheckFiles,
    /// Run store; default: $TARE_STORE, or tare.db in your data directory
    #[arg(long, value_name = "FILE")]
    store: Option<PathBuf>,
    /// No progress output
    #[arg(short, long)]
    quiet: bool,
}

const WORSE_BY: f64 = 0.02;
const MAX_TIME: DurationNs = DurationNs::from_secs(180);

pub fn run(args: &Check) -> Result<(), Failure> {
    let asked: Result<Vec<Asked>, Failure> = match (&args.base, &args.head) {
        (Some(base), Some(head)) => args.of_flags(base, head),
        _ if changes_load(&args.load) || args.server_cpus.is_some() => {
            let text =
                "flags of the load go with --base and --head; files have a [load] and [cpus]";
            return Err(Failure::usage(text));
        }
        _ => args.files.iter().map(|file| args.asked(experiment::read_check(file)?)).collect(),
    };
    let asked = asked?;
    asked.iter().try_for_each(Asked::check)?;
    let options = RunOptions {
        store: store_path(args.store.as_ref())?,
        forms: args.forms.wanted(),
        gates: Vec::new(),
        quiet: args.quiet,
        allows_void: false,
        began: monotonic_now(),
    };
    // The time of flags is for all paths together; files have their own.
    let max_time = args.max_time.or_else(|| args.files.is_empty().then_some(MAX_TIME));
    run_check(&asked, max_time, &options)
}

/// Whether the flags ask for another load than the default.
fn changes_load(load: &LoadArgs) -> bool {
    let command = LoadArgs::augment_args(clap::Command::new("load").no_binary_name(true));
    let matches = command.try_get_matches_from([""; 0]);
    let default = matches.and_then(|matches| LoadArgs::from_arg_matches(&matches));
    default.is_ok_and(|default| default.spec() != load.spec())
}

impl Check {
    /// Returns an experiment for each path.
    fn of_flags(&self, base: &str, head: &str) -> Result<Vec<Asked>, Failure> {
        let within = self.ready_within.unwrap_or(READY_WITHIN);
        let variants = [variant("base", base, within)?, variant("head", head, within)?];
        let name = self.name.clone().unwrap_or_else(|| format!("{base} → {head}"));
        let of_path = |path: Option<&String>| {
            let mut variants = variants.clone();
            variants[0].baseline = true;
            let mut load = self.load.spec().absolute(std::path::Path::new(""));
            load.path = path.cloned();
            for variant in path.map_or(&mut [][..], |_| &mut variants[..]) {
                let asked = variant.ask_for(path.map_or("/", String::as_str));
                asked.map_err(|why| why.named(&variant.name))?;
            }
            let name = match path.filter(|_| self.path.len() > 1) {
                Some(path) => format!("{name} {path}"),
                None => name.clone(),
            };
            let mut draft = draft(name, load, self.server_cpus.clone(), variants.to_vec());
            draft.stop.max_time = MAX_TIME;
            self.asked(Checked { draft, worse_by: None, metrics: Vec::new() })
        };
        match self.path.is_empty() {
            true => Ok(vec![of_path(None)?]),
            false => self.path.iter().map(|path| of_path(Some(path))).collect(),
        }
    }

    /// Applies the flags to an experiment.
    fn asked(&self, checked: Checked) -> Result<Asked, Failure> {
        let Checked { mut draft, worse_by, metrics } = checked;
        draft.stop.max_time = self.max_time.unwrap_or(draft.stop.max_time);
        draft.seed = self.seed.unwrap_or(draft.seed);
        for variant in &mut draft.variants {
            variant.may_differ.extend_from_slice(&self.may_differ);
        }
        let worse_by = self.worse_by.or(worse_by).unwrap_or(WORSE_BY);
        let mut asked = if self.metric.is_empty() { metrics } else { self.metric.clone() };
        if asked.is_empty() {
            asked.extend(defaults(&draft).map(MetricLimit::of));
        }
        let limit = |asked: &MetricLimit| CheckLimit {
            metric: asked.metric,
            percent: asked.worse_by.unwrap_or(worse_by) * 100.0,
        };
        let limits: Vec<CheckLimit> = asked.iter().map(limit).collect();
        if let Some(at) = (1..limits.len())
            .find(|at| limits[..*at].iter().any(|limit| limit.metric == limits[*at].metric))
        {
            let metric = limits[at].metric.word();
            return Err(Failure::usage(format!("--metric: {metric} is given twice")));
        }
        Ok(Asked { draft, limits, screen: self.screen })
    }
}

/// CPU time is known only of servers that tare starts.
fn defaults(draft: &Draft) -> impl Iterator<Item = Metric> {
    let is_metered = draft.variants.iter().all(Variant::is_launched);
    let at_rate = if is_metered { Metric::ServerCpu } else { Metric::LatencyP50 };
    let closed = draft.load.rate.is_none().then_some(Metric::Throughput);
    std::iter::once(at_rate).chain(closed)
}
