//! The codes of all reasons to doubt a number, whoever made it: a run, a single load, a pair of
//! runs, another tool. Each belongs to a family, which is what a person can do about it.

use std::fmt;

use serde::{Deserialize, Serialize};

/// What is in doubt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Family {
    /// The variants did not do the same work, or not the work that was asked for.
    Work,
    /// A cost that changes with time, or with how load is made.
    Steady,
    /// What the machine, the network or others on it did.
    Machine,
    /// The client, or the tool, may be what was measured.
    Client,
    /// How connections were used.
    Connections,
    /// What the interval does not cover.
    Interval,
    /// What a document says of its numbers.
    Document,
}

macro_rules! codes {
    ($($family:ident { $($code:ident $word:literal)* })*) => {
        /// Why a number is in doubt; JSON has its word.
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
        }
    };
}

codes! {
    Work {
        NotProven "not-proven"
        UnequalReply "unequal-reply"
        Errors "errors"
        CountMismatch "count-mismatch"
        RateMissed "rate-missed"
        Lost "lost"
        Resumed "resumed"
        Chatty "chatty"
        Unexplained "unexplained"
        SplitReplies "split-replies"
        UnequalLoad "unequal-load"
        OtherLoad "other-load"
        OtherServer "other-server"
        CutShort "cut-short"
        ShortRun "short-run"
        OtherCommand "other-command"
        WrongHeading "wrong-heading"
        SameOutput "same-output"
        NoPartner "no-partner"
    }
    Steady {
        NotSteady "not-steady"
        Unconfirmed "unconfirmed"
        DeferredWork "deferred-work"
        NotWarm "not-warm"
        BusyWhileIdle "busy-while-idle"
        NotSaturated "not-saturated"
        Unstable "unstable"
        Pauses "pauses"
    }
    Machine {
        ShortOfCpus "short-of-cpus"
        Steal "steal"
        Throttled "throttled"
        Noisy "noisy"
        Emulated "emulated"
        Retransmits "retransmits"
        ListenDrops "listen-drops"
        Ports "ports"
        OtherMachine "other-machine"
    }
    Client {
        LittlesLaw "littles-law"
        ClientBound "client-bound"
        Clients "clients"
        DifferentTools "different-tools"
        Corrected "corrected"
        CutOff "cut-off"
        LeftOut "left-out"
        HalfRoundTrip "half-round-trip"
        Coarse "coarse"
        Impossible "impossible"
    }
    Connections {
        Reconnects "reconnects"
        UnevenWorkers "uneven-workers"
        DelayedAck "delayed-ack"
        Unsent "unsent"
        ConnectionsBusy "connections-busy"
        ConnectionsLost "connections-lost"
    }
    Interval {
        FewRounds "few-rounds"
        LostRounds "lost-rounds"
        SingleLaunch "single-launch"
        Exclusive "exclusive"
        PlaceLaunches "place-launches"
        Drift "drift"
        SingleRun "single-run"
        Sequential "sequential"
        FewSamples "few-samples"
    }
    Document {
        Unread "unread"
        KeptApart "kept-apart"
        Pooled "pooled"
        NotCompared "not-compared"
        Unchecked "unchecked"
        NoSample "no-sample"
        SumsOnly "sums-only"
        Disagrees "disagrees"
        WrongChange "wrong-change"
        OtherBase "other-base"
    }
}

impl Code {
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

#[cfg(test)]
mod tests {
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
}
