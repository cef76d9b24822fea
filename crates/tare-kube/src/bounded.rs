//! Limits the size of a cluster's answers: a hostile one could answer without end.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

/// Limit of the bytes of all answers to one call.
const BYTES_MAX: u64 = 32 << 20;
/// Limit of the memory that all answers to one call take once they are parsed.
const MEMORY_MAX: u64 = 512 << 20;
/// Estimated memory of a non-empty map as [`serde_json::Value`].
const MAP_BYTES: u64 = 700;
/// Estimated memory of any other value.
const VALUE_BYTES: u64 = 64;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// The bytes and memory that answers to the current call may still use.
#[derive(Clone, Debug, Default)]
pub struct Allowance(Arc<Left>);

#[derive(Debug, Default)]
struct Left {
    bytes: AtomicU64,
    memory: AtomicU64,
}

impl Allowance {
    /// Must be called before each call to the cluster.
    pub fn refill(&self) {
        self.0.bytes.store(BYTES_MAX, Ordering::Relaxed);
        self.0.memory.store(MEMORY_MAX, Ordering::Relaxed);
    }

    pub fn is_used_up(&self) -> bool {
        let is_used_up = |left: &AtomicU64| left.load(Ordering::Relaxed) == 0;
        is_used_up(&self.0.bytes) || is_used_up(&self.0.memory)
    }

    fn take(&self, bytes: &[u8]) -> Result<(), Error> {
        let length = bytes.len() as u64;
        let empty = |at: usize| bytes.get(at + 1) == Some(&b'}');
        let maps = (0..bytes.len()).filter(|at| bytes[*at] == b'{' && !empty(*at)).count() as u64;
        let values = bytes.iter().filter(|byte| matches!(byte, b',' | b'[')).count() as u64;
        let memory = length + maps * MAP_BYTES + values * VALUE_BYTES;
        for (left, taken) in [(&self.0.bytes, length), (&self.0.memory, memory)] {
            let rest = left.load(Ordering::Relaxed).saturating_sub(taken);
            left.store(rest, Ordering::Relaxed);
        }
        match self.is_used_up() {
            true => Err(format!(
                "its answer is over {} MiB, or {} MiB in memory",
                BYTES_MAX >> 20,
                MEMORY_MAX >> 20
            )
            .into()),
            false => Ok(()),
        }
    }
}

/// An answer's body that fails when the allowance is used up.
pub struct Bounded<B> {
    pub body: B,
    pub allowance: Allowance,
}

impl<B: Body<Data = Bytes, Error = Error> + Unpin> Body for Bounded<B> {
    type Data = Bytes;
    type Error = Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Error>>> {
        let Some(frame) = ready!(Pin::new(&mut self.body).poll_frame(context)) else {
            return Poll::Ready(None);
        };
        let frame = frame.and_then(|frame| {
            let bytes: &[u8] = frame.data_ref().map_or(&[], |bytes| &bytes[..]);
            self.allowance.take(bytes).map(|()| frame)
        });
        Poll::Ready(Some(frame))
    }
}
