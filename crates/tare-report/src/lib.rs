//! Turns measurements into text, JSON, Markdown, CSV, HTML, HDR logs and other tools' formats. Pure
//! functions: no sockets, no clock, no files.
//!
//! Each kind of document has a folder: [`run`], [`sweep`], [`check`], [`pair`] and [`import`] are
//! [`formats::Document`]s; [`load`], [`net`] and [`sys`] are single measurements. [`html`] has a file
//! for each figure, [`exports`] one for each other tool's format.

#![forbid(unsafe_code)]

pub mod check;
pub mod date;
pub mod exports;
pub mod formats;
pub mod hdr_log;
pub mod hgrm;
pub mod html;
pub mod import;
pub mod load;
pub mod net;
pub mod pair;
pub mod run;
pub mod steps;
pub mod sweep;
pub mod sys;
pub mod timeline;
pub mod trend;

pub use tare_guards::{clients_summary, format};
