//! The runs of a sweep as one document.

pub mod cells;
pub mod document;
pub mod text;
