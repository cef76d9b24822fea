//! `tare`: what does this layer cost?
//!
//! This crate holds one file per command, the exit codes, and what is printed where.

#![forbid(unsafe_code)]

mod args;
mod commands;
mod experiment;
mod load;
mod net;
mod paint;
mod qperf;
mod run;
mod shipped;
mod similar;
mod toml_file;

use std::process::ExitCode;

use load::outputs::print_stderr;
use tare_model::{Failure, Fault};

fn main() -> ExitCode {
    tare_io::owned::restrict_umask_and_path();
    tare_io::system::use_own_name_services();
    load::interrupt::exit_on_early_interrupt();
    // The panic message has already been printed.
    let bug = || Err(Failure::bug("this is a bug in tare; please report the lines above"));
    // `ulimit -s` may make the main thread's stack too small.
    let command = std::thread::Builder::new().stack_size(STACK_BYTES).spawn(commands::run);
    let done = match command {
        Ok(command) => command.join().unwrap_or_else(|_| bug()),
        Err(error) => Err(Failure::environment(format!("cannot start a thread: {error}"))),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if failure.fault != Fault::Interrupted {
                // If standard error is full or closed, the exit code still shows the failure.
                print_stderr(&format!("tare: {failure}\n"));
            }
            let fault = match failure.fault {
                // Failures after an interrupt count as the interrupt.
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
