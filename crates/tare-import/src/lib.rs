//! Other tools' results: read from their own files or from between the prose they were pasted into,
//! named, audited, and compared where they can be. Pure functions over bytes: whatever comes, the
//! answer is what was found or one line that says where it went wrong.
//!
//! [`read`] makes [`Draft`]s of a file; [`assemble`] makes an [`Import`] of all files' drafts.
//! `formats/` has a file a tool, `text` finds outputs between prose, `names` makes variants of the
//! headings, labels and files around them, `command` reads command lines. [`audit`] has a mistake a
//! function; [`compare`] says what the numbers say of each other, as far as they can.

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
