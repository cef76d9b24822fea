//! Where requests are carried out: the same executor in this process, or at the end of a stream.

use std::sync::Arc;

use tare_io::DurationNs;

use crate::agent::clock::Offset;
use crate::agent::{Agent, TIMEOUT};
use crate::executor::Executor;
use crate::executor::requests::{Ask, ReadClocks};
use tare_model::Failure;

#[derive(Clone, Debug)]
pub enum Site {
    Here(Arc<Executor>),
    There(Arc<Agent>),
}

impl Site {
    pub fn ask<A: Ask>(&self, request: A) -> Result<A::Reply, Failure> {
        self.ask_within(request, TIMEOUT)
    }

    /// In this process nothing is cut off: what waits there has limits of its own.
    pub fn ask_within<A: Ask>(&self, request: A, timeout: DurationNs) -> Result<A::Reply, Failure> {
        match self {
            Self::Here(executor) => request.carry_out(executor),
            Self::There(agent) => agent.ask(request, timeout),
        }
    }

    pub fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Here(one), Self::Here(other)) => Arc::ptr_eq(one, other),
            (Self::There(one), Self::There(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }

    /// The agent, where it is one's.
    pub fn agent(&self) -> Option<&Arc<Agent>> {
        match self {
            Self::Here(_) => None,
            Self::There(agent) => Some(agent),
        }
    }

    /// How far its clocks are from this process's, as was last found.
    pub fn clock(&self) -> Offset {
        self.agent().map_or_else(Offset::default, |agent| agent.clock())
    }

    /// Finds that anew: clocks drift.
    pub fn set_clock(&self) -> Result<(), Failure> {
        let Some(agent) = self.agent() else { return Ok(()) };
        agent.set_clock(Offset::find(|| self.ask(ReadClocks {}))?);
        Ok(())
    }

    /// Why there is nobody to ask any more.
    pub fn gone(&self, timeout: DurationNs) -> Option<Failure> {
        self.agent().and_then(|agent| agent.gone(timeout))
    }
}

/// Asks several at the same time, and waits for all; the first complaint, if there is one.
pub fn ask_all<'a, A: Ask>(
    asked: impl IntoIterator<Item = (&'a Site, A)>,
    timeout: DurationNs,
) -> Result<Vec<A::Reply>, Failure> {
    ask_each(asked, timeout).into_iter().collect()
}

/// Asks several at the same time, and waits for all: what each said. A single one is asked by this
/// thread.
pub fn ask_each<'a, A: Ask>(
    asked: impl IntoIterator<Item = (&'a Site, A)>,
    timeout: DurationNs,
) -> Vec<Result<A::Reply, Failure>> {
    let mut asked: Vec<(&Site, A)> = asked.into_iter().collect();
    if asked.len() == 1
        && let Some((site, request)) = asked.pop()
    {
        return vec![site.ask_within(request, timeout)];
    }
    std::thread::scope(|scope| {
        let ask =
            |(site, request): (&'a Site, A)| scope.spawn(move || site.ask_within(request, timeout));
        let threads: Vec<_> = asked.into_iter().map(ask).collect();
        let lost = || Err(Failure::bug("a thread that asks panicked"));
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| lost())).collect()
    })
}
