//! Other tools' results: read from their own files or from between the prose they were pasted into,
//! named, audited, and compared where they can be. Pure functions over bytes: whatever comes, the
//! answer is what was found or one line that says where it went wrong.

#![forbid(unsafe_code)]

pub mod audit;
mod command;
pub mod compare;
mod formats;
mod import;
mod names;
mod numbers;
mod sample;
mod source;
mod text;

pub use import::{FileDrafts, Group, Import, SCHEMA, assemble};
pub use sample::{Asked, Draft, Percentile, Sample, Seen, Source, Tool, Unread};
pub use source::{Trouble, printable, read};
