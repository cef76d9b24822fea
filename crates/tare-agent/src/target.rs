//! `tare target`, for places with no program of ours but the agent. It takes the flags of `tare
//! target` that experiments can give.

use std::process::ExitCode;

use tare_io::time::monotonic_now;
use tare_io::{DurationNs, Endpoint, system};
use tare_load::protocol::http2;
use tare_target::behaviour::{Behaviour, Delay, Service, Stall};
use tare_target::effort::Habit;
use tare_target::serve::{Target, TargetPlan};
use tare_target::tls::TlsServer;

pub const WORD: &str = "target";

const CONNECTIONS_MAX: u32 = 16_384;
const SPARE_FILES: u64 = 64;

pub fn run(flags: &[String]) -> ExitCode {
    let served = plan(flags).and_then(|plan| {
        let mut target = Target::start(&plan).map_err(|error| error.to_string())?;
        target.wait().map_err(|error| error.to_string())
    });
    match served {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("tare-agent: {why}");
            ExitCode::from(3)
        }
    }
}

/// Settings of the queue and of stalls, collected while flags are parsed.
#[derive(Default)]
struct Parts {
    service: Option<DurationNs>,
    turn: Option<DurationNs>,
    sticky: bool,
    workers: Option<u32>,
    stall: Option<DurationNs>,
    every: Option<DurationNs>,
}

fn plan(flags: &[String]) -> Result<TargetPlan, String> {
    let launch = monotonic_now().as_ns() ^ u64::from(std::process::id());
    let mut plan = TargetPlan {
        listen: Endpoint::Tcp(([127, 0, 0, 1], 0).into()),
        behaviour: Behaviour { launch, ..Behaviour::default() },
        tls: None,
        threads: 1,
        cpus: Vec::new(),
        reactor: None,
        slots: 0,
    };
    let mut parts = Parts::default();
    let mut words = flags.iter();
    while let Some(word) = words.next() {
        let name = word.strip_prefix("--").ok_or_else(|| format!("'{word}' is no flag"))?;
        match name {
            "sticky" => parts.sticky = true,
            "chunked" => plan.behaviour.chunked = true,
            "http2" => {
                plan.behaviour.http2.get_or_insert_default();
            }
            "tls" => plan.tls = Some(TlsServer::self_signed().map_err(|e| e.to_string())?),
            _ => {
                let text = words.next().ok_or_else(|| format!("{word} needs a value"))?;
                take(name, text, &mut plan, &mut parts)
                    .map_err(|why| format!("{word} {text}: {why}"))?;
            }
        }
    }
    if plan.behaviour.http2.is_some() {
        plan.tls = plan.tls.map(|tls| tls.with_alpn(http2::ALPN));
    }
    let workers = parts.workers.unwrap_or(1);
    plan.behaviour.service = parts.service.map(|time| Service {
        time,
        workers,
        turn: parts.turn.unwrap_or_default(),
        sticky: parts.sticky,
    });
    plan.behaviour.stall =
        parts.stall.zip(parts.every).map(|(length, every)| Stall { length, every });
    let wanted = u64::from(CONNECTIONS_MAX) * u64::from(plan.threads) + SPARE_FILES;
    let files = system::raise_open_files(wanted).min(wanted);
    let slots = files.saturating_sub(SPARE_FILES) / u64::from(plan.threads);
    plan.slots = u32::try_from(slots.max(1)).unwrap_or(CONNECTIONS_MAX);
    Ok(plan)
}

fn take(name: &str, text: &str, plan: &mut TargetPlan, parts: &mut Parts) -> Result<(), String> {
    fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
        text.parse().map_err(|_| "not a number that fits".to_owned())
    }
    let time = |text: &str| DurationNs::parse(text).map_err(|error| error.to_string());
    let behaviour = &mut plan.behaviour;
    match name {
        "listen" => {
            let address = text.parse().map_err(|_| "not an address".to_owned())?;
            plan.listen = Endpoint::Tcp(address);
        }
        "threads" => plan.threads = number::<u32>(text)?.clamp(1, 256),
        "body" => behaviour.body_bytes = number(text)?,
        "busy" => behaviour.busy = time(text)?,
        "delay" => behaviour.delay = Delay::parse(text).map_err(|error| error.to_string())?,
        "service-time" => parts.service = Some(time(text)?),
        "turn" => parts.turn = Some(time(text)?),
        "workers" => parts.workers = Some(number(text)?),
        "stall" => parts.stall = Some(time(text)?),
        "every" => parts.every = Some(time(text)?),
        "change-after" => behaviour.change_after = Some(number(text)?),
        "odd-rate" => behaviour.odd_rate = number(text)?,
        "odd-connections" => behaviour.odd_connections = number(text)?,
        "close-after" => behaviour.close_after = Some(number(text)?),
        "error-rate" => behaviour.error_rate = number(text)?,
        "status" => behaviour.error_status = number(text)?,
        "reset-rate" => behaviour.reset_rate = number(text)?,
        "max-streams" => {
            let limits = text.split(',').map(number).collect::<Result<_, _>>()?;
            behaviour.http2.get_or_insert_default().streams = limits;
        }
        "refuse-rate" => behaviour.http2.get_or_insert_default().refuse_rate = number(text)?,
        "seed" => behaviour.seed = number(text)?,
        // The rest are habits, which parse their own flags.
        _ => behaviour.habits.push(Habit::parse(name, text).map_err(|why| why.to_string())?),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use tare_model::servers::TargetSpec;

    #[test]
    fn every_flag_that_an_experiment_can_give_is_known() {
        let text = |text: &str| Some(text.to_owned());
        let spec = TargetSpec {
            body_bytes: Some(10),
            busy: text("1us"),
            defer: text("2us:3ms"),
            burst: text("100ms:6us"),
            pause_every: text("3s:200ms"),
            warm_for: text("2s:4us"),
            warm_requests: text("5000:4us"),
            idle_slow: text("10ms:20us"),
            period: text("20ms:5ms:10us"),
            leak: text("1us:10000"),
            launch_slow: text("1/15:6us"),
            first_request: text("1ms"),
            change_after: Some(5),
            odd_rate: Some(0.1),
            odd_connections: Some(0.1),
            delay: text("exp:5ms"),
            service_time: text("1ms"),
            turn: text("1ms"),
            sticky: true,
            workers: Some(2),
            stall: text("1ms"),
            every: text("1s"),
            close_after: Some(7),
            error_rate: Some(0.1),
            status: Some(500),
            reset_rate: Some(0.1),
            threads: Some(2),
            chunked: true,
            tls: false,
            http2: true,
            max_streams: text("100,2"),
            refuse_rate: Some(0.01),
            seed: Some(4),
        };
        let plan = plan(&spec.flags()).unwrap();
        assert_eq!(plan.behaviour.habits.len(), 10);
        assert_eq!(plan.behaviour.service.map(|service| service.workers), Some(2));
        assert_eq!(plan.behaviour.http2.unwrap().streams, [100, 2]);
        assert!(plan.behaviour.stall.is_some() && plan.behaviour.chunked);
        for bad in [&["--body"][..], &["body"], &["--no-such", "1"], &["--body", "x"]] {
            let flags: Vec<String> = bad.iter().map(|word| (*word).to_owned()).collect();
            assert!(super::plan(&flags).is_err(), "{bad:?}");
        }
    }
}
