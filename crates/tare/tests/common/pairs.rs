//! Stored runs to put side by side.

use serde_json::Value;

use crate::runs::Desk;
use crate::util::Ran;

/// A stored run: a plain server, and one that answers so late.
pub fn measure(desk: &Desk, service: &str, more: &[&str]) {
    let tare = env!("CARGO_BIN_EXE_tare");
    let launch = |name: &str, service: &str| {
        format!("--launch={name}=exec {tare} target --listen 127.0.0.1:{{port}} --delay {service}")
    };
    let (base, own) = (launch("base", "2ms"), launch("new", service));
    let flags = ["compare", &base, &own, "-q", "-c", "4", "--cycles", "2", "--slice", "20ms"];
    let flags = [&flags[..], &["--no-sustained"]].concat();
    let all: Vec<&str> = flags.iter().chain(more).copied().collect();
    desk.tare(&all).measured();
}

pub fn changes(ran: &Ran) -> Value {
    serde_json::from_str(&ran.stdout).unwrap()
}

pub fn throughput<'a>(pair: &'a Value, variant: &str) -> &'a Value {
    let mut all = pair["changes"].as_array().unwrap().iter();
    let found = all.find(|c| c["variant"] == variant && c["metric"] == "throughput_per_s");
    found.unwrap_or_else(|| panic!("no {variant} in {pair}"))
}
