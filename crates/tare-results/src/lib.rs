//! Reads finished runs back from the store: plans, rounds, reports and conclusions. The same slices
//! give the same report, byte for byte, in a command and in a browser's view.

#![forbid(unsafe_code)]

mod conclusions;
mod stored;

pub use conclusions::{Conclusion, Conclusions, conclude, conclusions};
pub use stored::{digests_of, document_of, facts, found_of, is_running, plan_of};
