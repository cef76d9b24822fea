//! Imports other tools' results: reads them from their own files or from text that they were pasted
//! into, names and audits them, and compares those that can be compared. Pure functions over bytes:
//! any input gives either what was found or one line that says where it went wrong.
//!
//! [`read`] makes [`Draft`]s of a file; [`assemble`] makes an [`Import`] of all files' drafts.
//! `formats/` has one file per tool. `text` finds outputs in prose, `block` recognises the markup
//! of lines, `context` collects what stands above an output, `names` names variants from that,
//! `load` splits cases by load, `command` reads command lines, `table` and `summary` read tables
//! and summaries of outputs, `claim` checks the differences that these state. [`audit`] has one
//! function per mistake; [`compare`] compares variants, as far as the numbers allow.

#![forbid(unsafe_code)]

pub mod audit;
mod block;
pub mod claim;
mod command;
pub mod compare;
mod context;
mod formats;
mod html;
mod import;
mod load;
mod names;
mod numbers;
mod prompt;
mod sample;
mod source;
mod summary;
mod table;
mod text;
mod trouble;

pub use import::{FileDrafts, Group, Import, SCHEMA, assemble};
pub use sample::{
    Draft, FileContents, Moments, Percentile, Sample, SampleLoad, SampleResult, Source, Tool,
    Typed, Unread,
};
pub use source::read;
pub use trouble::{Trouble, printable};
