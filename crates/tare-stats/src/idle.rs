//! CPU time that servers use while others are measured: their usage at rest, and deferred work.

use tare_model::usage::Usage;

use crate::round_digest::RoundDigest;

/// A server's usage at rest matters beyond this share of what its slices used.
const MATTERS: f64 = 0.01;

/// CPU time that a launch used outside its slices and in them, and the replies that the latter paid
/// for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Idle {
    pub idle: u64,
    pub cpu: u64,
    pub replies_charged: u64,
    /// The part of `idle` that it would have used without any load.
    pub at_rest: u64,
}

impl Idle {
    /// One for each round.
    pub fn per_round(digests: &[RoundDigest], variant: usize) -> Vec<Self> {
        let rounds = || digests.iter().map(|digest| &digest.variants[variant]);
        let launches = rounds().filter_map(|round| round.launch.as_ref());
        let rest = launches.filter_map(|launch| launch.load.at_rest);
        let (cpu_ns, ns) =
            rest.fold((0.0, 0.0), |(cpu, ns), r| (cpu + r.cpu_ns as f64, ns + r.ns as f64));
        let at_rest = if ns > 0.0 { cpu_ns / ns } else { 0.0 };
        let used = rounds().map(|round| {
            let load = round.launch.as_ref().map(|launch| &launch.load);
            let (idle, ns) = load.map_or((0, 0), |load| (load.idle_cpu_ns, load.idle_ns));
            Self {
                idle,
                cpu: round.used.as_ref().map_or(0, Usage::cpu_ns) + round.slept.cpu_ns,
                replies_charged: round.replies_charged + round.slept.answered,
                at_rest: ((at_rest * ns as f64) as u64).min(idle),
            }
        });
        used.collect()
    }

    pub fn plus(self, more: Self) -> Self {
        Self {
            idle: self.idle + more.idle,
            cpu: self.cpu + more.cpu,
            replies_charged: self.replies_charged + more.replies_charged,
            at_rest: self.at_rest + more.at_rest,
        }
    }

    /// CPU time of deferred work: used outside the slices, beyond the usage at rest.
    pub fn put_off(self) -> u64 {
        self.idle.saturating_sub(self.at_rest)
    }

    /// Deferred work as a share of what its slices used.
    pub fn share(self) -> f64 {
        self.put_off() as f64 / self.cpu.max(1) as f64
    }
}

/// Whether some server uses enough while others are measured that its usage at rest must be known.
pub fn matters(digests: &[RoundDigest]) -> bool {
    let variants = digests.first().map_or(0, |digest| digest.variants.len());
    (0..variants).any(|variant| {
        let all = Idle::per_round(digests, variant).into_iter().fold(Idle::default(), Idle::plus);
        all.idle as f64 > MATTERS * all.cpu as f64
    })
}

/// How long a launch is watched at a time before its load. Watching ends when usage no longer
/// halves: servers are ready before all of their processes are.
pub const WATCH_NS: u64 = 200_000_000;
/// How many times a launch is watched at most.
const WATCH_MAX: usize = 10;

/// Whether servers have come to rest, given their usage in each stretch of [`WATCH_NS`].
pub fn at_rest(used: &[Vec<u64>]) -> bool {
    if used.len() >= WATCH_MAX {
        return true;
    }
    let [.., before, last] = used else { return false };
    before.iter().zip(last).all(|(before, last)| *last >= before / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_at_rest_when_they_use_no_less_than_before() {
        let is = |used: &[&[u64]]| at_rest(&used.iter().map(|u| u.to_vec()).collect::<Vec<_>>());
        assert!(!is(&[]) && !is(&[&[0, 0]]));
        assert!(is(&[&[0, 0], &[0, 0]]) && is(&[&[0, 5], &[0, 4]]) && is(&[&[0, 0], &[0, 7]]));
        assert!(!is(&[&[0, 100], &[0, 40]]) && is(&[&[0, 100], &[0, 40], &[0, 40]]));
        let ever_less: Vec<Vec<u64>> = (0..20).map(|n| vec![1_000_000 >> (2 * n)]).collect();
        assert!(!at_rest(&ever_less[..9]) && at_rest(&ever_less[..10]));
    }
}
