//! What the reader of a report is told of a guard: what was seen, and the one thing to do. The
//! guard's own text has the figures.

use crate::code::{Code, Family};

/// A guard in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// Behind a variant's name, or by itself.
    pub seen: &'static str,
    /// `None` where the guard's figures are the answer.
    pub cure: Option<&'static str>,
}

/// For those whose figures are the answer.
const WHY: &str = "";

impl Code {
    /// `None` of what reports do not tell as a warning, and of codes that runs do not have.
    pub fn brief(self) -> Option<Brief> {
        let (seen, cure) = match self {
            Self::NotProven => ("a layer or place is not proven to be in use", WHY),
            Self::UnequalReply => {
                ("replies differ from the baseline's", "make them equal, or run with --may-differ")
            }
            Self::Errors => ("requests failed", WHY),
            Self::CountMismatch => ("the server counted other requests than were sent", WHY),
            Self::RateMissed => ("replies came later than the rate asks", "lower the rate"),
            Self::Lost => ("datagrams were lost", "lower the rate"),
            Self::Resumed => ("TLS sessions were taken up against what was asked", WHY),
            Self::Chatty => {
                ("writes more log than the baseline", "fine if meant; else let both log")
            }
            Self::SplitReplies => ("sends each reply in pieces", "nginx: tcp_nopush on"),
            Self::Unexplained => ("costs more than its filter's calls", "tare filter bench"),
            Self::NotSteady => ("costs something else under sustained load", WHY),
            Self::Unconfirmed => ("sustained load cannot confirm it yet", "run longer: --max-time"),
            Self::DeferredWork => ("works while others are measured", WHY),
            Self::NotWarm => ("still warming up when measured", "raise --warmup-max"),
            Self::BusyWhileIdle => ("some server did not rest between loads", WHY),
            Self::NotSaturated => {
                ("sleeps between requests, and pays for waking", "more connections: -c")
            }
            Self::Unstable => ("differs in kind from launch to launch", "run longer: --max-time"),
            Self::Pauses => ("pauses now and then, beyond the interval", WHY),
            Self::ShortOfCpus => ("has more busy threads than CPUs", "--server-cpus"),
            Self::Steal => ("the hypervisor took CPU time", "use a machine that is not shared"),
            Self::Throttled => ("a CPU quota or heat held it up", WHY),
            Self::Noisy => ("other processes used CPUs", "stop them, or use another machine"),
            Self::Emulated => ("the VM is emulated", "use a machine with KVM"),
            Self::Retransmits => ("TCP segments were sent again", WHY),
            Self::ListenDrops => ("connections were dropped", "raise the server's backlog"),
            Self::Ports => ("local ports were running out", "more source addresses: --bind"),
            Self::LittlesLaw => ("requests/s × mean latency is not the connections in use", WHY),
            Self::ClientBound => ("the client was the limit", "more threads: -t"),
            Self::Reconnects => {
                ("the server closed kept connections", "raise its limit, or --new-connections")
            }
            Self::UnevenWorkers => {
                ("its workers have unequal shares of the connections", "--reconnect-each slice")
            }
            Self::DelayedAck => {
                ("replies came in two pieces, 40 ms apart", "set TCP_NODELAY in it")
            }
            Self::FewRounds => {
                ("too few launches for a verdict", "run it to its end, or for longer")
            }
            Self::LostRounds => ("some launches failed, and do not count", WHY),
            Self::Drift => {
                ("the baseline's own row holds the machine's drift, too", "rely on the ratios")
            }
            Self::OtherMachine => {
                ("the machines differ, and ratios may with them", "compare runs of one machine")
            }
            Self::OtherLoad => ("the loads differ", "compare runs of the same load"),
            Self::SingleLaunch => ("tare cannot restart the servers", "--launch NAME='command'"),
            _ => return None,
        };
        Some(Brief { seen, cure: Some(cure).filter(|cure| *cure != WHY) })
    }
}

impl Family {
    /// What is in doubt, in words.
    pub fn words(self) -> &'static str {
        match self {
            Self::Work => "different work",
            Self::Steady => "not steady",
            Self::Machine => "machine",
            Self::Client => "client",
            Self::Connections => "connections",
            Self::Interval => "interval",
            Self::Document => "document",
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_guard_of_comparisons_fits_a_line() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let page = |name: &str| std::fs::read_to_string(format!("{docs}/{name}")).unwrap();
        // Of runs, and of pairs of runs.
        let page = page("guards.md") + &page("reports.md");
        let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
        let rows = rows.filter_map(|row| row.split_once(" | "));
        let mut listed = BTreeSet::new();
        for (codes, rest) in rows {
            let words = codes.split(['`', ',', ' ']).filter(|word| !word.is_empty());
            for code in words.filter_map(Code::parse) {
                let Some(Brief { seen, cure }) = code.brief() else {
                    assert!(rest.starts_with("note"), "{code} has no line");
                    continue;
                };
                let length = seen.len() + cure.map_or(0, str::len);
                assert!(length <= 75, "{code}: {length}");
                listed.insert(code.word());
            }
        }
        let all = Code::ALL.iter().filter(|code| code.brief().is_some()).count();
        assert_eq!(listed.len(), all, "each is in docs/guards.md or docs/reports.md");
    }
}
