//! Sites carry out requests: an executor in this process, or an agent.

use std::sync::Arc;

use tare_io::DurationNs;

use crate::agent::clock::Offset;
use crate::agent::{Agent, TIMEOUT};
use crate::executor::Executor;
use crate::executor::requests::{ExecutorRequest, ReadClocks};
use tare_model::Failure;

#[derive(Clone, Debug)]
pub enum Site {
    Here(Arc<Executor>),
    There(Arc<Agent>),
}

impl Site {
    pub fn ask<A: ExecutorRequest>(&self, request: A) -> Result<A::Reply, Failure> {
        self.ask_within(request, TIMEOUT)
    }

    /// Sends a request and waits for the reply. In this process `timeout` is ignored: requests have
    /// limits of their own there.
    pub fn ask_within<A: ExecutorRequest>(
        &self,
        request: A,
        timeout: DurationNs,
    ) -> Result<A::Reply, Failure> {
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

    /// Returns the agent, if the site is one.
    pub fn agent(&self) -> Option<&Arc<Agent>> {
        match self {
            Self::Here(_) => None,
            Self::There(agent) => Some(agent),
        }
    }

    /// Returns the offset of its clocks from this process's, as last measured.
    pub fn clock(&self) -> Offset {
        self.agent().map_or_else(Offset::default, |agent| agent.clock())
    }

    /// Measures the offset again: clocks drift.
    pub fn set_clock(&self) -> Result<(), Failure> {
        let Some(agent) = self.agent() else { return Ok(()) };
        agent.set_clock(Offset::find(|| self.ask(ReadClocks {}))?);
        Ok(())
    }

    /// Waits up to `timeout` for the agent to end; returns why it is gone.
    pub fn gone(&self, timeout: DurationNs) -> Option<Failure> {
        self.agent().and_then(|agent| agent.loss_within(timeout))
    }
}

/// Sends several requests at the same time and waits for all; returns the first error, if any.
pub fn ask_all<'a, A: ExecutorRequest>(
    asked: impl IntoIterator<Item = (&'a Site, A)>,
    timeout: DurationNs,
) -> Result<Vec<A::Reply>, Failure> {
    ask_each(asked, timeout).into_iter().collect()
}

/// Sends several requests at the same time and waits for all; returns each result. A single request
/// is sent by this thread.
pub fn ask_each<'a, A: ExecutorRequest>(
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
