//! Usage of a variant's parts between two moments: its server and the hops before it.

use serde::{Deserialize, Serialize};

use crate::counters::{Counter, Counters};

/// Usage of all parts of a variant, and each hop's share of it.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(from = "Stored", into = "Stored")]
pub struct Usage {
    /// The sum of all parts: what the variant costs.
    pub all: Counters,
    /// Hops, the nearest to the client first. The rest of the sum is the server's.
    pub hops: Vec<Counters>,
}

/// Usage as it is stored: counters by name, with the hops beside them.
#[derive(Serialize, Deserialize)]
struct Stored {
    /// CPU time of all hops together, which is all that earlier versions kept.
    #[serde(default, skip_serializing)]
    layers_ns: Option<u64>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    hops: Vec<Counters>,
    #[serde(flatten)]
    all: Counters,
}

impl From<Stored> for Usage {
    fn from(stored: Stored) -> Self {
        let Stored { layers_ns, mut hops, all } = stored;
        let of_earlier = layers_ns.filter(|_| hops.is_empty());
        hops.extend(of_earlier.map(|ns| Counters::default().with(Counter::Cpu, ns)));
        Self { all, hops }
    }
}

impl From<Usage> for Stored {
    fn from(usage: Usage) -> Self {
        Self { layers_ns: None, hops: usage.hops, all: usage.all }
    }
}

impl From<Counters> for Usage {
    /// A server without hops.
    fn from(all: Counters) -> Self {
        Self { all, hops: Vec::new() }
    }
}

impl Usage {
    /// The sum of a server and its hops, for counters that all of them have.
    pub fn of_parts(server: Counters, hops: Vec<Counters>) -> Self {
        let sum = hops.iter().fold(server, |sum, hop| sum.plus(*hop));
        let shared = Counter::ALL.into_iter().filter(|counter| counter.is_shared());
        Self { all: shared.fold(sum, |sum, counter| sum.with(counter, server[counter])), hops }
    }

    /// CPU time of all parts; 0 where it is unknown.
    pub fn cpu_ns(&self) -> u64 {
        self.all.cpu_ns()
    }

    /// Usage of the server itself.
    pub fn server(&self) -> Counters {
        let hops = |counter: Counter| {
            let mut all = self.hops.iter().map(|hop| hop[counter]);
            all.try_fold(0u64, |sum, n| Some(sum.saturating_add(n?)))
        };
        let own = |counter: Counter| match counter {
            shared if shared.is_shared() => self.all[counter],
            _ => Some(self.all[counter]?.saturating_sub(hops(counter)?)),
        };
        Counter::ALL.into_iter().fold(Counters::default(), |of, c| of.with(c, own(c)))
    }

    /// Usage of all hops together; `None` without hops.
    pub fn all_hops(&self) -> Option<Counters> {
        self.hops.iter().copied().reduce(Counters::plus)
    }

    /// The increase since `earlier`.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        self.zip(earlier, Counters::since)
    }

    #[must_use]
    pub fn plus(&self, other: &Self) -> Self {
        self.zip(other, Counters::plus)
    }

    #[must_use]
    pub fn map(&self, change: impl Fn(u64) -> u64) -> Self {
        let hops = self.hops.iter().map(|hop| hop.map(&change)).collect();
        Self { all: self.all.map(&change), hops }
    }

    /// Parts are in the same order in both; parts that only one has are dropped.
    fn zip(&self, other: &Self, join: impl Fn(Counters, Counters) -> Counters) -> Self {
        let hops = self.hops.iter().zip(&other.hops).map(|(own, more)| join(*own, *more));
        Self { all: join(self.all, other.all), hops: hops.collect() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cpu(ns: u64) -> Counters {
        Counters::default().with(Counter::Cpu, ns)
    }

    #[test]
    fn parts_add_up_to_the_whole_and_the_whole_comes_apart_again() {
        let server = cpu(7).with(Counter::Switches, 3).with(Counter::Packets, 4);
        let server = server.with(Counter::Softirq, 2);
        let hops = vec![cpu(20).with(Counter::Switches, 1), cpu(30)];
        let usage = Usage::of_parts(server, hops);
        assert_eq!((usage.cpu_ns(), usage.server().cpu_ns()), (57, 7));
        assert_eq!(usage.all_hops().unwrap().cpu_ns(), 50);
        assert_eq!(usage.all[Counter::Switches], None, "one hop does not tell");
        assert_eq!(usage.all[Counter::Packets], Some(4), "they are the server's");
        assert_eq!(usage.server()[Counter::Softirq], Some(2), "no hop has any of it");
        let twice = usage.plus(&usage);
        assert_eq!(twice.since(&usage), Usage { all: usage.all, ..usage.clone() });
        assert_eq!(usage.map(|n| n / 10).hops, [cpu(2).with(Counter::Switches, 0), cpu(3)]);
    }

    #[test]
    fn it_is_stored_by_name_and_earlier_versions_are_read() {
        let alone = Usage::from(cpu(7));
        assert_eq!(serde_json::to_string(&alone).unwrap(), r#"{"cpu_ns":7}"#);
        let usage = Usage::of_parts(cpu(7), vec![cpu(20)]);
        let text = serde_json::to_string(&usage).unwrap();
        assert_eq!(text, r#"{"hops":[{"cpu_ns":20}],"cpu_ns":27}"#);
        assert_eq!(serde_json::from_str::<Usage>(&text).unwrap(), usage);
        let earlier = r#"{"cpu_ns":27,"packets":3,"layers_ns":20}"#;
        let read: Usage = serde_json::from_str(earlier).unwrap();
        assert_eq!((read.server().cpu_ns(), read.all[Counter::Packets]), (7, Some(3)));
        assert_eq!(read.all_hops(), Some(cpu(20)));
        let unknown = serde_json::from_str::<Usage>(r#"{"nothing":1}"#).unwrap_err();
        assert!(unknown.to_string().contains("no counter 'nothing'"), "{unknown}");
    }
}
