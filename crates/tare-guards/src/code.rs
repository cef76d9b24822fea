//! The codes of all reasons to doubt a number from a run, a single load, a pair of runs or another
//! tool. Each belongs to a family: guards of one family have similar remedies.

use std::fmt;

use serde::{Deserialize, Serialize};

/// The area that a doubt concerns.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The variants did not do the same work, or not the requested work.
    Work,
    /// A cost that changes with time, or with how load is made.
    Steady,
    /// Interference by the machine, the network or other processes.
    Machine,
    /// The client, or the tool, may be what was measured.
    Client,
    /// How connections were used.
    Connections,
    /// Effects that the interval does not cover.
    Interval,
    /// A document's statements about its own numbers.
    Document,
}

/// A guard in one line of a report; its own text has the figures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Brief {
    /// What was observed; printed after the variant's name, or alone.
    pub seen: &'static str,
    /// The one thing to do about it; `None` where the guard's figures are the answer.
    pub cure: Option<&'static str>,
}

impl Brief {
    fn from_words(words: &[&'static str]) -> Option<Self> {
        let (seen, cure) = words.split_first()?;
        Some(Self { seen, cure: cure.first().copied() })
    }
}

/// A line for each code: its word in JSON, then its brief: what was seen, and the cure if there is
/// one. Codes without a brief are notes, or codes that runs do not have.
macro_rules! codes {
    ($($family:ident {
        $($code:ident $word:literal $(=> $seen:literal $(, $cure:literal)?)?;)*
    })*) => {
        /// Why a number is in doubt; `word` is its name in JSON.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "&'static str")]
        pub enum Code {
            $($($code,)*)*
        }

        impl Code {
            pub const ALL: &[Self] = &[$($(Self::$code,)*)*];

            pub fn word(self) -> &'static str {
                match self {
                    $($(Self::$code => $word,)*)*
                }
            }

            pub fn family(self) -> Family {
                match self {
                    $($(Self::$code)|* => Family::$family,)*
                }
            }

            pub fn brief(self) -> Option<Brief> {
                match self {
                    $($(Self::$code => Brief::from_words(&[$($seen $(, $cure)?)?]),)*)*
                }
            }
        }
    };
}

codes! {
    Work {
        NotProven "not-proven" => "a layer or place is not proven to be in use";
        UnequalReply "unequal-reply"
            => "replies differ from the baseline's", "make them equal, or run with --may-differ";
        Errors "errors" => "requests failed";
        CountMismatch "count-mismatch"
            => "the server counted more or fewer requests than were sent";
        RateMissed "rate-missed" => "replies did not keep up with the rate", "lower the rate";
        Lost "lost" => "datagrams were lost", "lower the rate";
        Resumed "resumed" => "TLS handshakes were not of the requested kind";
        Chatty "chatty" => "logs more than the baseline", "if unintended, let both log the same";
        Unexplained "unexplained"
            => "its filter's calls do not explain its cost", "see tare filter bench";
        SplitReplies "split-replies"
            => "sends each reply in several TCP segments", "nginx: tcp_nopush on";
        UnequalLoad "unequal-load";
        OtherLoad "other-load" => "the loads differ", "compare runs of the same load";
        OtherServer "other-server";
        CutShort "cut-short";
        ShortRun "short-run";
        OtherCommand "other-command";
        WrongHeading "wrong-heading";
        SameOutput "same-output";
        NoPartner "no-partner";
    }
    Steady {
        NotSteady "not-steady" => "its cost differs under sustained load";
        ByClients "by-clients" => "its size depends on whether clients poll or sleep";
        Unconfirmed "unconfirmed"
            => "not yet confirmed by sustained load", "run longer: --max-time";
        DeferredWork "deferred-work" => "uses CPU time while others are measured";
        WorkElsewhere "work-elsewhere" => "makes other processes work; its CPU time leaves that out";
        NotWarm "not-warm" => "still warming up when measured", "raise --warmup-max";
        BusyWhileIdle "busy-while-idle" => "some server was not idle between slices";
        NotSaturated "not-saturated"
            => "sleeps between requests; waking it costs CPU time", "more connections: -c";
        Unstable "unstable" => "its rounds show a trend or two modes", "run longer: --max-time";
        Pauses "pauses" => "occasional pauses are not in the interval";
    }
    Machine {
        ShortOfCpus "short-of-cpus"
            => "has more busy threads than CPUs", "give it more: --server-cpus";
        Steal "steal" => "the hypervisor took CPU time", "use a machine that is not shared";
        Throttled "throttled" => "a CPU quota or heat held it up";
        Noisy "noisy" => "other processes used CPUs", "stop them, or use another machine";
        Emulated "emulated" => "the VM is emulated", "use a machine with KVM";
        Retransmits "retransmits" => "TCP segments were retransmitted";
        ListenDrops "listen-drops" => "connections were dropped", "raise the server's backlog";
        Ports "ports" => "local ports were running out", "more source addresses: --bind";
        OtherMachine "other-machine"
            => "the machines differ, and ratios may with them", "compare runs of one machine";
    }
    Client {
        LittlesLaw "littles-law" => "requests/s × mean latency exceeds the connections in use";
        StreamsLimited "streams-limited"
            => "had fewer requests under way than asked", "lower --streams";
        Retried "retried" => "the server refused requests unprocessed; they were sent again";
        ClientBound "client-bound" => "the client was the limit", "more threads: -t";
        Clients "clients";
        DifferentTools "different-tools";
        Corrected "corrected";
        CutOff "cut-off";
        LeftOut "left-out";
        HalfRoundTrip "half-round-trip";
        Coarse "coarse";
        Impossible "impossible";
    }
    Connections {
        Reconnects "reconnects"
            => "the server closed kept connections", "raise its limit, or --new-connections";
        UnevenWorkers "uneven-workers"
            => "its workers have unequal shares of the connections", "--reconnect-each slice";
        DelayedAck "delayed-ack"
            => "replies came in two pieces, 40 ms apart", "set TCP_NODELAY on the server";
        Unsent "unsent";
        ConnectionsBusy "connections-busy";
        ConnectionsLost "connections-lost";
    }
    Interval {
        FewRounds "few-rounds"
            => "too few launches for a verdict", "run it to its end, or for longer";
        LostRounds "lost-rounds" => "some launches failed, and do not count";
        SingleLaunch "single-launch"
            => "tare cannot restart the servers", "--launch NAME='command'";
        Exclusive "exclusive";
        PlaceLaunches "place-launches";
        Drift "drift"
            => "the baseline's own row includes machine drift", "rely on the ratios";
        SingleRun "single-run";
        Sequential "sequential";
        FewSamples "few-samples";
    }
    Document {
        Unread "unread";
        KeptApart "kept-apart";
        Pooled "pooled";
        NotCompared "not-compared";
        Unchecked "unchecked";
        NoSample "no-sample";
        SumsOnly "sums-only";
        Disagrees "disagrees";
        WrongChange "wrong-change";
        OtherBase "other-base";
    }
}

impl Code {
    /// Whether more launches may remove the doubt: it depends on how well launches agree, or on
    /// what other processes did meanwhile.
    pub fn may_pass(self) -> bool {
        use Code::{DeferredWork, Noisy, NotSteady, NotWarm, Unconfirmed};
        matches!(self, NotSteady | Unconfirmed | DeferredWork | NotWarm | Noisy)
    }

    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|code| code.word() == word)
    }
}

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.word())
    }
}

impl From<Code> for &'static str {
    fn from(code: Code) -> Self {
        code.word()
    }
}

impl TryFrom<String> for Code {
    type Error = String;

    fn try_from(word: String) -> Result<Self, String> {
        Self::parse(&word).ok_or_else(|| format!("no guard has the code '{word}'"))
    }
}

impl PartialEq<str> for Code {
    fn eq(&self, word: &str) -> bool {
        self.word() == word
    }
}

impl PartialEq<&str> for Code {
    fn eq(&self, word: &&str) -> bool {
        self.word() == *word
    }
}

impl Family {
    /// Names the area in words.
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
    fn every_code_is_in_the_documents_and_reads_back() {
        let documents = ["guards", "load", "import", "reports"].map(|name| {
            let path = format!("{}/../../docs/{name}.md", env!("CARGO_MANIFEST_DIR"));
            std::fs::read_to_string(path).expect("docs are beside the crates")
        });
        for code in Code::ALL {
            let told = format!("`{code}`");
            assert!(documents.iter().any(|text| text.contains(&told)), "{code}");
            assert_eq!(Code::parse(code.word()), Some(*code));
        }
        assert_eq!(Code::parse("no-such-guard"), None);
    }

    #[test]
    fn every_guard_of_comparisons_fits_a_line() {
        let docs = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs");
        let page = |name: &str| std::fs::read_to_string(format!("{docs}/{name}")).unwrap();
        // The pages for runs and for pairs of runs.
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
