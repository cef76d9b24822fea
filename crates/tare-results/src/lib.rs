//! Runs that are over, read back from the store: plans, rounds, reports, and what they concluded.
//! The same slices give the same report, to the byte, whoever asks: a command, or a browser's view.

#![forbid(unsafe_code)]

mod conclusions;
mod stored;

pub use conclusions::{Conclusion, Conclusions, conclude, conclusions};
pub use stored::{digests_of, document_of, facts, found_of, is_running, plan_of};
