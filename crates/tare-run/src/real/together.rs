//! One load made by agents elsewhere: one, or several that divide it, begin each slice at one
//! instant, and whose results are merged by histogram.

use std::sync::Arc;

use serde::de::DeserializeOwned;
use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Instant};
use tare_lab::agent::protocol::{LaneLife, Opened, Request};
use tare_lab::agent::{Agent, PATIENCE};
use tare_lab::clock::Offset;
use tare_load::measured::Measured;
use tare_load::{LoadPlan, Stretch};
use tare_model::samples::NUMBER_MAX;

use crate::error::RunError;

pub(super) struct Together {
    agents: Vec<Arc<Agent>>,
    /// Of each agent's clock; of one alone it does not matter.
    offsets: Vec<Offset>,
}

/// Beyond the slice itself: its drain, and the way there and back.
const SPARE: DurationNs = DurationNs::from_secs(20);
/// From the word to the instant, beside twice the way to the slowest.
const LEAD: DurationNs = DurationNs::from_ms(2);
/// A slice of which a client began later than this part of it is made again …
const LATE_SHARE: u64 = 10;
/// … so often, for a client may be held up now and then.
const TRIES: u32 = 5;

impl Together {
    /// Opens each client's part of the load.
    pub(super) fn open(agents: &[Arc<Agent>], plan: &LoadPlan) -> Result<(Self, Opened), RunError> {
        let clients = u32::try_from(agents.len()).unwrap_or(u32::MAX);
        let parts = plan.divided(clients)?;
        let requests = parts.into_iter().map(|part| Request::Open { lanes: vec![part] });
        let opened: Vec<Opened> = ask_all(agents, requests.collect(), PATIENCE)?;
        let alone = agents.len() == 1;
        let offset = |agent: &Arc<Agent>| match alone {
            true => Ok(Offset::default()),
            false => Offset::of(agent)
                .ok_or_else(|| RunError::Environment("an agent does not tell the time".into())),
        };
        let offsets: Result<Vec<Offset>, RunError> = agents.iter().map(offset).collect();
        let together = Self { agents: agents.to_vec(), offsets: offsets? };
        let first = opened.into_iter().next().unwrap_or_default();
        Ok((together, first))
    }

    /// What is to be known of several.
    pub(super) fn words(&self) -> String {
        match self.agents.len() {
            1 => String::new(),
            n => format!(" from {n} clients, whose clocks are known to ± {}", self.clock_error()),
        }
    }

    fn clock_error(&self) -> DurationNs {
        self.offsets.iter().map(Offset::error).max().unwrap_or_default()
    }

    pub(super) fn slice(
        &self,
        stretch: Stretch,
        timeout: DurationNs,
    ) -> Result<Measured, RunError> {
        let patience = stretch.ramp + stretch.window + timeout + SPARE;
        if let [agent] = &self.agents[..] {
            let request = Request::Slice { lane: 0, stretch };
            return Ok(agent.ask_within(request, patience)?);
        }
        let late_max = DurationNs::from_ns(stretch.window.as_ns() / LATE_SHARE);
        let mut late = DurationNs::ZERO;
        // What slices that do not count cost the server is part of what it used meanwhile.
        let mut answered = 0;
        for _ in 0..TRIES {
            let trip = self.offsets.iter().map(|offset| offset.trip).max().unwrap_or_default();
            let begin = monotonic_now() + trip + trip + LEAD;
            let requests = self.offsets.iter().map(|offset| {
                let start_at = Some(offset.there(begin));
                Request::Slice { lane: 0, stretch: Stretch { start_at, ..stretch } }
            });
            let parts: Vec<Measured> = ask_all(&self.agents, requests.collect(), patience)?;
            // When each began, by this process's clock.
            let began = parts.iter().zip(&self.offsets).map(|(part, o)| o.here(part.began));
            let began: Vec<Instant> = began.collect();
            let (first, last) = (began.iter().min(), began.iter().max());
            let skew_ns = last.zip(first).map_or(0, |(last, first)| last.since(*first).as_ns());
            late = last.map_or(DurationNs::ZERO, |last| last.since(begin));
            let nobody = || RunError::Bug("a load by nobody".into());
            let mut all = Measured::alongside(parts).ok_or_else(nobody)?;
            all.counts.answered += answered;
            if late > late_max {
                answered = all.counts.answered;
                continue;
            }
            if let Some(together) = &mut all.counts.together {
                together.skew_ns = skew_ns.min(NUMBER_MAX);
                together.clock_ns = self.clock_error().as_ns();
            }
            return Ok(all);
        }
        Err(RunError::Environment(format!(
            "one of {} clients began {TRIES} slices in a row too late, the last by {} µs: a slice \
             of {} allows {late_max} (slices.window: longer slices; or fewer clients)",
            self.agents.len(),
            late.as_ns() / 1000,
            stretch.window
        )))
    }

    pub(super) fn close(self) -> Result<LaneLife, RunError> {
        let requests = self.agents.iter().map(|_| Request::Close).collect();
        let lives: Vec<Vec<LaneLife>> = ask_all(&self.agents, requests, PATIENCE)?;
        Ok(LaneLife::of(lives.iter().filter_map(|lanes| lanes.first())))
    }
}

/// Asks each of them at the same time, and waits for all.
fn ask_all<T: DeserializeOwned + Send>(
    agents: &[Arc<Agent>],
    requests: Vec<Request>,
    patience: DurationNs,
) -> Result<Vec<T>, RunError> {
    let ask = |agent: &Agent, request| agent.ask_within(request, patience).map_err(RunError::from);
    std::thread::scope(|scope| {
        let asked = agents.iter().zip(requests);
        let asked: Vec<_> = asked.map(|(agent, r)| scope.spawn(move || ask(agent, r))).collect();
        let lost = || Err(RunError::Bug("a thread that asks an agent panicked".into()));
        asked.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    })
}
