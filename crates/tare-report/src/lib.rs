//! Turns measurements into text, JSON, Markdown, CSV, HTML, HDR logs and other tools' forms. Pure
//! functions: no sockets, no clock, no files.

#![forbid(unsafe_code)]

pub mod date;
pub mod exports;
pub mod form;
pub mod guards;
pub mod hdr_log;
pub mod html;
pub mod import_document;
pub mod load;
pub mod load_text;
pub mod net;
pub mod pair_document;
pub mod run;
pub mod run_build;
pub mod run_csv;
pub mod run_document;
mod run_filters;
mod run_guards;
pub mod run_markdown;
mod run_places;
mod run_rounds_csv;
pub mod run_steady;
pub mod run_sweep;
pub mod run_sweep_text;
pub mod run_text;
pub mod run_words;
pub mod sweep_document;
pub mod sys;
pub mod timeline;
pub mod units;
