//! `tare sys`: measures what system calls cost here, in separate processes.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::Args;
use tare_io::calls::{Call, CallCount};
use tare_io::owned::own_program;
use tare_io::{DurationNs, Random};
use tare_report::sys::{SCHEMA, SysCall, SysReport, render, unixbench};
use tare_stats::Estimate;
use tare_stats::estimate::trimmed_mean;

use crate::args::words::{cpu_list, positive_duration};
use crate::load::addresses::random_seed;
use crate::load::interrupt;
use crate::load::outputs::{Output, print};
use tare_model::Failure;

/// Measure what system calls cost here: getpid, pipes, page faults, fork, …
///
/// Each launch is a separate process, which makes each call for a few milliseconds at a time, in
/// random order. Intervals are over launches. For containers, gVisor and VMs: tare run
/// experiments/syscalls-by-place.toml
///
/// Example: tare sys getpid pipe fork --unixbench
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Sys {
    /// mix (UnixBench's), getpid, exec, pipe, futex-wake, mmap, epoll, clock-vdso, clock-call,
    /// page-fault, fork, switch; default: all
    #[arg(value_name = "CALL", value_parser = Call::parse)]
    calls: Vec<Call>,
    /// Number of processes, one after another
    #[arg(long, value_name = "N", default_value_t = 20,
          value_parser = clap::value_parser!(u32).range(2..=10_000))]
    launches: u32,
    /// Total time for all launches
    #[arg(short, long, value_name = "DURATION", default_value = "10s",
          value_parser = positive_duration)]
    duration: DurationNs,
    /// Also print UnixBench's line and index of its system-call mix
    #[arg(long)]
    unixbench: bool,
    /// Number of processes at a time, like UnixBench's copies; the index covers all of them
    #[arg(long, value_name = "N", default_value_t = 1,
          value_parser = clap::value_parser!(u32).range(1..=1024))]
    copies: u32,
    /// CPUs to pin the processes to: 0,2-3
    #[arg(long, value_name = "LIST", value_parser = cpu_list)]
    cpus: Option<std::vec::Vec<usize>>,
    /// Write results as JSON to this file, or to standard output with -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Random seed of the order of calls; default: a random one, which is printed
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    /// Be such a process: read orders, answer with counts
    #[arg(long, hide = true)]
    worker: bool,
}

const SLICE: DurationNs = DurationNs::from_ms(2);
/// Share of a launch's slices trimmed at each end before averaging.
const TRIM: f64 = 0.2;
const LEVEL: f64 = 0.95;

pub fn run(args: &Sys) -> Result<(), Failure> {
    if args.worker {
        return work();
    }
    let mut calls = if args.calls.is_empty() { Call::ALL.to_vec() } else { args.calls.clone() };
    if args.unixbench && !calls.contains(&Call::Mix) {
        calls.insert(0, Call::Mix);
    }
    calls.sort_unstable();
    calls.dedup();
    let mut json = args.json.as_deref().map(|path| Output::create("--json", path)).transpose()?;
    let seed = args.seed.unwrap_or_else(random_seed);
    let cycle = SLICE.as_ns() * calls.len() as u64;
    let cycles = args.duration.as_ns() / u64::from(args.launches) / cycle;
    if cycles < CYCLES_MIN {
        let needed = DurationNs::from_ns(cycle * CYCLES_MIN * u64::from(args.launches));
        let allowed = format!("{} calls in {} launches need {needed}", calls.len(), args.launches);
        return Err(Failure::flag("--duration", &args.duration.to_string(), allowed));
    }
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    check_copies(args)?;
    let mut seen: Vec<CallLaunches> = calls.iter().map(|_| CallLaunches::default()).collect();
    for launch in 0..args.launches {
        if stop.load(Ordering::Relaxed) {
            break;
        }
        let random = Random::stream(seed, "sys order", u64::from(launch));
        let mut copies = Copies::start(args)?;
        run_launch(&mut copies, &calls, cycles, random, &stop, &mut seen)?;
    }
    let interrupted = interrupt::was_interrupted();
    if seen.iter().all(|seen| seen.ns.is_empty()) && interrupted {
        return Err(Failure::interrupted());
    }
    let calls: Vec<SysCall> =
        calls.iter().zip(seen).map(|(call, seen)| described(*call, seen)).collect();
    let report = SysReport {
        schema: SCHEMA.into(),
        seed,
        interrupted,
        slices: cycles,
        slice_ns: SLICE.as_ns(),
        copies: args.copies,
        calls,
    };
    if !json.as_ref().is_some_and(Output::is_stdout) {
        let mut text = render(&report);
        if args.unixbench {
            text.push_str(&unixbench(&report));
        }
        print(&text).map_err(|error| Failure::environment(format!("standard output: {error}")))?;
    }
    if let Some(json) = &mut json {
        json.write_json(&report.json())?;
    }
    if interrupted {
        return Err(Failure::interrupted());
    }
    match report.calls.iter().find_map(|call| call.failed.as_ref().map(|why| (call, why))) {
        Some((call, why)) => Err(Failure::environment(format!("{}: {why}", call.call))),
        None => Ok(()),
    }
}

/// Rejects more copies than CPUs: each must have a CPU to itself.
fn check_copies(args: &Sys) -> Result<(), Failure> {
    let cpus = args.cpus.clone().unwrap_or_else(tare_io::system::allowed_cpus).len();
    if args.copies as usize > cpus.max(1) {
        let allowed = format!("there are {cpus} CPUs for them");
        return Err(Failure::flag("--copies", &args.copies.to_string(), allowed));
    }
    Ok(())
}

/// Fewest slices for a trimmed mean.
const CYCLES_MIN: u64 = 3;

/// Results of all launches for one call.
#[derive(Default)]
struct CallLaunches {
    /// Nanoseconds per call, one value per launch.
    ns: Vec<f64>,
    /// Calls per second of all copies together, one value per launch.
    per_s: Vec<f64>,
    made: u64,
    elapsed_ns: u64,
    failed: Option<String>,
}

fn described(call: Call, seen: CallLaunches) -> SysCall {
    SysCall {
        call: call.name().to_owned(),
        what: call.text().to_owned(),
        launches: seen.ns.len() as u32,
        made: seen.made,
        elapsed_ns: seen.elapsed_ns,
        ns: Estimate::of_mean(&seen.ns, LEVEL),
        per_s: Estimate::of_mean(&seen.per_s, LEVEL),
        failed: seen.failed,
    }
}

fn run_launch(
    copies: &mut Copies,
    calls: &[Call],
    cycles: u64,
    mut random: Random,
    stop: &AtomicBool,
    seen: &mut [CallLaunches],
) -> Result<(), Failure> {
    let mut slices: Vec<Vec<f64>> = vec![Vec::new(); calls.len()];
    let mut rates: Vec<Vec<f64>> = vec![Vec::new(); calls.len()];
    // The first cycle is not counted: it brings the code and pages of each call into memory.
    for cycle in 0..=cycles {
        let mut left: Vec<usize> = (0..calls.len()).collect();
        while !left.is_empty() && !stop.load(Ordering::Relaxed) {
            let at = left.swap_remove(random.below(left.len() as u64) as usize);
            if seen[at].failed.is_some() {
                continue;
            }
            match copies.make(calls[at])? {
                Err(why) => seen[at].failed = Some(why),
                Ok(_) if cycle == 0 => {}
                Ok(counted) => {
                    let each = |one: &CallCount| one.elapsed.as_ns() as f64 / one.calls as f64;
                    let mean = counted.iter().map(each).sum::<f64>() / counted.len() as f64;
                    slices[at].push(mean);
                    rates[at].push(counted.iter().map(|one| 1e9 / each(one)).sum());
                    for one in counted {
                        seen[at].made += one.calls;
                        seen[at].elapsed_ns += one.elapsed.as_ns();
                    }
                }
            }
        }
    }
    for (seen, (slices, rates)) in seen.iter_mut().zip(slices.into_iter().zip(rates)) {
        if slices.len() as u64 >= CYCLES_MIN {
            seen.ns.push(trimmed_mean(&slices, TRIM));
            seen.per_s.push(trimmed_mean(&rates, TRIM));
        }
    }
    Ok(())
}

/// The processes of one launch.
struct Copies(Vec<Worker>);

struct Worker {
    child: Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Copies {
    fn start(args: &Sys) -> Result<Self, Failure> {
        let cannot = |error: std::io::Error| {
            Failure::environment(format!("cannot start a process to make calls in: {error}"))
        };
        let own = own_program();
        let mut workers = Self(Vec::new());
        for copy in 0..args.copies as usize {
            let mut command = Command::new(&own);
            command.args(["sys", "--worker"]);
            if let Some(cpus) = args.cpus.as_ref().filter(|cpus| !cpus.is_empty()) {
                command.args(["--cpus", &cpus[copy % cpus.len()].to_string()]);
            }
            let mut child = command
                .process_group(0)
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .map_err(cannot)?;
            let (Some(to), Some(from)) = (child.stdin.take(), child.stdout.take()) else {
                return Err(Failure::bug("a child without pipes"));
            };
            workers.0.push(Worker { child, to, from: BufReader::new(from) });
        }
        Ok(workers)
    }

    /// Has all copies repeat a call at the same time; the inner error says why one cannot.
    fn make(&mut self, call: Call) -> Result<Result<Vec<CallCount>, String>, Failure> {
        let gone = || Failure::environment("a process that makes calls has ended");
        for worker in &mut self.0 {
            let order = format!("{} {}\n", call.name(), SLICE.as_ns());
            worker.to.write_all(order.as_bytes()).map_err(|_| gone())?;
        }
        let mut counted = Vec::new();
        let mut failed = None;
        for worker in &mut self.0 {
            let mut line = String::new();
            worker.from.read_line(&mut line).map_err(|_| gone())?;
            let line = line.trim_end();
            match line.split_once(' ').map(|(calls, ns)| (calls.parse(), ns.parse())) {
                Some((Ok(calls), Ok(ns))) => {
                    counted.push(CallCount { calls, elapsed: DurationNs::from_ns(ns) });
                }
                _ if line.is_empty() => return Err(gone()),
                _ => failed = Some(line.to_owned()),
            }
        }
        Ok(failed.map_or(Ok(counted), Err))
    }
}

impl Drop for Copies {
    fn drop(&mut self) {
        for Worker { child, to, .. } in self.0.drain(..) {
            // The worker ends when its standard input closes.
            drop(to);
            let mut child = child;
            let _ = child.wait();
        }
    }
}

/// Runs a worker: one order per line in, one answer per line out.
fn work() -> Result<(), Failure> {
    // Pins to the CPUs of the first --cpus; clap has checked them.
    let cpus = std::env::args().skip_while(|word| word != "--cpus").nth(1);
    if let Some(cpus) = cpus.and_then(|text| cpu_list(&text).ok()) {
        tare_io::process::pin_to(&cpus)?;
    }
    // End together with the parent process.
    let _ = tare_io::process::end_with_parent();
    for line in std::io::stdin().lock().lines() {
        let line = line.map_err(|error| Failure::environment(error.to_string()))?;
        let Some((call, ns)) = line.split_once(' ') else { break };
        let (Ok(call), Ok(ns)) = (Call::parse(call), ns.parse()) else { break };
        let answer = match tare_io::calls::repeat_for(call, DurationNs::from_ns(ns)) {
            Ok(counted) => format!("{} {}\n", counted.calls, counted.elapsed.as_ns()),
            Err(error) => format!("{error}\n"),
        };
        if print(&answer).is_err() {
            break;
        }
    }
    Ok(())
}
