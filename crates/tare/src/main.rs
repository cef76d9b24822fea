//! `tare`: what does this layer cost?
//!
//! This crate only wires: one file a command, exit codes, and what is printed where.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod experiment;
mod load;
mod net;
mod paint;
mod qperf;
mod run;
mod toml_file;

use std::process::ExitCode;

use load::outputs::print_stderr;
use tare_model::{Failure, Fault};

fn main() -> ExitCode {
    tare_io::owned::tighten();
    load::interrupt::end_until_taken();
    // The panic has been printed by then; what is left to say is whose fault it is.
    let bug = || Err(Failure::bug("this is a bug in tare; please report the lines above"));
    // The stack of the first thread is as small as a limit (`ulimit -s`) makes it.
    let command = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(commands::run);
    let done = match command {
        Ok(command) => command.join().unwrap_or_else(|_| bug()),
        Err(error) => Err(Failure::environment(format!("cannot start a thread: {error}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.fault != Fault::Interrupted {
                // Where standard error is full or gone, the exit code still tells.
                print_stderr(&format!("tare: {failure}\n"));
            }
            let fault = match failure.fault {
                // Nobody is to blame for what was stopped.
                Fault::Target | Fault::Environment if load::interrupt::was_interrupted() => {
                    Fault::Interrupted
                }
                fault => fault,
            };
            ExitCode::from(fault.exit_code())
        }
    }
}

const STACK_BYTES: usize = 8 << 20;
