//! Counters that meters read from running processes. Adding, subtracting, storing and sending treat
//! them as one array, so a new counter needs a line here and a source in
//! `tare-lab/src/meters/probes/`.

use std::collections::BTreeMap;
use std::ops::Index;

use serde::{Deserialize, Deserializer, Serialize, Serializer, de};

macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident = $key:literal;)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Counter { $($(#[$doc])* $name,)* }

        impl Counter {
            pub const ALL: [Self; [$($key),*].len()] = [$(Self::$name),*];

            /// Its name in the store and in agents' messages.
            pub const fn key(self) -> &'static str {
                match self { $(Self::$name => $key,)* }
            }
        }
    };
}

counters! {
    /// Nanoseconds on a CPU.
    Cpu = "cpu_ns";
    /// The part spent in the processes' own code.
    User = "user_ns";
    /// The part spent in the kernel.
    System = "system_ns";
    /// How often the processes' threads were scheduled; unknown where processes come and go.
    Switches = "switches";
    /// Nanoseconds in which the processes' threads were ready to run but waited for a CPU.
    Waited = "waited_ns";
    /// Page faults without a disk read; unknown once a process has ended.
    MinorFaults = "minor_faults";
    /// Packets that the server's place received and sent, if it has a network link of its own.
    Packets = "packets";
    /// Nanoseconds of kernel work for packets and other interrupts that is charged to no process,
    /// on this machine's CPUs that the server may use.
    Softirq = "softirq_ns";
    /// CPU time that the CPUs which this process may use have given or could have given.
    Capacity = "capacity_ns";
    /// CPU time of everything but the run's own servers and clients, on the same CPUs.
    Others = "others_ns";
    /// CPU time that the hypervisor gave to others, counted in ticks of 10 ms.
    Steal = "steal_ns";
}

impl Counter {
    /// Whether the counter belongs to a place or machine as a whole. It is then read with the
    /// server, not per part.
    pub const fn is_shared(self) -> bool {
        matches!(self, Self::Packets | Self::Softirq | Self::Capacity | Self::Others | Self::Steal)
    }
}

/// The value of each counter, if it is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counters([Option<u64>; Counter::ALL.len()]);

impl Counters {
    #[must_use]
    pub fn with(mut self, counter: Counter, count: impl Into<Option<u64>>) -> Self {
        self.0[counter as usize] = count.into();
        self
    }

    /// CPU time; 0 where it is unknown.
    pub fn cpu_ns(&self) -> u64 {
        self[Counter::Cpu].unwrap_or(0)
    }

    /// The increase since `earlier`, for counters that both have.
    #[must_use]
    pub fn since(self, earlier: Self) -> Self {
        self.zip(earlier, u64::saturating_sub)
    }

    /// The sum of both, for counters that both have.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        self.zip(other, u64::saturating_add)
    }

    /// Fills in counters that are unknown here from `other`.
    #[must_use]
    pub fn or(self, other: Self) -> Self {
        Self(Counter::ALL.map(|counter| self[counter].or(other[counter])))
    }

    #[must_use]
    pub fn map(self, change: impl Fn(u64) -> u64) -> Self {
        Self(self.0.map(|count| count.map(&change)))
    }

    fn zip(self, other: Self, join: impl Fn(u64, u64) -> u64) -> Self {
        let of = |counter: Counter| Some(join(self[counter]?, other[counter]?));
        Self(Counter::ALL.map(of))
    }
}

impl Index<Counter> for Counters {
    type Output = Option<u64>;

    fn index(&self, counter: Counter) -> &Option<u64> {
        &self.0[counter as usize]
    }
}

impl Serialize for Counters {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        let known = Counter::ALL.into_iter().filter_map(|c| Some((c.key(), self[c]?)));
        to.collect_map(known)
    }
}

impl<'de> Deserialize<'de> for Counters {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let mut counters = Self::default();
        for (key, count) in BTreeMap::<String, Option<u64>>::deserialize(from)? {
            let known = Counter::ALL.into_iter().find(|counter| counter.key() == key);
            let counter = known.ok_or_else(|| de::Error::custom(format!("no counter '{key}'")))?;
            counters = counters.with(counter, count);
        }
        Ok(counters)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_either_does_not_see_is_unknown() {
        let both = Counters::default().with(Counter::Cpu, 7).with(Counter::Switches, 3);
        let one = Counters::default().with(Counter::Cpu, 2);
        let sum = both.plus(one);
        assert_eq!((sum[Counter::Cpu], sum[Counter::Switches]), (Some(9), None));
        assert_eq!(both.since(both.map(|n| n * 2)).cpu_ns(), 0, "it does not run under");
        let most = Counters::default().with(Counter::Cpu, u64::MAX);
        assert_eq!(most.plus(one), most, "nor over");
        let either = one.or(both);
        assert_eq!((either.cpu_ns(), either[Counter::Switches]), (2, Some(3)), "the first counts");
    }

    #[test]
    fn they_are_stored_by_name() {
        let some = Counters::default().with(Counter::Cpu, 7).with(Counter::Packets, 3);
        let text = serde_json::to_string(&some).unwrap();
        assert_eq!(text, r#"{"cpu_ns":7,"packets":3}"#);
        assert_eq!(serde_json::from_str::<Counters>(&text).unwrap(), some);
        let unknown = serde_json::from_str::<Counters>(r#"{"nothing":1}"#).unwrap_err();
        assert!(unknown.to_string().starts_with("no counter 'nothing'"), "{unknown}");
    }
}
