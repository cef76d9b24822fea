//! Gets into a pod: waits until it runs, copies the agent in, and runs a program.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use serde_json::Value;
use tare_io::DurationNs;
use tare_io::owned::own_program;
use tare_io::time::monotonic_now;
use tare_kube::Kind;
use tare_model::plain;

use super::fate::{self, PodState};
use super::ground::ClusterNamespace;
use super::pod::AGENT;
use crate::machine::commands::{self, run_checked};
use crate::places::agent_file;
use tare_model::Failure;

/// Timeout for an agent's greeting once its pod runs.
pub const HELLO_WITHIN: DurationNs = DurationNs::from_secs(30);
const COPY_WITHIN: DurationNs = DurationNs::from_secs(60);
pub const LOOK: Duration = Duration::from_millis(150);

/// Copies the agent into a container that waits for it.
pub fn copy_agent(ground: &ClusterNamespace, pod: &str, container: &str) -> Result<(), Failure> {
    let agent = agent_file::find()?;
    let bytes = std::fs::metadata(&agent).map_err(|e| Failure::file("read", &agent, e))?.len();
    // Renamed only when complete, as the pod waits for that name.
    let there = format!(
        "umask 077; head -c {bytes} >{AGENT}.part && chmod 700 {AGENT}.part && mv {AGENT}.part {AGENT}"
    );
    let script = "exec \"$@\" <\"$0\"";
    let mut argv = vec!["sh".to_owned(), "-c".into(), script.into()];
    argv.push(agent.display().to_string());
    argv.extend(exec(ground, pod, container, true, &["/bin/sh", "-c", &there])?);
    let argv: Vec<&str> = argv.iter().map(String::as_str).collect();
    run_checked(&argv, COPY_WITHIN, "copy the agent into a pod").map(drop)
}

/// Returns the command line that runs a program in a pod and forwards its streams.
pub fn exec(
    ground: &ClusterNamespace,
    pod: &str,
    container: &str,
    ends_itself: bool,
    argv: &[&str],
) -> Result<Vec<String>, Failure> {
    let own = own_program().display().to_string();
    let mut all =
        [&own, "kubernetes", "exec", "--namespace", &ground.namespace].map(str::to_owned).to_vec();
    if let Some(context) = &ground.cluster.context {
        all.extend(["--context".to_owned(), context.clone()]);
    }
    all.extend(ends_itself.then(|| "--ends-itself".to_owned()));
    all.extend(["--pod", pod, "--container", container, "--"].map(str::to_owned));
    all.extend(argv.iter().map(|word| (*word).to_owned()));
    Ok(all)
}

/// Waits until a pod runs; fails as soon as it cannot.
pub fn wait(
    ground: &ClusterNamespace,
    name: &str,
    container: &str,
    within: DurationNs,
    stop: &AtomicBool,
) -> Result<Value, Failure> {
    let no = |why: String| {
        let why = plain::short(&why, WHY_CHARS_MAX);
        Err(Failure::environment(format!("pod {name} did not start: {why}")))
    };
    let limit = monotonic_now() + within;
    loop {
        let Some(pod) = ground.read(Kind::Pod, name)? else {
            return no("it was deleted".into());
        };
        let why = match fate::standing(&pod, container) {
            PodState::Runs => return Ok(pod),
            PodState::Ended(why) => return no(why),
            PodState::Waits(why) => why,
        };
        if stop.load(Ordering::Relaxed) || commands::is_stopped() {
            return no("interrupted".into());
        }
        if monotonic_now() > limit {
            let why = why.or_else(|| fate::last_warning(ground, name));
            let why = why.map_or(String::new(), |why| format!(": {why}"));
            return no(format!("it does not run after {within} (start_within){why}"));
        }
        std::thread::park_timeout(LOOK);
    }
}

const WHY_CHARS_MAX: usize = 600;
