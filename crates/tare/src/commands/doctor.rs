//! `tare doctor`: what can be measured on this machine.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use clap::Args;
use tare_io::uring::UringReactor;
use tare_io::{DurationNs, process, system};
use tare_lab::journal::Journal;
use tare_lab::machine::cgroup::Cgroup;
use tare_lab::machine::programs;
use tare_lab::machine::{Machine, local_ports, steal_share};
use tare_model::Metric;
use tare_model::load::LoadSpec;
use tare_model::plain;
use tare_model::plan::{Draft, Plan, Slices, Stop};
use tare_model::servers::{NginxSpec, ServerSpec, TargetSpec};
use tare_model::variant::Variant;
use tare_report::format::{bytes, count, percent};
use tare_report::run::words::signed;
use tare_run::Stopped;
use tare_store::Store;

use crate::args::words::positive_duration;
use crate::load::addresses::random_seed;
use crate::load::interrupt;
use crate::load::outputs::print;
use crate::run::aside::{Temporary, measure_aside};
use crate::run::choices::PRECISION;
use crate::run::cpus_and_folders::{divide_cpus, journal_folder, store_path};
use tare_model::Failure;

/// Show what can be measured on this machine, and how precisely
///
/// Example: tare doctor --noise
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Doctor {
    /// Measure the noise floor: compare identical servers, of tare target and of nginx
    #[arg(long)]
    noise: bool,
    /// Show what the cluster of this kubeconfig context allows instead
    #[arg(long, value_name = "CONTEXT", conflicts_with = "noise")]
    context: Option<String>,
    /// With --noise: time for each kind of server
    #[arg(long, value_name = "DURATION", default_value = "30s", value_parser = positive_duration,
          requires = "noise")]
    time: DurationNs,
}

pub fn run(args: &Doctor) -> Result<(), Failure> {
    let say = |text: String| {
        print(&text).map_err(|error| Failure::environment(format!("standard output: {error}")))
    };
    if let Some(context) = &args.context {
        let found = tare_lab::places::kubernetes::survey::survey(context)?;
        let line = |(what, text): &Line| format!("{what:<12} {}\n", plain::line(text));
        return say(found.iter().map(line).collect());
    }
    let mut lines = machine();
    lines.extend(kernel());
    lines.extend(programs_found());
    lines.extend(places());
    lines.push(store());
    lines.push(first_try());
    say(lines.into_iter().map(|(what, text)| format!("{what:<12} {text}\n")).collect())?;
    if args.noise {
        let stop = Arc::new(AtomicBool::new(false));
        interrupt::on_interrupt(stop.clone())?;
        let folder = Temporary::new()?;
        for (name, server) in [
            ("tare target", Some(ServerSpec::Target(TargetSpec::default()))),
            ("nginx", programs::find(&["nginx"]).map(|_| ServerSpec::Nginx(NginxSpec::default()))),
        ] {
            let text = match server {
                Some(server) => noise(name, &server, args.time, &folder.path, &stop)?,
                None => format!("{name} is not installed: its noise is not measured"),
            };
            say(format!("{:<12} {text}\n", "noise"))?;
        }
    }
    Ok(())
}

type Line = (&'static str, String);

fn cpus_in_words(cpus: &[usize]) -> String {
    let list: Vec<String> = cpus.iter().map(usize::to_string).collect();
    format!("{} {}", if list.len() == 1 { "CPU" } else { "CPUs" }, list.join(", "))
}

fn machine() -> Vec<Line> {
    let machine = Machine::probe();
    let kind = if machine.virtual_machine { ", a virtual machine" } else { "" };
    let memory = bytes(machine.memory_bytes as f64);
    let cpus = machine.cpus.len();
    let governor = match machine.governor.as_deref() {
        Some("performance") => "governor: performance".to_owned(),
        Some(other) => format!(
            "governor: {other}; CPU speed varies (fix: cpupower frequency-set -g performance)"
        ),
        None => "frequency governor unknown".to_owned(),
    };
    let (load, servers) = divide_cpus(None, None, None);
    let division = match cpus {
        1 => "load and servers share the only CPU".to_owned(),
        _ => format!("load: {}; servers: {}", cpus_in_words(&load), cpus_in_words(&servers)),
    };
    vec![
        ("machine", format!("{}, {}, {memory}{kind}", machine.system, machine.kernel)),
        ("CPUs", format!("{cpus} × {}; {governor}", machine.cpu_model)),
        ("CPU split", division),
        ("steal", format!("{} of CPU time since boot", percent(steal_share()))),
    ]
}

fn kernel() -> Vec<Line> {
    let uring = match UringReactor::new(64) {
        Ok(_) => "works".to_owned(),
        Err(error) => format!("does not: {error}; epoll is used instead, at about twice the CPU"),
    };
    let cgroups = match cgroups() {
        Ok(text) => text,
        Err(failure) => format!("not tried: {failure}"),
    };
    let root = match process::is_root() {
        true => "yes",
        false => "no; not needed to compare on this host",
    };
    let files = system::raise_open_files(FILES_WANTED);
    let ports = local_ports().map_or("not told".to_owned(), |(low, high)| {
        let n = high - low + 1;
        format!(
            "{low} to {high}: at most {} new connections/s to one address, as a closed port is \
             unusable for a minute",
            count(u64::from(n / 60))
        )
    });
    vec![
        ("io_uring", uring),
        ("cgroups", cgroups),
        ("root", root.to_owned()),
        ("open files", format!("{} for this process", count(files))),
        ("local ports", ports),
        ("bridges", bridges(std::fs::read_to_string(BRIDGES).ok().as_deref()).to_owned()),
    ]
}

const BRIDGES: &str = "/proc/sys/net/bridge/bridge-nf-call-iptables";

/// Reports whether bridged packets go through iptables; places on tare's network share a bridge.
fn bridges(setting: Option<&str>) -> &'static str {
    match setting.map(str::trim) {
        Some("1") => {
            "what passes a bridge goes through this machine's iptables, as a Kubernetes wants it: \
             places in netns, containers and machines pay for that (fix, where none runs: sysctl \
             net.bridge.bridge-nf-call-iptables=0)"
        }
        _ => "what passes a bridge goes past this machine's iptables",
    }
}

fn cgroups() -> Result<String, Failure> {
    let journal = Journal::create(&journal_folder()?)?;
    let name = format!("doctor-{}", std::process::id());
    Ok(match Cgroup::make(&name, &journal)? {
        Ok(_) => "available; servers' CPU time is read per cgroup".to_owned(),
        Err(why) => format!("no: {why}; CPU time is read per process"),
    })
}

/// Open-file limit that is enough for a hundred thousand connections.
const FILES_WANTED: u64 = 100_000;

fn programs_found() -> Vec<Line> {
    let known: [(&[&str], &str, &str); 5] = [
        (&["nginx"], "-v", "server"),
        (&["apache2", "httpd"], "-v", "server"),
        (&["caddy"], "version", "server"),
        (&["haproxy"], "-v", "server"),
        (&["wrk"], "--version", "make bench"),
    ];
    let line = |(names, flag, what): &(&[&str], &str, &str)| {
        let text = match programs::find(names) {
            Some(path) => {
                let version = tare_lab::machine::commands::version(&path, flag).unwrap_or_default();
                // Some programs print only a number.
                match version.starts_with(|c: char| c.is_ascii_digit()) {
                    true => format!("{} {version}", names[0]),
                    false if version.is_empty() => path.display().to_string(),
                    false => version,
                }
            }
            None => format!("{} is not installed ({what})", names.join(" or ")),
        };
        ("program", text)
    };
    known.iter().map(line).collect()
}

/// Lists the kinds of places, and why a kind is unavailable.
fn places() -> Vec<Line> {
    let line = |(name, found): (&str, Result<String, String>)| {
        let text = match found {
            Ok(text) => text,
            Err(why) => format!("no: {why}"),
        };
        ("place", format!("{name:<8} {text}"))
    };
    tare_lab::places::survey().into_iter().map(line).collect()
}

fn store() -> Line {
    let text = match store_path(None) {
        Ok(path) if !path.exists() => format!("{}, made by the first run", path.display()),
        Ok(path) => match Store::open_existing(&path) {
            Ok(_) => {
                let free = process::free_bytes(&path).unwrap_or(0);
                format!("{} ({} free)", path.display(), bytes(free as f64))
            }
            Err(error) => error.to_string(),
        },
        Err(failure) => failure.to_string(),
    };
    ("store", text)
}

/// Returns the command to begin with on this machine.
fn first_try() -> Line {
    let text = match (programs::find(&["nginx"]), programs::find(&["apache2", "httpd"])) {
        (Some(_), Some(_)) => "tare run nginx-access-log (tare run --list has others)",
        (Some(_), None) => {
            "tare compare 'a=nginx -c /your.conf -g \"daemon off;\"' …, or tare run --list"
        }
        (None, _) => {
            "tare compare 'a=tare target --listen 127.0.0.1:{port}' 'b=tare target --listen \
             127.0.0.1:{port} --busy 2us', or two servers of your own"
        }
    };
    ("try", text.to_owned())
}

/// Compares two identical servers for `time` and reports the resolution reached.
fn noise(
    name: &str,
    server: &ServerSpec,
    time: DurationNs,
    folder: &Path,
    stop: &Arc<AtomicBool>,
) -> Result<String, Failure> {
    let variant = |which: &str, baseline| Variant {
        baseline,
        ..Variant::new(which, "http://127.0.0.1:{port}/", server.clone())
    };
    let (load_cpus, server_cpus) = divide_cpus(None, None, None);
    let threads = Some(load_cpus.len().max(1) as u32);
    let plan = Plan::try_from(Draft {
        name: format!("noise of {name}"),
        seed: random_seed(),
        load: LoadSpec { connections: Some(20), threads, ..LoadSpec::default() },
        stop: Stop {
            // Never reached: the time limit ends the run.
            precision: 1e-6,
            of_effect: 0.0,
            tolerance: PRECISION,
            max_time: time,
            metrics: vec![Metric::Throughput],
            rounds: None,
            lost_rounds: 0,
        },
        // The number is fixed, because one chosen for this precision would be meaningless.
        slices: Slices { cycles: Some(NOISE_CYCLES), ..Slices::default() },
        load_cpus,
        server_cpus,
        variants: vec![variant("one", true), variant("other", false)],
        skipped: Vec::new(),
        cell: Default::default(),
        check: None,
    })?;
    let measured = measure_aside(&[plan], &folder.join("noise.db"), stop)?;
    match measured.stopped.into_iter().next() {
        Some(Stopped::Failed(failure)) => return Err(failure),
        Some(Stopped::Interrupted) => return Err(Failure::interrupted()),
        _ => {}
    }
    let Some(document) = measured.documents.into_iter().next() else {
        return Err(Failure::bug("a run without a report"));
    };
    let report = document.report;
    let Some(comparison) = report.comparisons.iter().find(|c| c.asked) else {
        return Ok(format!("{name}: too few rounds in {time} to tell"));
    };
    let bounds = comparison.overhead_percent;
    Ok(format!(
        "{name}: on this machine, {time} resolves ± {:.1} % (two identical servers: {} %, {} \
         launches each){}",
        (bounds.upper - bounds.lower) / 2.0,
        signed(bounds.point),
        report.run.rounds,
        report.run.neighbours().map_or(String::new(), |text| format!("; {text}"))
    ))
}

/// Number of slices that is optimal for typical variances of launches and slices.
const NOISE_CYCLES: u32 = 5;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_kubernetes_left_is_told() {
        assert!(bridges(Some("1\n")).contains("bridge-nf-call-iptables=0"));
        for other in [Some("0\n"), None] {
            assert!(!bridges(other).contains("fix"));
        }
    }
}
