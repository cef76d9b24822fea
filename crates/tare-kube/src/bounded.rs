//! Answers of a cluster that may be endless: read up to a limit.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame};

/// Bytes that all answers to one question may have together. As JSON they take several times that.
pub const QUESTION_BYTES_MAX: u64 = 32 << 20;

type Error = Box<dyn std::error::Error + Send + Sync>;

/// How much of that is left.
#[derive(Clone, Debug, Default)]
pub struct Allowance(Arc<AtomicU64>);

impl Allowance {
    /// For another question.
    pub fn refill(&self) {
        self.0.store(QUESTION_BYTES_MAX, Ordering::Relaxed);
    }

    pub fn is_used_up(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn take(&self, bytes: usize) -> Result<(), Error> {
        let left = self.0.load(Ordering::Relaxed).saturating_sub(bytes as u64);
        self.0.store(left, Ordering::Relaxed);
        match left {
            0 => Err(format!("its answer is over {} MiB", QUESTION_BYTES_MAX >> 20).into()),
            _ => Ok(()),
        }
    }
}

/// An answer's body that ends with an error where the allowance does.
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
            let bytes = frame.data_ref().map_or(0, Bytes::len);
            self.allowance.take(bytes).map(|()| frame)
        });
        Poll::Ready(Some(frame))
    }
}
