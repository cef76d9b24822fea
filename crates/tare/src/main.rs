//! `tare`: what does this layer cost?
//!
//! This crate only wires: one file a command, exit codes, and what is printed where.

#![forbid(unsafe_code)]

mod commands;
mod failure;
mod load;
mod url;

use std::process::ExitCode;

use failure::Failure;

fn main() -> ExitCode {
    match commands::run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure != Failure::Interrupted {
                eprintln!("tare: {failure}");
            }
            ExitCode::from(failure.exit_code())
        }
    }
}
