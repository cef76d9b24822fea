//! Reports as one HTML file, which opens from disk, needs no network, and works without scripts.
//!
//! [`page`] is the frame and escapes all text from outside; [`plot`] draws with plotters, in two
//! sizes and in the page's colours; every other file holds one figure or one kind of report.

pub mod check;
pub mod import;
pub mod pair;
pub mod run;
pub mod steps;
pub mod sweep;
pub mod trend;

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
