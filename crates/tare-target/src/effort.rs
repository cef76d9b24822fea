//! Servers with requests that do not always cost the same: they warm up, defer work, pause, slow
//! down. docs/target.md has the arithmetic of each habit. Pure: the same in simulation.

use tare_io::{DurationNs, Instant, Random};

/// A rule for when requests cost more CPU time, and how much.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Habit {
    /// Defers `cost` of each request's work until no request has come for `idle`. The request with
    /// which deferred work exceeds [`BACKLOG`] pays for all of it.
    Defer { cost: DurationNs, idle: DurationNs },
    /// Requests cost more, except in the first `credit` of load after a [`REST`].
    Burst { credit: DurationNs, cost: DurationNs },
    /// Burns a CPU for `length` in every period.
    Pause { every: DurationNs, length: DurationNs },
    /// Requests cost more for this time after the start.
    WarmFor { time: DurationNs, cost: DurationNs },
    /// The first requests after the start cost more.
    WarmRequests { requests: u64, cost: DurationNs },
    /// Requests cost more for this time after a [`REST`].
    IdleSlow { time: DurationNs, cost: DurationNs },
    /// Requests cost more at the start of every period; periods begin with the load after a
    /// [`REST`].
    Period { every: DurationNs, slow: DurationNs, cost: DurationNs },
    /// Requests cost `cost` more for every `requests` served so far.
    Leak { cost: DurationNs, requests: u64 },
    /// In one of `one_in` launches, all requests cost more.
    LaunchSlow { one_in: u64, cost: DurationNs },
    /// The first request of each connection costs more.
    FirstRequest { cost: DurationNs },
}

/// This long without a request is a rest. It is longer than a scheduler's time slice: a server that
/// only waits for the CPU does not rest.
pub const REST: DurationNs = DurationNs::from_ms(10);
/// Most work that can be deferred.
pub const BACKLOG: DurationNs = DurationNs::from_ms(50);

impl Habit {
    /// Parses the value of the flag `name`, such as `2us:3ms`; the error shows the syntax.
    pub fn parse(name: &str, text: &str) -> Result<Self, String> {
        let parts: Vec<&str> = text.split(':').collect();
        let time = |at: usize| {
            let parsed = parts.get(at).and_then(|part| DurationNs::parse(part).ok());
            parsed.filter(|time| *time > DurationNs::ZERO)
        };
        let number =
            |at: usize| parts.get(at).and_then(|part| part.parse().ok()).filter(|n| *n > 0);
        let (found, form) = match name {
            "defer" => {
                let found = time(0).zip(time(1)).map(|(cost, idle)| Self::Defer { cost, idle });
                (found, "COST:IDLE, as 2us:3ms")
            }
            "burst" => {
                let found = time(0).zip(time(1));
                let found = found.map(|(credit, cost)| Self::Burst { credit, cost });
                (found, "CREDIT:COST, as 100ms:6us")
            }
            "pause-every" => {
                let found = time(0).zip(time(1)).filter(|(every, length)| length < every);
                let found = found.map(|(every, length)| Self::Pause { every, length });
                (found, "EVERY:LENGTH, as 3s:200ms, the length being shorter")
            }
            "warm-for" => {
                let found = time(0).zip(time(1)).map(|(time, cost)| Self::WarmFor { time, cost });
                (found, "TIME:COST, as 2s:4us")
            }
            "warm-requests" => {
                let found = number(0).zip(time(1));
                let found = found.map(|(requests, cost)| Self::WarmRequests { requests, cost });
                (found, "REQUESTS:COST, as 5000:4us")
            }
            "idle-slow" => {
                let found = time(0).zip(time(1)).map(|(time, cost)| Self::IdleSlow { time, cost });
                (found, "TIME:COST, as 10ms:20us")
            }
            "period" => {
                let found =
                    time(0).zip(time(1)).zip(time(2)).filter(|((every, slow), _)| slow < every);
                let found = found.map(|((every, slow), cost)| Self::Period { every, slow, cost });
                (found, "EVERY:SLOW:COST, as 20ms:5ms:10us, the slow part being shorter")
            }
            "leak" => {
                let found = time(0).zip(number(1));
                let found = found.map(|(cost, requests)| Self::Leak { cost, requests });
                (found, "COST:REQUESTS, as 1us:10000")
            }
            "launch-slow" => {
                let odds = parts.first().and_then(|odds| odds.strip_prefix("1/"));
                let one_in = odds.and_then(|n| n.parse().ok()).filter(|n| *n > 0);
                let found = one_in.zip(time(1));
                let found = found.map(|(one_in, cost)| Self::LaunchSlow { one_in, cost });
                (found, "1/N:COST, as 1/15:6us")
            }
            _ => (time(0).map(|cost| Self::FirstRequest { cost }), "COST, as 1ms"),
        };
        let wanted = form.split(", as").next().unwrap_or_default().split(':').count();
        found.filter(|_| parts.len() == wanted).ok_or_else(|| format!("write {form}"))
    }
}

/// One server's habits while it runs.
#[derive(Debug)]
pub struct Effort {
    base: DurationNs,
    habits: Vec<Habit>,
    started: Instant,
    served: u64,
    /// End of the latest request's work.
    last_busy: Instant,
    /// First request since the last [`REST`].
    load_began: Instant,
    put_off: DurationNs,
    next_pause: Instant,
    slow_launch: bool,
}

impl Effort {
    /// `draw` is the random number of this launch, from [`Effort::draw`].
    pub fn new(base: DurationNs, habits: &[Habit], started: Instant, draw: u64) -> Self {
        let mut next_pause = Instant::FAR;
        let mut slow_launch = false;
        for habit in habits {
            match habit {
                Habit::Pause { every, .. } => next_pause = started + *every,
                Habit::LaunchSlow { one_in, .. } => slow_launch = draw.is_multiple_of(*one_in),
                _ => {}
            }
        }
        Self {
            base,
            habits: habits.to_vec(),
            started,
            served: 0,
            last_busy: started,
            load_began: started,
            put_off: DurationNs::ZERO,
            next_pause,
            slow_launch,
        }
    }

    /// Returns a random number for [`Effort::new`], different for each launch.
    pub fn draw(seed: u64, launch: u64) -> u64 {
        Random::stream(seed, "launch", launch).next_u64()
    }

    /// Returns the CPU time of a request on which work begins now.
    pub fn request_cost(&mut self, now: Instant, first_on_connection: bool) -> DurationNs {
        if now.since(self.last_busy) >= REST {
            self.load_began = now;
        }
        let since_start = now.since(self.started);
        let since_load = now.since(self.load_began);
        let mut total = self.base;
        for habit in &self.habits {
            total = total
                + match *habit {
                    Habit::Defer { cost, .. } => {
                        self.put_off = self.put_off + cost;
                        let full = self.put_off > BACKLOG;
                        if full { std::mem::take(&mut self.put_off) } else { DurationNs::ZERO }
                    }
                    Habit::Burst { credit, cost } => cost.only_if(since_load >= credit),
                    Habit::WarmFor { time, cost } => cost.only_if(since_start < time),
                    Habit::WarmRequests { requests, cost } => cost.only_if(self.served < requests),
                    Habit::IdleSlow { time, cost } => cost.only_if(since_load < time),
                    Habit::Period { every, slow, cost } => {
                        cost.only_if(since_load.as_ns() % every.as_ns() < slow.as_ns())
                    }
                    Habit::Leak { cost, requests } => {
                        let times = self.served as f64 / requests as f64;
                        DurationNs::from_ns((cost.as_ns() as f64 * times) as u64)
                    }
                    Habit::LaunchSlow { cost, .. } => cost.only_if(self.slow_launch),
                    Habit::FirstRequest { cost } => cost.only_if(first_on_connection),
                    Habit::Pause { .. } => DurationNs::ZERO,
                };
        }
        self.served += 1;
        self.last_busy = now + total;
        total
    }

    /// Returns when the next chore is due; each request may change it.
    pub fn next_chore(&self) -> Instant {
        let deferred = self.habits.iter().find_map(|habit| match habit {
            Habit::Defer { idle, .. } if self.put_off > DurationNs::ZERO => {
                Some(self.last_busy + *idle)
            }
            _ => None,
        });
        deferred.unwrap_or(Instant::FAR).min(self.next_pause)
    }

    /// Takes the chore that is due, if any, and returns until when it burns a CPU.
    pub fn take_due_chore(&mut self, now: Instant) -> Option<Instant> {
        if now < self.next_chore() {
            return None;
        }
        if now >= self.next_pause {
            for habit in &self.habits {
                if let Habit::Pause { every, length } = habit {
                    let until = self.next_pause + *length;
                    // Pauses missed by more than a period are not caught up.
                    self.next_pause = (self.next_pause + *every).max(now);
                    return Some(until.max(now));
                }
            }
        }
        Some(now + std::mem::take(&mut self.put_off))
    }
}

trait OnlyIf {
    fn only_if(self, condition: bool) -> Self;
}

impl OnlyIf for DurationNs {
    fn only_if(self, condition: bool) -> Self {
        if condition { self } else { Self::ZERO }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn us(us: u64) -> DurationNs {
        DurationNs::from_us(us)
    }

    fn at(ms: u64) -> Instant {
        Instant::ZERO + DurationNs::from_ms(ms)
    }

    fn effort(name: &str, text: &str) -> Effort {
        Effort::new(us(20), &[Habit::parse(name, text).unwrap()], Instant::ZERO, 0)
    }

    /// Returns the cost in µs of requests that come at these times.
    fn costs(name: &str, text: &str, times_ms: &[u64]) -> Vec<u64> {
        let mut effort = effort(name, text);
        times_ms.iter().map(|ms| effort.request_cost(at(*ms), false).as_ns() / 1000).collect()
    }

    #[test]
    fn each_habit_costs_what_its_arithmetic_says() {
        assert_eq!(costs("warm-for", "2s:4us", &[0, 1999, 2000]), [24, 24, 20]);
        assert_eq!(costs("warm-requests", "2:4us", &[0, 1, 2]), [24, 24, 20]);
        assert_eq!(
            costs("idle-slow", "10ms:20us", &[0, 9, 15, 24, 40, 49, 50]),
            [40, 40, 20, 20, 40, 40, 20]
        );
        assert_eq!(costs("burst", "5ms:6us", &[0, 4, 5, 12, 30, 36]), [20, 20, 26, 26, 20, 26]);
        assert_eq!(
            costs("period", "20ms:5ms:10us", &[0, 4, 5, 14, 20, 24, 26]),
            [30, 30, 20, 20, 30, 30, 20]
        );
        assert_eq!(costs("leak", "10us:2", &[0, 1, 2, 3, 4]), [20, 25, 30, 35, 40]);
        assert_eq!(costs("launch-slow", "1/15:6us", &[0]), [26], "0 is a multiple of 15");
        let first = &[Habit::parse("first-request", "1ms").unwrap()];
        let mut first = Effort::new(us(20), first, Instant::ZERO, 0);
        assert_eq!([true, false].map(|f| first.request_cost(at(0), f)), [us(1020), us(20)]);
    }

    #[test]
    fn one_launch_in_fifteen_is_slow() {
        let habit = [Habit::parse("launch-slow", "1/15:6us").unwrap()];
        let slow = |launch| {
            let draw = Effort::draw(1, launch);
            Effort::new(us(20), &habit, Instant::ZERO, draw).request_cost(at(0), false) > us(20)
        };
        let slow = (0..3000).filter(|launch| slow(*launch)).count();
        assert!((150..250).contains(&slow), "{slow} of 3000");
    }

    #[test]
    fn work_is_put_off_until_nothing_is_asked() {
        let mut effort = effort("defer", "2us:3ms");
        assert_eq!(effort.next_chore(), Instant::FAR);
        (0..100).for_each(|_| assert_eq!(effort.request_cost(at(1), false), us(20)));
        let idle = at(1) + us(20) + DurationNs::from_ms(3);
        assert_eq!((effort.next_chore(), effort.take_due_chore(at(4))), (idle, None));
        assert_eq!(effort.take_due_chore(idle), Some(idle + us(200)));
        assert_eq!((effort.next_chore(), effort.take_due_chore(at(9))), (Instant::FAR, None));
        // Without idle time, deferred work is done when there is too much of it: nothing is free.
        let full = BACKLOG.as_ns() / 2000 + 1;
        let total: u64 = (0..full).map(|_| effort.request_cost(at(10), false).as_ns()).sum();
        assert_eq!(total, full * 22_000);
    }

    #[test]
    fn pauses_come_with_their_period_and_are_not_caught_up_with() {
        let mut effort = effort("pause-every", "3s:200ms");
        assert_eq!((effort.take_due_chore(at(2999)), effort.next_chore()), (None, at(3000)));
        assert_eq!(effort.take_due_chore(at(3001)), Some(at(3200)));
        assert_eq!(effort.next_chore(), at(6000));
        assert_eq!(effort.take_due_chore(at(20_000)), Some(at(20_000)));
        assert_eq!(effort.next_chore(), at(20_000));
    }

    #[test]
    fn what_is_not_a_habit_is_refused_with_what_is() {
        for (name, text, why) in [
            ("defer", "2us", "write COST:IDLE, as 2us:3ms"),
            ("defer", "2us:0", "write COST:IDLE"),
            ("burst", "100ms:6us:1", "write CREDIT:COST"),
            ("pause-every", "1s:2s", "the length being shorter"),
            ("warm-requests", "-1:4us", "write REQUESTS:COST"),
            ("period", "20ms:30ms:1us", "the slow part being shorter"),
            ("launch-slow", "15:6us", "write 1/N:COST"),
            ("launch-slow", "1/0:6us", "write 1/N:COST"),
            ("first-request", "", "write COST, as 1ms"),
        ] {
            let error = Habit::parse(name, text).unwrap_err();
            assert!(error.contains(why), "{name} {text}: {error}");
        }
    }
}
