//! Other tools' results: read from their own files or from between the prose they were pasted into,
//! named, audited, and compared where they can be. Pure functions over bytes: whatever comes, the
//! answer is what was found or one line that says where it went wrong.
//!
//! [`read`] makes [`Draft`]s of a file; [`assemble`] makes an [`Import`] of all files' drafts.
//! `formats/` has a file a tool, `text` finds outputs between prose, `block` knows lines by their
//! marks, `context` keeps what stands above them, `names` makes variants of that, `load` cases of what
//! was asked, `command` reads what was typed, `table` and `summary` what people made of outputs, `claim` what these say of each other. [`audit`] has a mistake a
//! function; [`compare`] says what the numbers say of each other, as far as they can.

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
    Draft, Found, Moments, Percentile, Sample, SampleLoad, SampleResult, Source, Tool, Typed,
    Unread,
};
pub use source::read;
pub use trouble::{Trouble, printable};
