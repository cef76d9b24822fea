//! The endpoint of `tare net`, for places with no program of ours but the agent. It takes the flags
//! of `tare net --serve` that tare passes.

use std::process::ExitCode;

use tare_io::{DurationNs, SocketOptions, system};
use tare_target::endpoint::{EndpointPlan, Loss, NetEndpoint, RemoteControl};

pub const WORD: &str = "net";

const CONNECTIONS_MAX: u32 = 4096;

pub fn run(flags: &[String]) -> ExitCode {
    let served = plan(flags)
        .ok_or_else(|| format!("these are not words of tare's: {}", flags.join(" ")))
        .and_then(|plan| {
            let mut endpoint = NetEndpoint::start(&plan).map_err(|error| error.to_string())?;
            endpoint.wait().map_err(|error| error.to_string())
        });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tare-agent: {why}");
            ExitCode::from(3)
        }
    }
}

fn plan(flags: &[String]) -> Option<EndpointPlan> {
    let mut plan = EndpointPlan {
        listen: ([127, 0, 0, 1], 0).into(),
        cpus: Vec::new(),
        sockets: SocketOptions::default(),
        connections_max: CONNECTIONS_MAX,
        calls: false,
        obeys: RemoteControl::Nobody,
        delay: DurationNs::ZERO,
        loss: Loss::default(),
    };
    let mut words = flags.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "--serve" => {}
            "--calls" => plan.calls = true,
            "--listen" => plan.listen = words.next()?.parse().ok()?,
            "--delay" => plan.delay = DurationNs::parse(words.next()?).ok()?,
            "--loss" => plan.loss.share = words.next()?.parse().ok()?,
            "--socket-buffer" => plan.sockets.buffer_bytes = Some(words.next()?.parse().ok()?),
            _ => return None,
        }
    }
    system::raise_open_files(u64::from(CONNECTIONS_MAX));
    Some(plan)
}
