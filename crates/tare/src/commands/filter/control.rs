//! `tare filter control`: creates the shared memory of filters, shows their counters, changes their
//! prefix while they run, and removes the memory at the end.

use std::io::BufRead;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

use clap::Args;
use tare_io::DurationNs;
use tare_io::time::monotonic_now;
use tare_lab::filters::memory;
use tare_lab::filters::shared::{SharedMemory, Totals, check_name};
use tare_lab::journal::Journal;
use tare_model::filters::{FilterKind, check_prefix};

use crate::load::interrupt;
use crate::load::outputs::{print, print_stderr};
use crate::run::cpus_and_folders::journal_folder;
use tare_model::Failure;

/// Create the shared memory of the filters shm and ebpf, and control them through it
///
/// Start it before nginx. It prints every second how many URLs were accepted and refused. Type a
/// new prefix to change it. Press Ctrl-C to end it and remove the memory.
///
/// Example: tare filter control shm --prefix /aaaa --shm tare-mine
#[derive(Args)]
#[command(verbatim_doc_comment)]
pub struct Control {
    /// shm or ebpf
    #[arg(value_name = "FILTER", value_parser = FilterKind::parse)]
    filter: FilterKind,
    /// Prefix of accepted URLs
    #[arg(long, default_value = "/aaaa")]
    prefix: String,
    /// Name of the memory, as in nginx's tare_filter_shm
    #[arg(long, value_name = "NAME", default_value = "tare-filter")]
    shm: String,
    /// Change the prefix of a running controller, and exit
    #[arg(long, value_name = "PREFIX")]
    set: Option<String>,
}

const EVERY: DurationNs = DurationNs::from_secs(1);
/// How often signals are checked.
const CHECK: Duration = Duration::from_millis(20);

pub fn run(args: &Control) -> Result<(), Failure> {
    if !args.filter.is_controlled() {
        let allowed = "has no controller; shm and ebpf have";
        return Err(Failure::flag("filter", args.filter.name(), allowed));
    }
    check_name(&args.shm).map_err(|why| Failure::flag("--shm", &args.shm, why))?;
    if let Some(prefix) = &args.set {
        check_prefix(prefix).map_err(|why| Failure::flag("--set", prefix, why))?;
        let mut memory = SharedMemory::open(&args.shm)?;
        let before = memory.prefix()?;
        memory.set_prefix(prefix)?;
        return say(&format!("prefix {prefix} (was {before})"));
    }
    check_prefix(&args.prefix).map_err(|why| Failure::flag("--prefix", &args.prefix, why))?;
    let stop = Arc::new(AtomicBool::new(false));
    interrupt::on_interrupt(stop.clone())?;
    let journal = Journal::create(&journal_folder()?)?;
    let memory = memory::create(&args.shm, &args.prefix, &journal)?;
    let outcome = watch(memory, args, &stop);
    let complaints = journal.remove_all();
    outcome?;
    match complaints.is_empty() {
        true => Ok(()),
        false => Err(Failure::environment(complaints.join("; "))),
    }
}

fn watch(mut memory: SharedMemory, args: &Control, stop: &AtomicBool) -> Result<(), Failure> {
    say(&format!("controls {} with prefix {}", args.shm, args.prefix))?;
    let lines = typed_lines();
    let mut shown = Totals::default();
    let mut next = monotonic_now() + EVERY;
    while !stop.load(Ordering::Relaxed) {
        match lines.recv_timeout(CHECK) {
            Ok(prefix) => {
                let prefix = prefix.trim();
                match check_prefix(prefix) {
                    Ok(()) => {
                        memory.set_prefix(prefix)?;
                        say(&format!("prefix {prefix}"))?;
                    }
                    Err(why) => print_stderr(&format!("tare: {why}\n")),
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            // Standard input has ended; continue until a signal.
            Err(RecvTimeoutError::Disconnected) => std::thread::park_timeout(CHECK),
        }
        if monotonic_now() >= next {
            next = next + EVERY;
            let totals = memory.totals()?;
            say(&format!(
                "accepted {} (+{}), refused {} (+{})",
                totals.accepted,
                totals.accepted.saturating_sub(shown.accepted),
                totals.refused,
                totals.refused.saturating_sub(shown.refused)
            ))?;
            shown = totals;
        }
    }
    let totals = memory.totals()?;
    say(&format!("ended: accepted {}, refused {}", totals.accepted, totals.refused))
}

/// Reads standard input on a separate thread, as a blocked read cannot be cancelled.
fn typed_lines() -> Receiver<String> {
    let (sender, lines) = channel();
    let read = move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            if sender.send(line).is_err() {
                return;
            }
        }
    };
    // If the thread cannot be started, only typed prefixes have no effect.
    let _ = std::thread::Builder::new().name("typed".into()).spawn(read);
    lines
}

fn say(text: &str) -> Result<(), Failure> {
    print(&format!("{text}\n"))
        .map_err(|error| Failure::environment(format!("standard output: {error}")))
}
