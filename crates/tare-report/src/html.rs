//! Reports as one HTML file: it opens from disk, asks no network, reads without scripts, and is
//! better with them.
//!
//! [`page`] is the frame and what every text from outside goes through; [`plot`] draws with
//! plotters, in two sizes and in the page's colours; each other file is one picture or one kind of
//! report.

pub mod import;
pub mod pair;
pub mod run;
pub mod steps;
pub mod sweep;

mod about;
mod bars;
mod forest;
mod page;
mod percentiles;
mod plot;
mod rounds;
mod scale;
mod secrets;
mod timeline;
